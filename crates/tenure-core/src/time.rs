//! A point on one process's own clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds on a local axis that never steps and counts suspend.
///
/// Two processes never compare their `Time`s: a `Time` only means something to the clock that
/// made it. On Linux the clock is `CLOCK_BOOTTIME`. Arithmetic saturates, because an instant
/// beyond the end of the axis is as good as never.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_core::Time;
///
/// let sent = Time::from_nanos(5_000_000_000);
/// let ends = sent + Duration::from_secs(3);
/// assert_eq!(ends - sent, Duration::from_secs(3));
/// assert_eq!(sent - ends, Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The start of the axis.
    pub const ZERO: Time = Time(0);
    /// The end of the axis: an instant that never comes.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanos` after the start of the axis.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the start of the axis.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(span)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;

    /// How long after `earlier` this instant is; zero if it is not after it.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_nanos(1), Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_nanos(1), Time::ZERO);
        assert_eq!(Time::ZERO + Duration::MAX, Time::MAX);
        assert_eq!(Time::ZERO - Time::MAX, Duration::ZERO);
    }
}
