//! Ticks that are left out are in the ledger too, many as one; and it forgets the old.

use tenure_core::{LedgerStep, Marked, TickEnd, TickState};

use super::clerk::{Clerk, done, is, ledger, tick};
use crate::conformance::arena::{Arena, Verdict, ensure};

super::cases![
    a_skip_stands_for_many,
    a_skip_does_not_replace_what_is_there,
    trimming_keeps_the_latest,
    trimming_keeps_what_is_open,
];

async fn a_skip_stands_for_many(arena: &Arena<'_>) -> Verdict {
    let clerk = Clerk::elected(arena, "a").await?;
    let through = tick(60).scheduled_unix_ms;
    for _ in 0..2 {
        is("a skip", clerk.skip(&tick(1), through, 60).await?, done(0))?;
    }
    let skipped = TickState::Skipped { through_unix_ms: through, count: 60 };
    clerk.stands(&tick(1), skipped, 0).await?;
    let latest = ledger(&arena.store)?.latest(clerk.election()).await?;
    ensure!(latest == [tick(60)], "the latest of 60 skipped is {latest:?}");
    let none = clerk.skip(&tick(61), tick(61).scheduled_unix_ms, 0).await?;
    is("a skip of nothing", none, done(0))?;
    let latest = ledger(&arena.store)?.latest(clerk.election()).await?;
    ensure!(latest == [tick(61)], "a skip of nothing does not count: {latest:?}");
    Ok(())
}

async fn a_skip_does_not_replace_what_is_there(arena: &Arena<'_>) -> Verdict {
    let clerk = Clerk::elected(arena, "a").await?;
    clerk.claim(&tick(1)).await?;
    let through = tick(1).scheduled_unix_ms;
    is("a claimed tick", clerk.skip(&tick(1), through, 1).await?, Marked::Refused)?;
    clerk.stands(&tick(1), TickState::Claimed, 1).await
}

async fn trimming_keeps_the_latest(arena: &Arena<'_>) -> Verdict {
    let clerk = Clerk::elected(arena, "a").await?;
    for second in 1..=10 {
        clerk.skip(&tick(second), tick(second).scheduled_unix_ms, 1).await?;
    }
    let trim = LedgerStep::Trim { job: "job".to_owned(), keep: 3 };
    is("a trim", clerk.step(trim).await?, done(0))?;
    let history = ledger(&arena.store)?.history(clerk.election(), None, 100).await?;
    let left: Vec<_> = history.into_iter().map(|record| record.tick).collect();
    ensure!(left == [tick(10), tick(9), tick(8)], "after a trim to 3: {left:?}");
    let trim = LedgerStep::Trim { job: "job".to_owned(), keep: 0 };
    is("a trim of all", clerk.step(trim).await?, done(0))?;
    let latest = ledger(&arena.store)?.latest(clerk.election()).await?;
    ensure!(latest == [tick(10)], "trimming forgot how far the job has got: {latest:?}");
    Ok(())
}

async fn trimming_keeps_what_is_open(arena: &Arena<'_>) -> Verdict {
    let clerk = Clerk::elected(arena, "a").await?;
    clerk.claim(&tick(1)).await?;
    for second in 2..=5 {
        clerk.skip(&tick(second), tick(second).scheduled_unix_ms, 1).await?;
    }
    clerk.step(LedgerStep::Trim { job: "job".to_owned(), keep: 2 }).await?;
    clerk.stands(&tick(1), TickState::Claimed, 1).await?;
    is("its end", clerk.end(&tick(1), 1, TickEnd::Ok).await?, done(1))
}
