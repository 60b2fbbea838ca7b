//! How a tick ends, and that it does so once.

use tenure_core::{LedgerStep, Marked, TickEnd, TickState, Transactions};

use super::user::{LedgerUser, done, is, ledger, tick};
use crate::conformance::arena::{Arena, Verdict, ensure};

super::cases![
    an_end_is_kept_as_it_was_told,
    an_end_is_told_once_and_healed,
    an_end_of_another_attempt_is_refused,
    a_lost_tick_is_abandoned,
    what_a_dead_term_left_is_abandoned,
    an_own_tick_is_not_abandoned,
    a_confirmation_changes_nothing,
];

async fn an_end_is_kept_as_it_was_told(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let ends = [
        TickEnd::Ok,
        TickEnd::Failed(1),
        TickEnd::Failed(255),
        TickEnd::Failed(-7),
        TickEnd::TimedOut,
    ];
    for (second, end) in (1..).zip(ends) {
        user.claim(&tick(second)).await?;
        user.start(&tick(second), 1).await?;
        is("the end", user.end(&tick(second), 1, end).await?, done(1))?;
        user.stands(&tick(second), TickState::Finished(end), 1).await?;
        let record = user.find(&tick(second)).await?;
        let Some(record) = record else { continue };
        ensure!(record.term == Some(user.term), "the term is not kept: {record:?}");
        let times = [record.claimed_unix_ms, record.started_unix_ms, record.ended_unix_ms];
        ensure!(times.iter().all(Option::is_some), "a time is missing: {record:?}");
        ensure!(times.is_sorted(), "the times are out of order: {record:?}");
        ensure!(!record.manual, "nobody asked for it: {record:?}");
    }
    Ok(())
}

async fn an_end_is_told_once_and_healed(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    user.start(&tick(1), 1).await?;
    for _ in 0..3 {
        is("the same end", user.end(&tick(1), 1, TickEnd::Ok).await?, done(1))?;
    }
    let other = user.end(&tick(1), 1, TickEnd::Failed(1)).await?;
    is("another end", other, Marked::Refused)?;
    is("a start after the end", user.start(&tick(1), 1).await?, Marked::Refused)?;
    user.stands(&tick(1), TickState::Finished(TickEnd::Ok), 1).await
}

async fn an_end_of_another_attempt_is_refused(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    is("an unknown tick", one.end(&tick(9), 1, TickEnd::Ok).await?, Marked::Refused)?;
    is("an unknown start", one.start(&tick(9), 1).await?, Marked::Refused)?;
    one.claim(&tick(1)).await?;
    one.start(&tick(1), 1).await?;
    is("attempt 2 of 1", one.end(&tick(1), 2, TickEnd::Ok).await?, Marked::Refused)?;
    let two = one.succeeded(arena, "b").await?;
    two.claim_again(&tick(1)).await?;
    is("attempt 1 of 2", two.end(&tick(1), 1, TickEnd::Ok).await?, Marked::Refused)?;
    two.stands(&tick(1), TickState::Claimed, 2).await
}

async fn a_lost_tick_is_abandoned(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    user.start(&tick(1), 1).await?;
    for _ in 0..2 {
        is("the loss", user.end(&tick(1), 1, TickEnd::Lost).await?, done(1))?;
    }
    user.stands(&tick(1), TickState::Abandoned, 1).await
}

async fn what_a_dead_term_left_is_abandoned(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim(&tick(1)).await?;
    one.claim(&tick(2)).await?;
    one.start(&tick(2), 1).await?;
    let two = one.succeeded(arena, "b").await?;
    for second in [1, 2, 2] {
        is("an orphan", two.abandon(&tick(second)).await?, done(1))?;
        two.stands(&tick(second), TickState::Abandoned, 1).await?;
    }
    is("an unknown tick", two.abandon(&tick(3)).await?, Marked::Refused)
}

async fn an_own_tick_is_not_abandoned(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    is("an own claim", user.abandon(&tick(1)).await?, Marked::Refused)?;
    user.start(&tick(1), 1).await?;
    is("an own start", user.abandon(&tick(1)).await?, Marked::Refused)?;
    user.end(&tick(1), 1, TickEnd::Ok).await?;
    is("an end", user.abandon(&tick(1)).await?, Marked::Refused)
}

async fn a_confirmation_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let confirm = |attempt| LedgerStep::Confirm { tick: tick(1), attempt };
    is("an unknown tick", user.step(confirm(1)).await?, Marked::Refused)?;
    user.claim(&tick(1)).await?;
    user.start(&tick(1), 1).await?;
    is("a started tick", user.step(confirm(1)).await?, Marked::Refused)?;
    user.stands(&tick(1), TickState::Started, 1).await?;
    user.end(&tick(1), 1, TickEnd::Ok).await?;
    is("a good end", user.step(confirm(1)).await?, done(1))?;
    is("another attempt", user.step(confirm(2)).await?, Marked::Refused)?;
    let transactions = ledger(&arena.store)?.transactions();
    ensure!(
        matches!(transactions, Transactions::None | Transactions::Same | Transactions::Beside),
        "{transactions:?}"
    );
    Ok(())
}
