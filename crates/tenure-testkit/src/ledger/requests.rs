//! Ticks that somebody asks for.

use tenure_core::{Hint, LedgerExt as _, LedgerStep, Marked, Tick, TickEnd, TickState};

use super::user::{LedgerUser, done, is, ledger};
use crate::conformance::arena::{Arena, Stop, Verdict, ensure};
use crate::util::within;

super::cases![
    a_request_is_open_until_it_is_claimed,
    a_request_needs_no_leader,
    a_request_does_not_count_as_scheduled,
    requests_are_told_apart,
    a_request_is_never_at_a_whole_second,
    a_request_can_be_abandoned,
    a_request_is_hinted_at,
    a_job_without_a_name_is_refused,
];

async fn a_request_is_open_until_it_is_claimed(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    let tick = store.request(user.election(), "job").await?;
    user.stands(&tick, TickState::Requested, 0).await?;
    is("its claim", user.claim(&tick).await?, done(1))?;
    is("the same claim", user.claim(&tick).await?, done(1))?;
    is("its start", user.start(&tick, 1).await?, done(1))?;
    is("its end", user.end(&tick, 1, TickEnd::Ok).await?, done(1))?;
    let record = user.find(&tick).await?;
    ensure!(record.as_ref().is_some_and(|it| it.manual), "it was asked for: {record:?}");
    ensure!(store.open(user.election(), None).await?.is_empty(), "it is still open");
    Ok(())
}

async fn a_request_needs_no_leader(arena: &Arena<'_>) -> Verdict {
    let store = ledger(&arena.store)?;
    let tick = store.request(&arena.election, "job").await?;
    let open = store.open(&arena.election, None).await?;
    ensure!(open.len() == 1 && open[0].tick == tick, "open are {open:?}");
    let user = LedgerUser::elected(arena, "a").await?;
    is("its claim", user.claim(&tick).await?, done(1))
}

async fn a_request_does_not_count_as_scheduled(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    let tick = store.request(user.election(), "job").await?;
    user.claim(&tick).await?;
    let latest = store.latest(user.election()).await?;
    ensure!(latest.is_empty(), "a request made the job's latest {latest:?}");
    Ok(())
}

async fn requests_are_told_apart(arena: &Arena<'_>) -> Verdict {
    let store = ledger(&arena.store)?;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let tick = store.request(&arena.election, "job").await?;
        ensure!(!seen.contains(&tick), "two requests are one: {tick:?}");
        seen.push(tick);
    }
    let open = store.open(&arena.election, None).await?;
    ensure!(open.len() == 5, "of 5 requests {} are open", open.len());
    Ok(())
}

/// Schedules have the whole seconds: a request there would be taken for a tick of one.
async fn a_request_is_never_at_a_whole_second(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    for _ in 0..10 {
        let now = store.request(user.election(), "job").await?.scheduled_unix_ms;
        // All instants from now on are taken, up to a whole second that is still to come.
        let second = (now / 1_000 + 3) * 1_000;
        let taken: Vec<LedgerStep> = (now..second)
            .map(|at| LedgerStep::Claim { tick: Tick::new("job", at), again: false })
            .collect();
        for steps in taken.chunks(tenure_core::LEDGER_STEPS_MAX) {
            user.record(steps).await?;
        }
        let at = store.request(user.election(), "job").await?.scheduled_unix_ms;
        ensure!(at % 1_000 != 0, "a request is at {at}");
        if at == second + 1 {
            return Ok(());
        }
        ensure!(at > second, "{at} was taken");
    }
    crate::conformance::arena::skip("the store is too slow to be asked before that second")
}

async fn a_request_can_be_abandoned(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let tick = ledger(&arena.store)?.request(user.election(), "unknown").await?;
    is("an unknown job", user.abandon(&tick).await?, done(0))?;
    user.stands(&tick, TickState::Abandoned, 0).await?;
    is("its claim", user.claim(&tick).await?, Marked::Refused)
}

async fn a_request_is_hinted_at(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    if !arena.info.hints {
        return crate::conformance::arena::skip("the store gives no hints");
    }
    let mut hints = arena.store.hints();
    let other = arena.another_handle().await?;
    let arrived = within(arena.subject.patience(), async {
        loop {
            // Listening may need a moment to begin: asked for again until it is heard.
            ledger(&other)?.request(user.election(), "job").await?;
            let heard = within(
                arena.subject.wait(std::time::Duration::from_millis(200)),
                std::future::poll_fn(|cx| hints.poll_next(cx)),
            );
            match heard.await {
                Some(Some(Hint::Election(name))) if name == *user.election() => return Ok(()),
                Some(Some(Hint::Any)) => return Ok(()),
                Some(None) => return Err(Stop::Failed("the hints have ended".to_owned())),
                _ => {}
            }
        }
    })
    .await;
    arrived.unwrap_or_else(|| Err(Stop::Failed("no hint came after a request".to_owned())))
}

async fn a_job_without_a_name_is_refused(arena: &Arena<'_>) -> Verdict {
    let store = ledger(&arena.store)?;
    for name in ["", "a\nb", &"x".repeat(256)] {
        ensure!(store.request_job(&arena.election, name).await.is_err(), "{name:?} was taken");
    }
    Ok(())
}
