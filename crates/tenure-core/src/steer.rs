//! How far a job has got, and what people can have become of it.

/// How far a job has got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct JobProgress {
    /// The job's name.
    pub job: String,
    /// The last instant of its schedule that is dealt with, in milliseconds of Unix time.
    pub latest_unix_ms: i64,
    /// The schedule that it was due by, if that was noted.
    pub schedule: Option<String>,
    /// Since when it is paused, by the store's wall clock; `None` if it is not.
    pub paused_unix_ms: Option<i64>,
    /// The instant from which on somebody had it count anew last, by the store's wall clock.
    pub anew_unix_ms: Option<i64>,
}

impl JobProgress {
    /// The job has got this far, by a schedule that is not known. It is not paused.
    pub fn new(job: impl Into<String>, latest_unix_ms: i64) -> JobProgress {
        let (schedule, paused_unix_ms, anew_unix_ms) = (None, None, None);
        JobProgress { job: job.into(), latest_unix_ms, schedule, paused_unix_ms, anew_unix_ms }
    }
}

/// By how much the ledger must be ahead of the store's clock for [`Steer::FromNow`] to change
/// anything. Clocks differ by less: what was run in that time must not be run again.
pub const STEER_AHEAD_MS: i64 = 60_000;

/// What somebody wants to become of a job, on any instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Steer {
    /// Nothing of its schedule begins any more.
    Pause,
    /// It goes on, with what comes due from now on.
    Resume,
    /// It counts from now on, although the ledger is ahead, because a leader's clock was.
    FromNow,
}

impl Steer {
    /// The word that stores have for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Steer::Pause => "pause",
            Steer::Resume => "resume",
            Steer::FromNow => "from_now",
        }
    }
}
