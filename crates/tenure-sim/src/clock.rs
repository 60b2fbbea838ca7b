//! Clocks that run at their own rate.

use tenure_core::Time;

/// How far a clock's rate may be off true time, in parts per million. Two such clocks differ by
/// at most 1 % (C4).
pub const PPM_MAX: i64 = 4_970;

/// A clock that starts somewhere and runs a little fast or slow, but never steps. It may stand
/// still once, as the clock of a guest does whose host has paused it.
#[derive(Clone, Copy, Debug)]
pub struct SkewedClock {
    start_ns: u64,
    ppm: i64,
    stop: Option<Stop>,
}

/// When a clock stands still, in true time, and how long.
#[derive(Clone, Copy, Debug)]
struct Stop {
    at: u64,
    ns: u64,
}

impl SkewedClock {
    /// A clock that shows `start_ns` at true time zero.
    pub fn new(start_ns: u64, ppm: i64) -> SkewedClock {
        debug_assert!(ppm.abs() <= PPM_MAX);
        SkewedClock { start_ns, ppm, stop: None }
    }

    /// The same clock, which stands still from `at` on for so long.
    #[must_use]
    pub fn stopping(self, at: u64, ns: u64) -> SkewedClock {
        SkewedClock { stop: Some(Stop { at, ns }), ..self }
    }

    /// What it shows at the true time `t`.
    pub fn at(&self, t: u64) -> Time {
        let t = match self.stop {
            Some(Stop { at, ns }) if t > at => at.max(t.saturating_sub(ns)),
            _ => t,
        };
        let skew = i128::from(t) * i128::from(self.ppm) / 1_000_000;
        let shown = i128::from(self.start_ns) + i128::from(t) + skew;
        Time::from_nanos(u64::try_from(shown).unwrap_or(u64::MAX))
    }

    /// The first true time at which it shows at least `local`.
    pub fn when(&self, local: Time) -> u64 {
        if local == Time::MAX {
            return u64::MAX;
        }
        let run = i128::from(local.as_nanos().saturating_sub(self.start_ns));
        let about = run * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        let mut t = u64::try_from(about).unwrap_or(u64::MAX).saturating_sub(2);
        if let Some(Stop { at, ns }) = self.stop
            && t >= at
        {
            t = t.saturating_add(ns);
        }
        // It stands still, and then shows what it showed before: only just after that is later.
        if let Some(Stop { at, ns }) = self.stop
            && (at..at + ns).contains(&t)
            && self.at(t) < local
        {
            t = at + ns;
        }
        while self.at(t) < local {
            t += 1;
        }
        t
    }

    /// Whether it runs at the rate of true time.
    pub fn is_true(&self) -> bool {
        self.ppm == 0 && self.stop.is_none()
    }

    /// Whether it ever stands still.
    pub fn stops(&self) -> bool {
        self.stop.is_some()
    }

    /// What it shows at true time zero.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_first_instant_that_shows_it() {
        for ppm in [-PPM_MAX, -7, 0, 3, PPM_MAX] {
            let clock = SkewedClock::new(5_000, ppm);
            for local in [5_000, 5_001, 6_000, 1_234_567, 98_765_432_101] {
                let t = clock.when(Time::from_nanos(local));
                assert!(clock.at(t) >= Time::from_nanos(local));
                assert!(t == 0 || clock.at(t - 1) < Time::from_nanos(local), "{ppm} {local}");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_still_goes_on_where_it_stood() {
        for ppm in [-PPM_MAX, 0, PPM_MAX] {
            let plain = SkewedClock::new(5_000, ppm);
            let clock = plain.stopping(1_000_000, 70_000);
            assert_eq!(clock.at(1_000_000), plain.at(1_000_000));
            assert_eq!(clock.at(1_030_000), plain.at(1_000_000));
            assert_eq!(clock.at(1_080_000), plain.at(1_010_000));
            for t in (990_000..1_100_000).step_by(7) {
                let local = clock.at(t);
                let first = clock.when(local);
                assert_eq!(clock.at(first), local, "{ppm} {t}");
                assert!(first <= t && clock.at(first - 1) < local, "{ppm} {t}");
            }
        }
    }
}
