//! One thing that a candidate told.

use serde_json::Value;
use tenure_core::Time;

/// One line of JSON, and who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateEvent {
    /// Counted from the start of the drill; never used again.
    pub process: usize,
    /// The place that this process has among the candidates.
    pub lane: usize,
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub event: String,
    /// Who it is, as the store knows it.
    pub candidate: String,
    /// Under which term; 0 if it is about none.
    pub term: u64,
    /// Why; empty if it does not say.
    pub reason: String,
    /// With `trusts`: how long.
    pub until: Option<Time>,
    /// With what is about a write: which.
    pub counter: Option<u64>,
    /// The line itself.
    pub line: String,
}

impl CandidateEvent {
    /// Reads a line; `None` if it is not one of ours.
    pub fn read(process: usize, lane: usize, line: &str) -> Option<CandidateEvent> {
        let json: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Some(CandidateEvent {
            process,
            lane,
            at: Time::from_nanos(json["boot_ns"].as_u64()?),
            event: json["event"].as_str()?.to_owned(),
            candidate: text("candidate"),
            term: json["term"].as_u64().unwrap_or(0),
            reason: text("reason"),
            until: json["until_ns"].as_u64().map(Time::from_nanos),
            counter: json["counter"].as_u64(),
            line: line.to_owned(),
        })
    }

    /// Whether it tells of this event.
    pub fn is(&self, event: &str) -> bool {
        self.event == event
    }
}

/// The writes of one reign that were acknowledged to the leader: every counter in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The lowest counter.
    pub first: u64,
    /// The highest counter.
    pub last: u64,
    /// When the first of them was.
    pub from: Time,
    /// When the last of them was.
    pub until: Time,
}
