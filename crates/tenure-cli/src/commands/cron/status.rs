//! `tenure cron status`: how far jobs have got, and which are paused.

use serde_json::json;
use tenure::Name;
use tenure_core::JobProgress;
use tenure_cron::show_instant;

use super::super::in_time;
use super::args::StatusArgs;
use super::{election_of, ledger, table};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now, printable};
use crate::store::StoreChoice;

const HEADER: [&str; 5] = ["ELECTION", "JOB", "SCHEDULE", "DEALT WITH UP TO", "PAUSED SINCE"];

/// Prints a table, or one object for each job.
pub(crate) async fn run(
    args: &StatusArgs,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    // To ask is no reason to create a file.
    if choice.is_missing() {
        out.say("no leader here has had a job yet");
        return Ok(Exit::DONE);
    }
    let opened = choice.open()?;
    let store = &*opened.store;
    let ledger = ledger(store)?;
    let elections = match (&args.election, &args.name) {
        (None, None) => in_time(opened.elections()).await??,
        (Some(election), None) => vec![Name::new(election)?],
        (given, Some(job)) => vec![election_of(store, given.as_deref(), job).await?],
    };
    let mut rows = Vec::new();
    for election in &elections {
        for job in in_time(ledger.latest(election)).await?? {
            if args.name.as_ref().is_some_and(|name| *name != job.job) {
                continue;
            }
            if out.json {
                tell(out, election, &job);
            } else {
                rows.push(row(election, &job));
            }
        }
    }
    if !out.json && rows.is_empty() {
        out.say("no leader here has had a job yet");
    } else if !out.json {
        out.data(&table(HEADER, rows));
    }
    Ok(Exit::DONE)
}

fn tell(out: &Output, election: &Name, job: &JobProgress) {
    let fields = vec![
        ("job", json!(job.job)),
        ("schedule", json!(job.schedule)),
        ("latest", json!(show_instant(job.latest_unix_ms))),
        ("paused_at", json!(job.paused_unix_ms.map(show_instant))),
        ("from_now_at", json!(job.anew_unix_ms.map(show_instant))),
    ];
    out.object(boot_now(), "job", election, fields);
}

fn row(election: &Name, job: &JobProgress) -> [String; 5] {
    [
        printable(election.as_str()),
        printable(&job.job),
        printable(job.schedule.as_deref().unwrap_or("")),
        show_instant(job.latest_unix_ms),
        job.paused_unix_ms.map(show_instant).unwrap_or_default(),
    ]
}
