//! Wall time, for people to read. Nothing is decided by it.

use jiff::Timestamp;
use tenure::Time;

/// When an instant of a local clock was, by the wall clock; `now` is the present on that clock.
pub(crate) fn at(instant: Time, now: Time) -> Timestamp {
    let wall = Timestamp::now();
    let moved = match now >= instant {
        true => wall.checked_sub(now - instant),
        false => wall.checked_add(instant - now),
    };
    moved.unwrap_or(wall)
}

/// What stores keep for people: milliseconds of Unix time.
pub(crate) fn from_unix_ms(millis: u64) -> Option<Timestamp> {
    i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok())
}

/// RFC 3339, UTC, to the millisecond.
pub(crate) fn text(at: Timestamp) -> String {
    format!("{at:.3}")
}
