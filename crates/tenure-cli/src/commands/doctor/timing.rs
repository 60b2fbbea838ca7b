//! How long the store takes to answer, and how steady its clock is meanwhile.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{BootClock, Error, Name, StoreInfo, Time, Timing};
use tenure_core::{CheckupReport as Report, Finding, Level, Store, StoreExt as _, show_duration};

use super::in_time;
use crate::output::show_short;
use crate::wall;

/// Round trips, sorted, and what the store's clock did.
pub(super) struct RoundTrips {
    took: Vec<Duration>,
    clock: Option<ClockLook>,
}

struct ClockLook {
    /// How far the store's clock and the local one came apart while it was looked at, beyond what
    /// the round trips leave open.
    stepped: Duration,
    over: Duration,
    /// How far the store's wall clock is from the local one, in milliseconds.
    skew_ms: i64,
}

impl RoundTrips {
    /// Reads an election that nobody leads, again and again. Changes nothing.
    pub(super) async fn measure(
        store: &dyn Store,
        name: &Name,
        samples: usize,
    ) -> Result<RoundTrips, Error> {
        // The first one may have to connect.
        in_time(store.read(name)).await??;
        let mut took = Vec::with_capacity(samples);
        let (mut first, mut last) = (None, None);
        for _ in 0..samples {
            let sent_at = BootClock::time();
            let sight = in_time(store.read(name)).await??;
            let got_at = BootClock::time();
            took.push(got_at - sent_at);
            if let Some(clock) = sight.store_clock {
                let reading = (sent_at, got_at, clock);
                first.get_or_insert(reading);
                last = Some((reading, wall::now()));
            }
        }
        took.sort_unstable();
        let clock = first.zip(last).map(|(first, (last, wall_now))| {
            let local = i128::from(wall_now.as_millisecond());
            let store = i128::try_from(last.2.as_millis()).unwrap_or(0);
            ClockLook {
                stepped: stepped(first, last),
                over: last.1 - first.0,
                skew_ms: i64::try_from(store - local).unwrap_or(i64::MAX),
            }
        });
        Ok(RoundTrips { took, clock })
    }

    /// The duration that this share of the round trips does not exceed.
    fn quantile(&self, share: f64) -> Duration {
        let place = ((self.took.len() as f64) * share).ceil() as usize;
        self.took.get(place.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub(super) fn judge(&self, ttl: Duration, info: &StoreInfo, report: &mut Report) {
        let (p99, timing) = (self.quantile(0.99), Timing::new(ttl));
        if ttl < info.min_ttl {
            report.find(
                Finding::new(
                    Level::Advice,
                    format!("a ttl of {} is shorter than this store can keep", show_duration(ttl)),
                )
                .because("elections with it are refused when they are set up")
                .so(format!("use at least {}", show_duration(info.min_ttl))),
            );
        }
        // A renewal that takes half of its patience at p99 fails now and then.
        let patience = timing.call_timeout();
        if p99 * 2 > patience {
            let needed = recommended(p99);
            report.find(
                Finding::new(
                    Level::Advice,
                    format!(
                        "one round trip in a hundred takes {} or longer, and a renewal is waited \
                         for {}",
                        show_short(p99),
                        show_short(patience)
                    ),
                )
                .because("renewals time out, and leaders step down though nothing is broken")
                .so(format!("use a ttl of at least {}", show_duration(needed))),
            );
        }
        if let Some(clock) = &self.clock {
            report.fact("clock skew", format!("{} ms ahead of this machine", clock.skew_ms));
            if clock.stepped > timing.margin / 2 {
                report.find(
                    Finding::new(
                        Level::Safety,
                        format!(
                            "the clock of the store moved by {} against that of this machine \
                             within {}",
                            show_short(clock.stepped),
                            show_short(clock.over)
                        ),
                    )
                    .because("a clock that steps ahead ends leases early, while leaders trust them")
                    .so("have its clock slewed and not stepped (chrony, ntpd -x), and use fences"),
                );
            }
        }
    }

    pub(super) fn line(&self, ttl: Duration) -> String {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        let share = p99.as_secs_f64() / ttl.as_secs_f64() * 100.0;
        format!(
            "p50 {}, p99 {} of {} reads; p99 is {share:.2} % of a ttl of {}; {} or more suits it",
            micros(p50),
            micros(p99),
            self.took.len(),
            show_duration(ttl),
            show_duration(recommended(p99)),
        )
    }

    pub(super) fn json(&self) -> Value {
        let micros = |share| u64::try_from(self.quantile(share).as_micros()).unwrap_or(u64::MAX);
        json!({
            "samples": self.took.len(),
            "p50_us": micros(0.5),
            "p99_us": micros(0.99),
            "recommended_ttl_ms":
                u64::try_from(recommended(self.quantile(0.99)).as_millis()).unwrap_or(u64::MAX),
            "clock_skew_ms": self.clock.as_ref().map(|clock| clock.skew_ms),
        })
    }
}

/// A ttl with which a renewal has four times the time that the slow ones take, in whole seconds.
fn recommended(p99: Duration) -> Duration {
    // A renewal is waited for a sixth of the ttl.
    let least = (p99 * 24).as_secs() + 1;
    Duration::from_secs(least.max(1))
}

type Reading = (Time, Time, Duration);

/// By how much two readings of the store's clock differ from the local time between them, less
/// what the round trips leave open.
fn stepped(first: Reading, last: Reading) -> Duration {
    let most = last.1 - first.0;
    let least = last.0 - first.1;
    let passed = last.2.saturating_sub(first.2);
    let ahead = passed.saturating_sub(most);
    let behind = (first.2 + least).saturating_sub(last.2);
    ahead.max(behind)
}

fn micros(span: Duration) -> String {
    let micros = span.as_micros();
    if micros < 10_000 { format!("{micros} us") } else { format!("{} ms", micros / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_clock_that_runs_as_ours_has_not_stepped() {
        let first = (at(100), at(102), ms(50_000));
        assert_eq!(stepped(first, (at(1100), at(1103), ms(51_001))), ms(0));
        assert_eq!(stepped(first, (at(1100), at(1103), ms(53_003))), ms(2000), "ahead");
        assert_eq!(stepped(first, (at(1100), at(1103), ms(49_998))), ms(1000), "back");
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_round_trips() {
        let trips = RoundTrips { took: (1..=100).map(ms).collect(), clock: None };
        assert_eq!((trips.quantile(0.5), trips.quantile(0.99)), (ms(50), ms(99)));
        assert_eq!(recommended(ms(99)), Duration::from_secs(3));
        assert_eq!(recommended(ms(1)), Duration::from_secs(1));
    }
}
