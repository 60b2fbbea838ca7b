//! `tenure cron pause`, `resume` and `from-now`: what becomes of a job, on any instance.

use serde_json::json;
use tenure_core::{LedgerExt as _, Steer};

use super::super::in_time;
use super::args::OneJob;
use super::{election_of, ledger};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now, printable};
use crate::store::StoreChoice;

/// Has the ledger note it.
pub(crate) async fn run(
    args: &OneJob,
    steer: Steer,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let opened = choice.open()?;
    let store = &*opened.store;
    let ledger = ledger(store)?;
    let election = election_of(store, args.election.as_deref(), &args.name).await?;
    let job = printable(&args.name);
    if !in_time(ledger.steer_job(&election, &args.name, steer)).await?? {
        return Err(Failure {
            exit: Exit::NEGATIVE,
            error: anyhow::anyhow!(
                "no leader of {election} has had a job {job} yet; `tenure cron status` lists those \
                 that are known"
            ),
        });
    }
    let (event, says) = match steer {
        Steer::Pause => ("job_paused", "is paused; `tenure cron resume` lets it go on"),
        Steer::Resume => ("job_resumed", "goes on with what comes due from now on"),
        _ => ("job_from_now", "counts from now on"),
    };
    if out.json {
        out.object(boot_now(), event, &election, vec![("job", json!(args.name))]);
    } else {
        out.say(&format!("{job} {says}"));
    }
    Ok(Exit::DONE)
}
