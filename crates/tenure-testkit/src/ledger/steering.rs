//! What people can have become of a job: a pause, its end, and counting from now on.

use tenure_core::{
    JobProgress, LedgerExt as _, LedgerStep, Marked, Steer, Tick, TickEnd, TickState,
};

use super::user::{LedgerUser, done, is, ledger, tick};
use crate::conformance::arena::{Arena, Stop, Verdict, ensure};

super::cases![
    a_job_that_nobody_knows_is_not_steered,
    of_a_paused_job_only_requests_are_claimed,
    a_pause_outlives_terms_handles_and_crashes,
    what_came_due_in_a_pause_is_dealt_with,
    a_clock_that_was_ahead_is_forgotten,
    one_job_is_steered_and_no_other,
];

/// So far ahead that no test gets there.
const AHEAD: i64 = 4_000_000_000_000;

async fn steer(arena: &Arena<'_>, user: &LedgerUser, job: &str, steer: Steer) -> Verdict {
    let known = ledger(&arena.store)?.steer_job(user.election(), job, steer).await?;
    ensure!(known, "{job} is not known");
    Ok(())
}

async fn progress(arena: &Arena<'_>, user: &LedgerUser, job: &str) -> Result<JobProgress, Stop> {
    let latest = ledger(&arena.store)?.latest(user.election()).await?;
    let found = latest.into_iter().find(|progress| progress.job == job);
    found.ok_or_else(|| Stop::Failed(format!("{job} is not known")))
}

async fn a_job_that_nobody_knows_is_not_steered(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    for how in [Steer::Pause, Steer::Resume, Steer::FromNow] {
        let known = store.steer_job(user.election(), "nobody", how).await?;
        ensure!(!known, "a job that nobody has was steered: {how:?}");
    }
    let latest = store.latest(user.election()).await?;
    ensure!(latest.is_empty(), "that made it known: {latest:?}");
    is("its claim", user.claim(&Tick::new("nobody", 5_000)).await?, done(1))
}

async fn of_a_paused_job_only_requests_are_claimed(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let store = ledger(&arena.store)?;
    for second in 1..=3 {
        is("a claim", user.claim(&tick(second)).await?, done(1))?;
    }
    user.start(&tick(2), 1).await?;
    user.step(LedgerStep::Retry { tick: tick(2), attempt: 1, code: None }).await?;
    user.end(&tick(3), 1, TickEnd::Ok).await?;
    for _ in 0..2 {
        steer(arena, &user, "job", Steer::Pause).await?;
    }
    is("a claim whose answer was lost", user.claim(&tick(1)).await?, done(1))?;
    is("the next attempt", user.claim(&tick(2)).await?, Marked::Paused)?;
    is("a tick that has ended", user.claim(&tick(3)).await?, Marked::Refused)?;
    is("a new tick", user.claim(&tick(4)).await?, Marked::Paused)?;
    ensure!(user.find(&tick(4)).await?.is_none(), "it is in the ledger all the same");
    let wanted = store.request(user.election(), "job").await?;
    is("a request", user.claim(&wanted).await?, done(1))?;
    is("what runs ends", user.end(&tick(1), 1, TickEnd::Ok).await?, done(1))?;
    let skipped = user.skip(&tick(4), tick(4).scheduled_unix_ms, 1).await?;
    is("what is left out", skipped, done(0))?;
    let claims = [tick(5), Tick::new("other", 5_000)];
    let claims = claims.map(|tick| LedgerStep::Claim { tick, again: false });
    let marks = user.record(&claims).await?;
    ensure!(marks == [Marked::Paused, done(1)], "beside another job: {marks:?}");
    steer(arena, &user, "job", Steer::Resume).await?;
    is("the next attempt, after it", user.claim(&tick(2)).await?, done(2))?;
    is("a new tick, after it", user.claim(&tick(5)).await?, done(1))
}

async fn a_pause_outlives_terms_handles_and_crashes(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim(&tick(1)).await?;
    one.claim(&tick(2)).await?;
    steer(arena, &one, "job", Steer::Pause).await?;
    let paused = progress(arena, &one, "job").await?;
    ensure!(paused.paused_unix_ms.is_some(), "it is not told: {paused:?}");
    let two = one.succeeded(arena, "b").await?;
    is("an open tick", two.claim_again(&tick(1)).await?, Marked::Paused)?;
    is("a new one", two.claim(&tick(3)).await?, Marked::Paused)?;
    two.step(LedgerStep::Follow {
        job: "job".to_owned(),
        schedule: "other".to_owned(),
        from_unix_ms: tick(4).scheduled_unix_ms,
    })
    .await?;
    is("by another schedule", two.claim(&tick(5)).await?, Marked::Paused)?;
    is("an open tick is given up", two.abandon(&tick(2)).await?, done(1))?;
    let before = ledger(&arena.store)?.latest(two.election()).await?;
    let other = arena.another_handle().await?;
    let there = ledger(&other)?.latest(two.election()).await?;
    ensure!(before == there, "another handle sees {there:?}");
    drop(other);
    let store = arena.crash().await?;
    let after = ledger(&store)?.latest(two.election()).await?;
    ensure!(before == after, "a crash made {after:?} of {before:?}");
    Ok(())
}

async fn what_came_due_in_a_pause_is_dealt_with(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    steer(arena, &user, "job", Steer::Resume).await?;
    let latest = progress(arena, &user, "job").await?.latest_unix_ms;
    ensure!(latest == tick(1).scheduled_unix_ms, "it was not paused, and came to {latest}");
    steer(arena, &user, "job", Steer::Pause).await?;
    let paused = progress(arena, &user, "job").await?;
    ensure!(paused.latest_unix_ms == latest, "a pause deals with nothing: {paused:?}");
    steer(arena, &user, "job", Steer::Resume).await?;
    let resumed = progress(arena, &user, "job").await?;
    ensure!(resumed.paused_unix_ms.is_none(), "it is still paused: {resumed:?}");
    let since = paused.paused_unix_ms.unwrap_or(i64::MAX);
    ensure!(resumed.latest_unix_ms >= since, "{resumed:?} has not come to {since}");
    // A ledger that is ahead stays so.
    user.claim(&Tick::new("job", AHEAD)).await?;
    for how in [Steer::Pause, Steer::Resume] {
        steer(arena, &user, "job", how).await?;
    }
    let latest = progress(arena, &user, "job").await?.latest_unix_ms;
    ensure!(latest == AHEAD, "the end of a pause went back to {latest}");
    Ok(())
}

async fn a_clock_that_was_ahead_is_forgotten(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let later = |second: i64| Tick::new("job", AHEAD + second * 1_000);
    for tick in [tick(1), later(1), later(2)] {
        user.claim(&tick).await?;
    }
    for tick in [tick(1), later(1)] {
        user.end(&tick, 1, TickEnd::Ok).await?;
    }
    user.skip(&later(3), later(9).scheduled_unix_ms, 7).await?;
    // A minute is within what clocks differ by: what was run then must not be run again.
    user.claim(&Tick::new("other", 5_000)).await?;
    steer(arena, &user, "other", Steer::FromNow).await?;
    let other = progress(arena, &user, "other").await?;
    ensure!(other == JobProgress::new("other", 5_000), "it was not ahead: {other:?}");
    steer(arena, &user, "job", Steer::FromNow).await?;
    let job = progress(arena, &user, "job").await?;
    let now = job.anew_unix_ms.unwrap_or(0);
    ensure!((1..AHEAD).contains(&now) && job.latest_unix_ms == now, "it counts from {job:?}");
    let history = ledger(&arena.store)?.history(user.election(), None, 10).await?;
    let left: Vec<Tick> = history.into_iter().map(|record| record.tick).collect();
    ensure!(left == [later(2), tick(1), Tick::new("other", 5_000)], "left are {left:?}");
    is("one that ran ahead of its time", user.claim(&later(1)).await?, done(1))?;
    is("one that was left out", user.claim(&later(3)).await?, done(1))?;
    is("one that is open", user.end(&later(2), 1, TickEnd::Ok).await?, done(1))?;
    user.stands(&tick(1), TickState::Finished(TickEnd::Ok), 1).await
}

async fn one_job_is_steered_and_no_other(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let names = ["job", "jo", "job'; --", "日本|x"];
    let at = |job: &str, second: i64| Tick::new(job, AHEAD + second * 1_000);
    for name in names {
        user.skip(&at(name, 1), at(name, 1).scheduled_unix_ms, 1).await?;
    }
    for name in names {
        steer(arena, &user, name, Steer::FromNow).await?;
        steer(arena, &user, name, Steer::Pause).await?;
        let all = ledger(&arena.store)?.latest(user.election()).await?;
        let paused = all.iter().filter(|it| it.paused_unix_ms.is_some()).count();
        ensure!(paused == 1, "with {name:?}, {paused} are paused");
        is(name, user.claim(&at(name, 2)).await?, Marked::Paused)?;
        steer(arena, &user, name, Steer::Resume).await?;
    }
    let left = ledger(&arena.store)?.history(user.election(), None, 10).await?;
    ensure!(left.is_empty(), "left are {left:?}");
    Ok(())
}
