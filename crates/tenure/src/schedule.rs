//! What each election wants to be woken for, and when.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::Time;

/// What an election is woken for, with the number of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Its machine wants a tick.
    Tick(u64),
    /// It has waited long enough for its messages to be listened for.
    Listening(u64),
    /// It has waited long enough for work that does not end.
    Overrun(u64),
}

impl Timer {
    /// All timers of a slot.
    pub(crate) fn all_of(id: u64) -> [Timer; 3] {
        [Timer::Tick(id), Timer::Listening(id), Timer::Overrun(id)]
    }
}

/// Windows of wake-ups, one per timer. Sleeps until the first *chosen* instant, then wakes every
/// timer whose window has opened, so that many elections share one call to the store.
#[derive(Default)]
pub(crate) struct Schedule {
    windows: BTreeMap<Timer, (Time, Time)>,
    by_opening: BTreeSet<(Time, Timer)>,
    by_choice: BTreeSet<(Time, Timer)>,
}

impl Schedule {
    /// Replaces the window of `timer`: not before `opens`, at `choice` if nothing else comes.
    pub(crate) fn set(&mut self, timer: Timer, opens: Time, choice: Time) {
        self.clear(timer);
        self.windows.insert(timer, (opens, choice));
        self.by_opening.insert((opens, timer));
        self.by_choice.insert((choice, timer));
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some((opens, choice)) = self.windows.remove(&timer) {
            self.by_opening.remove(&(opens, timer));
            self.by_choice.remove(&(choice, timer));
        }
    }

    /// When to look next.
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_choice.first().map(|(choice, _)| *choice)
    }

    /// If somebody's chosen instant has come: all whose windows are open, taken off.
    pub(crate) fn due(&mut self, now: Time) -> Vec<Timer> {
        if self.next().is_none_or(|next| next > now) {
            return Vec::new();
        }
        let open = self.by_opening.iter().take_while(|(opens, _)| *opens <= now);
        let timers: Vec<Timer> = open.map(|(_, timer)| *timer).collect();
        for timer in &timers {
            self.clear(*timer);
        }
        timers
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
        schedule.set(Timer::Tick(1), at(10), at(20));
        schedule.set(Timer::Overrun(1), at(15), at(30));
        schedule.set(Timer::Tick(3), at(25), at(40));
        assert_eq!(schedule.next(), Some(at(20)));
        assert!(schedule.due(at(19)).is_empty(), "nobody's choice has come");
        assert_eq!(schedule.due(at(20)), [Timer::Tick(1), Timer::Overrun(1)]);
        assert_eq!(schedule.next(), Some(at(40)));
    }

    #[test]
    fn a_new_window_replaces_the_old_one() {
        let mut schedule = Schedule::default();
        schedule.set(Timer::Tick(1), at(10), at(20));
        schedule.set(Timer::Tick(1), at(50), at(60));
        schedule.set(Timer::Listening(1), at(50), at(60));
        assert!(schedule.due(at(30)).is_empty());
        schedule.clear(Timer::Tick(1));
        assert_eq!(schedule.next(), Some(at(60)), "the other timer of the same slot stays");
        schedule.clear(Timer::Listening(1));
        assert_eq!(schedule.next(), None);
    }
}
