//! The verdict on a record, and the numbers for each fault.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::Time;

use crate::fleet::Acknowledged;
use crate::plan::Fault;
use crate::record::{Record, RecordedReign, Round};
use crate::show::show_gap;

/// How many sentences about broken promises are shown.
pub(crate) const SHOWN_MAX: usize = 10;

/// What is said of a drill in which nothing happened.
pub(crate) const NOTHING_SHOWN: &str =
    "no fault happened, so nothing was shown; give it more time with --for";

/// What came out for one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSummary {
    /// Which fault.
    pub fault: Fault,
    /// How often it was there.
    pub rounds: usize,
    /// How long nobody worked, the shortest first; one for each round after which somebody led.
    pub gaps: Vec<Duration>,
    /// How often two candidates trusted themselves at once.
    pub overlaps: usize,
    /// Stale writes that the fence has stopped.
    pub stopped_by_fence: usize,
    /// Stale writes that the candidate did not send, by its own clock.
    pub stopped_by_clock: usize,
    /// Writes that the store had acknowledged and does not have.
    pub lost: usize,
    /// How many terms began in its rounds.
    pub terms: usize,
}

impl FaultSummary {
    /// The gap that so many of a hundred do not exceed.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.gaps.len() * percent).div_ceil(100).max(1);
        self.gaps.get(rank - 1).copied()
    }
}

/// The whole result.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// One for each fault that was there.
    pub faults: Vec<FaultSummary>,
    /// Broken promises, each in a sentence.
    pub violations: Vec<String>,
    /// How often two candidates trusted themselves at once.
    pub overlaps: usize,
    /// The longest of them.
    pub longest_overlap: Option<Duration>,
    /// How many terms there were.
    pub terms: usize,
    /// Writes that are there.
    pub writes: usize,
    /// Stale writes that were stopped.
    pub stopped: usize,
    /// Writes that the store had acknowledged and does not have; `violations` has those that its
    /// promise does not admit.
    pub lost: usize,
    /// Changes of hands that no fault explains.
    pub unplanned: usize,
}

impl Judgement {
    /// Whether no promise was broken.
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Judges a record; `found` is what went wrong while it was made.
pub fn judge(record: &Record, found: Option<String>) -> Judgement {
    let reigns = record.reigns();
    let overlaps = overlaps(&reigns);
    let mut violations: Vec<String> = found.into_iter().collect();
    if let Err(broken) = record.history().check() {
        let counts =
            |v: &&tenure_history::Violation| !(record.admits_overlap && v.invariant == "I1");
        let sentences =
            broken.iter().filter(counts).map(|v| format!("{}: {}", v.invariant, v.sentence));
        violations.extend(sentences.map(|sentence| without_incarnations(record, sentence)));
    }
    violations.extend(counted_wrong(record));
    let losses = losses(record);
    violations.extend(losses.iter().filter(|loss| !loss.admitted).map(Loss::sentence));
    if record.rounds.is_empty() && record.cut_short.is_none() && violations.is_empty() {
        violations.push(NOTHING_SHOWN.to_owned());
    }
    if record.admits_overlap {
        violations.extend(too_long(record, &overlaps));
    } else if !overlaps.is_empty() && violations.is_empty() {
        violations.push(format!("I1: {} reigns overlap", overlaps.len()));
    }
    let summary = |fault| FaultSummary {
        lost: losses.iter().filter(|loss| loss.fault == Some(fault)).map(|loss| loss.count).sum(),
        ..summarize(record, fault, &reigns, &overlaps)
    };
    let faults: Vec<FaultSummary> = kinds(record).into_iter().map(summary).collect();
    let stopped = faults.iter().map(|fault| fault.stopped_by_fence + fault.stopped_by_clock).sum();
    let explained = |round: &&Round| round.changes || record.next(round, &reigns).is_some();
    let planned = record.rounds.iter().filter(explained).count() + 1;
    // A leader elected while all are told to end is no surprise.
    let in_time = reigns.iter().filter(|reign| reign.from <= record.closed).count();
    Judgement {
        violations,
        overlaps: overlaps.len(),
        longest_overlap: overlaps.iter().map(|overlap| overlap.lasts).max(),
        terms: reigns.len(),
        writes: record.rows().len(),
        stopped,
        lost: losses.iter().map(|loss| loss.count).sum(),
        unplanned: in_time.saturating_sub(planned),
        faults,
    }
}

/// What even a store that admits overlaps does not: one that outlasts the lease.
fn too_long(record: &Record, overlaps: &[Overlap<'_>]) -> Vec<String> {
    let ttl = record.timing.ttl;
    let long = overlaps.iter().filter(|overlap| overlap.lasts > ttl);
    let sentence = |overlap: &Overlap<'_>| {
        format!(
            "overlap: the leader of term {} and another one trusted themselves for {}, longer \
             than the ttl",
            overlap.later.term,
            show_gap(overlap.lasts)
        )
    };
    long.map(sentence).collect()
}

/// People know the candidates by their labels.
fn without_incarnations(record: &Record, mut sentence: String) -> String {
    let mut candidates: Vec<&str> = record.events.iter().map(|t| t.candidate.as_str()).collect();
    candidates.sort_unstable();
    candidates.dedup();
    for candidate in candidates {
        if let Some((label, _)) = candidate.rsplit_once('#') {
            sentence = sentence.replace(candidate, label);
        }
    }
    sentence
}

fn kinds(record: &Record) -> Vec<Fault> {
    let mut faults: Vec<Fault> = record.rounds.iter().map(|round| round.fault).collect();
    faults.sort_unstable();
    faults.dedup();
    faults
}

fn summarize(
    record: &Record,
    fault: Fault,
    reigns: &[RecordedReign],
    overlaps: &[Overlap<'_>],
) -> FaultSummary {
    // A round goes on until the next one.
    let in_rounds = |at: Time| {
        let last = record.rounds.iter().rev().find(|round| round.at <= at);
        last.or(record.rounds.first()).is_some_and(|round| round.fault == fault)
    };
    let rounds: Vec<_> = record.rounds.iter().filter(|round| round.fault == fault).collect();
    let mut gaps: Vec<Duration> =
        rounds.iter().filter_map(|round| record.gap(round, reigns)).collect();
    gaps.sort_unstable();
    let told = |event: &str| {
        record.events.iter().filter(|told| told.is(event) && in_rounds(told.at)).count()
    };
    let first = record.rounds.first().map(|round| round.at);
    let began = |reign: &&RecordedReign| {
        first.is_some_and(|first| reign.from >= first) && reign.from <= record.closed
    };
    FaultSummary {
        fault,
        rounds: rounds.len(),
        gaps,
        overlaps: overlaps.iter().filter(|overlap| in_rounds(overlap.later.from)).count(),
        stopped_by_fence: told("write_refused"),
        stopped_by_clock: told("write_withheld"),
        lost: 0,
        terms: reigns.iter().filter(began).filter(|reign| in_rounds(reign.from)).count(),
    }
}

/// A reign that began while another candidate still trusted itself, and for how long both did.
struct Overlap<'a> {
    later: &'a RecordedReign,
    lasts: Duration,
}

fn overlaps(reigns: &[RecordedReign]) -> Vec<Overlap<'_>> {
    let overlap = |(index, later): (usize, &'_ RecordedReign)| {
        let others = reigns[..index].iter().filter(|earlier| earlier.process != later.process);
        let both = others.map(|earlier| earlier.until.min(later.until) - later.from);
        both.max().filter(|lasts| !lasts.is_zero())
    };
    let all = reigns.iter().enumerate();
    all.filter_map(|(index, later)| Some(Overlap { later, lasts: overlap((index, later))? }))
        .collect()
}

/// Every leader went on counting where the one before it stopped: otherwise a write came late, or
/// one in the middle was lost. One that a leader was not sure of may be there twice, while its term
/// lasts.
fn counted_wrong(record: &Record) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last = (0, 0);
    let mut first_of_term = 0;
    for row in record.rows() {
        let (term, counter) = (row.term, row.counter);
        if term == last.0 && (first_of_term..=last.1).contains(&counter) {
            continue;
        }
        if counter != last.1 + 1 || term < last.0 {
            wrong.push(format!(
                "fence: the leader of term {term} wrote {counter} after {} of term {}",
                last.1, last.0
            ));
        }
        if term != last.0 {
            first_of_term = counter;
        }
        last = (term, counter);
    }
    wrong
}

/// Writes of one reign that were acknowledged and are not there.
struct Loss<'a> {
    term: u64,
    acknowledged: &'a Acknowledged,
    count: usize,
    /// In whose rounds it was.
    fault: Option<Fault>,
    /// The store was restarted after them, and promises nothing for that.
    admitted: bool,
}

impl Loss<'_> {
    fn sentence(&self) -> String {
        let Loss { term, acknowledged: Acknowledged { first, last, .. }, count, .. } = self;
        format!(
            "lost: {count} of the writes {first} to {last} of term {term} were acknowledged and \
             are not there"
        )
    }
}

fn losses(record: &Record) -> Vec<Loss<'_>> {
    let Some(rows) = &record.rows else { return Vec::new() };
    let there: BTreeSet<(&str, u64, u64)> =
        rows.iter().map(|row| (row.candidate.as_str(), row.term, row.counter)).collect();
    let mut losses = Vec::new();
    for ((candidate, term), acknowledged) in &record.acknowledged {
        let Acknowledged { first, last, from, until } = *acknowledged;
        let missing = |counter: &u64| !there.contains(&(candidate.as_str(), *term, *counter));
        let count = (first..=last).filter(missing).count();
        let forgot = |round: &&Round| {
            let over = round.over.unwrap_or(record.ended);
            record.may_forget && round.fault == Fault::Restart && from <= over
        };
        let restart = record.rounds.iter().find(forgot);
        let last = record.rounds.iter().rev().find(|round| round.at <= until);
        let round = restart.or(last).or(record.rounds.first());
        let (fault, admitted) = (round.map(|round| round.fault), restart.is_some());
        if count > 0 {
            losses.push(Loss { term: *term, acknowledged, count, fault, admitted });
        }
    }
    losses
}

#[cfg(test)]
#[path = "judge_tests.rs"]
pub(crate) mod tests;
