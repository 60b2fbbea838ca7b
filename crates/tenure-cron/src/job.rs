//! A job: what to do, when, and what to promise about it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Error};

use crate::{Outcome, Run, Schedule};

/// How many ticks of a job the ledger keeps, unless told otherwise.
const KEEP: u32 = 1_000;

/// How many missed ticks `run-all` catches up with, unless told otherwise.
const RUN_ALL_MOST: u32 = 100;

/// How many it can be told to catch up with. They are looked up in one go, and all of them wait.
const RUN_ALL_MAX: u32 = 10_000;

/// How many runs of a job there are at a time with `overlap = allow`, unless told otherwise.
const ALLOW_MOST: u32 = 100;

/// How many it can be told to have at a time.
const ALLOW_MAX: u32 = 1_000;

/// How often a failed run can be told to be tried again.
const RETRIES_MAX: u32 = 100;

/// How long the first retry waits, unless told otherwise, and the last one at most.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(3_600);

/// What is promised about a tick whose leader dies (K2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// A tick is claimed once. If its leader dies it is abandoned, and nobody runs it again.
    #[default]
    AtMostOnce,
    /// A tick that its leader did not finish is run again by the next one, as another attempt.
    AtLeastOnce,
    /// As at least once, and the job ends its tick in the same transaction as its effect, so that
    /// the effect is there exactly once. On stores that can: PostgreSQL and SQLite.
    Transactional,
}

/// What to do about ticks that came due while nobody led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missed {
    /// Nothing; but the latest still runs if it is no later than the job's grace.
    #[default]
    Skip,
    /// Run once, for the latest of them.
    RunOnce,
    /// Run each of them, in order; of more than `most`, the latest.
    RunAll {
        /// How many at most: 1 to 10,000.
        most: u32,
    },
}

/// What to do when a tick comes due while the one before it still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overlap {
    /// Leave it out. Not the default with [`Missed::RunAll`], which leaves out nothing that it
    /// was not told to.
    #[default]
    Skip,
    /// Run it afterwards.
    Queue,
    /// Run both.
    Allow {
        /// How many at a time: 1 to 1,000. What comes due while so many run is left out, or waits
        /// with [`Missed::RunAll`].
        most: u32,
    },
}

impl FromStr for Delivery {
    type Err = Error;

    fn from_str(text: &str) -> Result<Delivery, Error> {
        match text {
            "at-most-once" => Ok(Delivery::AtMostOnce),
            "at-least-once" => Ok(Delivery::AtLeastOnce),
            "transactional" => Ok(Delivery::Transactional),
            _ => Err(choose("delivery", text, "at-most-once, at-least-once, transactional")),
        }
    }
}

impl FromStr for Missed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Missed, Error> {
        let most = text.strip_prefix("run-all(").and_then(|text| text.strip_suffix(')'));
        match (text, most.map(str::parse)) {
            ("skip", _) => Ok(Missed::Skip),
            ("run-once", _) => Ok(Missed::RunOnce),
            ("run-all", _) => Ok(Missed::RunAll { most: RUN_ALL_MOST }),
            (_, Some(Ok(most))) => check_most(most).map(|()| Missed::RunAll { most }),
            _ => Err(choose("missed", text, "skip, run-once, run-all, run-all(50)")),
        }
    }
}

impl FromStr for Overlap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Overlap, Error> {
        let most = text.strip_prefix("allow(").and_then(|text| text.strip_suffix(')'));
        match (text, most.map(str::parse)) {
            ("skip", _) => Ok(Overlap::Skip),
            ("queue", _) => Ok(Overlap::Queue),
            ("allow", _) => Ok(Overlap::Allow { most: ALLOW_MOST }),
            (_, Some(Ok(most))) => check_overlap(most).map(|()| Overlap::Allow { most }),
            _ => Err(choose("overlap", text, "skip, queue, allow, allow(5)")),
        }
    }
}

/// Whether `run-all` can catch up with so many.
fn check_most(most: u32) -> Result<(), Error> {
    match most {
        1..=RUN_ALL_MAX => Ok(()),
        most => Err(Error::config(format!(
            "run-all({most}) can't be kept; catch up with 1 to {RUN_ALL_MAX} ticks"
        ))),
    }
}

/// Whether so many runs may go on at a time.
fn check_overlap(most: u32) -> Result<(), Error> {
    match most {
        1..=ALLOW_MAX => Ok(()),
        most => Err(Error::config(format!(
            "allow({most}) can't be kept; have 1 to {ALLOW_MAX} runs at a time"
        ))),
    }
}

fn choose(what: &str, text: &str, from: &str) -> Error {
    Error::config(format!("{what} is {text:?}; choose one of {from}"))
}

type Work = Arc<dyn Fn(Run) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A job.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_cron::{Job, Missed, Run, Schedule};
///
/// # async fn send_invoices(_term: tenure::Term) -> Result<(), std::io::Error> { Ok(()) }
/// let schedule = Schedule::new("30 3 * * *", "Europe/Berlin")?;
/// let job = Job::new("invoices", schedule, |run: Run| async move {
///     // The term is the fencing token: it goes with every write.
///     send_invoices(run.term()).await
/// })
/// .missed(Missed::RunOnce)
/// .timeout(Duration::from_secs(600));
/// assert_eq!(job.name(), "invoices");
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a job does nothing until a Cron has it"]
pub struct Job {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
    pub(crate) delivery: Delivery,
    pub(crate) missed: Missed,
    overlap: Option<Overlap>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) jitter: Duration,
    pub(crate) grace: Option<Duration>,
    pub(crate) keep: u32,
    pub(crate) retries: u32,
    backoff: Duration,
    work: Work,
}

impl Job {
    /// A job of this name. What the work returns is its outcome: nothing, or a result whose error
    /// is told and counts as failed.
    ///
    /// Work that blocks its thread can't be told of a loss, and the lease is not kept alive for
    /// it: hand what blocks to `spawn_blocking`.
    pub fn new<F, R>(
        name: impl Into<String>,
        schedule: Schedule,
        work: impl Fn(Run) -> F + Send + Sync + 'static,
    ) -> Job
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<Outcome>,
    {
        let work: Work = Arc::new(move |run| {
            let work = work(run);
            Box::pin(async move { work.await.into() })
        });
        Job {
            name: name.into(),
            schedule,
            delivery: Delivery::default(),
            missed: Missed::default(),
            overlap: None,
            timeout: None,
            jitter: Duration::ZERO,
            grace: None,
            keep: KEEP,
            retries: 0,
            backoff: BACKOFF,
            work,
        }
    }

    /// What is promised about a tick whose leader dies.
    pub fn delivery(self, delivery: Delivery) -> Job {
        Job { delivery, ..self }
    }

    /// What to do about ticks that came due while nobody led.
    pub fn missed(self, missed: Missed) -> Job {
        Job { missed, ..self }
    }

    /// What to do when a tick comes due while the one before it still runs [default: leave it
    /// out; with [`Missed::RunAll`] run it afterwards].
    pub fn overlap(self, overlap: Overlap) -> Job {
        Job { overlap: Some(overlap), ..self }
    }

    /// How long a tick may take; then its work is dropped.
    pub fn timeout(self, timeout: Duration) -> Job {
        Job { timeout: Some(timeout), ..self }
    }

    /// Runs up to this much later, so that many jobs of one minute do not all begin in its first
    /// second. How much is drawn from the job's name: the same for each tick and on every instance,
    /// so that ticks keep their order and their distance.
    pub fn jitter(self, jitter: Duration) -> Job {
        Job { jitter, ..self }
    }

    /// How late a tick may run with [`Missed::Skip`] [default: twice the ttl of the lease, which
    /// is more than a failover takes].
    pub fn grace(self, grace: Duration) -> Job {
        Job { grace: Some(grace), ..self }
    }

    /// How many of its ticks the ledger keeps [default: 1000].
    pub fn keep(self, keep: u32) -> Job {
        Job { keep: keep.max(1), ..self }
    }

    /// How often a run that failed or took too long is tried again, as another attempt at the same
    /// tick [default: 0]. At most 100. That its leader was lost is no failure: see
    /// [`Delivery`]. But such an attempt counts.
    ///
    /// A tick that waits for its next attempt has not ended: the next one overlaps with it.
    pub fn retries(self, retries: u32) -> Job {
        Job { retries, ..self }
    }

    /// How long the first retry waits [default: 10 s]. Each further one waits twice as long as the
    /// one before it, but no longer than an hour, or than this if this is longer.
    pub fn backoff(self, backoff: Duration) -> Job {
        Job { backoff, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What overlap comes to: a job that makes up for all it missed also runs what comes meanwhile.
    pub(crate) fn on_overlap(&self) -> Overlap {
        match (self.overlap, self.missed) {
            (Some(overlap), _) => overlap,
            (None, Missed::RunAll { .. }) => Overlap::Queue,
            (None, _) => Overlap::default(),
        }
    }

    /// How many runs there may be at a time.
    pub(crate) fn at_once(&self) -> usize {
        match self.on_overlap() {
            Overlap::Skip | Overlap::Queue => 1,
            Overlap::Allow { most } => most as usize,
        }
    }

    /// Whether another attempt follows after so many that failed.
    pub(crate) fn tries_again(&self, attempts: u32) -> bool {
        attempts <= self.retries
    }

    /// How long the next attempt waits after so many.
    pub(crate) fn wait_after(&self, attempts: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << attempts.saturating_sub(1).min(20));
        doubled.min(BACKOFF_MAX.max(self.backoff))
    }

    /// Whether what it was told can be kept.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let kept = match self.missed {
            Missed::RunAll { most } => check_most(most),
            Missed::Skip | Missed::RunOnce => Ok(()),
        };
        let overlap = match self.on_overlap() {
            Overlap::Allow { most } => check_overlap(most),
            Overlap::Skip | Overlap::Queue => Ok(()),
        };
        let tries = match self.retries {
            0..=RETRIES_MAX => Ok(()),
            many => Err(Error::config(format!(
                "{many} retries are too many, at most {RETRIES_MAX} are made"
            ))),
        };
        kept.and(overlap).and(tries)
    }

    pub(crate) fn begin(&self, run: Run) -> BoxFuture<'static, Outcome> {
        (self.work)(run)
    }

    /// How much later than scheduled it runs, in milliseconds.
    pub(crate) fn offset_ms(&self) -> i64 {
        let span = i64::try_from(self.jitter.as_millis()).unwrap_or(i64::MAX / 2);
        if span == 0 {
            return 0;
        }
        // FNV-1a: it must be the same in every build, on every machine.
        let hash = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        i64::try_from((hash >> 11) % span.unsigned_abs()).unwrap_or(0)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .field("delivery", &self.delivery)
            .field("missed", &self.missed)
            .field("overlap", &self.on_overlap())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_come_with_the_right_ones() {
        assert_eq!("run-all(7)".parse::<Missed>().unwrap(), Missed::RunAll { most: 7 });
        assert_eq!("run-all".parse::<Missed>().unwrap(), Missed::RunAll { most: 100 });
        assert_eq!("allow".parse::<Overlap>().unwrap(), Overlap::Allow { most: 100 });
        assert_eq!("allow(5)".parse::<Overlap>().unwrap(), Overlap::Allow { most: 5 });
        for wrong in ["allow(0)", "allow(1001)"] {
            let error = wrong.parse::<Overlap>().unwrap_err();
            assert!(error.message().contains("1 to 1000 runs at a time"), "{error}");
        }
        assert_eq!("transactional".parse::<Delivery>().unwrap(), Delivery::Transactional);
        for wrong in ["run-all()", "run-all(x)", "all"] {
            let error = wrong.parse::<Missed>().unwrap_err();
            assert!(error.message().contains("choose one of skip"), "{error}");
        }
        assert!("run-all(10000)".parse::<Missed>().is_ok());
        for wrong in ["run-all(0)", "run-all(10001)"] {
            let error = wrong.parse::<Missed>().unwrap_err();
            assert!(error.message().contains("catch up with 1 to 10000 ticks"), "{error}");
        }
        assert!("maybe".parse::<Overlap>().is_err() && "once".parse::<Delivery>().is_err());
    }

    #[test]
    fn each_retry_waits_twice_as_long_up_to_an_hour() {
        let schedule = Schedule::new("* * * * *", "UTC").unwrap();
        let job = Job::new("j", schedule, |_| async {});
        assert!(!job.tries_again(1), "not unless it is told to");
        let job = job.retries(2).backoff(Duration::from_secs(30));
        assert_eq!([1, 2, 3].map(|attempts| job.tries_again(attempts)), [true, true, false]);
        let waits = [1, 2, 3, 100].map(|attempts| job.wait_after(attempts).as_secs());
        assert_eq!(waits, [30, 60, 120, 3_600]);
        let job = job.backoff(Duration::from_secs(7_200));
        assert_eq!(job.wait_after(2).as_secs(), 7_200);
        assert!(job.check().is_ok() && job.retries(101).check().is_err());
    }

    #[test]
    fn jitter_is_the_same_for_every_tick_of_a_job_and_spreads_jobs() {
        let schedule = Schedule::new("* * * * *", "UTC").unwrap();
        let offset = |name: String| {
            let job = Job::new(name, schedule.clone(), |_| async {});
            assert_eq!(job.offset_ms(), 0);
            let job = job.jitter(Duration::from_secs(60));
            assert_eq!(job.offset_ms(), job.clone().offset_ms());
            job.offset_ms()
        };
        let all: Vec<i64> = (0..1000).map(|n| offset(format!("job {n}"))).collect();
        assert!(all.iter().all(|offset| (0..60_000).contains(offset)));
        for quarter in 0..4 {
            let range = quarter * 15_000..(quarter + 1) * 15_000_i64;
            let there = all.iter().filter(|at| range.contains(*at)).count();
            assert!((150..350).contains(&there), "{there} of 1000 in quarter {quarter}");
        }
    }
}
