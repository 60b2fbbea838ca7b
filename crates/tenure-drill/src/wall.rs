//! Wall time, for people to read. Nothing is decided by it.

use jiff::Timestamp;
use tenure_core::{Clock, Time};

/// What the wall clock showed at one instant of the local clock. Other instants are shown by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallTime {
    at: Time,
    shown: Timestamp,
}

impl WallTime {
    /// Reads both clocks.
    pub fn now(clock: &dyn Clock) -> WallTime {
        WallTime { at: clock.now(), shown: now() }
    }

    /// When an instant was, or will be, by the wall clock.
    pub(crate) fn of(self, instant: Time) -> Timestamp {
        let moved = match self.at >= instant {
            true => self.shown.checked_sub(self.at - instant),
            false => self.shown.checked_add(instant - self.at),
        };
        moved.unwrap_or(self.shown)
    }

    /// An instant as JSON has it: RFC 3339, UTC, to the microsecond.
    pub(crate) fn rfc3339(self, instant: Time) -> String {
        format!("{:.6}", self.of(instant))
    }
}

/// The one place that reads the wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn instants_are_shown_in_utc_with_microseconds() {
        let shown = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        let at = Time::ZERO + Duration::from_secs(10);
        let wall = WallTime { at, shown };
        assert_eq!(wall.rfc3339(at), "2023-11-14T22:13:20.123000Z");
        assert_eq!(wall.rfc3339(at + Duration::from_secs(1)), "2023-11-14T22:13:21.123000Z");
        assert_eq!(wall.rfc3339(Time::ZERO), "2023-11-14T22:13:10.123000Z");
    }
}
