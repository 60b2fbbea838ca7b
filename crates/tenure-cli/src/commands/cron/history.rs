//! `tenure cron history`: what happened to ticks.

use serde_json::{Value, json};
use tenure::Name;
use tenure_core::{TickEnd, TickRecord, TickState};
use tenure_cron::show_instant;

use super::super::in_time;
use super::args::HistoryArgs;
use super::{ledger, open_to_ask, show};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now, printable};
use crate::store::StoreChoice;

const HEADER: [&str; 7] = ["ELECTION", "JOB", "SCHEDULED", "STATE", "TERM", "ATTEMPT", "TOOK"];
const NOTHING: &str = "nothing was ever run here";

/// Prints a table, or one object for each tick.
pub(crate) async fn run(
    args: &HistoryArgs,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let (election, job) = (args.election.as_deref(), args.name.as_deref());
    let Some((opened, elections)) = open_to_ask(choice, election, job).await? else {
        out.say(NOTHING);
        return Ok(Exit::DONE);
    };
    let ledger = ledger(&*opened.store)?;
    let mut rows = Vec::new();
    for election in &elections {
        let records = in_time(ledger.history(election, job, args.limit)).await??;
        for record in records {
            if out.json {
                out.object(boot_now(), "tick", election, fields(&record));
            } else {
                rows.push(row(election, &record));
            }
        }
    }
    Ok(show(out, HEADER, rows, NOTHING))
}

fn fields(record: &TickRecord) -> Vec<(&'static str, Value)> {
    let instant = |at: Option<i64>| at.map(show_instant);
    let mut fields = vec![
        ("job", json!(record.tick.job)),
        ("scheduled_at", json!(show_instant(record.tick.scheduled_unix_ms))),
        ("state", json!(record.state.as_str())),
        ("manual", json!(record.manual)),
        ("term", json!(record.term.map(|term| term.get()))),
        ("attempt", json!(record.attempt)),
        ("claimed_at", json!(instant(record.claimed_unix_ms))),
        ("started_at", json!(instant(record.started_unix_ms))),
        ("ended_at", json!(instant(record.ended_unix_ms))),
    ];
    match record.state {
        TickState::Finished(TickEnd::Failed(code)) | TickState::Retrying { code: Some(code) } => {
            fields.push(("code", json!(code)));
        }
        TickState::Skipped { through_unix_ms, count } => {
            fields.push(("through", json!(show_instant(through_unix_ms))));
            fields.push(("count", json!(count)));
        }
        _ => {}
    }
    fields
}

fn row(election: &Name, record: &TickRecord) -> [String; 7] {
    let took = match (record.started_unix_ms, record.ended_unix_ms) {
        (Some(from), Some(to)) => format!("{:.3}s", (to - from) as f64 / 1000.0),
        _ => String::new(),
    };
    let manual = if record.manual { " (asked for)" } else { "" };
    [
        printable(election.as_str()),
        printable(&record.tick.job),
        show_instant(record.tick.scheduled_unix_ms),
        format!("{}{manual}", record.state),
        record.term.map(|term| term.to_string()).unwrap_or_default(),
        if record.attempt == 0 { String::new() } else { record.attempt.to_string() },
        took,
    ]
}
