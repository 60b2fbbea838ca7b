//! A term that is over changes nothing in the ledger.

use tenure_core::{LedgerStep, Marked, Reply, TickEnd, TickState};

use super::user::{LedgerUser, is, ledger, tick};
use crate::conformance::arena::{Arena, Verdict, ensure, granted, term_at};

super::cases![
    a_term_that_was_followed_is_stale,
    a_term_that_was_given_back_is_stale,
    a_term_that_ran_out_is_stale,
    a_term_that_was_never_issued_is_stale,
    a_stale_batch_changes_nothing_at_all,
];

/// Every step that a term may take.
fn steps() -> Vec<LedgerStep> {
    vec![
        LedgerStep::Claim { tick: tick(11), again: true },
        LedgerStep::Start { tick: tick(1), attempt: 1 },
        LedgerStep::End { tick: tick(2), attempt: 1, end: TickEnd::Ok },
        LedgerStep::Skip { tick: tick(12), through_unix_ms: tick(12).scheduled_unix_ms, count: 1 },
        LedgerStep::Follow { job: "job".to_owned(), schedule: "s".to_owned(), from_unix_ms: 1 },
        LedgerStep::Abandon { tick: tick(3) },
        LedgerStep::Trim { job: "job".to_owned(), keep: 0 },
    ]
}

async fn is_stale(user: &LedgerUser) -> Verdict {
    let marks = user.record(&steps()).await?;
    ensure!(
        marks.iter().all(|mark| *mark == Marked::Stale),
        "term {} is over, and was answered {marks:?}",
        user.term
    );
    Ok(())
}

async fn with_ticks(
    arena: &Arena<'_>,
    label: &str,
) -> Result<LedgerUser, crate::conformance::arena::Stop> {
    let user = LedgerUser::elected(arena, label).await?;
    user.claim(&tick(1)).await?;
    user.claim(&tick(2)).await?;
    user.start(&tick(2), 1).await?;
    Ok(user)
}

/// The frozen leader that wakes up late.
async fn a_term_that_was_followed_is_stale(arena: &Arena<'_>) -> Verdict {
    let one = with_ticks(arena, "a").await?;
    let two = one.succeeded(arena, "b").await?;
    is_stale(&one).await?;
    two.stands(&tick(1), TickState::Claimed, 1).await?;
    two.stands(&tick(2), TickState::Started, 1).await?;
    ensure!(two.find(&tick(11)).await?.is_none(), "a stale claim left a record");
    is("the new term", two.claim(&tick(11)).await?, Marked::Done { attempt: 1 })
}

async fn a_term_that_was_given_back_is_stale(arena: &Arena<'_>) -> Verdict {
    let one = with_ticks(arena, "a").await?;
    granted("the release", one.player.release(Some(one.term)).await)?;
    is_stale(&one).await
}

async fn a_term_that_ran_out_is_stale(arena: &Arena<'_>) -> Verdict {
    ledger(&arena.store)?;
    let player = arena.player("a")?.with_ttl(arena.short_ttl());
    let one = LedgerUser::of(player).await?;
    one.expired(arena).await;
    is_stale(&one).await?;
    ensure!(!matches!(one.renewed().await, Reply::Granted(_)), "it ran out, and was renewed");
    Ok(())
}

async fn a_term_that_was_never_issued_is_stale(arena: &Arena<'_>) -> Verdict {
    let one = with_ticks(arena, "a").await?;
    let term = term_at(one.term, 1)?;
    is_stale(&LedgerUser { player: one.player, term }).await?;
    let nobody = arena.player("c")?.within(&arena.other_election("never led")?);
    is_stale(&LedgerUser { player: nobody, term }).await
}

async fn a_stale_batch_changes_nothing_at_all(arena: &Arena<'_>) -> Verdict {
    let one = with_ticks(arena, "a").await?;
    let two = one.succeeded(arena, "b").await?;
    let before = ledger(&arena.store)?.history(two.election(), None, 100).await?;
    is_stale(&one).await?;
    let after = ledger(&arena.store)?.history(two.election(), None, 100).await?;
    ensure!(before == after, "a stale term changed {before:?} to {after:?}");
    Ok(())
}
