//! What is shown of the elections of one class: sums, and whichever is worst.
//!
//! A class may have ten thousand elections, and is shown after each renewal. So everything is kept
//! in order: showing it looks at the ends of trees, and at those elections that are in trouble.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tenure_core::{Term, Time};

/// For how long a change of hands is recent.
const RECENT: Duration = Duration::from_secs(600);
/// How many recent changes of hands of a class are remembered at most.
const CHANGES_MAX: usize = 1 << 16;

/// How one election stands.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    pub(super) takes_part: bool,
    pub(super) led: Option<Led>,
    /// Until when another is known to lead.
    pub(super) other_until: Option<Time>,
}

impl Part {
    fn counts(&self) -> bool {
        self.takes_part || self.led.is_some()
    }

    fn followed_until(&self) -> Option<Time> {
        self.other_until.filter(|_| self.takes_part)
    }
}

/// A reign that is on.
#[derive(Clone, Copy)]
pub(super) struct Led {
    pub(super) term: Term,
    pub(super) ttl: Duration,
    /// Trust ends then.
    pub(super) until: Time,
    /// It has not been renewed for too long from then on.
    pub(super) overdue_at: Time,
}

/// The elections of one class.
#[derive(Default)]
pub(super) struct Tally {
    elections: usize,
    terms: BTreeMap<Term, usize>,
    ttls: BTreeMap<Duration, usize>,
    trust: BTreeSet<(Time, u64)>,
    overdue: BTreeSet<(Time, u64)>,
    followed: BTreeSet<(Time, u64)>,
    changes: Changes,
}

/// What the recorder is told.
#[derive(Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) elections: usize,
    pub(super) led: usize,
    pub(super) leaderless: usize,
    pub(super) changes: u32,
    pub(super) overdue: usize,
    pub(super) term: u64,
    pub(super) trust: Duration,
    pub(super) ttl: Duration,
}

impl Tally {
    /// An election stands otherwise than before.
    pub(super) fn replace(&mut self, id: u64, before: &Part, after: &Part) {
        if let Some(led) = before.led {
            self.trust.remove(&(led.until, id));
            self.overdue.remove(&(led.overdue_at, id));
            one_less(&mut self.terms, &led.term);
            one_less(&mut self.ttls, &led.ttl);
        } else if let Some(until) = before.followed_until() {
            self.followed.remove(&(until, id));
        }
        if let Some(led) = after.led {
            self.trust.insert((led.until, id));
            self.overdue.insert((led.overdue_at, id));
            *self.terms.entry(led.term).or_default() += 1;
            *self.ttls.entry(led.ttl).or_default() += 1;
        } else if let Some(until) = after.followed_until() {
            self.followed.insert((until, id));
        }
        self.elections -= usize::from(before.counts());
        self.elections += usize::from(after.counts());
    }

    pub(super) fn changed_hands(&mut self, id: u64, now: Time) {
        self.changes.add(id, now);
    }

    /// This election is gone.
    pub(super) fn forget(&mut self, id: u64) {
        self.changes.forget(id);
    }

    pub(super) fn shown(&mut self, now: Time) -> Shown {
        let led = self.trust.len();
        let trust = self.trust.first().map(|(until, _)| *until - now);
        let run_out = passed(&self.followed, now);
        Shown {
            elections: self.elections,
            led,
            leaderless: self.elections - led - (self.followed.len() - run_out),
            changes: self.changes.most(now),
            overdue: passed(&self.overdue, now),
            term: self.terms.last_key_value().map_or(0, |(term, _)| term.get()),
            trust: trust.unwrap_or_default(),
            ttl: self.ttls.first_key_value().map(|(ttl, _)| *ttl).unwrap_or_default(),
        }
    }
}

/// How many of these instants have come.
fn passed(instants: &BTreeSet<(Time, u64)>, now: Time) -> usize {
    instants.range(..=(now, u64::MAX)).count()
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Which elections changed hands lately, and how often.
#[derive(Default)]
struct Changes {
    /// In the order of time. Those of elections that are gone stay until they are old.
    all: VecDeque<(Time, u64)>,
    of: HashMap<u64, u32>,
    by_count: BTreeSet<(u32, u64)>,
}

impl Changes {
    fn add(&mut self, id: u64, now: Time) {
        if self.all.len() >= CHANGES_MAX {
            self.drop_first();
        }
        self.all.push_back((now, id));
        self.count(id, |count| count + 1);
    }

    /// The most that one election has had.
    fn most(&mut self, now: Time) -> u32 {
        while self.all.front().is_some_and(|(at, _)| now - *at >= RECENT) {
            self.drop_first();
        }
        self.by_count.last().map_or(0, |(count, _)| *count)
    }

    fn drop_first(&mut self) {
        if let Some((_, id)) = self.all.pop_front()
            && self.of.contains_key(&id)
        {
            self.count(id, |count| count.saturating_sub(1));
        }
    }

    fn forget(&mut self, id: u64) {
        if self.of.contains_key(&id) {
            self.count(id, |_| 0);
        }
    }

    fn count(&mut self, id: u64, change: impl FnOnce(u32) -> u32) {
        let before = self.of.get(&id).copied().unwrap_or_default();
        let after = change(before);
        self.by_count.remove(&(before, id));
        if after == 0 {
            self.of.remove(&id);
        } else {
            self.of.insert(id, after);
            self.by_count.insert((after, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn follows(until: u64) -> Part {
        Part { takes_part: true, led: None, other_until: Some(at(until)) }
    }

    fn leads(term: u64, until: u64) -> Part {
        let (term, until) = (Term::new(term).unwrap(), at(until));
        let ttl = Duration::from_secs(30);
        let led = Led { term, ttl, until, overdue_at: until - ttl / 2 };
        Part { takes_part: true, led: Some(led), other_until: None }
    }

    #[test]
    fn one_election_without_a_leader_shows_among_many() {
        let mut tally = Tally::default();
        for id in 0..50 {
            tally.replace(id, &Part::default(), &follows(100));
        }
        tally.replace(50, &Part::default(), &leads(7, 90));
        assert_eq!((tally.shown(at(60)).elections, tally.shown(at(60)).leaderless), (51, 0));
        tally.replace(3, &follows(100), &follows(70));
        assert_eq!(tally.shown(at(80)).leaderless, 1, "what was known of it is old");
        tally.replace(3, &follows(70), &Part { other_until: None, ..follows(0) });
        assert_eq!(tally.shown(at(80)).leaderless, 1, "nobody leads it");
        let observed = Part { takes_part: false, ..follows(0) };
        tally.replace(3, &Part { other_until: None, ..follows(0) }, &observed);
        assert_eq!((tally.shown(at(80)).elections, tally.shown(at(80)).leaderless), (50, 0));
    }

    #[test]
    fn a_renewal_is_overdue_by_the_timing_of_its_own_election() {
        let mut tally = Tally::default();
        tally.replace(1, &Part::default(), &leads(7, 100));
        tally.replace(2, &Part::default(), &leads(9, 200));
        assert_eq!(tally.shown(at(84)).overdue, 0);
        assert_eq!(tally.shown(at(85)).overdue, 1);
        tally.replace(1, &leads(7, 100), &leads(7, 110));
        assert_eq!(tally.shown(at(85)).overdue, 0);
        tally.replace(2, &leads(9, 200), &Part::default());
        let shown = tally.shown(at(85));
        assert_eq!((shown.elections, shown.led, shown.term), (1, 1, 7));
    }

    #[test]
    fn the_election_that_changed_hands_most_often_counts_and_not_all_together() {
        let mut changes = Changes::default();
        for id in 0..40 {
            changes.add(id, at(10));
        }
        assert_eq!(changes.most(at(10)), 1, "forty that move once are no flapping");
        (11..14).for_each(|second| changes.add(7, at(second)));
        assert_eq!(changes.most(at(20)), 4);
        assert_eq!(changes.most(at(611)), 2, "what is ten minutes old is forgotten");
        changes.forget(7);
        assert_eq!(changes.most(at(611)), 0);
        assert_eq!(changes.most(at(700)), 0);
        assert!(changes.all.is_empty() && changes.of.is_empty() && changes.by_count.is_empty());
    }

    #[test]
    fn no_more_changes_are_remembered_than_there_is_room_for() {
        let mut changes = Changes::default();
        (0..CHANGES_MAX as u64 + 5).for_each(|number| changes.add(number % 2, at(1)));
        assert_eq!(changes.all.len(), CHANGES_MAX);
        assert_eq!(changes.most(at(1)), CHANGES_MAX as u32 / 2);
    }
}
