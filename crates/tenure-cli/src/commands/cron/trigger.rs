//! `tenure cron trigger`: has the leader run a job now.

use std::time::Duration;

use serde_json::json;
use tenure::{BootClock, Error, Name};
use tenure_core::{Ledger, Tick, TickRecord, TickState, check_job_name, parse_duration};
use tenure_cron::show_instant;

use super::super::{in_time, pause};
use super::args::TriggerArgs;
use super::{election_of, ledger};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now, printable, show_short};
use crate::store::StoreChoice;

/// How often the ledger is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How many records are read at most to find one.
const LOOK_BACK_MAX: usize = 100_000;

/// Asks, and waits until it has begun.
pub(crate) async fn run(
    args: &TriggerArgs,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    check_job_name(&args.name)?;
    let timeout =
        parse_duration(&args.timeout).map_err(|error| Failure::from(error).about("--timeout"))?;
    let opened = choice.open()?;
    let store = &*opened.store;
    let ledger = ledger(store)?;
    let election = election_of(store, args.election.as_deref(), &args.name).await?;
    let tick = in_time(ledger.request(&election, &args.name)).await??;
    let until = BootClock::time() + timeout;
    let job = printable(&args.name);
    loop {
        let record = find(ledger, &election, &tick).await?;
        let state = record.as_ref().map(|record| record.state);
        match state {
            Some(TickState::Requested) | None if BootClock::time() < until => {
                pause(LOOK_EVERY).await;
            }
            Some(TickState::Requested) | None => {
                let waited = show_short(timeout);
                return negative(format!(
                    "nobody began {job} within {waited}; it stays asked for, and the next leader \
                     of {election} that has such a job begins it"
                ));
            }
            Some(state) => {
                if out.json {
                    let fields = vec![
                        ("job", json!(args.name)),
                        ("scheduled_at", json!(show_instant(tick.scheduled_unix_ms))),
                        ("state", json!(state.as_str())),
                    ];
                    out.object(boot_now(), "triggered", &election, fields);
                } else {
                    let at = show_instant(tick.scheduled_unix_ms);
                    out.say(&format!("{job} runs, as the tick of {at}"));
                }
                return Ok(Exit::DONE);
            }
        }
    }
}

async fn find(
    ledger: &dyn Ledger,
    election: &Name,
    tick: &Tick,
) -> Result<Option<TickRecord>, Error> {
    // The latest come first, and there may be any number after it: as far back as it is.
    let mut limit = 20;
    loop {
        let records = in_time(ledger.history(election, Some(&tick.job), limit)).await??;
        let last = records.last().map(|record| record.tick.scheduled_unix_ms);
        let all = records.len() < limit || last.is_none_or(|last| last <= tick.scheduled_unix_ms);
        let found = records.into_iter().find(|record| record.tick == *tick);
        if found.is_some() || all || limit > LOOK_BACK_MAX {
            return Ok(found);
        }
        limit *= 8;
    }
}

fn negative(message: String) -> Result<Exit, Failure> {
    Err(Failure { exit: Exit::NEGATIVE, error: anyhow::anyhow!(message) })
}

#[cfg(test)]
mod tests {
    use tenure::{MemoryStore, Store as _};
    use tenure_core::{CandidateId, LedgerStep, Op, Reply, StoreExt as _};

    use super::*;

    #[tokio::test]
    async fn a_tick_is_found_however_many_come_after_it() {
        let (store, election) = (MemoryStore::new(), Name::new("nightly").unwrap());
        let acquire = Op::Acquire {
            election: election.clone(),
            candidate: CandidateId::new("a", 1).unwrap(),
            seq: 1,
            above: None,
            floor: None,
            ttl: Duration::from_secs(120),
            metadata: None,
        };
        let Reply::Granted(grant) = store.apply_one(&acquire).await else { panic!("granted") };
        let ledger = store.ledger().unwrap();
        let tick = ledger.request(&election, "report").await.unwrap();
        let later = |number: i64| {
            let tick = Tick::new("report", tick.scheduled_unix_ms + number * 1_000);
            LedgerStep::Claim { tick, again: false }
        };
        let steps: Vec<LedgerStep> = (1..=200).map(later).collect();
        ledger.record(&election, grant.term, &steps).await.unwrap();
        let found = find(ledger, &election, &tick).await.unwrap();
        assert_eq!(found.map(|record| record.state), Some(TickState::Requested));
        let unknown = Tick::new("report", tick.scheduled_unix_ms - 1);
        assert_eq!(find(ledger, &election, &unknown).await.unwrap(), None);
    }
}
