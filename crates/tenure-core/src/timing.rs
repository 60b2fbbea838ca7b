//! How long a lease lasts, and the instants that follow from it.

use std::time::Duration;

use crate::{Error, Time, show_duration};

/// The durations of a lease.
///
/// With `s`, the instant at which the last *granted* acquire or renew was sent:
///
/// ```text
/// s          s + renew_every        step down          trust ends         expiry
/// |----------------|------------------|------------------|------------------|
///                                     |<---- drain ----->|<---- margin ---->|
/// |<------------------------------- ttl ----------------------------------->|
/// ```
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_core::Timing;
///
/// let timing = Timing::new(Duration::from_secs(30));
/// assert_eq!(timing.renew_every, Duration::from_secs(10));
/// assert_eq!(timing.margin, Duration::from_millis(1500));
/// assert_eq!(timing.drain, Duration::from_secs(5));
/// timing.check()?;
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a lease lasts without being renewed, from the instant a renewal is sent.
    pub ttl: Duration,
    /// How long after a granted renewal was sent the next one is.
    pub renew_every: Duration,
    /// How long before the lease expires its holder stops trusting it. It pays for clocks that
    /// run at different rates and for a store whose clock steps a little.
    pub margin: Duration,
    /// How long before trust ends work is told to stop, and how long a resigning leader may
    /// take to wind up.
    pub drain: Duration,
}

/// The stated bound on how much faster one clock may run than another: one part in this many.
pub(crate) const CLOCK_RATE_BOUND: u32 = 100;

const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
const RENEW_MIN: Duration = Duration::from_millis(1);

impl Timing {
    /// The names that [`Timing::profile`] knows.
    pub const PROFILES: [&'static str; 3] = ["fast", "normal", "unreliable-network"];

    /// A ttl with everything else at its default: `renew_every` ttl/3, `margin` ttl/20 (5 ms
    /// to 2 s, but never under the clock-rate bound of ttl/100), `drain` ttl/6.
    pub fn new(ttl: Duration) -> Timing {
        Timing { ttl, renew_every: ttl / 3, margin: default_margin(ttl), drain: ttl / 6 }
    }

    /// The profile of this name: `fast` 15 s/5 s, `normal` 30 s/10 s, `unreliable-network`
    /// 90 s/30 s.
    ///
    /// # Errors
    /// `Config`, listing the names there are.
    pub fn profile(name: &str) -> Result<Timing, Error> {
        let ttl_s = match name {
            "fast" => 15,
            "normal" => 30,
            "unreliable-network" => 90,
            _ => {
                return Err(Error::config(format!(
                    "there is no profile {name:?}; choose one of {}",
                    Timing::PROFILES.join(", ")
                )));
            }
        };
        Ok(Timing::new(Duration::from_secs(ttl_s)))
    }

    /// Refuses timings that cannot work, naming the two numbers that do not fit.
    ///
    /// # Errors
    /// `Config`, one sentence for the first rule that is broken.
    pub fn check(&self) -> Result<(), Error> {
        for (what, value) in [
            ("ttl", self.ttl),
            ("renew_every", self.renew_every),
            ("margin", self.margin),
            ("drain", self.drain),
        ] {
            if value.is_zero() {
                return Err(Error::config(format!("{what} is 0s; it must be longer than that")));
            }
        }
        at_most("ttl", self.ttl, "the longest that makes sense", TTL_MAX)?;
        at_least("renew_every", self.renew_every, "the shortest that makes sense", RENEW_MIN)?;
        at_most("renew_every", self.renew_every, "a third of the ttl", self.ttl / 3)?;
        let both = self.margin.saturating_add(self.drain);
        at_most("margin + drain", both, "a third of the ttl", self.ttl / 3)?;
        let bound = self.ttl / CLOCK_RATE_BOUND;
        at_least("margin", self.margin, "a hundredth of the ttl, for clocks that drift", bound)
    }

    /// Refuses a ttl below what the store can keep.
    ///
    /// # Errors
    /// `Config`, naming both.
    pub fn check_store_minimum(&self, minimum: Duration) -> Result<(), Error> {
        at_least("ttl", self.ttl, "this store's minimum", minimum)
    }

    /// When work is told to stop if the renewal sent at `sent_at` was the last one granted.
    pub fn step_down_at(&self, sent_at: Time) -> Time {
        self.trust_ends_at(sent_at) - self.drain
    }

    /// When the holder stops trusting a lease whose last granted renewal was sent at `sent_at`.
    pub fn trust_ends_at(&self, sent_at: Time) -> Time {
        self.expires_at(sent_at) - self.margin
    }

    /// The earliest instant at which a store may give the lease to somebody else.
    pub fn expires_at(&self, sent_at: Time) -> Time {
        sent_at + self.ttl
    }

    /// How long a driver waits for a store before it calls the outcome unknown. Well below
    /// `renew_every`, so that a lost renewal is tried again before the step-down.
    pub fn call_timeout(&self) -> Duration {
        self.renew_every / 2
    }
}

impl Default for Timing {
    /// The profile `normal`: a ttl of 30 s, renewed every 10 s.
    fn default() -> Timing {
        Timing::new(Duration::from_secs(30))
    }
}

fn default_margin(ttl: Duration) -> Duration {
    let twentieth = (ttl / 20).clamp(Duration::from_millis(5), Duration::from_secs(2));
    twentieth.max(ttl / CLOCK_RATE_BOUND)
}

fn at_most(what: &str, value: Duration, limit_is: &str, limit: Duration) -> Result<(), Error> {
    if value <= limit {
        return Ok(());
    }
    // A third of 5 s is 1s666ms666us666ns, which nobody wants to read. Less is allowed, too.
    let whole_ms = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let shown = if whole_ms.is_zero() { limit } else { whole_ms };
    Err(Error::config(format!(
        "{what} is {}, more than {} ({limit_is}); shorten it or lengthen the ttl",
        show_duration(value),
        show_duration(shown)
    )))
}

fn at_least(what: &str, value: Duration, limit_is: &str, limit: Duration) -> Result<(), Error> {
    if value >= limit {
        return Ok(());
    }
    Err(Error::config(format!(
        "{what} is {}, less than {} ({limit_is}); lengthen it",
        show_duration(value),
        show_duration(limit)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn profiles_and_defaults_pass_their_own_check() {
        for name in Timing::PROFILES {
            Timing::profile(name).unwrap().check().unwrap();
        }
        for ttl_ms in [50, 100, 3_000, 30_000, 600_000, 86_400_000] {
            Timing::new(ms(ttl_ms)).check().unwrap();
        }
        assert_eq!(Timing::profile("fast").unwrap().renew_every, ms(5_000));
        assert!(Timing::profile("slow").unwrap_err().to_string().contains("fast, normal"));
    }

    #[test]
    fn impossible_timings_are_refused_naming_both_numbers() {
        let base = Timing::new(ms(3_000));
        let cases = [
            (Timing { renew_every: ms(1_001), ..base }, "renew_every is 1s1ms, more than 1s"),
            (Timing { drain: ms(900), ..base }, "margin + drain is 1s50ms, more than 1s"),
            (Timing { ttl: ms(0), ..base }, "ttl is 0s"),
            (Timing { drain: ms(0), ..base }, "drain is 0s"),
            (Timing { margin: ms(10), ..base }, "margin is 10ms, less than 30ms"),
            (Timing::new(Duration::from_secs(90_000)), "ttl is 25h, more than 24h"),
        ];
        for (timing, says) in cases {
            let error = timing.check().unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        let error = base.check_store_minimum(ms(5_000)).unwrap_err().to_string();
        assert!(error.starts_with("ttl is 3s, less than 5s"), "{error}");
    }

    #[test]
    fn the_four_instants_stand_in_order() {
        let timing = Timing::default();
        let sent = Time::from_nanos(7);
        assert!(sent + timing.renew_every < timing.step_down_at(sent));
        assert!(timing.step_down_at(sent) < timing.trust_ends_at(sent));
        assert!(timing.trust_ends_at(sent) < timing.expires_at(sent));
    }
}
