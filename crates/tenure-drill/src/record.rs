//! What happened, put together from what the candidates told, what was done to them, and what was
//! written; and the history that the checker judges.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tenure_core::{Name, Term, Time, Timing};
use tenure_history::{Event, History, Kind};

use crate::fleet::{Acknowledged, CandidateEvent, label};
use crate::ground::Row;
use crate::plan::Fault;
pub use crate::wall::WallTime;

/// Everything about one drill.
#[derive(Clone, Debug)]
pub struct Record {
    /// The election of the drill.
    pub election: Name,
    /// What the store calls itself, without secrets.
    pub store: String,
    /// The seed of its plan.
    pub seed: u64,
    /// How many took part.
    pub candidates: usize,
    /// Their timing.
    pub timing: Timing,
    /// Whether the store's promise admits two leaders for a while: one that frees a lease with its
    /// connection can't know whether the holder has noticed.
    pub admits_overlap: bool,
    /// Whether a restart of the store may lose writes that it has acknowledged.
    pub may_forget: bool,
    /// When the drill began.
    pub began: Time,
    /// When the candidates were told to end: a reign that begins later is nobody's doing.
    pub closed: Time,
    /// When the last candidate had ended.
    pub ended: Time,
    /// What the wall clock showed, to show all other instants by it.
    pub wall: WallTime,
    /// Why it did not come to its own end, if it did not.
    pub cut_short: Option<CutShort>,
    /// What the candidates told, in the order of arrival, but for single writes.
    pub events: Vec<CandidateEvent>,
    /// When processes were killed.
    pub killed: BTreeMap<usize, Time>,
    /// What was done to the leaders.
    pub rounds: Vec<Round>,
    /// Which writes were acknowledged, by candidate and term.
    pub acknowledged: BTreeMap<(String, u64), Acknowledged>,
    /// What was written; `None` if the store could not be asked any more.
    pub rows: Option<Vec<Row>>,
}

/// Why a drill ended before its time, though nothing wrong was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShort {
    /// Somebody asked for it.
    Asked,
    /// The drill itself could not go on.
    Broken,
}

/// One reign as the record shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedReign {
    /// The process of the leader.
    pub process: usize,
    /// Its place among the candidates.
    pub lane: usize,
    /// The term that it led.
    pub term: u64,
    /// The first sign of it.
    pub from: Time,
    /// When it was told to stop.
    pub draining: Option<Time>,
    /// When its trust ended.
    pub until: Time,
}

/// What was done to a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// What.
    pub fault: Fault,
    /// Which of the fault's shapes it was, in words; empty if it has only one.
    pub shape: &'static str,
    /// The process of the leader.
    pub process: usize,
    /// Its place among the candidates.
    pub lane: usize,
    /// The term that it led.
    pub term: u64,
    /// Just before the fault.
    pub at: Time,
    /// Whether another leader had to come of it.
    pub changes: bool,
    /// When it was over, if it lasted: a process that was frozen, a connection that was cut.
    pub over: Option<Time>,
}

/// What the writes show of each candidate.
struct Traces<'a> {
    /// When a candidate was first seen to trust itself in a term.
    first: BTreeMap<(&'a str, u64), Time>,
    /// When it last wrote.
    last: BTreeMap<&'a str, Time>,
}

impl<'a> Traces<'a> {
    fn new(rows: &'a [Row]) -> Traces<'a> {
        let mut traces = Traces { first: BTreeMap::new(), last: BTreeMap::new() };
        for row in rows {
            let candidate = row.candidate.as_str();
            traces.first.entry((candidate, row.term)).or_insert(row.checked);
            let last = traces.last.entry(candidate).or_insert(row.at);
            *last = row.at.max(*last);
        }
        traces
    }
}

impl Record {
    /// What was written, as far as it is known.
    pub fn rows(&self) -> &[Row] {
        self.rows.as_deref().unwrap_or_default()
    }

    /// The reigns, in the order in which they began.
    pub fn reigns(&self) -> Vec<RecordedReign> {
        let traces = Traces::new(self.rows());
        let elected = self.events.iter().filter(|told| told.is("elected"));
        let mut reigns: Vec<RecordedReign> =
            elected.map(|told| self.reign(told, &traces)).collect();
        reigns.sort_by_key(|reign| (reign.from, reign.term));
        reigns
    }

    fn reign(&self, elected: &CandidateEvent, traces: &Traces<'_>) -> RecordedReign {
        let &CandidateEvent { process, lane, term, .. } = elected;
        let from = self.begin(elected, traces);
        let own = |told: &&CandidateEvent| told.process == process && told.term == term;
        let first =
            |event: &str| self.events.iter().filter(own).find(|t| t.is(event)).map(|t| t.at);
        let trusted = self.events.iter().filter(own).filter_map(|told| told.until).max();
        let death = self.death(process, &elected.candidate, traces);
        let ends = [trusted, first("stepped_down"), death];
        let until = ends.into_iter().flatten().min().unwrap_or(self.ended).max(from);
        let draining = first("draining").filter(|draining| *draining < until);
        RecordedReign { process, lane, term, from, draining, until }
    }

    /// The first sign of a reign. The work may begin a moment before the election is told.
    fn begin(&self, elected: &CandidateEvent, traces: &Traces<'_>) -> Time {
        let own =
            |told: &&CandidateEvent| told.process == elected.process && told.term == elected.term;
        let trusts = self.events.iter().filter(own).filter(|told| told.until.is_some());
        let wrote = traces.first.get(&(elected.candidate.as_str(), elected.term)).copied();
        trusts.map(|told| told.at).chain(wrote).fold(elected.at, Time::min)
    }

    /// When a process was dead. It may have written for a moment after the kill was sent.
    fn death(&self, process: usize, candidate: &str, traces: &Traces<'_>) -> Option<Time> {
        let killed = *self.killed.get(&process)?;
        let last = traces.last.get(candidate).copied().unwrap_or(killed);
        Some(last.max(killed) + Duration::from_nanos(1))
    }

    /// What the checker of histories is to judge; instants count from the start of the drill.
    pub fn history(&self) -> History {
        let traces = Traces::new(self.rows());
        let mut history = History::new();
        let mut add = |at: Time, candidate: &str, kind: Kind| {
            history.record(Event::new(self.since(at), &self.election, candidate, kind));
        };
        let mut dead = BTreeMap::new();
        // At the same instant, a reign begins before anything happens in it.
        for elected in self.events.iter().filter(|told| told.is("elected")) {
            if let Some(term) = Term::new(elected.term) {
                let kind = Kind::Lead { term, until: self.first_trust(elected) };
                add(self.begin(elected, &traces), &elected.candidate, kind);
            }
        }
        for (index, told) in self.events.iter().enumerate() {
            if let Some(at) = self.death(told.process, &told.candidate, &traces) {
                dead.insert(told.candidate.as_str(), at);
            }
            if let Some(kind) = self.kind(index, told) {
                add(told.at, &told.candidate, kind);
            }
        }
        for (candidate, at) in dead {
            add(at, candidate, Kind::Killed);
        }
        for row in self.rows() {
            if let Some(term) = Term::new(row.term) {
                add(row.checked, &row.candidate, Kind::Trusts { term });
                add(row.at, &row.candidate, Kind::WriteFenced { term, accepted: true });
            }
        }
        history
    }

    /// How long a new leader trusts itself at first; for ever, if it did not say.
    fn first_trust(&self, elected: &CandidateEvent) -> Time {
        let own =
            |told: &&CandidateEvent| told.process == elected.process && told.term == elected.term;
        let until = self.events.iter().filter(own).find_map(|told| told.until);
        until.map_or(Time::MAX, |until| self.since(until))
    }

    fn since(&self, at: Time) -> Time {
        Time::ZERO + (at - self.began)
    }

    fn kind(&self, index: usize, told: &CandidateEvent) -> Option<Kind> {
        let term = Term::new(told.term)?;
        let trusts = |other: &&CandidateEvent| {
            other.process == told.process && other.term == told.term && other.until.is_some()
        };
        Some(match told.event.as_str() {
            // The first one belongs to the beginning.
            "trusts" if self.events[..index].iter().any(|before| trusts(&before)) => {
                Kind::Extend { until: self.since(told.until?) }
            }
            "draining" => {
                let (reason, until) = (told.reason.clone(), Time::MAX);
                let resigning = ["resigned", "asked"].contains(&reason.as_str());
                Kind::StepDown { reason, until, resigning }
            }
            "stepped_down" => Kind::Released { term: Some(term) },
            "write_refused" => Kind::WriteFenced { term, accepted: false },
            _ => return None,
        })
    }

    /// The reign that began because of a round; `None` if leadership went on.
    pub fn next<'a>(
        &self,
        round: &Round,
        reigns: &'a [RecordedReign],
    ) -> Option<&'a RecordedReign> {
        let next = reigns.iter().find(|reign| reign.term > round.term)?;
        let later = self.rounds.iter().find(|later| later.at > round.at);
        // What begins after the next fault is the doing of that one.
        let end = later.map_or(self.closed, |later| later.at);
        (round.changes || next.from <= end).then_some(next)
    }

    /// How long nobody worked because of a round, if somebody else led after it.
    pub fn gap(&self, round: &Round, reigns: &[RecordedReign]) -> Option<Duration> {
        let next = self.next(round, reigns)?;
        let own = |told: &&CandidateEvent| told.process == round.process && told.term == round.term;
        let from = match round.fault {
            // The leader goes on until its work has ended.
            Fault::Resign => {
                let mut own = self.events.iter().filter(own);
                own.find(|told| told.is("stepped_down")).map_or(round.at, |told| told.at)
            }
            // It works on, as slowly as it can, until it may not.
            Fault::Delay => {
                let own = reigns.iter().find(|reign| reign.term == round.term);
                own.map_or(round.at, |own| own.draining.unwrap_or(own.until).max(round.at))
            }
            _ => round.at,
        };
        Some(next.from - from)
    }

    /// The raw history, a line for each event, in the order of time.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(Time, String)> =
            self.events.iter().map(|told| (told.at, told.line.clone())).collect();
        let mut add = |at: Time, event: &str, lane: Option<String>, term: u64, rest: String| {
            let (wall, boot) = (json!(self.wall.rfc3339(at)), at.as_nanos());
            let (election, candidate) = (json!(self.election.as_str()), json!(lane));
            lines.push((
                at,
                format!(
                    "{{\"at\":{wall},\"boot_ns\":{boot},\"event\":\"{event}\",\
                     \"election\":{election},\"candidate\":{candidate},\"term\":{term}{rest}}}"
                ),
            ));
        };
        for round in &self.rounds {
            let fault =
                format!(",\"fault\":\"{}\",\"shape\":{}", round.fault.name(), json!(round.shape));
            add(round.at, "fault", Some(label(round.lane)), round.term, fault.clone());
            if let Some(at) = round.over {
                add(at, "fault_over", Some(label(round.lane)), round.term, fault);
            }
        }
        for ((candidate, term), acknowledged) in &self.acknowledged {
            let Acknowledged { first, last, until, .. } = acknowledged;
            let rest = format!(",\"first\":{first},\"last\":{last}");
            add(*until, "acknowledged", Some(candidate.clone()), *term, rest);
        }
        for row in self.rows() {
            let rest =
                format!(",\"counter\":{},\"checked_ns\":{}", row.counter, row.checked.as_nanos());
            add(row.at, "written", Some(row.candidate.clone()), row.term, rest);
        }
        lines.sort_by_key(|(at, _)| *at);
        lines.into_iter().map(|(_, line)| line).collect()
    }
}
