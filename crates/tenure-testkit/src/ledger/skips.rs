//! Ticks that are left out are in the ledger too, many as one; and it forgets the old.

use tenure_core::{JobProgress, LedgerStep, Marked, TickEnd, TickState};

use super::user::{LedgerUser, done, is, ledger, tick};
use crate::conformance::arena::{Arena, Verdict, ensure};

super::cases![
    a_job_is_followed_by_its_schedule,
    a_schedule_is_data,
    a_skip_stands_for_many,
    a_skip_does_not_replace_what_is_there,
    trimming_keeps_the_latest,
    trimming_keeps_what_is_open,
];

/// How far the job has got, by no known schedule.
fn progress(second: i64) -> JobProgress {
    JobProgress::new("job", tick(second).scheduled_unix_ms)
}

fn follow(schedule: &str, second: i64) -> LedgerStep {
    LedgerStep::Follow {
        job: "job".to_owned(),
        schedule: schedule.to_owned(),
        from_unix_ms: tick(second).scheduled_unix_ms,
    }
}

async fn a_job_is_followed_by_its_schedule(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let known = async |second: i64, schedule: &str| {
        let latest = ledger(&arena.store)?.latest(user.election()).await?;
        let mut wanted = progress(second);
        wanted.schedule = Some(schedule.to_owned());
        ensure!(latest == [wanted], "after {schedule} at {second}: {latest:?}");
        Ok(())
    };
    for _ in 0..2 {
        is("a new job", user.step(follow("a", 5)).await?, done(0))?;
    }
    known(5, "a").await?;
    let history = ledger(&arena.store)?.history(user.election(), None, 10).await?;
    ensure!(history.is_empty(), "a schedule is no tick: {history:?}");
    user.claim(&tick(7)).await?;
    known(7, "a").await?;
    user.skip(&tick(8), tick(9).scheduled_unix_ms, 2).await?;
    known(9, "a").await?;
    is("another schedule", user.step(follow("b", 20)).await?, done(0))?;
    known(20, "b").await?;
    // A clock that was set back changes the schedule, and not how far the job has got.
    is("a schedule of before", user.step(follow("a", 10)).await?, done(0))?;
    known(20, "a").await?;
    let claim = LedgerStep::Claim { tick: tick(31), again: false };
    let marks = user.record(&[follow("c", 30), claim]).await?;
    ensure!(marks == [done(0), done(1)], "both at once: {marks:?}");
    known(31, "c").await?;
    user.step(LedgerStep::Trim { job: "job".to_owned(), keep: 0 }).await?;
    known(31, "c").await
}

async fn a_schedule_is_data(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let words = ["*/5 * * * * Europe/Berlin", "'; DROP TABLE x; --", "a|b", "日本 \"q\"", "12"];
    for schedule in words {
        is(schedule, user.step(follow(schedule, 1)).await?, done(0))?;
        let latest = ledger(&arena.store)?.latest(user.election()).await?;
        let found = latest.first().and_then(|progress| progress.schedule.clone());
        ensure!(found.as_deref() == Some(schedule), "{schedule:?} became {found:?}");
    }
    Ok(())
}

async fn a_skip_stands_for_many(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let through = tick(60).scheduled_unix_ms;
    for _ in 0..2 {
        is("a skip", user.skip(&tick(1), through, 60).await?, done(0))?;
    }
    let skipped = TickState::Skipped { through_unix_ms: through, count: 60 };
    user.stands(&tick(1), skipped, 0).await?;
    let latest = ledger(&arena.store)?.latest(user.election()).await?;
    ensure!(latest == [progress(60)], "the latest of 60 skipped is {latest:?}");
    Ok(())
}

async fn a_skip_does_not_replace_what_is_there(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    let through = tick(1).scheduled_unix_ms;
    is("a claimed tick", user.skip(&tick(1), through, 1).await?, Marked::Refused)?;
    user.stands(&tick(1), TickState::Claimed, 1).await
}

async fn trimming_keeps_the_latest(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    for second in 1..=10 {
        user.skip(&tick(second), tick(second).scheduled_unix_ms, 1).await?;
    }
    let trim = LedgerStep::Trim { job: "job".to_owned(), keep: 3 };
    is("a trim", user.step(trim).await?, done(0))?;
    let history = ledger(&arena.store)?.history(user.election(), None, 100).await?;
    let left: Vec<_> = history.into_iter().map(|record| record.tick).collect();
    ensure!(left == [tick(10), tick(9), tick(8)], "after a trim to 3: {left:?}");
    let trim = LedgerStep::Trim { job: "job".to_owned(), keep: 0 };
    is("a trim of all", user.step(trim).await?, done(0))?;
    let latest = ledger(&arena.store)?.latest(user.election()).await?;
    ensure!(latest == [progress(10)], "trimming forgot how far the job has got: {latest:?}");
    Ok(())
}

async fn trimming_keeps_what_is_open(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(1)).await?;
    for second in 2..=5 {
        user.skip(&tick(second), tick(second).scheduled_unix_ms, 1).await?;
    }
    user.step(LedgerStep::Trim { job: "job".to_owned(), keep: 2 }).await?;
    user.stands(&tick(1), TickState::Claimed, 1).await?;
    is("its end", user.end(&tick(1), 1, TickEnd::Ok).await?, done(1))
}
