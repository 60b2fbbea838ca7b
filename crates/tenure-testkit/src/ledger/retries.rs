//! Runs that failed and are to be run again.

use tenure_core::{LedgerStep, Marked, Tick, TickEnd, TickState};

use super::user::{LedgerUser, done, is, ledger, tick};
use crate::conformance::arena::{Arena, Stop, Verdict, ensure};

super::cases![
    a_failed_run_is_open_until_the_next_attempt,
    a_later_term_takes_the_next_attempt,
    only_the_run_itself_is_followed_by_another,
    a_retry_can_be_given_up,
    trimming_keeps_what_is_to_be_run_again,
];

const FAILED: TickState = TickState::Retrying { code: Some(7) };

async fn retry(user: &LedgerUser, tick: &Tick, attempt: u32) -> Result<Marked, Stop> {
    user.step(LedgerStep::Retry { tick: tick.clone(), attempt, code: Some(7) }).await
}

/// A tick whose first attempt failed.
async fn failed(user: &LedgerUser) -> Verdict {
    is("its claim", user.claim(&tick(1)).await?, done(1))?;
    is("its start", user.start(&tick(1), 1).await?, done(1))?;
    is("its failure", retry(user, &tick(1), 1).await?, done(1))
}

async fn a_failed_run_is_open_until_the_next_attempt(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    failed(&user).await?;
    is("the same failure", retry(&user, &tick(1), 1).await?, done(1))?;
    user.stands(&tick(1), FAILED, 1).await?;
    let open = ledger(&arena.store)?.open(user.election(), None).await?;
    ensure!(open.len() == 1 && open[0].ended_unix_ms.is_some(), "open are {open:?}");
    is("the next attempt", user.claim(&tick(1)).await?, done(2))?;
    is("the same claim", user.claim(&tick(1)).await?, done(2))?;
    let record = user.find(&tick(1)).await?;
    let is_fresh = |it: &tenure_core::TickRecord| it.ended_unix_ms.is_none() && !it.manual;
    ensure!(record.as_ref().is_some_and(is_fresh), "it runs: {record:?}");
    is("its start", user.start(&tick(1), 2).await?, done(2))?;
    let late = LedgerStep::Retry { tick: tick(1), attempt: 2, code: None };
    is("it took too long", user.step(late).await?, done(2))?;
    user.stands(&tick(1), TickState::Retrying { code: None }, 2).await?;
    is("the last attempt", user.claim(&tick(1)).await?, done(3))?;
    is("its end", user.end(&tick(1), 3, TickEnd::Failed(9)).await?, done(3))?;
    user.stands(&tick(1), TickState::Finished(TickEnd::Failed(9)), 3).await?;
    is("a tick that has ended", user.claim(&tick(1)).await?, Marked::Refused)
}

async fn a_later_term_takes_the_next_attempt(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    failed(&one).await?;
    let two = one.succeeded(arena, "b").await?;
    is("under a term that is over", one.claim(&tick(1)).await?, Marked::Stale)?;
    is("the next attempt", two.claim(&tick(1)).await?, done(2))?;
    is("its end", two.end(&tick(1), 2, TickEnd::Ok).await?, done(2))
}

async fn only_the_run_itself_is_followed_by_another(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    is("a tick that nobody knows", retry(&user, &tick(1), 1).await?, Marked::Refused)?;
    user.claim(&tick(1)).await?;
    is("another attempt", retry(&user, &tick(1), 2).await?, Marked::Refused)?;
    user.end(&tick(1), 1, TickEnd::Ok).await?;
    is("a tick that has ended", retry(&user, &tick(1), 1).await?, Marked::Refused)?;
    user.stands(&tick(1), TickState::Finished(TickEnd::Ok), 1).await?;
    user.claim(&tick(2)).await?;
    let two = user.succeeded(arena, "b").await?;
    is("that of a former term", retry(&two, &tick(2), 1).await?, Marked::Refused)
}

async fn a_retry_can_be_given_up(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    failed(&user).await?;
    is("a retry", user.abandon(&tick(1)).await?, done(1))?;
    user.stands(&tick(1), TickState::Abandoned, 1).await?;
    is("its claim", user.claim(&tick(1)).await?, Marked::Refused)
}

async fn trimming_keeps_what_is_to_be_run_again(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    failed(&user).await?;
    user.skip(&tick(2), tick(5).scheduled_unix_ms, 4).await?;
    user.step(LedgerStep::Trim { job: "job".to_owned(), keep: 0 }).await?;
    user.stands(&tick(1), FAILED, 1).await
}
