//! `tenure cron status`: how far jobs have got, and which are paused.

use serde_json::json;
use tenure::Name;
use tenure_core::JobProgress;
use tenure_cron::show_instant;

use super::super::in_time;
use super::args::StatusArgs;
use super::{ledger, open_to_ask, show};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now, printable};
use crate::store::StoreChoice;

const HEADER: [&str; 5] = ["ELECTION", "JOB", "SCHEDULE", "DEALT WITH UP TO", "PAUSED SINCE"];
const NOTHING: &str = "no leader here has had a job yet";

/// Prints a table, or one object for each job.
pub(crate) async fn run(
    args: &StatusArgs,
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
        let known = in_time(ledger.latest(election)).await??;
        for progress in known.iter().filter(|known| job.is_none_or(|job| job == known.job)) {
            if out.json {
                tell(out, election, progress);
            } else {
                rows.push(row(election, progress));
            }
        }
    }
    Ok(show(out, HEADER, rows, NOTHING))
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
