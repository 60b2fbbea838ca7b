//! What there is to tell about ticks.

use std::time::Duration;

use tenure_core::{Term, Tick};

use crate::Outcome;

/// Something that happened to a tick on this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CronEvent {
    /// Its work begins.
    Started {
        /// Which tick.
        tick: Tick,
        /// Under which term.
        term: Term,
        /// For the how manieth time.
        attempt: u32,
    },
    /// Its work has ended.
    Ended {
        /// Which tick.
        tick: Tick,
        /// Under which term.
        term: Term,
        /// For the how manieth time.
        attempt: u32,
        /// How it ended.
        outcome: Outcome,
        /// Whether the ledger knows; if not, the next leader decides about the tick.
        recorded: bool,
        /// When the next attempt follows, if one does.
        retry_in: Option<Duration>,
    },
    /// Ticks were left out: missed, or the one before still ran.
    Skipped {
        /// The first of them.
        tick: Tick,
        /// The last of them.
        through_unix_ms: i64,
        /// How many.
        count: u64,
    },
    /// A tick that a former leader left unfinished, of a job that is run at most once.
    Abandoned {
        /// Which tick.
        tick: Tick,
    },
    /// A tick that a former leader left unfinished, or that somebody asked for, of a job that this
    /// instance does not have. It stays open, for a leader that has the job; told once a reign.
    Unknown {
        /// Which tick.
        tick: Tick,
    },
    /// The ledger did not let it run: somebody else had it, or the term is over.
    Refused {
        /// Which tick.
        tick: Tick,
        /// Under which term it was tried.
        term: Term,
    },
    /// The ledger has a tick of a job that is still to come: the clock of this leader, or of one
    /// before it, was ahead. Nothing of the job is due until then.
    Ahead {
        /// The latest tick that the ledger has.
        tick: Tick,
        /// What time it is here.
        now_unix_ms: i64,
    },
}

impl CronEvent {
    /// The event's name, as it stands in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            CronEvent::Started { .. } => "tick_started",
            CronEvent::Ended { .. } => "tick_ended",
            CronEvent::Skipped { .. } => "ticks_skipped",
            CronEvent::Abandoned { .. } => "tick_abandoned",
            CronEvent::Unknown { .. } => "tick_unknown",
            CronEvent::Refused { .. } => "tick_refused",
            CronEvent::Ahead { .. } => "job_ahead",
        }
    }

    /// The tick.
    pub fn tick(&self) -> &Tick {
        match self {
            CronEvent::Started { tick, .. }
            | CronEvent::Ended { tick, .. }
            | CronEvent::Skipped { tick, .. }
            | CronEvent::Abandoned { tick }
            | CronEvent::Unknown { tick }
            | CronEvent::Refused { tick, .. }
            | CronEvent::Ahead { tick, .. } => tick,
        }
    }
}
