//! Work for a key has one run at a time, until a success is recorded.

use std::sync::{Arc, Mutex};

use tenure_core::sync::lock;
use tenure_core::{
    BoxFuture, LedgerExt as _, LedgerStep, OnceEnd, OnceMark, OnceRecord, OnceState, OnceStep,
    check_once_key,
};

use super::user::{LedgerUser, ledger, tick};
use crate::conformance::arena::{Arena, Stop, Verdict, ensure, granted};

super::cases![
    a_key_has_one_run_at_a_time,
    a_success_is_final,
    a_run_that_failed_or_was_lost_is_tried_again,
    a_run_whose_term_is_over_is_tried_again,
    tries_are_counted_whoever_uses_them,
    an_end_of_another_attempt_or_term_is_refused,
    a_term_that_is_over_changes_no_key,
    keys_of_other_elections_are_others,
    no_trim_forgets_a_key_and_a_key_is_no_tick,
    many_claims_at_once_give_one_run,
    keys_are_data,
    keys_survive_a_crash,
];

const DONE_1: OnceMark = OnceMark::Done { attempt: 1 };
const DONE_2: OnceMark = OnceMark::Done { attempt: 2 };

impl LedgerUser {
    async fn once(&self, step: OnceStep) -> Result<OnceMark, Stop> {
        Ok(ledger(&self.player.store)?.once_step(self.election(), self.term, &step).await?)
    }

    async fn claim_key(&self, key: &str, run: u64, tries: u32) -> Result<OnceMark, Stop> {
        self.once(OnceStep::Claim { key: key.to_owned(), run, tries }).await
    }

    async fn end_key(&self, key: &str, attempt: u32, end: OnceEnd) -> Result<OnceMark, Stop> {
        self.once(OnceStep::End { key: key.to_owned(), attempt, end }).await
    }

    async fn key(&self, key: &str) -> Result<Option<OnceRecord>, Stop> {
        Ok(ledger(&self.player.store)?.once_record(self.election(), key).await?)
    }

    /// Fails unless the key stands so.
    async fn key_stands(&self, key: &str, state: OnceState, attempt: u32) -> Verdict {
        match self.key(key).await? {
            Some(record) if record.state == state && record.attempt == attempt => {
                ensure!(record.key == key, "{key:?} became {:?}", record.key);
                Ok(())
            }
            found => Err(Stop::Failed(format!(
                "{key:?} ought to be {state:?}, attempt {attempt}, but there is {found:?}"
            ))),
        }
    }
}

/// The mark that a step must get.
fn is(what: &str, mark: OnceMark, wanted: OnceMark) -> Verdict {
    ensure!(mark == wanted, "{what} was answered {mark:?} instead of {wanted:?}");
    Ok(())
}

async fn a_key_has_one_run_at_a_time(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    ensure!(user.key("k").await?.is_none(), "a key is known from the start");
    is("a new key", user.claim_key("k", 7, 3).await?, DONE_1)?;
    // A lost answer is healed; another run of the same term is another.
    is("the same claim", user.claim_key("k", 7, 3).await?, DONE_1)?;
    is("another run", user.claim_key("k", 8, 3).await?, OnceMark::Running)?;
    user.key_stands("k", OnceState::Running, 1).await?;
    is("another key", user.claim_key("l", 8, 3).await?, DONE_1)?;
    let record = user.key("k").await?;
    let Some(record) = record else { return Err(Stop::Failed("no record".to_owned())) };
    ensure!(record.term == user.term && record.run == 7, "it is {record:?}");
    ensure!(record.claimed_unix_ms.is_some() && record.ended_unix_ms.is_none(), "{record:?}");
    is("the greatest run", user.claim_key("m", u64::MAX, 3).await?, DONE_1)?;
    is("it again", user.claim_key("m", u64::MAX, 3).await?, DONE_1)
}

async fn a_success_is_final(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim_key("k", 1, 3).await?;
    for _ in 0..2 {
        is("its end", one.end_key("k", 1, OnceEnd::Ok).await?, DONE_1)?;
    }
    is("the same run", one.claim_key("k", 1, 3).await?, OnceMark::Already)?;
    is("another end", one.end_key("k", 1, OnceEnd::Failed(1)).await?, OnceMark::Refused)?;
    let two = one.succeeded(arena, "b").await?;
    is("a later term", two.claim_key("k", 2, 99).await?, OnceMark::Already)?;
    is("its end", two.end_key("k", 1, OnceEnd::Lost).await?, OnceMark::Refused)?;
    two.key_stands("k", OnceState::Ended(OnceEnd::Ok), 1).await
}

async fn a_run_that_failed_or_was_lost_is_tried_again(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    for (key, end) in [("f", OnceEnd::Failed(-3)), ("l", OnceEnd::Lost)] {
        user.claim_key(key, 1, 3).await?;
        is("its end", user.end_key(key, 1, end).await?, DONE_1)?;
        user.key_stands(key, OnceState::Ended(end), 1).await?;
        let ended = user.key(key).await?.and_then(|record| record.ended_unix_ms);
        ensure!(ended.is_some(), "it has ended at no time");
        is("the next try", user.claim_key(key, 2, 3).await?, DONE_2)?;
        user.key_stands(key, OnceState::Running, 2).await?;
        let ended = user.key(key).await?.and_then(|record| record.ended_unix_ms);
        ensure!(ended.is_none(), "it runs, and has ended");
        is("its end", user.end_key(key, 2, OnceEnd::Ok).await?, DONE_2)?;
        user.key_stands(key, OnceState::Ended(OnceEnd::Ok), 2).await?;
    }
    Ok(())
}

async fn a_run_whose_term_is_over_is_tried_again(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim_key("k", 7, 3).await?;
    let two = one.succeeded(arena, "b").await?;
    // Even under the same number: the term tells them apart.
    is("the next term", two.claim_key("k", 7, 3).await?, DONE_2)?;
    let term = two.key("k").await?.map(|record| record.term);
    ensure!(term == Some(two.term), "it runs under {term:?}");
    is("the dead one's end", two.end_key("k", 1, OnceEnd::Ok).await?, OnceMark::Refused)?;
    is("its end", two.end_key("k", 2, OnceEnd::Ok).await?, DONE_2)
}

async fn tries_are_counted_whoever_uses_them(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim_key("failed", 1, 2).await?;
    one.end_key("failed", 1, OnceEnd::Failed(4)).await?;
    one.claim_key("died", 1, 1).await?;
    is("it runs", one.claim_key("died", 2, 1).await?, OnceMark::Running)?;
    let two = one.succeeded(arena, "b").await?;
    is("the last try", two.claim_key("failed", 2, 2).await?, DONE_2)?;
    two.end_key("failed", 2, OnceEnd::Failed(5)).await?;
    let spent = two.claim_key("failed", 3, 2).await?;
    is("one too many", spent, OnceMark::Spent { attempt: 2 })?;
    two.key_stands("failed", OnceState::Ended(OnceEnd::Failed(5)), 2).await?;
    // A dead run that nobody may try again has ended, and everybody can see that.
    let spent = two.claim_key("died", 3, 1).await?;
    is("the one try of a dead run", spent, OnceMark::Spent { attempt: 1 })?;
    two.key_stands("died", OnceState::Ended(OnceEnd::Lost), 1).await?;
    is("with more tries", two.claim_key("died", 4, 2).await?, DONE_2)
}

async fn an_end_of_another_attempt_or_term_is_refused(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    let unknown = one.end_key("unknown", 1, OnceEnd::Ok).await?;
    is("the end of an unknown key", unknown, OnceMark::Refused)?;
    one.claim_key("k", 1, 3).await?;
    is("another attempt", one.end_key("k", 2, OnceEnd::Ok).await?, OnceMark::Refused)?;
    let two = one.succeeded(arena, "b").await?;
    is("another term", two.end_key("k", 1, OnceEnd::Ok).await?, OnceMark::Refused)?;
    two.key_stands("k", OnceState::Running, 1).await
}

async fn a_term_that_is_over_changes_no_key(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim_key("k", 1, 3).await?;
    let is_stale = async |user: &LedgerUser| {
        is("a late end", user.end_key("k", 1, OnceEnd::Ok).await?, OnceMark::Stale)?;
        is("a late claim", user.claim_key("new", 1, 3).await?, OnceMark::Stale)?;
        user.key_stands("k", OnceState::Running, 1).await?;
        ensure!(user.key("new").await?.is_none(), "a stale claim left a record");
        Ok(())
    };
    granted("the release", one.player.release(Some(one.term)).await)?;
    is_stale(&one).await?;
    let two = LedgerUser::elected(arena, "b").await?;
    is_stale(&one).await?;
    is("the new term", two.claim_key("k", 2, 3).await?, DONE_2)?;
    let short = arena.player("c")?.within(&arena.other_election("short")?);
    let three = LedgerUser::of(short.with_ttl(arena.short_ttl())).await?;
    three.expired(arena).await;
    is("a claim after the end", three.claim_key("k", 1, 3).await?, OnceMark::Stale)
}

async fn keys_of_other_elections_are_others(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim_key("k", 1, 3).await?;
    user.end_key("k", 1, OnceEnd::Ok).await?;
    let elsewhere = arena.player("a")?.within(&arena.other_election("second")?);
    let elsewhere = LedgerUser::of(elsewhere).await?;
    is("the same key elsewhere", elsewhere.claim_key("k", 1, 3).await?, DONE_1)
}

async fn no_trim_forgets_a_key_and_a_key_is_no_tick(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    for number in 0..5 {
        user.claim_key(&format!("job {number}"), number, 3).await?;
    }
    user.claim_key("job", 9, 3).await?;
    user.end_key("job", 1, OnceEnd::Ok).await?;
    user.claim(&tick(1)).await?;
    for job in ["job", "job 0"] {
        user.step(LedgerStep::Trim { job: job.to_owned(), keep: 0 }).await?;
    }
    user.key_stands("job", OnceState::Ended(OnceEnd::Ok), 1).await?;
    let store = ledger(&arena.store)?;
    let keys = store.once_history(user.election(), 100).await?;
    ensure!(keys.len() == 6, "of six keys there are {keys:?}");
    let keys = store.once_history(user.election(), 2).await?;
    ensure!(keys.len() == 2, "of two keys there are {keys:?}");
    let ticks = store.history(user.election(), None, 100).await?;
    let open = store.open(user.election(), None).await?;
    ensure!(ticks.len() == 1 && open.len() == 1, "a key is a tick: {ticks:?} {open:?}");
    let jobs = store.latest(user.election()).await?;
    ensure!(jobs.len() == 1, "a key is a job: {jobs:?}");
    Ok(())
}

/// Ten handles, one term: as if ten threads of a leader wanted the same.
async fn many_claims_at_once_give_one_run(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let began: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for run in 0..10 {
        let store = arena.another_handle().await?;
        let (began, election, term) = (began.clone(), user.election().clone(), user.term);
        work.push(Box::pin(async move {
            for key in 0..20 {
                let Ok(ledger) = ledger(&store) else { return };
                let step = OnceStep::Claim { key: format!("k{key}"), run, tries: 3 };
                loop {
                    match ledger.once(&election, term, &step).await {
                        Ok(OnceMark::Done { .. }) => lock(&began).push(key),
                        Ok(OnceMark::Busy) => continue,
                        _ => {}
                    }
                    break;
                }
            }
        }));
    }
    arena.subject.run_together(work).await;
    let mut began = lock(&began).clone();
    began.sort_unstable();
    ensure!(began == (0..20).collect::<Vec<u64>>(), "begun were {began:?}");
    Ok(())
}

async fn keys_are_data(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let keys = ["'; DROP TABLE x; --", "日本 \"q\"", "{a}", "a:b", "a|b", " ", "%_*?[x]", "\\"];
    for key in keys {
        is(key, user.claim_key(key, 1, 3).await?, DONE_1)?;
        is(key, user.end_key(key, 1, OnceEnd::Ok).await?, DONE_1)?;
        user.key_stands(key, OnceState::Ended(OnceEnd::Ok), 1).await?;
    }
    let long = "x".repeat(255);
    is("a long key", user.claim_key(&long, 1, 3).await?, DONE_1)?;
    for key in [String::new(), "a\nb".to_owned(), "x".repeat(256)] {
        ensure!(check_once_key(&key).is_err(), "{key:?} is none");
        ensure!(user.claim_key(&key, 1, 3).await.is_err(), "{key:?} was taken");
    }
    Ok(())
}

async fn keys_survive_a_crash(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim_key("ok", 1, 3).await?;
    user.end_key("ok", 1, OnceEnd::Ok).await?;
    user.claim_key("failed", u64::MAX, 3).await?;
    user.end_key("failed", 1, OnceEnd::Failed(2)).await?;
    user.claim_key("running", 1, 3).await?;
    let before = ledger(&arena.store)?.once_history(user.election(), 10).await?;
    let store = arena.crash().await?;
    let after = ledger(&store)?.once_history(user.election(), 10).await?;
    ensure!(before == after && after.len() == 3, "a crash made {after:?} of {before:?}");
    Ok(())
}
