//! `tenure cron next`: when jobs are due. Asks no store.

use serde_json::json;
use tenure_core::Name;
use tenure_cron::{Schedule, parse_instant, show_instant, show_local};

use super::args::NextArgs;
use super::options::{ELECTION, JobFile};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now, printable};
use crate::wall;

/// Prints the next instants, in the zone of the schedule.
pub(crate) fn run(args: &NextArgs, out: &Output) -> Result<Exit, Failure> {
    let all = match (&args.file, &args.schedule) {
        (Some(path), _) => {
            let jobs = JobFile::read(path)?.jobs;
            jobs.into_iter().map(|job| (Some(job.name), job.schedule)).collect()
        }
        (None, Some(schedule)) => {
            vec![(None, Schedule::new(schedule, args.tz.as_deref().unwrap_or("UTC"))?)]
        }
        (None, None) => Vec::new(),
    };
    for (job, schedule) in &all {
        let from = match &args.from {
            // The instant itself counts.
            Some(from) => parse_instant(from, schedule.zone())? - 1,
            None => wall::now().as_millisecond(),
        };
        tell(job.as_deref(), schedule, from, args.count, out)?;
    }
    Ok(Exit::DONE)
}

fn tell(
    job: Option<&str>,
    schedule: &Schedule,
    from: i64,
    count: usize,
    out: &Output,
) -> Result<(), Failure> {
    if let (Some(job), false) = (job, out.json) {
        out.data(&format!("{} ({schedule})", printable(job)));
    }
    let mut at = from;
    for _ in 0..count {
        let Some(next) = schedule.next_after(at) else { break };
        at = next;
        let local = show_local(at, schedule.zone())?;
        if out.json {
            let election = Name::new(ELECTION)?;
            let fields = vec![
                ("job", json!(job)),
                ("schedule", json!(schedule.as_str())),
                ("due_at", json!(show_instant(at))),
                ("local", json!(local)),
            ];
            out.object(boot_now(), "due", &election, fields);
        } else {
            let indent = if job.is_some() { "  " } else { "" };
            out.data(&format!("{indent}{local}"));
        }
    }
    Ok(())
}
