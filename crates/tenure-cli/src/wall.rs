//! Wall time, for people to read. Nothing is decided by it.

use jiff::Timestamp;
use tenure::{BootClock, Time};

/// When an instant of the local clock was, or will be, by the wall clock.
pub(crate) fn at(instant: Time) -> Timestamp {
    let (now, boot) = (now(), BootClock::time());
    let moved = match boot >= instant {
        true => now.checked_sub(boot - instant),
        false => now.checked_add(instant - boot),
    };
    moved.unwrap_or(now)
}

/// An instant as JSON has it: RFC 3339, UTC, to the microsecond.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// What stores keep for people: milliseconds of Unix time.
pub(crate) fn from_unix_ms(millis: u64) -> Option<Timestamp> {
    i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok())
}

/// The one place that reads the wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        let at = from_unix_ms(1_700_000_000_123).expect("in range");
        assert_eq!(rfc3339(at), "2023-11-14T22:13:20.123000Z");
        assert_eq!(from_unix_ms(u64::MAX), None);
    }

    #[test]
    fn an_instant_that_has_just_been_is_close_to_now() {
        let (before, at) = (now(), at(BootClock::time()));
        assert!(at.duration_since(before).abs().as_secs() < 60);
    }
}
