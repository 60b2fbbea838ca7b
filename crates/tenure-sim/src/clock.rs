//! Clocks that run at their own rate.

use tenure_core::Time;

/// How far a clock's rate may be off true time, in parts per million. Two such clocks differ by
/// at most 1 % (C4).
pub const PPM_MAX: i64 = 4_970;

/// A clock that starts somewhere and runs a little fast or slow, but never steps.
#[derive(Clone, Copy, Debug)]
pub struct SkewedClock {
    start_ns: u64,
    ppm: i64,
}

impl SkewedClock {
    /// A clock that shows `start_ns` at true time zero.
    pub fn new(start_ns: u64, ppm: i64) -> SkewedClock {
        debug_assert!(ppm.abs() <= PPM_MAX);
        SkewedClock { start_ns, ppm }
    }

    /// What it shows at the true time `t`.
    pub fn at(&self, t: u64) -> Time {
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
        while self.at(t) < local {
            t += 1;
        }
        t
    }

    /// Whether it runs at the rate of true time.
    pub fn is_true(&self) -> bool {
        self.ppm == 0
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
}
