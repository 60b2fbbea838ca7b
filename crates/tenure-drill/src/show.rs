//! The result for people and for programs.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::judge::{FaultSummary, Judgement, NOTHING_SHOWN, SHOWN_MAX};
use crate::record::{CutShort, Record};

/// The columns of the table of faults.
pub(crate) const HEADER: [&str; 10] = [
    "FAULT",
    "ROUNDS",
    "GAP P50",
    "P99",
    "MAX",
    "OVERLAPS",
    "STOPPED BY FENCE",
    "BY CLOCK",
    "LOST",
    "TERMS",
];

/// One line of that table.
pub(crate) fn cells(line: &FaultSummary) -> [String; 10] {
    [
        line.fault.name().to_owned(),
        line.rounds.to_string(),
        line.percentile(50).map_or_else(none, show_gap),
        line.percentile(99).map_or_else(none, show_gap),
        line.gaps.last().copied().map_or_else(none, show_gap),
        line.overlaps.to_string(),
        line.stopped_by_fence.to_string(),
        line.stopped_by_clock.to_string(),
        line.lost.to_string(),
        line.terms.to_string(),
    ]
}

fn none() -> String {
    "-".to_owned()
}

/// A gap with three digits or so.
pub(crate) fn show_gap(gap: Duration) -> String {
    let millis = gap.as_secs_f64() * 1000.0;
    match millis {
        _ if millis < 10.0 => format!("{millis:.1} ms"),
        _ if millis < 1000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

/// The table as lines of text.
pub(crate) fn table(judgement: &Judgement) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(HEADER);
    table.add_rows(judgement.faults.iter().map(cells));
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if number > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The verdict in a word or two.
pub(crate) fn outcome(record: &Record, judgement: &Judgement) -> &'static str {
    match record.cut_short {
        _ if !judgement.is_sound() => "failed",
        None => "passed",
        Some(CutShort::Asked) => "interrupted",
        Some(CutShort::Broken) => "broken off",
    }
}

/// The verdict in a sentence.
pub(crate) fn verdict(record: &Record, judgement: &Judgement) -> String {
    let Judgement { overlaps, terms, writes, stopped, lost, unplanned, .. } = *judgement;
    let faults = match record.rounds.len() {
        1 => "1 fault".to_owned(),
        rounds => format!("{rounds} faults"),
    };
    if judgement.violations == [NOTHING_SHOWN] {
        return "failed: there was no fault in which a promise could have been broken".to_owned();
    }
    if !judgement.is_sound() {
        let broken = judgement.violations.len();
        let times = if broken == 1 { "once".to_owned() } else { format!("{broken} times") };
        return format!(
            "failed: a promise was broken {times} in {faults} ({overlaps} overlaps); seed \
             {} repeats the order of faults",
            record.seed
        );
    }
    let unplanned = match unplanned {
        0 => String::new(),
        1 => "; leadership changed once without a fault".to_owned(),
        times => format!("; leadership changed {times} times without a fault"),
    };
    let leaders = match judgement.longest_overlap {
        None => "never two leaders at once".to_owned(),
        Some(longest) => format!(
            "two leaders at once {} for {} at most, which this store's promise admits and the \
             fence covers",
            if overlaps == 1 { "once".to_owned() } else { format!("{overlaps} times") },
            show_gap(longest)
        ),
    };
    let lost = match lost {
        0 => String::new(),
        _ => format!(
            "; {lost} acknowledged writes were lost by restarts, against which this store \
             promises nothing"
        ),
    };
    let outcome = outcome(record, judgement);
    let so_far = if record.cut_short.is_some() { " so far" } else { "" };
    format!(
        "{outcome}: {faults}{so_far}, {leaders}, {terms} terms that only rose, {writes} writes \
         kept, {stopped} stale ones stopped{lost}{unplanned}"
    )
}

/// The broken promises that are worth showing.
pub(crate) fn complaints(judgement: &Judgement) -> Vec<String> {
    let mut shown: Vec<String> = judgement.violations.iter().take(SHOWN_MAX).cloned().collect();
    let more = judgement.violations.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown
}

/// The result as one object.
pub(crate) fn fields(record: &Record, judgement: &Judgement) -> Vec<(&'static str, Value)> {
    let Judgement { overlaps, terms, writes, stopped, lost, unplanned, .. } = *judgement;
    vec![
        ("passed", json!(judgement.is_sound() && record.cut_short.is_none())),
        ("interrupted", json!(record.cut_short == Some(CutShort::Asked))),
        ("broken_off", json!(record.cut_short == Some(CutShort::Broken))),
        ("store", json!(record.store)),
        ("seed", json!(record.seed)),
        ("candidates", json!(record.candidates)),
        ("ttl_ms", millis(record.timing.ttl)),
        ("took_ms", millis(record.ended - record.began)),
        ("rounds", json!(record.rounds.len())),
        ("overlaps", json!(overlaps)),
        ("overlap_max_ms", json!(judgement.longest_overlap.map(in_millis))),
        ("overlap_admitted", json!(record.admits_overlap)),
        ("terms", json!(terms)),
        ("writes", json!(writes)),
        ("stale_writes_stopped", json!(stopped)),
        ("writes_lost", json!(lost)),
        ("unplanned_changes", json!(unplanned)),
        ("faults", judgement.faults.iter().map(line_object).collect()),
        ("violations", json!(judgement.violations)),
    ]
}

fn line_object(line: &FaultSummary) -> Value {
    let gap = |gap: Option<Duration>| gap.map(in_millis);
    json!({
        "fault": line.fault.name(),
        "rounds": line.rounds,
        "gap_p50_ms": gap(line.percentile(50)),
        "gap_p99_ms": gap(line.percentile(99)),
        "gap_max_ms": gap(line.gaps.last().copied()),
        "overlaps": line.overlaps,
        "stopped_by_fence": line.stopped_by_fence,
        "stopped_by_clock": line.stopped_by_clock,
        "lost": line.lost,
        "terms": line.terms,
    })
}

fn in_millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn millis(span: Duration) -> Value {
    json!(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
