//! What is counted of elections, through the facade of the crate `metrics`.
//!
//! The program installs the recorder; without one, counting costs a few loads. Nothing here runs on
//! the way of `is_leader()`. The driver counts in numbers of our own; the recorder, which is user
//! code, is told by the thread of `telemetry`, or by a scrape, and never by the driver (L2).
//! Elections are grouped by class, the leading colon segment of their names, so that ten thousand
//! names do not make ten thousand series.

mod tally;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::Duration;

use metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use tenure_core::sync::lock;
use tenure_core::{Holder, Name, Op, Outcome, Sight, Term, Time, Timing};

use self::tally::{Part, Tally};
use crate::clock::AnyClock;
use crate::shared::Shared;
use crate::telemetry::Telemetry;

const ACQUIRED: &str = "leader_acquired_total";
const LOST: &str = "leader_lost_total";
const RENEWALS: &str = "leader_renewals_total";
const FAILURES: &str = "leader_renewal_failures_total";
const ELECTIONS: &str = "leader_elections";
const IS_LEADER: &str = "leader_is_leader";
const LEADERLESS: &str = "leader_leaderless";
const CHANGES: &str = "leader_changes_recent";
const OVERDUE: &str = "leader_renewals_overdue";
const TERM: &str = "leader_term";
const TRUST: &str = "leader_trust_seconds";
const TTL: &str = "leader_ttl_seconds";
const RENEWAL_SECONDS: &str = "leader_renewal_duration_seconds";
const GAP_SECONDS: &str = "leader_gap_seconds";

/// How many classes there are at most; the elections of all others are in the class `other`.
const CLASSES_MAX: usize = 100;
const OTHER: &str = "other";
/// How many durations wait to be recorded; more are left out.
const SAMPLES_MAX: usize = 4096;

/// Tells the recorder what each metric means. Call it once, after the recorder is installed.
///
/// # Examples
/// ```
/// // After installing a recorder, such as that of metrics-exporter-prometheus:
/// tenure::describe_metrics();
/// ```
pub fn describe_metrics() {
    describe_counter!(ACQUIRED, "Reigns that began here.");
    describe_counter!(LOST, "Reigns that ended here, for whatever reason.");
    describe_counter!(RENEWALS, "Renewals that the store granted.");
    describe_counter!(FAILURES, "Renewals that were refused, failed, or were withheld.");
    describe_gauge!(ELECTIONS, "How many elections of the class this process takes part in.");
    describe_gauge!(IS_LEADER, "How many elections of the class are led here.");
    describe_gauge!(
        LEADERLESS,
        "How many elections of the class this process takes part in and knows of no leader."
    );
    describe_gauge!(
        CHANGES,
        "How often one election of the class changed hands in the last ten minutes, as seen here; \
         of all of them, the one that did so most often."
    );
    describe_gauge!(
        OVERDUE,
        "How many elections of the class are led here and will be lost soon, because their \
         renewal is overdue."
    );
    describe_gauge!(TERM, "The highest term of the class that is led here; 0 if none is.");
    describe_gauge!(
        TRUST,
        Unit::Seconds,
        "How long the shortest trust of the class lasts without a renewal; 0 if none is led here."
    );
    describe_gauge!(
        TTL,
        Unit::Seconds,
        "The shortest ttl of the elections of the class that are led here; 0 if none is."
    );
    describe_histogram!(RENEWAL_SECONDS, Unit::Seconds, "From sending a renewal to its answer.");
    describe_histogram!(
        GAP_SECONDS,
        Unit::Seconds,
        "From the end of the lease before, as seen here, to the beginning of a reign here."
    );
    crate::channels::describe_metrics();
}

/// The labels of all that is counted of an election.
pub(crate) fn labels_of(shared: &Shared) -> Vec<Label> {
    let per_election = shared.per_election_metrics.then(|| shared.election.clone());
    registry().group(shared, per_election).labels()
}

/// Brings the gauges up to date that change as time passes. Call it before the metrics are read,
/// on a scrape for example; tenure does so for a class soon after something happened there.
///
/// # Examples
/// ```
/// tenure::refresh_metrics(); // and then render what the recorder holds
/// ```
pub fn refresh_metrics() {
    let groups: Vec<Arc<Group>> = registry().groups.values().filter_map(Weak::upgrade).collect();
    for group in groups {
        group.publish();
    }
}

/// Counts for one election.
pub(crate) struct Meter {
    group: Arc<Group>,
    telemetry: Telemetry,
    id: u64,
    timing: Timing,
    /// As the group knows it.
    part: Part,
    me: Holder,
    /// The reign that was seen last, here or elsewhere.
    reign: Option<Holding>,
    /// Whether the answer that is waited for will be about a renewal.
    sent: Option<bool>,
    before: Before,
}

/// Who holds the lease, or held it, and under which term.
struct Holding {
    holder: Holder,
    term: Option<Term>,
}

impl Holding {
    fn is(&self, other: &Holding) -> bool {
        match (self.term, other.term) {
            (Some(term), Some(other)) => term == other,
            _ => self.holder == other.holder,
        }
    }
}

/// What was seen of the lease before the one that is led next.
#[derive(Default)]
struct Before {
    /// It runs out then.
    held_until: Option<Time>,
    /// It was tried to be taken then, for the first time since it was last seen.
    tried_at: Option<Time>,
    /// It was over by then.
    over_at: Option<Time>,
}

impl Meter {
    pub(crate) fn new(shared: &Shared, telemetry: Telemetry) -> Meter {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let per_election = shared.per_election_metrics.then(|| shared.election.clone());
        let group = registry().group(shared, per_election);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let meter = Meter {
            group,
            telemetry,
            id,
            timing: shared.timing,
            part: Part::default(),
            me: Holder::from(&shared.candidate),
            reign: None,
            sent: None,
            before: Before::default(),
        };
        // So that all counters are there before there is anything to count: one that begins as 1
        // has not risen, as Prometheus sees it.
        meter.telemetry.counts(&meter.group);
        meter
    }

    /// Whether somebody wants to lead, from now on.
    pub(crate) fn takes_part(&mut self, takes_part: bool) {
        if takes_part != self.part.takes_part {
            self.change(|part| part.takes_part = takes_part);
        }
    }

    /// An attempt begins.
    pub(crate) fn sent(&mut self, now: Time, op: &Op, shared: &Arc<Shared>) {
        let renewal = matches!(op, Op::Renew { .. });
        if matches!(op, Op::Acquire { .. }) {
            self.before.tried_at.get_or_insert(now);
        }
        self.telemetry.sent(self.id, op.verb(), shared, self.part.led.map(|led| led.term));
        self.sent = Some(renewal);
    }

    /// The answer to what was sent, or silence turned into one.
    pub(crate) fn replied(&mut self, now: Time, sent_at: Time, outcome: &Outcome) {
        let Some(renewal) = self.sent.take() else { return };
        let (word, term) = match outcome {
            Outcome::Granted(grant) => ("granted", Some(grant.term)),
            Outcome::Refused(_) => ("refused", None),
            Outcome::Seen(_) => ("seen", None),
            Outcome::Unknown => ("unknown", None),
        };
        self.telemetry.replied(self.id, word, term);
        if let Outcome::Refused(sight) | Outcome::Seen(sight) = outcome {
            self.before.see(now, sight);
            self.see(now, sight);
        }
        if renewal {
            self.group.sample(RENEWAL_SECONDS, now - sent_at);
            match outcome {
                Outcome::Granted(_) => self.count(Counted::Renewal),
                _ => self.renewal_failed(),
            }
        }
    }

    /// A renewal failed, or was not even sent.
    pub(crate) fn renewal_failed(&self) {
        self.count(Counted::Failure);
    }

    pub(crate) fn led(&mut self, now: Time, term: Term, until: Time) {
        if let Some(over_at) = self.before.ended_at() {
            self.group.sample(GAP_SECONDS, now - over_at);
        }
        self.before = Before::default();
        let led = self.led_until(term, until);
        self.change(|part| (part.led, part.other_until) = (Some(led), None));
        self.sees(now, Holding { holder: self.me.clone(), term: Some(term) });
        self.count(Counted::Acquired);
    }

    pub(crate) fn extended(&mut self, until: Time) {
        let Some(led) = self.part.led else { return };
        let led = self.led_until(led.term, until);
        self.change(|part| part.led = Some(led));
    }

    pub(crate) fn stepped_down(&mut self, now: Time) {
        if self.part.led.is_some() {
            self.change(|part| part.led = None);
            self.before = Before { over_at: Some(now), ..Before::default() };
            self.count(Counted::Lost);
        }
    }

    /// What the store tells of others.
    fn see(&mut self, now: Time, sight: &Sight) {
        let other_until = sight.lease.as_ref().map(|lease| {
            // An answer about the next leader may take that long.
            now + lease.remaining + self.timing.renew_every
        });
        if other_until != self.part.other_until {
            self.change(|part| part.other_until = other_until);
        }
        if let Some(lease) = &sight.lease {
            self.sees(now, Holding { holder: lease.holder.clone(), term: lease.term });
        }
    }

    fn sees(&mut self, now: Time, reign: Holding) {
        // The leader whom this process sees first is no change.
        if self.reign.as_ref().is_some_and(|known| !known.is(&reign)) {
            self.group.change(|tally| tally.changed_hands(self.id, now));
        }
        self.reign = Some(reign);
    }

    fn led_until(&self, term: Term, until: Time) -> tally::Led {
        let Timing { ttl, renew_every, margin, drain, .. } = self.timing;
        // Between the renewal that was due and the step-down, a quarter of the time is over.
        let spare = ttl.saturating_sub(margin + renew_every + drain);
        tally::Led { term, ttl, until, overdue_at: until - (drain + spare * 3 / 4) }
    }

    fn count(&self, what: Counted) {
        self.group.counted[what as usize].fetch_add(1, Ordering::AcqRel);
        self.telemetry.counts(&self.group);
    }

    fn change(&mut self, change: impl FnOnce(&mut Part)) {
        let mut part = self.part;
        change(&mut part);
        self.group.change(|tally| tally.replace(self.id, &self.part, &part));
        self.part = part;
        self.telemetry.counts(&self.group);
    }
}

/// What is counted, in the order of [`COUNTERS`].
#[derive(Clone, Copy)]
enum Counted {
    Acquired,
    Lost,
    Renewal,
    Failure,
}

const COUNTERS: [&str; 4] = [ACQUIRED, LOST, RENEWALS, FAILURES];

impl Drop for Meter {
    fn drop(&mut self) {
        self.change(|part| *part = Part::default());
        self.group.change(|tally| tally.forget(self.id));
    }
}

impl Before {
    fn see(&mut self, now: Time, sight: &Sight) {
        match &sight.lease {
            Some(lease) => {
                *self = Before { held_until: Some(now + lease.remaining), ..Before::default() };
            }
            None => self.over_at = self.ended_at().map(|over_at| over_at.min(now)),
        }
    }

    /// When the lease before was over, if there was one: told, run out, or found to be so.
    fn ended_at(&self) -> Option<Time> {
        let held = self.held_until.map(|until| self.tried_at.map_or(until, |at| until.min(at)));
        self.over_at.or(held)
    }
}

/// The elections of one class in this process, or one election that is counted by itself.
pub(crate) struct Group {
    class: SharedString,
    election: Option<SharedString>,
    clock: AnyClock,
    // A std mutex: it is held while a tree is changed or read, never while the recorder is told.
    tally: Mutex<Tally>,
    /// What the recorder has not been told.
    counted: [AtomicU64; COUNTERS.len()],
    // A std mutex, held as briefly.
    samples: Mutex<Vec<(&'static str, Duration)>>,
    // Held while the recorder is told, so that two who tell it do not do so in the wrong order.
    // The driver never takes it.
    publishing: Mutex<()>,
    /// It is known already that there is something to tell.
    queued: AtomicBool,
}

impl Group {
    fn labels(&self) -> Vec<Label> {
        let mut labels = vec![Label::new("key_class", self.class.clone())];
        if let Some(election) = &self.election {
            labels.push(Label::new("election", election.clone()));
        }
        labels
    }

    fn change(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut lock(&self.tally));
    }

    fn sample(&self, name: &'static str, took: Duration) {
        let mut samples = lock(&self.samples);
        if samples.len() < SAMPLES_MAX {
            samples.push((name, took));
        }
    }

    /// Whether nobody knows yet that there is something to tell.
    pub(crate) fn is_news(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// Nobody was told after all.
    pub(crate) fn is_old_news(&self) {
        self.queued.store(false, Ordering::Release);
    }

    /// Tells the recorder. Never called by the driver.
    pub(crate) fn publish(&self) {
        let _one_at_a_time = lock(&self.publishing);
        self.queued.store(false, Ordering::Release);
        for (name, count) in COUNTERS.iter().zip(&self.counted) {
            // Also if it is nothing: that is known from then on, too.
            counter!(*name, self.labels()).increment(count.swap(0, Ordering::AcqRel));
        }
        let samples = std::mem::take(&mut *lock(&self.samples));
        for (name, took) in samples {
            histogram!(name, self.labels()).record(took.as_secs_f64());
        }
        let shown = lock(&self.tally).shown(self.clock.now());
        for (name, value) in [
            (ELECTIONS, shown.elections as f64),
            (IS_LEADER, shown.led as f64),
            (LEADERLESS, shown.leaderless as f64),
            (CHANGES, shown.changes as f64),
            (OVERDUE, shown.overdue as f64),
            (TERM, shown.term as f64),
            (TRUST, shown.trust.as_secs_f64()),
            (TTL, shown.ttl.as_secs_f64()),
        ] {
            gauge!(name, self.labels()).set(value);
        }
    }
}

/// The groups of this process: the recorder is one for all of it, too.
#[derive(Default)]
struct Registry {
    classes: HashSet<Arc<str>>,
    groups: HashMap<(u64, Arc<str>, Option<Name>), Weak<Group>>,
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    lock(&REGISTRY)
}

impl Registry {
    fn group(&mut self, shared: &Shared, election: Option<Name>) -> Arc<Group> {
        let class = self.class(&shared.election);
        let key = (shared.process, class.clone(), election.clone());
        if let Some(group) = self.groups.get(&key).and_then(Weak::upgrade) {
            return group;
        }
        self.groups.retain(|_, group| group.strong_count() > 0);
        let group = Arc::new(Group {
            class: SharedString::from(class),
            election: election.map(|name| SharedString::from(name.as_str().to_owned())),
            clock: shared.clock.clone(),
            tally: Mutex::default(),
            counted: Default::default(),
            samples: Mutex::default(),
            publishing: Mutex::default(),
            queued: AtomicBool::new(false),
        });
        self.groups.insert(key, Arc::downgrade(&group));
        group
    }

    fn class(&mut self, name: &Name) -> Arc<str> {
        let class = name.as_str().split(':').next().unwrap_or_default();
        if let Some(class) = self.classes.get(class) {
            return class.clone();
        }
        if class.is_empty() || self.classes.len() >= CLASSES_MAX {
            return OTHER.into();
        }
        let class: Arc<str> = class.into();
        self.classes.insert(class.clone());
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(registry: &mut Registry, name: &str) -> String {
        registry.class(&Name::new(name).unwrap()).as_ref().to_owned()
    }

    #[test]
    fn a_class_is_the_leading_colon_segment_and_past_a_hundred_it_is_other() {
        let mut registry = Registry::default();
        assert_eq!(class(&mut registry, "billing:invoices:eu"), "billing");
        assert_eq!(class(&mut registry, "cron"), "cron");
        assert_eq!(class(&mut registry, ":odd"), "other");
        for number in 2..CLASSES_MAX {
            assert_eq!(class(&mut registry, &format!("c{number}:x")), format!("c{number}"));
        }
        assert_eq!(class(&mut registry, "one-too-many:x"), "other");
        assert_eq!(class(&mut registry, "billing:again"), "billing", "those known stay");
    }

    #[test]
    fn a_gap_begins_when_the_lease_before_was_over() {
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        let held = |seconds| {
            let holder = tenure_core::Holder::new("other");
            let remaining = Duration::from_secs(seconds);
            let lease = tenure_core::Lease {
                holder,
                term: None,
                remaining,
                ttl: None,
                since_unix_ms: None,
                metadata: None,
            };
            Sight { lease: Some(lease), ..Sight::default() }
        };
        let nobody = Before::default();
        assert_eq!(nobody.ended_at(), None, "there was no lease before");
        let mut before = Before::default();
        before.see(at(10), &held(30));
        before.see(at(35), &held(30));
        assert_eq!(before.ended_at(), Some(at(65)), "it runs out");
        before.tried_at = Some(at(50));
        assert_eq!(before.ended_at(), Some(at(50)), "a hint woke us");
        before.see(at(55), &Sight::default());
        assert_eq!(before.ended_at(), Some(at(50)), "and it was so");
        before.see(at(60), &held(30));
        assert_eq!(before.ended_at(), Some(at(90)), "somebody else was faster");
    }
}
