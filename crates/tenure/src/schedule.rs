//! When which election wants to be woken.

use std::collections::{BTreeSet, HashMap};

use tenure_core::Time;

/// Windows of wake-ups, one per key. Sleeps until the first *chosen* instant, then wakes every key
/// whose window has opened, so that many elections share one call to the store.
#[derive(Default)]
pub(crate) struct Schedule {
    windows: HashMap<u64, (Time, Time)>,
    by_opening: BTreeSet<(Time, u64)>,
    by_choice: BTreeSet<(Time, u64)>,
}

impl Schedule {
    /// Replaces the window of `key`: not before `opens`, at `choice` if nothing else comes.
    pub(crate) fn set(&mut self, key: u64, opens: Time, choice: Time) {
        self.clear(key);
        self.windows.insert(key, (opens, choice));
        self.by_opening.insert((opens, key));
        self.by_choice.insert((choice, key));
    }

    pub(crate) fn clear(&mut self, key: u64) {
        if let Some((opens, choice)) = self.windows.remove(&key) {
            self.by_opening.remove(&(opens, key));
            self.by_choice.remove(&(choice, key));
        }
    }

    /// When to look next.
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_choice.first().map(|(choice, _)| *choice)
    }

    /// If somebody's chosen instant has come: all whose windows are open, taken off.
    pub(crate) fn due(&mut self, now: Time) -> Vec<u64> {
        if self.next().is_none_or(|next| next > now) {
            return Vec::new();
        }
        let keys: Vec<u64> =
            self.by_opening.range(..=(now, u64::MAX)).map(|(_, key)| *key).collect();
        for key in &keys {
            self.clear(*key);
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn windows_that_are_open_share_the_wake_up_of_the_first_choice() {
        let mut schedule = Schedule::default();
        schedule.set(1, at(10), at(20));
        schedule.set(2, at(15), at(30));
        schedule.set(3, at(25), at(40));
        assert_eq!(schedule.next(), Some(at(20)));
        assert!(schedule.due(at(19)).is_empty(), "nobody's choice has come");
        assert_eq!(schedule.due(at(20)), [1, 2]);
        assert_eq!(schedule.next(), Some(at(40)));
    }

    #[test]
    fn a_new_window_replaces_the_old_one() {
        let mut schedule = Schedule::default();
        schedule.set(1, at(10), at(20));
        schedule.set(1, at(50), at(60));
        assert!(schedule.due(at(30)).is_empty());
        schedule.clear(1);
        assert_eq!(schedule.next(), None);
    }
}
