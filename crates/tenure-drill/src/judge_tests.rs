//! Sound records pass; each way of falsifying one is noticed. So the verdict of a drill can fail.

use std::collections::BTreeMap;

use tenure::BootClock;
use tenure_core::{Name, Timing};

use super::*;
use crate::fleet::{CandidateEvent, label};
use crate::ground::Row;
use crate::record::{CutShort, WallTime};
use crate::show::{fields, verdict};

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn candidate(process: usize) -> String {
    format!("{}#{process}", label(process))
}

fn told(process: usize, millis: u64, event: &str, term: u64) -> CandidateEvent {
    CandidateEvent {
        process,
        lane: process % 3,
        at: at(millis),
        event: event.to_owned(),
        candidate: candidate(process),
        term,
        reason: String::new(),
        until: None,
        counter: None,
        line: format!("{{\"event\":\"{event}\"}}"),
    }
}

fn trusts(process: usize, millis: u64, term: u64, until: u64) -> CandidateEvent {
    CandidateEvent { until: Some(at(until)), ..told(process, millis, "trusts", term) }
}

fn row(process: usize, millis: u64, term: u64, counter: u64) -> Row {
    let (checked, at) = (at(millis - 10), at(millis));
    Row { checked, at, term, counter, candidate: candidate(process) }
}

/// What a leader was told of its writes: which, and when.
fn acknowledged(
    process: usize,
    term: u64,
    (first, last): (u64, u64),
    (from, until): (u64, u64),
) -> ((String, u64), Acknowledged) {
    let (from, until) = (at(from), at(until));
    ((candidate(process), term), Acknowledged { first, last, from, until })
}

fn rows(record: &mut Record) -> &mut Vec<Row> {
    record.rows.as_mut().unwrap()
}

/// Three candidates: the first is asked to resign, the second frozen, the third killed.
pub(crate) fn sound() -> Record {
    let asked = CandidateEvent { reason: "asked".to_owned(), ..told(0, 2000, "draining", 1) };
    let late = CandidateEvent { reason: "not_renewed".to_owned(), ..told(1, 5500, "draining", 2) };
    let last = CandidateEvent { reason: "resigned".to_owned(), ..told(0, 9000, "draining", 4) };
    let round = |fault, process, millis, term| Round {
        fault,
        shape: "",
        process,
        lane: process,
        term,
        at: at(millis),
        changes: true,
        over: (fault == Fault::Freeze).then_some(at(5400)),
    };
    Record {
        election: Name::new("tenure-drill-x").unwrap(),
        store: "sqlite:a&b.db".to_owned(),
        seed: 7,
        candidates: 3,
        timing: Timing::new(Duration::from_secs(3)),
        admits_overlap: false,
        may_forget: false,
        began: at(0),
        closed: at(8990),
        ended: at(9500),
        wall: WallTime::now(&BootClock),
        cut_short: None,
        events: vec![
            told(0, 100, "elected", 1),
            trusts(0, 101, 1, 2950),
            trusts(0, 1100, 1, 3950),
            asked,
            told(0, 2040, "stepped_down", 1),
            told(1, 2044, "elected", 2),
            trusts(1, 2045, 2, 4890),
            told(2, 5100, "elected", 3),
            trusts(2, 5101, 3, 7950),
            late,
            told(1, 5501, "stepped_down", 2),
            told(1, 5510, "write_refused", 2),
            told(0, 6010, "elected", 4),
            trusts(0, 6011, 4, 8860),
            trusts(0, 7000, 4, 9850),
            last,
            told(0, 9040, "stepped_down", 4),
        ],
        killed: BTreeMap::from([(2, at(6000))]),
        rounds: vec![
            round(Fault::Resign, 0, 1990, 1),
            round(Fault::Freeze, 1, 2500, 2),
            round(Fault::Kill, 2, 6000, 3),
        ],
        acknowledged: BTreeMap::from([
            acknowledged(0, 1, (1, 2), (120, 2031)),
            acknowledged(1, 2, (3, 3), (2101, 2101)),
            acknowledged(2, 3, (4, 4), (5151, 5151)),
            acknowledged(0, 4, (6, 6), (6051, 6051)),
        ]),
        rows: Some(vec![
            row(0, 120, 1, 1),
            row(0, 2030, 1, 2),
            row(1, 2100, 2, 3),
            row(2, 5150, 3, 4),
            row(2, 6000, 3, 5),
            row(0, 6050, 4, 6),
        ]),
    }
}

#[track_caller]
fn assert_noticed(promise: &str, change: impl FnOnce(&mut Record)) {
    let mut record = sound();
    change(&mut record);
    let violations = judge(&record, None).violations;
    assert!(violations.iter().any(|v| v.starts_with(promise)), "{promise}: {violations:#?}");
}

fn find<'a>(record: &'a mut Record, event: &str, term: u64) -> &'a mut CandidateEvent {
    record.events.iter_mut().find(|told| told.is(event) && told.term == term).unwrap()
}

#[test]
fn a_sound_record_passes_with_its_numbers() {
    let judgement = judge(&sound(), None);
    assert_eq!(judgement.violations, [""; 0]);
    assert_eq!((judgement.overlaps, judgement.terms, judgement.unplanned), (0, 4, 0));
    assert_eq!((judgement.writes, judgement.stopped), (6, 1));
    let gap = |fault| {
        let line = judgement.faults.iter().find(|line| line.fault == fault).unwrap();
        assert_eq!((line.rounds, line.terms), (1, 1), "{line:?}");
        line.percentile(99).unwrap()
    };
    assert_eq!(gap(Fault::Resign), Duration::from_millis(4), "from the end of the old work");
    assert_eq!(gap(Fault::Freeze), Duration::from_millis(2600));
    assert_eq!(gap(Fault::Kill), Duration::from_millis(10));
}

#[test]
fn two_leaders_at_once_are_noticed_and_counted_for_their_fault() {
    let mut record = sound();
    find(&mut record, "elected", 3).at = at(4800);
    let judgement = judge(&record, None);
    assert!(judgement.violations[0].starts_with("I1"), "{:?}", judgement.violations);
    assert_eq!(judgement.overlaps, 1);
    let freezes = judgement.faults.iter().find(|line| line.fault == Fault::Freeze).unwrap();
    assert_eq!(freezes.overlaps, 1);
}

#[test]
fn work_that_begins_before_it_is_told_is_counted_from_its_first_sign() {
    // The election is told in time, but the work was there before the old trust had ended.
    assert_noticed("I1", |record| rows(record)[3].checked = at(4880));
}

#[test]
fn each_other_broken_promise_is_noticed() {
    assert_noticed("I2", |record| {
        for told in record.events.iter_mut().filter(|told| told.term == 4) {
            told.term = 3;
        }
    });
    assert_noticed("I3", |record| rows(record)[1].checked = at(2041));
    assert_noticed("I3", |record| {
        let revived = trusts(1, 5450, 2, 8000);
        record.events.push(revived);
    });
    assert_noticed("I6", |record| record.events.retain(|t| !(t.is("draining") && t.term == 1)));
    assert_noticed("I6", |record| {
        record.events.retain(|t| t.term != 1 || !(t.is("draining") || t.is("stepped_down")));
    });
    assert_noticed("fence", |record| rows(record).push(row(1, 7000, 2, 7)));
    assert_noticed("fence", |record| rows(record)[3].counter = 3);
    assert_noticed("fence", |record| drop(rows(record).remove(2)));
}

#[test]
fn a_write_that_nobody_was_sure_of_may_be_there_twice_in_its_own_term_only() {
    let mut record = sound();
    rows(&mut record).insert(5, row(2, 5999, 3, 4));
    assert_eq!(judge(&record, None).violations, [""; 0]);
    assert_noticed("fence", |record| rows(record).push(row(2, 6060, 3, 5)));
}

#[test]
fn an_overlap_that_the_store_admits_is_measured_and_bounded() {
    let mut record = sound();
    record.admits_overlap = true;
    find(&mut record, "elected", 3).at = at(4800);
    let judgement = judge(&record, None);
    assert_eq!(judgement.violations, [""; 0]);
    assert_eq!(judgement.overlaps, 1);
    assert_eq!(judgement.longest_overlap, Some(Duration::from_millis(90)));
    // Longer than the ttl is not admitted, and neither is a write that passes the fence.
    record.timing = Timing::new(Duration::from_secs(1));
    find(&mut record, "trusts", 2).until = Some(at(9000));
    find(&mut record, "draining", 2).at = at(8990);
    find(&mut record, "stepped_down", 2).at = at(8995);
    let violations = judge(&record, None).violations;
    assert!(violations.iter().any(|v| v.starts_with("overlap")), "{violations:#?}");
    let mut record = sound();
    record.admits_overlap = true;
    rows(&mut record).push(row(1, 7000, 2, 7));
    assert!(!judge(&record, None).is_sound());
}

#[test]
fn what_may_go_on_has_no_gap_if_it_does() {
    let mut record = sound();
    let calm = Round { fault: Fault::Reset, changes: false, ..record.rounds[0].clone() };
    record.rounds.insert(0, Round { at: at(1500), ..calm.clone() });
    let judgement = judge(&record, None);
    let line = judgement.faults.iter().find(|line| line.fault == Fault::Reset).unwrap();
    assert_eq!((line.rounds, line.gaps.len(), line.terms), (1, 0, 0));
    assert_eq!(judgement.unplanned, 0);
    // If it does not, the gap is its own.
    record.rounds.remove(1);
    let judgement = judge(&record, None);
    let line = judgement.faults.iter().find(|line| line.fault == Fault::Reset).unwrap();
    assert_eq!(line.gaps, [Duration::from_millis(544)]);
    assert_eq!(judgement.unplanned, 0);
}

#[test]
fn the_gap_of_the_last_round_counts_too() {
    let mut record = sound();
    record.rounds[2] = Round { fault: Fault::Reset, changes: false, ..record.rounds[2].clone() };
    let gaps = |record: &Record| {
        let judgement = judge(record, None);
        let line = judgement.faults.into_iter().find(|line| line.fault == Fault::Reset).unwrap();
        (line.gaps, judgement.unplanned)
    };
    assert_eq!(gaps(&record), (vec![Duration::from_millis(10)], 0));
    // A leader elected while all are told to end succeeds nobody.
    record.closed = at(6005);
    assert_eq!(gaps(&record), (vec![], 0));
}

#[test]
fn a_write_that_was_acknowledged_and_is_gone_is_noticed() {
    // The last of all: nobody counts on from it.
    assert_noticed("lost: 1 of the writes 6 to 6 of term 4", |record| drop(rows(record).pop()));
    // A reign of which nothing is left, with the next one counting on as if it had not been.
    assert_noticed("lost: 1 of the writes 3 to 3 of term 2", |record| {
        rows(record).remove(2);
        for row in &mut rows(record)[2..] {
            row.counter -= 1;
        }
    });
    // Where nobody could be asked, nothing is said to be lost.
    let mut record = sound();
    record.rows = None;
    assert_eq!(judge(&record, None).lost, 0);
}

#[test]
fn what_a_restart_loses_is_told_and_fails_only_stores_that_promise_to_keep_it() {
    let mut record = sound();
    record.rounds[2] =
        Round { fault: Fault::Restart, over: Some(at(6040)), ..record.rounds[2].clone() };
    // Everything before it is gone.
    record.rows = Some(vec![row(0, 6050, 4, 6)]);
    rows(&mut record)[0].counter = 1;
    record.acknowledged.extend([acknowledged(0, 4, (1, 1), (6051, 6051))]);
    let violations = judge(&record, None).violations;
    assert!(violations.iter().all(|v| v.starts_with("lost: ")), "{violations:#?}");
    assert_eq!(violations.len(), 3);
    record.may_forget = true;
    let judgement = judge(&record, None);
    assert_eq!(judgement.violations, [""; 0]);
    assert_eq!(judgement.lost, 4);
    let lost = judgement.faults.iter().map(|line| (line.fault, line.lost)).collect::<Vec<_>>();
    assert_eq!(lost, [(Fault::Freeze, 0), (Fault::Resign, 0), (Fault::Restart, 4)]);
    assert!(verdict(&record, &judgement).contains("4 acknowledged writes were lost by restarts"));
    // What was written after the last restart has no such excuse.
    rows(&mut record).clear();
    let violations = judge(&record, None).violations;
    assert!(violations.iter().any(|v| v.contains("of term 4")), "{violations:#?}");
}

#[test]
fn a_drill_in_which_nothing_happened_does_not_pass() {
    let mut record = sound();
    record.rounds.clear();
    let judgement = judge(&record, None);
    assert_eq!(judgement.violations, [NOTHING_SHOWN]);
    assert!(verdict(&record, &judgement).starts_with("failed: there was no fault"));
}

#[test]
fn a_drill_that_was_cut_short_has_not_passed() {
    let mut record = sound();
    for (cut_short, says) in [
        (CutShort::Asked, "interrupted: 3 faults so far, never two"),
        (CutShort::Broken, "broken off: 3 faults so far, never two"),
    ] {
        record.cut_short = Some(cut_short);
        let judgement = judge(&record, None);
        let sentence = verdict(&record, &judgement);
        assert!(sentence.starts_with(says), "{sentence}");
        let fields = fields(&record, &judgement);
        assert!(fields.iter().any(|(name, value)| *name == "passed" && *value == false));
    }
    record.rounds.clear();
    assert_eq!(judge(&record, None).violations, [""; 0], "nothing was promised yet");
}

#[test]
fn what_was_found_on_the_way_fails_the_verdict() {
    let judgement = judge(&sound(), Some("nobody was elected".to_owned()));
    assert_eq!(judgement.violations, ["nobody was elected"]);
    assert!(!judgement.is_sound());
}

#[test]
fn percentiles_are_ones_that_were_measured() {
    let gaps = |count: u64| FaultSummary {
        fault: Fault::Kill,
        rounds: 0,
        gaps: (1..=count).map(Duration::from_millis).collect(),
        overlaps: 0,
        stopped_by_fence: 0,
        stopped_by_clock: 0,
        lost: 0,
        terms: 0,
    };
    assert_eq!(gaps(0).percentile(50), None);
    assert_eq!(gaps(1).percentile(50), Some(Duration::from_millis(1)));
    assert_eq!(gaps(200).percentile(50), Some(Duration::from_millis(100)));
    assert_eq!(gaps(200).percentile(99), Some(Duration::from_millis(198)));
    assert_eq!(gaps(10).percentile(99), Some(Duration::from_millis(10)));
}
