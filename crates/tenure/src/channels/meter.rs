//! What is counted of messages, through the facade of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use metrics::{Label, counter, describe_counter, describe_gauge, gauge};
use tenure_core::sync::lock;

use crate::metrics::labels_of;
use crate::shared::Shared;

const HANDLED: &str = "leader_messages_handled_total";
const FAILED: &str = "leader_messages_failed_total";
const DROPPED: &str = "leader_messages_dropped_total";
const WAITING: &str = "leader_messages_waiting";
const DEAD: &str = "leader_messages_dead";

/// Tells the recorder what each of them means.
pub(crate) fn describe() {
    describe_counter!(HANDLED, "Messages that were handled here; posts were acknowledged too.");
    describe_counter!(FAILED, "Messages whose handler failed or panicked, each delivery.");
    describe_counter!(DROPPED, "Notices that no handler saw: not JSON, or too many at once.");
    describe_gauge!(WAITING, "Posts that wait for elections of the class that are led here.");
    describe_gauge!(DEAD, "Dead letters of elections of the class that are led here.");
}

/// Counts the messages of one election.
pub(crate) struct MailMeter {
    labels: Vec<Label>,
    id: u64,
}

/// What waits and what is dead.
type Backlog = (u64, u64);

/// By labels, and then by election: those of one class are shown as one sum.
type Backlogs = BTreeMap<Vec<Label>, BTreeMap<u64, Backlog>>;

impl MailMeter {
    pub(crate) fn new(shared: &Shared) -> MailMeter {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        MailMeter { labels: labels_of(shared), id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) fn handled(&self) {
        counter!(HANDLED, self.labels.clone()).increment(1);
    }

    pub(crate) fn failed(&self) {
        counter!(FAILED, self.labels.clone()).increment(1);
    }

    pub(crate) fn dropped(&self) {
        counter!(DROPPED, self.labels.clone()).increment(1);
    }

    /// Shows the backlog of this election; `None` once it is not led here any more.
    pub(crate) fn backlog(&self, backlog: Option<Backlog>) {
        static ALL: LazyLock<Mutex<Backlogs>> = LazyLock::new(Mutex::default);
        // Shown under the lock, so that two elections do not show their sums in the wrong order.
        let mut all = lock(&ALL);
        let class = all.entry(self.labels.clone()).or_default();
        match backlog {
            Some(backlog) => class.insert(self.id, backlog),
            None => class.remove(&self.id),
        };
        let (waiting, dead) =
            class.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        gauge!(WAITING, self.labels.clone()).set(waiting as f64);
        gauge!(DEAD, self.labels.clone()).set(dead as f64);
    }
}
