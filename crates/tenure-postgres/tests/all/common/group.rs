//! Whole candidates, with the driver of the crate `tenure`, and somebody who watches them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure::{Election, Tenure, Term};
use tenure_core::{Store, Time};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{now, real_wait};

/// How often the watcher looks.
const LOOK: Duration = Duration::from_millis(1);

/// Candidates of one election.
pub(crate) struct Group {
    pub(crate) members: Vec<Member>,
    reigns: Arc<Mutex<Vec<SeenReign>>>,
    over: Arc<AtomicBool>,
    watcher: JoinHandle<()>,
}

pub(crate) struct Member {
    pub(crate) election: Election,
    leads: JoinHandle<Result<Option<()>, tenure::Error>>,
}

/// Who led, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenReign {
    pub(crate) member: usize,
    pub(crate) term: Term,
    pub(crate) at: Time,
}

/// The reign of a member, for the one who watches that there are no two.
type CurrentReign = Arc<Mutex<Weak<Tenure>>>;

impl Group {
    /// Starts one candidate after the other; the first leads if it can.
    pub(crate) async fn start(stores: Vec<Arc<dyn Store>>, ttl: Duration) -> Group {
        let reigns: Arc<Mutex<Vec<SeenReign>>> = Arc::default();
        let (mut members, mut watched) = (Vec::new(), Vec::new());
        for (number, store) in stores.into_iter().enumerate() {
            let current: CurrentReign = Arc::default();
            let label = format!("member-{number}");
            let election = Election::builder("e", store).label(label).ttl(ttl).build().unwrap();
            election.start().await.unwrap();
            let leads = Handle::current().spawn(work(
                election.clone(),
                number,
                current.clone(),
                reigns.clone(),
            ));
            watched.push(current);
            members.push(Member { election, leads });
        }
        let over = Arc::new(AtomicBool::new(false));
        let watcher = Handle::current().spawn(watch(watched, over.clone()));
        Group { members, reigns, over, watcher }
    }

    /// Waits until somebody leads whose term is above this one.
    pub(crate) async fn leader_above(&self, term: u64, within: Duration) -> SeenReign {
        let started = now();
        loop {
            let last = self.reigns().last().copied();
            if let Some(last) = last.filter(|last| last.term.get() > term) {
                return last;
            }
            assert!((now() - started) < within, "nobody leads after {within:?}");
            real_wait(LOOK).await;
        }
    }

    /// Waits until exactly one of them leads, and tells which.
    pub(crate) async fn leads_within(&self, within: Duration) -> SeenReign {
        let started = now();
        loop {
            let leading = |reign: &SeenReign| {
                let term = self.members[reign.member].election.term();
                term == Some(reign.term)
            };
            if let Some(reign) = self.reigns().last().copied().filter(leading) {
                return reign;
            }
            assert!((now() - started) < within, "nobody leads after {within:?}");
            real_wait(LOOK).await;
        }
    }

    /// Who led so far, in order.
    pub(crate) fn reigns(&self) -> Vec<SeenReign> {
        self.reigns.lock().unwrap().clone()
    }

    /// How many lead at this instant.
    pub(crate) fn leading(&self) -> usize {
        self.members.iter().filter(|member| member.election.is_leader()).count()
    }

    /// Nobody crashed, no two trusted themselves at once, and terms only rose.
    pub(crate) async fn finish(self) {
        for member in &self.members {
            assert!(!member.leads.is_finished(), "a candidate has given up");
        }
        self.over.store(true, Ordering::Relaxed);
        self.watcher.await.unwrap();
        let terms: Vec<u64> =
            self.reigns.lock().unwrap().iter().map(|reign| reign.term.get()).collect();
        assert!(terms.is_sorted_by(|a, b| a < b), "I2: {terms:?}");
        for member in self.members {
            member.leads.abort();
        }
    }
}

async fn work(
    election: Election,
    member: usize,
    current: CurrentReign,
    reigns: Arc<Mutex<Vec<SeenReign>>>,
) -> Result<Option<()>, tenure::Error> {
    election
        .lead(|tenure| {
            let (current, reigns) = (current.clone(), reigns.clone());
            async move {
                *current.lock().unwrap() = Arc::downgrade(&tenure);
                reigns.lock().unwrap().push(SeenReign { member, term: tenure.term(), at: now() });
                // It goes on for as long as it is trusted, to give others a chance to collide.
                tenure.lost().await;
                tenure.ended().await;
            }
        })
        .await
}

/// Sees two that trust themselves at once: the first before the second and after it.
async fn watch(members: Vec<CurrentReign>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        for a in &members {
            for b in members.iter().filter(|b| !Arc::ptr_eq(a, b)) {
                let reign = |current: &CurrentReign| current.lock().unwrap().upgrade();
                let (Some(a), Some(b)) = (reign(a), reign(b)) else { continue };
                let both = a.is_current() && b.is_current() && a.is_current();
                assert!(!both, "I1: terms {} and {} at once", a.term(), b.term());
            }
        }
        real_wait(LOOK).await;
    }
}
