//! What a job gets to know about its run, and how it can end.

use std::fmt;
use std::sync::Arc;

use tenure::{CandidateId, Name, Reason, Tenure, Term};
use tenure_core::{Tick, TickEnd};

use crate::show_instant;

/// One run of a job, for one tick. Cloning is cheap.
#[derive(Clone)]
pub struct Run {
    pub(crate) tick: Tick,
    pub(crate) attempt: u32,
    pub(crate) manual: bool,
    pub(crate) tenure: Arc<Tenure>,
}

impl Run {
    /// The job's name.
    pub fn job(&self) -> &str {
        &self.tick.job
    }

    /// The instant that this run was scheduled for, in milliseconds of Unix time. It is the same
    /// for every attempt, so it makes a good idempotency key.
    pub fn scheduled_unix_ms(&self) -> i64 {
        self.tick.scheduled_unix_ms
    }

    /// The same instant in RFC 3339, in UTC.
    pub fn scheduled_at(&self) -> String {
        show_instant(self.tick.scheduled_unix_ms)
    }

    /// 1 for the first attempt. More only if the job's delivery says so.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether somebody asked for it, rather than the schedule.
    pub fn is_manual(&self) -> bool {
        self.manual
    }

    /// The term: the fencing token that goes with every write.
    pub fn term(&self) -> Term {
        self.tenure.term()
    }

    /// The election.
    pub fn election(&self) -> &Name {
        self.tenure.election()
    }

    /// This candidate.
    pub fn candidate(&self) -> &CandidateId {
        self.tenure.candidate()
    }

    /// May I still finish what I started? True until trust ends.
    pub fn is_current(&self) -> bool {
        self.tenure.is_current()
    }

    /// Waits until the work is told to stop, and tells why.
    ///
    /// # Cancel safety
    /// Cancel safe: a later call is told of the loss again.
    pub async fn lost(&self) -> Reason {
        self.tenure.lost().await
    }

    /// The reign under which it runs.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }
}

impl AsRef<Tenure> for Run {
    fn as_ref(&self) -> &Tenure {
        &self.tenure
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("job", &self.tick.job)
            .field("scheduled_at", &self.scheduled_at())
            .field("attempt", &self.attempt)
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It did what it should.
    Ok,
    /// It did not.
    Failed {
        /// Its exit code, or 1.
        code: i32,
        /// What it said.
        reason: String,
    },
    /// It took too long and was ended.
    TimedOut,
    /// Leadership was lost before it was done.
    Lost,
}

impl Outcome {
    /// The end as the ledger keeps it.
    pub(crate) fn end(&self) -> TickEnd {
        match self {
            Outcome::Ok => TickEnd::Ok,
            Outcome::Failed { code, .. } => TickEnd::Failed(*code),
            Outcome::TimedOut => TickEnd::TimedOut,
            Outcome::Lost => TickEnd::Lost,
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Ok
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Outcome {
        match result {
            Ok(()) => Outcome::Ok,
            Err(error) => Outcome::Failed { code: 1, reason: error.to_string() },
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ok => f.write_str("ok"),
            Outcome::Failed { code, reason } if reason.is_empty() => write!(f, "failed ({code})"),
            Outcome::Failed { reason, .. } => write!(f, "failed: {reason}"),
            Outcome::TimedOut => f.write_str("timed out"),
            Outcome::Lost => f.write_str("lost leadership"),
        }
    }
}
