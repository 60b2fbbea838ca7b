//! The cron ledger: which ticks were claimed, started and finished, and the contract for stores
//! that keep it.
//!
//! ```text
//!              request                     skip
//!   anybody ──────────▶ requested   leader ─────▶ skipped
//!                           │ claim
//!   leader ── claim ───▶ claimed ── start ──▶ started ── end ──▶ finished
//!                           ├───── abandon ──────┤─────────────▶ abandoned
//!                           └── claim again, attempt + 1, by a later term
//!                                                └── retry ──▶ retrying ── claim, attempt + 1 ──▶
//! ```

use std::fmt;

use crate::{BoxFuture, Error, JobProgress, Name, OnceMark, OnceRecord, OnceStep, Steer, Term};

/// How many steps one call may carry.
pub const LEDGER_STEPS_MAX: usize = 1_000;

/// How many open ticks one call tells.
pub const LEDGER_OPEN_MAX: usize = 1_000;

/// One tick of one job: what the ledger is unique on (K1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tick {
    /// The job's name.
    pub job: String,
    /// The instant it was scheduled for, in milliseconds of Unix time.
    pub scheduled_unix_ms: i64,
}

impl Tick {
    /// The tick of this job at this instant.
    pub fn new(job: impl Into<String>, scheduled_unix_ms: i64) -> Tick {
        Tick { job: job.into(), scheduled_unix_ms }
    }
}

/// How a tick ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TickEnd {
    /// It did what it should.
    Ok,
    /// It ended with this code.
    Failed(i32),
    /// It took too long and was ended.
    TimedOut,
    /// Its leader lost the election before it was done. The tick is abandoned.
    Lost,
}

/// Where a tick stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TickState {
    /// Somebody asked for it; the leader has not taken it yet.
    Requested,
    /// It is a leader's, which runs it or is about to.
    Claimed,
    /// It runs, or ran when its leader was last heard of. Written while it runs.
    Started,
    /// It failed, with this code, or took too long. It is to be run again.
    Retrying {
        /// The code; `None` if it took too long.
        code: Option<i32>,
    },
    /// It ended by itself, or was ended because it took too long.
    Finished(TickEnd),
    /// Its leader was lost in between, and nobody runs it again.
    Abandoned,
    /// It was not run, and neither were those after it up to `through_unix_ms`.
    Skipped {
        /// The last instant that this record stands for.
        through_unix_ms: i64,
        /// For how many ticks it stands.
        count: u64,
    },
}

impl TickState {
    /// One word for it, as in `tenure cron history`.
    pub fn as_str(&self) -> &'static str {
        match self {
            TickState::Requested => "requested",
            TickState::Claimed => "claimed",
            TickState::Started => "started",
            TickState::Retrying { .. } => "retrying",
            TickState::Finished(TickEnd::Ok) => "ok",
            TickState::Finished(TickEnd::Failed(_)) => "failed",
            TickState::Finished(TickEnd::TimedOut) => "timed_out",
            TickState::Finished(TickEnd::Lost) | TickState::Abandoned => "abandoned",
            TickState::Skipped { .. } => "skipped",
        }
    }

    /// Whether somebody still has to do something about it.
    pub fn is_open(&self) -> bool {
        match self {
            TickState::Requested | TickState::Claimed | TickState::Started => true,
            TickState::Retrying { .. } => true,
            TickState::Finished(_) | TickState::Abandoned | TickState::Skipped { .. } => false,
        }
    }

    /// The state that columns tell: the word for it, and its code, last instant and count where
    /// the word has one. `None` for what no ledger writes.
    pub fn from_columns(
        word: &str,
        code: Option<i32>,
        through_unix_ms: Option<i64>,
        count: Option<u64>,
    ) -> Option<TickState> {
        Some(match word {
            "requested" => TickState::Requested,
            "claimed" => TickState::Claimed,
            "started" => TickState::Started,
            "retrying" => TickState::Retrying { code },
            "ok" => TickState::Finished(TickEnd::Ok),
            "failed" => TickState::Finished(TickEnd::Failed(code?)),
            "timed_out" => TickState::Finished(TickEnd::TimedOut),
            "abandoned" => TickState::Abandoned,
            "skipped" => TickState::Skipped { through_unix_ms: through_unix_ms?, count: count? },
            _ => return None,
        })
    }
}

impl fmt::Display for TickState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TickState::Finished(TickEnd::Failed(code)) => write!(f, "failed ({code})"),
            TickState::Retrying { code: Some(code) } => write!(f, "retrying ({code})"),
            TickState::Skipped { count, .. } if *count > 1 => write!(f, "skipped ({count})"),
            state => f.write_str(state.as_str()),
        }
    }
}

/// What the ledger knows of one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TickRecord {
    /// Which.
    pub tick: Tick,
    /// Where it stands.
    pub state: TickState,
    /// Whether somebody asked for it, rather than the schedule.
    pub manual: bool,
    /// The term under which it was claimed or skipped last.
    pub term: Option<Term>,
    /// How often it was claimed.
    pub attempt: u32,
    /// When it was claimed last, by the store's wall clock, for people to read.
    pub claimed_unix_ms: Option<i64>,
    /// When it started last.
    pub started_unix_ms: Option<i64>,
    /// When it ended.
    pub ended_unix_ms: Option<i64>,
}

impl TickRecord {
    /// A record of a tick in this state, with nothing else known.
    pub fn new(tick: Tick, state: TickState) -> TickRecord {
        TickRecord {
            tick,
            state,
            manual: false,
            term: None,
            attempt: 0,
            claimed_unix_ms: None,
            started_unix_ms: None,
            ended_unix_ms: None,
        }
    }
}

/// What a leader does with a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerStep {
    /// Takes it, to run it.
    Claim {
        /// Which.
        tick: Tick,
        /// Also if a former term took it and left it unfinished.
        again: bool,
    },
    /// It starts now.
    Start {
        /// Which.
        tick: Tick,
        /// As the claim told.
        attempt: u32,
    },
    /// It has ended.
    End {
        /// Which.
        tick: Tick,
        /// As the claim told.
        attempt: u32,
        /// How.
        end: TickEnd,
    },
    /// It has failed or took too long, and will be run again.
    Retry {
        /// Which.
        tick: Tick,
        /// As the claim told.
        attempt: u32,
        /// The code that it failed with; `None` if it took too long.
        code: Option<i32>,
    },
    /// Looks whether the user's own transaction has ended it.
    Confirm {
        /// Which.
        tick: Tick,
        /// As the claim told.
        attempt: u32,
    },
    /// It will not run, nor will those after it up to `through_unix_ms`.
    Skip {
        /// The first of them.
        tick: Tick,
        /// The instant of the last of them.
        through_unix_ms: i64,
        /// How many they are.
        count: u64,
    },
    /// A job is due by this schedule from an instant on. What was due before it, by this schedule
    /// or another, is dealt with.
    Follow {
        /// The job.
        job: String,
        /// The schedule, in words that are the same for the same schedule.
        schedule: String,
        /// The instant.
        from_unix_ms: i64,
    },
    /// A tick that a former term left unfinished, or that somebody asked for, will not run.
    Abandon {
        /// Which.
        tick: Tick,
    },
    /// Forgets all of a job but its latest ticks, and those that are open.
    Trim {
        /// The job.
        job: String,
        /// How many to keep.
        keep: u32,
    },
}

impl LedgerStep {
    /// The job that it is about.
    pub fn job(&self) -> &str {
        match self {
            LedgerStep::Claim { tick, .. }
            | LedgerStep::Start { tick, .. }
            | LedgerStep::End { tick, .. }
            | LedgerStep::Retry { tick, .. }
            | LedgerStep::Confirm { tick, .. }
            | LedgerStep::Skip { tick, .. }
            | LedgerStep::Abandon { tick } => &tick.job,
            LedgerStep::Follow { job, .. } | LedgerStep::Trim { job, .. } => job,
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Marked {
    /// It is in the ledger, durably.
    Done {
        /// How often the tick was claimed by now; 0 where that says nothing.
        attempt: u32,
    },
    /// The tick does not stand where this step begins: taken, finished, another attempt.
    Refused,
    /// The term is over. Nothing was changed, by this step or any other of the call.
    Stale,
    /// A transaction of somebody else's is at this tick. Nothing was changed; ask again.
    Busy,
    /// The job is paused. Nothing was changed.
    Paused,
}

/// Whether the effect of a job and the end of its tick can be one transaction (K2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transactions {
    /// They can't.
    None,
    /// The user's tables are beside the ledger: one transaction ends the tick there.
    Same,
    /// The user's data is in a file of its own, which notes the ticks that took effect.
    Beside,
}

/// Keeps which ticks were claimed, started and finished.
///
/// # Contract
/// What implementors owe. `tenure-testkit` has a suite that checks it.
///
/// **record** carries out at most [`LEDGER_STEPS_MAX`] steps, one answer for each, in order. It
/// is fenced: unless this term is the latest and its lease is held, by the store's own clock, at
/// the instant of the decision, every answer is `Stale` and nothing changes. What is answered
/// `Done` is durable. Steps of one call are about different ticks.
///
/// - `Claim`: of a tick without record, or a requested one: claimed, attempt 1. Claimed and not
///   started under this same term: the same attempt again, so that a lost reply is healed. With
///   `again`, claimed or started under another term: claimed, attempt + 1. Retrying, under any
///   term: claimed, attempt + 1. Else refused. Of a job that is paused, only what somebody asked
///   for is claimed; what else would be claimed is answered `Paused`.
/// - `Start`: claimed or started under this term and attempt: started. Else refused.
/// - `End`: claimed or started under this term and attempt: finished, or abandoned if it was
///   lost. Finished so before: done. Else refused.
/// - `Retry`: claimed or started under this term and attempt: retrying, with this code. Retrying so
///   before: done. Else refused.
/// - `Confirm`: finished well under this attempt: done. Else refused. Changes nothing.
/// - `Skip`: without record: skipped. Skipped before: done. Else refused.
/// - `Follow`: done. The job is known by this schedule, and is dealt with up to this instant at
///   least.
/// - `Abandon`: requested or retrying, or claimed or started under another term: abandoned.
///   Abandoned before: done. Else refused.
/// - `Trim`: done.
///
/// **request** notes a tick that somebody wants now, at the store's own instant or just after it,
/// under no fence; never at a whole second, which a schedule may have. It then hints at the
/// election, so that its leader looks. A request is never told to `latest`.
///
/// **steer** changes what becomes of a job, at the store's own instant, under no fence, and then
/// hints in the same way. It tells whether the ledger knows the job: one that was claimed, skipped
/// or followed; nothing changes for any other. When it has returned, no claim is answered otherwise
/// than it says.
/// - `Pause`: paused since this instant. Paused before: as it was.
/// - `Resume`: not paused; if it was, it is dealt with up to this instant at least.
/// - `FromNow`: if the job is dealt with up to more than [`STEER_AHEAD_MS`] after this instant, it
///   is dealt with up to this instant instead, which `latest` tells, and its records of more than
///   that after it are forgotten, save what is open. Else as it was.
///
/// **open** tells the ticks that are requested, claimed, started or retrying, by instant and then
/// by the bytes of the job's name, those after `after`, at most [`LEDGER_OPEN_MAX`]. **latest**
/// tells, for each job, the last instant of its schedule that was claimed, skipped or followed
/// from, the schedule that it followed last, and how it was steered; trimming changes none of it.
/// **history** tells the records of a job, or of all, the latest scheduled first.
///
/// **once** carries out one step about a key, under the same fence, as [`decide_once`] decides.
/// What is answered `Done` is durable. Records of keys are apart from those of ticks: no trim
/// forgets one. **once_record** tells the record of a key, **once_history** those of all keys, the
/// latest claimed first.
///
/// Names of jobs, schedules and keys are data, never part of a command. Callers have checked names,
/// keys and the number of steps, as [`LedgerExt`](crate::LedgerExt) does.
///
/// # Cancel safety
/// `record`, `request`, `steer` and `once` are not: if a future is dropped it may have been done or
/// not. Recording the same step again tells.
///
/// [`decide_once`]: crate::decide_once
/// [`STEER_AHEAD_MS`]: crate::STEER_AHEAD_MS
pub trait Ledger: Send + Sync {
    /// Whether the effect of a job and the end of its tick can be one transaction.
    fn transactions(&self) -> Transactions;

    /// Carries out the steps of the leader of this term.
    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>>;

    /// Asks for a job to run now.
    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>>;

    /// Changes what becomes of a job; tells whether it is known.
    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// The ticks that somebody still has to do something about: those after this one, or the first.
    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>>;

    /// How far each job has got, and by which schedule.
    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>>;

    /// What happened, the latest scheduled first.
    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>>;

    /// Carries out a step about a key, of the leader of this term.
    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>>;

    /// What is known of a key.
    fn once_record<'a>(
        &'a self,
        election: &'a Name,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>>;

    /// What is known of all keys, the latest claimed first.
    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>>;
}

/// Checks the name of a job: 1 to 255 bytes without control characters.
///
/// # Errors
/// `Config`, with what is wrong about it.
pub fn check_job_name(job: &str) -> Result<(), Error> {
    if job.is_empty() {
        return Err(Error::config("the name of a job is empty; give it one"));
    }
    if job.len() > 255 {
        return Err(Error::config(format!(
            "the name of a job has {} bytes, at most 255 are allowed",
            job.len()
        )));
    }
    if job.chars().any(char::is_control) {
        return Err(Error::config(format!(
            "the name of the job {job:?} has a control character in it; leave that out"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_leads_back_from_its_columns() {
        let skipped = TickState::Skipped { through_unix_ms: 7, count: 2 };
        for (state, code, through, count) in [
            (TickState::Requested, None, None, None),
            (TickState::Claimed, None, None, None),
            (TickState::Started, None, None, None),
            (TickState::Retrying { code: Some(2) }, Some(2), None, None),
            (TickState::Retrying { code: None }, None, None, None),
            (TickState::Finished(TickEnd::Ok), None, None, None),
            (TickState::Finished(TickEnd::Failed(3)), Some(3), None, None),
            (TickState::Finished(TickEnd::TimedOut), None, None, None),
            (TickState::Abandoned, None, None, None),
            (skipped, None, Some(7), Some(2)),
        ] {
            assert_eq!(TickState::from_columns(state.as_str(), code, through, count), Some(state));
        }
        assert_eq!(TickState::from_columns("odd", None, None, None), None);
        assert_eq!(TickState::from_columns("failed", None, None, None), None);
    }

    #[test]
    fn the_name_of_a_job_is_checked() {
        assert!(check_job_name("nightly report").is_ok());
        for (name, says) in
            [("", "is empty"), ("a\nb", "control character"), (&*"x".repeat(256), "256 bytes")]
        {
            assert!(check_job_name(name).unwrap_err().message().contains(says));
        }
    }
}
