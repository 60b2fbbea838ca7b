//! `tenure cron`: jobs by a schedule, and what there is to know about them.

mod args;
mod exec;
mod history;
mod next;
mod options;
mod run;
mod status;
mod steer;
mod trigger;

use tenure::{Error, ErrorKind, Name, Store, StoreInfo};
use tenure_core::{Ledger, Steer, StoreExt as _};

pub(crate) use self::args::CronArgs;
use self::args::CronCommand;
#[cfg(test)]
pub(crate) use self::options::fuzz;
use self::options::{CronOptions, ELECTION};
use super::in_time;
use crate::block_on;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::store::{Opened, StoreChoice};

/// Does what was asked for behind `tenure cron`.
pub(crate) fn perform(
    args: CronArgs,
    choose: impl Fn() -> Result<StoreChoice, Failure>,
    out: &Output,
) -> Result<Exit, Failure> {
    match args.what {
        None => {
            let (options, store) = (CronOptions::try_from(args.run)?, choose()?);
            block_on(run::run(&options, &store, out))
        }
        Some(CronCommand::History(args)) => block_on(history::run(&args, &choose()?, out)),
        Some(CronCommand::Next(args)) => next::run(&args, out),
        Some(CronCommand::Trigger(args)) => block_on(trigger::run(&args, &choose()?, out)),
        Some(CronCommand::Pause(args)) => {
            block_on(steer::run(&args.job, Steer::Pause, &choose()?, out))
        }
        Some(CronCommand::Resume(args)) => {
            block_on(steer::run(&args.job, Steer::Resume, &choose()?, out))
        }
        Some(CronCommand::FromNow(args)) => {
            block_on(steer::run(&args.job, Steer::FromNow, &choose()?, out))
        }
        Some(CronCommand::Status(args)) => block_on(status::run(&args, &choose()?, out)),
    }
}

/// The ledger of a store.
fn ledger(store: &dyn Store) -> Result<&dyn Ledger, Failure> {
    let StoreInfo { kind, .. } = store.info();
    store.ledger().ok_or_else(|| {
        let message = format!("the {kind} store keeps no ledger, which cron needs");
        Error::new(ErrorKind::Unsupported, message).into()
    })
}

/// Opens the store to ask about jobs: about this one, those of this election, or all. `None` if
/// nobody ever used it: to ask is no reason to create a file.
async fn open_to_ask(
    choice: &StoreChoice,
    election: Option<&str>,
    job: Option<&str>,
) -> Result<Option<(Opened, Vec<Name>)>, Failure> {
    if choice.is_missing() {
        return Ok(None);
    }
    let opened = choice.open()?;
    ledger(&*opened.store)?;
    let elections = match (election, job) {
        (None, None) => in_time(opened.elections()).await??,
        (Some(election), None) => vec![Name::new(election)?],
        (given, Some(job)) => vec![election_of(&*opened.store, given, job).await?],
    };
    Ok(Some((opened, elections)))
}

/// Prints a table, or says that there is nothing to show. With `--json` all has been printed.
fn show<const N: usize>(
    out: &Output,
    header: [&str; N],
    rows: Vec<[String; N]>,
    nothing: &str,
) -> Exit {
    if !out.json && rows.is_empty() {
        out.say(nothing);
    } else if !out.json {
        out.data(&table(header, rows));
    }
    Exit::DONE
}

/// Rows as people read them.
fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// The election that somebody means who names a job only: the one of the same name, or that of
/// files, whichever was led.
async fn election_of(store: &dyn Store, given: Option<&str>, job: &str) -> Result<Name, Failure> {
    if let Some(given) = given {
        return Ok(Name::new(given)?);
    }
    for name in [job, ELECTION] {
        let name = Name::new(name)?;
        if in_time(store.read(&name)).await??.last_term.is_some() {
            return Ok(name);
        }
    }
    Err(Failure {
        exit: Exit::NEGATIVE,
        error: anyhow::anyhow!(
            "there is no election {job:?} or {ELECTION:?} in this store; name the one you mean \
             with --election"
        ),
    })
}
