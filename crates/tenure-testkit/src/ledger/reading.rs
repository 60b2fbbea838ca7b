//! What the ledger tells: what is open, how far each job has got, what happened.

use tenure_core::{JobProgress, LEDGER_OPEN_MAX, LedgerStep, Tick, TickEnd, TickRecord};

use super::user::{LedgerUser, ledger, tick};
use crate::conformance::arena::{Arena, Verdict, ensure};

super::cases![
    open_ticks_come_the_oldest_first,
    open_ticks_come_page_by_page,
    the_latest_is_told_for_each_job,
    history_comes_the_latest_first,
    other_handles_and_a_later_term_see_the_same,
    what_was_done_survives_a_crash,
];

fn ticks(records: Vec<TickRecord>) -> Vec<Tick> {
    records.into_iter().map(|record| record.tick).collect()
}

async fn open_ticks_come_the_oldest_first(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    let open = store.open(user.election(), None).await?;
    ensure!(open.is_empty(), "something is open from the start");
    for second in [3, 1, 2, 4] {
        user.claim(&tick(second)).await?;
    }
    user.start(&tick(2), 1).await?;
    user.end(&tick(3), 1, TickEnd::Ok).await?;
    let open = ticks(store.open(user.election(), None).await?);
    ensure!(open == [tick(1), tick(2), tick(4)], "open are {open:?}");
    // Those after one that is open, that has ended, that never was.
    for (after, wanted) in [
        (tick(1), vec![tick(2), tick(4)]),
        (tick(3), vec![tick(4)]),
        (tick(0), vec![tick(1), tick(2), tick(4)]),
        (Tick::new("joa", tick(2).scheduled_unix_ms), vec![tick(2), tick(4)]),
        (Tick::new("joc", tick(2).scheduled_unix_ms), vec![tick(4)]),
        (tick(4), vec![]),
    ] {
        let open = ticks(store.open(user.election(), Some(&after)).await?);
        ensure!(open == wanted, "open after {after:?} are {open:?}");
    }
    Ok(())
}

async fn open_ticks_come_page_by_page(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    // Many of one instant: then the job's name says which comes first.
    let job = |number: usize| Tick::new(format!("job {number:05}"), 7_000);
    let claim = |number| LedgerStep::Claim { tick: job(number), again: false };
    let many: Vec<LedgerStep> = (0..LEDGER_OPEN_MAX).map(claim).collect();
    user.record(&many).await?;
    user.record(&[claim(LEDGER_OPEN_MAX), claim(LEDGER_OPEN_MAX + 1)]).await?;
    let page = ticks(store.open(user.election(), None).await?);
    ensure!(page.len() == LEDGER_OPEN_MAX, "a page has {}", page.len());
    ensure!(page.first() == Some(&job(0)) && page.is_sorted(), "it is not in order");
    let page = ticks(store.open(user.election(), page.last()).await?);
    let rest = [job(LEDGER_OPEN_MAX), job(LEDGER_OPEN_MAX + 1)];
    ensure!(page == rest, "the second page has {page:?}");
    Ok(())
}

async fn the_latest_is_told_for_each_job(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    for (job, at) in [("x", 5), ("x", 9), ("x", 7), ("y", 1), ("z", -3)] {
        user.claim(&Tick::new(job, at)).await?;
    }
    let mut latest = store.latest(user.election()).await?;
    latest.sort();
    let wanted = [("x", 9), ("y", 1), ("z", -3)].map(|(job, at)| JobProgress::new(job, at));
    ensure!(latest == wanted, "the latest are {latest:?}");
    Ok(())
}

async fn history_comes_the_latest_first(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    let other = Tick::new("other", tick(2).scheduled_unix_ms + 500);
    for tick in [tick(2), tick(1), other.clone(), tick(3)] {
        user.claim(&tick).await?;
    }
    let all = ticks(store.history(user.election(), None, 10).await?);
    ensure!(all == [tick(3), other.clone(), tick(2), tick(1)], "all are {all:?}");
    let two = ticks(store.history(user.election(), None, 2).await?);
    ensure!(two == [tick(3), other.clone()], "two are {two:?}");
    let one = ticks(store.history(user.election(), Some("other"), 10).await?);
    ensure!(one == [other], "those of one job are {one:?}");
    let none = store.history(user.election(), Some("nobody"), 10).await?;
    ensure!(none.is_empty(), "an unknown job has {none:?}");
    Ok(())
}

async fn other_handles_and_a_later_term_see_the_same(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim(&tick(1)).await?;
    let two = one.succeeded(arena, "b").await?;
    let here = ledger(&arena.store)?.history(two.election(), None, 10).await?;
    let other = arena.another_handle().await?;
    let there = ledger(&other)?.history(two.election(), None, 10).await?;
    ensure!(here == there && here.len() == 1, "{here:?} is not {there:?}");
    Ok(())
}

async fn what_was_done_survives_a_crash(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    user.claim(&tick(2)).await?;
    user.start(&tick(2), 1).await?;
    user.end(&tick(2), 1, TickEnd::Failed(2)).await?;
    let before = ledger(&arena.store)?.history(user.election(), None, 10).await?;
    let store = arena.crash().await?;
    let after = ledger(&store)?.history(user.election(), None, 10).await?;
    ensure!(before == after, "a crash made {after:?} of {before:?}");
    Ok(())
}
