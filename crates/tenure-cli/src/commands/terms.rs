//! Raises the terms of elections in a store that keeps no floor for all of them: each is taken for
//! an instant under a term above the one that was given, and given back (C5).

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{CandidateId, Error, ErrorKind, Name, Store, Term};
use tenure_core::{Op, Reply, Sight, StoreExt};

use super::{in_time, pause};
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now};

/// As long as the longest profile: a store that lost its memory settles for the ttl of who asks.
const TTL: Duration = Duration::from_secs(90);

/// How long to try, and how often.
const PATIENCE: Duration = Duration::from_secs(100);
const PAUSE: Duration = Duration::from_millis(200);

/// Has the terms of these elections go on above this one, in any store.
///
/// # Cancel safety
/// Not cancel safe: some may be done, and one may be held until its lease runs out. Doing it again
/// is harmless.
pub(crate) async fn raise(
    above: Term,
    names: &[Name],
    store: &dyn Store,
    out: &Output,
) -> Result<Exit, Failure> {
    if names.is_empty() {
        // Where terms follow the clock they do so in every election that there will ever be.
        let clock = if store.info().terms_follow_clock { clock(store).await? } else { None };
        return match clock {
            Some(clock) if clock > above => {
                out.say(&format!(
                    "terms are at least the time of this server in milliseconds, now {clock}: they \
                     are above {above} already"
                ));
                Ok(Exit::DONE)
            }
            _ => Err(Failure::usage(format!(
                "name the elections whose terms are to be above {above}, as in `tenure migrate \
                 --terms-above {above} NAME...`; only Postgres keeps a floor for all of them"
            ))),
        };
    }
    for name in names {
        let term = raise_one(store, name, above).await.map_err(|failure| failure.about(name))?;
        if out.json {
            let fields = vec![
                ("candidate", Value::Null),
                ("term", json!(term.get())),
                ("terms_above", json!(above.get())),
            ];
            out.object(boot_now(), "terms_raised", name, fields);
        } else {
            out.say(&format!("terms of {name} go on above {term}"));
        }
    }
    Ok(Exit::DONE)
}

/// The last term of the election, which is above the one that was given.
async fn raise_one(store: &dyn Store, name: &Name, above: Term) -> Result<Term, Failure> {
    let sight = in_time(store.read(name)).await??;
    if let Some(last) = sight.last_term.filter(|last| *last > above) {
        return Ok(last);
    }
    let Some(floor) = above.next() else {
        return Err(Failure::usage("no term is left above that one; give a lower one"));
    };
    let incarnation = u128::from(std::process::id()) << 64 | u128::from(boot_now().as_nanos());
    let candidate = CandidateId::new("tenure-migrate", incarnation)?;
    let ttl = TTL.max(store.info().min_ttl);
    let deadline = boot_now() + PATIENCE;
    for seq in 1.. {
        let (election, candidate) = (name.clone(), candidate.clone());
        let (above, floor, metadata) = (None, Some(floor), None);
        let op = Op::Acquire { election, candidate, seq, above, floor, ttl, metadata };
        let error = match in_time(store.apply_one(&op)).await? {
            Reply::Granted(grant) => {
                give_back(store, &op, grant.term, seq).await?;
                return Ok(grant.term);
            }
            Reply::Refused(Sight { lease: Some(lease), .. }) => {
                let holder = lease.holder.as_str();
                return Err(Failure {
                    exit: Exit::NEGATIVE,
                    error: anyhow::anyhow!("{holder} leads it; stop all candidates first"),
                });
            }
            Reply::Unknown(error) if !error.is_retryable() => return Err(error.into()),
            Reply::Unknown(error) => error,
            Reply::Refused(_) | Reply::Seen(_) => {
                Error::new(ErrorKind::Unavailable, "the store is settling; try again in a while")
            }
        };
        if boot_now() > deadline {
            return Err(error.into());
        }
        pause(PAUSE).await;
    }
    Err(Failure::usage("it was tried too often"))
}

async fn give_back(store: &dyn Store, op: &Op, term: Term, seq: u64) -> Result<(), Failure> {
    let Op::Acquire { election, candidate, .. } = op else { return Ok(()) };
    let (election, candidate) = (election.clone(), candidate.clone());
    let release = Op::Release { election, candidate, term: Some(term), seq };
    match in_time(store.apply_one(&release)).await? {
        Reply::Unknown(error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// The clock of the server in milliseconds, if leases go by one.
async fn clock(store: &dyn Store) -> Result<Option<Term>, Failure> {
    let any = Name::new("tenure migrate")?;
    let sight = in_time(store.read(&any)).await??;
    let clock = sight.store_clock.map(|clock| clock.as_millis());
    Ok(clock.and_then(|ms| u64::try_from(ms).ok()).and_then(Term::new))
}
