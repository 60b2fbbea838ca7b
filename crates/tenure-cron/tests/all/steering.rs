//! Retries of failed runs, pauses, clocks that were ahead, and a ledger that refuses us.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Ledger as _, Name, TickEnd, TickState};
use tenure_cron::{CronEvent, Delivery, Job, Missed, Overlap, Run, Schedule, Steer};

use crate::common::{NOON, World, each_second, second};

fn nightly() -> Name {
    Name::new("nightly").unwrap()
}

/// Each half minute, so that a tick and its retries are alone.
fn each_half_minute() -> Schedule {
    Schedule::new("*/30 * * * * *", "UTC").unwrap()
}

/// What ran: who, second, attempt, and when, in milliseconds after noon.
type Tries = Arc<Mutex<Vec<(String, i64, u32, i64)>>>;

/// A job that fails so many times in all.
fn failing(world: &World, label: &str, schedule: Schedule, failures: i64) -> (Job, Tries) {
    let (tries, left) = (Tries::default(), Arc::new(AtomicI64::new(failures)));
    let (noted, wall, label) = (tries.clone(), world.wall.clone(), label.to_owned());
    let job = Job::new("job", schedule, move |run: Run| {
        use tenure_cron::WallClock as _;
        let at = wall.now_unix_ms() - NOON;
        let note = (label.clone(), second(run.scheduled_unix_ms()), run.attempt(), at);
        noted.lock().unwrap().push(note);
        let fails = left.fetch_sub(1, Ordering::Relaxed) > 0;
        async move { if fails { Err("on purpose") } else { Ok(()) } }
    });
    (job, tries)
}

async fn state_of(world: &World, second: i64) -> Option<(TickState, u32)> {
    let all = world.store.history(&nightly(), Some("job"), 1_000).await.unwrap();
    let at = NOON + second * 1_000;
    let found = all.into_iter().find(|record| record.tick.scheduled_unix_ms == at);
    found.map(|record| (record.state, record.attempt))
}

#[tokio::test]
async fn a_failed_run_is_tried_again_with_growing_waits_and_no_more_often_than_told() {
    for (failures, ends) in [(2, TickEnd::Ok), (9, TickEnd::Failed(1))] {
        let world = World::new();
        let (job, tries) = failing(&world, "a", each_half_minute(), failures);
        let job = job.retries(2).backoff(Duration::from_secs(4));
        let one = world.start("a", vec![job]);
        world.pass_until("three attempts", || tries.lock().unwrap().len() >= 3).await;
        world.pass_for(Duration::from_secs(10)).await;
        let all = tries.lock().unwrap().clone();
        let attempts: Vec<u32> = all.iter().map(|(_, _, attempt, _)| *attempt).collect();
        assert_eq!(attempts, [1, 2, 3], "{all:?}");
        let at: Vec<i64> = all.iter().map(|(.., at)| *at).collect();
        assert!((4_000..4_500).contains(&(at[1] - at[0])), "{at:?}");
        assert!((8_000..8_500).contains(&(at[2] - at[1])), "{at:?}");
        let stands = state_of(&world, 30).await;
        assert_eq!(stands, Some((TickState::Finished(ends), 3)));
        let waits: Vec<_> = one.events.lock().unwrap().iter().filter_map(retry_in).collect();
        assert_eq!(waits[..2], [Some(Duration::from_secs(4)), Some(Duration::from_secs(8))]);
        assert_eq!(waits[2], None);
        one.stop().await.unwrap();
    }
}

fn retry_in(event: &CronEvent) -> Option<Option<Duration>> {
    match event {
        CronEvent::Ended { retry_in, .. } => Some(*retry_in),
        _ => None,
    }
}

/// At most once: a run that is known to have ended may be tried again, by the leader at that time.
#[tokio::test]
async fn the_next_leader_goes_on_with_retries() {
    let world = World::new();
    let (job, first) = failing(&world, "a", each_half_minute(), 9);
    let backoff = Duration::from_secs(10);
    let mut one = world.start("a", vec![job.retries(1).backoff(backoff)]);
    world.pass_until("an attempt", || first.lock().unwrap().len() == 1).await;
    world.pass_for(Duration::from_millis(200)).await;
    assert_eq!(state_of(&world, 30).await, Some((TickState::Retrying { code: Some(1) }, 1)));
    one.die();
    let (job, second) = failing(&world, "b", each_half_minute(), 9);
    let two = world.start("b", vec![job.retries(1).backoff(backoff)]);
    world.pass_until("the next attempt", || second.lock().unwrap().len() == 1).await;
    world.pass_for(Duration::from_millis(200)).await;
    assert_eq!(second.lock().unwrap()[0].2, 2);
    assert_eq!(state_of(&world, 30).await, Some((TickState::Finished(TickEnd::Failed(1)), 2)));
    two.stop().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_is_told_of_no_retries_gives_up_what_waits_for_one() {
    let world = World::new();
    let (job, first) = failing(&world, "a", each_half_minute(), 9);
    let mut one = world.start("a", vec![job.retries(5)]);
    world.pass_until("an attempt", || first.lock().unwrap().len() == 1).await;
    world.pass_for(Duration::from_millis(200)).await;
    one.die();
    let (job, second) = failing(&world, "b", each_half_minute(), 9);
    let two = world.start("b", vec![job]);
    world.pass_until("it leads", || two.leads()).await;
    world.pass_for(Duration::from_secs(1)).await;
    assert_eq!(state_of(&world, 30).await, Some((TickState::Abandoned, 1)));
    assert!(second.lock().unwrap().is_empty());
    two.stop().await.unwrap();
}

/// A tick that waits for its next attempt has not ended.
#[tokio::test]
async fn the_next_tick_overlaps_with_one_that_waits_for_its_retry() {
    for (overlap, seconds) in [
        (Overlap::Skip, vec![1, 1, 5]),
        (Overlap::Queue, vec![1, 1, 2, 3, 4, 5]),
        (Overlap::Allow { most: 9 }, vec![1, 2, 3, 4, 1, 5]),
    ] {
        let world = World::new();
        let (job, tries) = failing(&world, "a", each_second(), 1);
        let job = job.retries(1).backoff(Duration::from_millis(3_500)).overlap(overlap);
        let one = world.start("a", vec![job]);
        let ran = || -> Vec<i64> { tries.lock().unwrap().iter().map(|one| one.1).collect() };
        world.pass_until("the fifth", || ran().contains(&5)).await;
        assert_eq!(ran(), seconds, "{overlap:?}");
        one.stop().await.unwrap();
    }
}

#[tokio::test]
async fn nothing_begins_in_a_pause_but_what_is_asked_for_and_all_of_it_is_accounted_for() {
    let world = World::new();
    let job = || world.noting("a").missed(Missed::RunAll { most: 100 });
    let mut one = world.start("a", vec![job()]);
    world.pass_until("two ticks", || world.ran().len() >= 2).await;
    assert!(!one.cron.steer("nobody", Steer::Pause).await.unwrap(), "a typing error is noticed");
    assert!(one.cron.steer("job", Steer::Pause).await.unwrap());
    let before = world.ran().len();
    world.pass_for(Duration::from_secs(5)).await;
    assert_eq!(world.ran().len(), before, "it ran in a pause");
    // It holds for every leader.
    one.die();
    let two = world.start("b", vec![job()]);
    world.pass_until("the next leader", || two.leads()).await;
    world.pass_for(Duration::from_secs(4)).await;
    assert_eq!(world.ran().len(), before, "it ran in a pause");
    let paused = two.cron.progress().await.unwrap();
    assert!(paused[0].paused_unix_ms.is_some(), "{paused:?}");
    let tick = two.cron.trigger("job").await.unwrap();
    world.pass_until("what is asked for", || world.ran().len() == before + 1).await;
    assert_eq!(world.ran()[before].1, second(tick.scheduled_unix_ms));
    assert!(two.cron.steer("job", Steer::Resume).await.unwrap());
    let paused = world.ran().len();
    world.pass_until("it goes on", || world.ran().len() > paused + 1).await;
    world.pass_for(Duration::from_millis(100)).await;
    let scheduled: Vec<_> = world.ledger().await;
    let scheduled: Vec<_> = scheduled.into_iter().filter(|(at, _)| *at < 1_000).collect();
    let left_out = scheduled.iter().filter(|(_, it)| matches!(it, TickState::Skipped { .. }));
    assert!(left_out.count() >= 8, "{scheduled:?}");
    assert!(scheduled.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "{scheduled:?}");
    two.stop().await.unwrap();
}

/// The leader has not heard of the pause: the ledger refuses its claim.
#[tokio::test]
async fn a_pause_holds_when_it_has_been_told_though_the_leader_has_not_heard_of_it() {
    let world = World::new();
    let one = world.start("a", vec![world.noting("a")]);
    world.pass_until("a tick", || !world.ran().is_empty()).await;
    one.moody.deaf.store(true, Ordering::Relaxed);
    assert!(world.store.steer(&nightly(), "job", Steer::Pause).await.unwrap());
    let before = world.ran().len();
    world.pass_for(Duration::from_secs(3)).await;
    assert_eq!(world.ran().len(), before, "it ran in a pause");
    let ledger = world.ledger().await;
    assert!(matches!(ledger.last(), Some((_, TickState::Skipped { .. }))), "{ledger:?}");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_waits_for_the_end_of_a_pause() {
    let world = World::new();
    let (job, tries) = failing(&world, "a", each_half_minute(), 1);
    let job = job.retries(1).backoff(Duration::from_secs(2));
    let one = world.start("a", vec![job.delivery(Delivery::AtLeastOnce)]);
    world.pass_until("an attempt", || tries.lock().unwrap().len() == 1).await;
    world.pass_for(Duration::from_millis(100)).await;
    one.cron.steer("job", Steer::Pause).await.unwrap();
    world.pass_for(Duration::from_secs(8)).await;
    assert_eq!(tries.lock().unwrap().len(), 1, "it ran in a pause");
    one.cron.steer("job", Steer::Resume).await.unwrap();
    world.pass_until("the next attempt", || tries.lock().unwrap().len() == 2).await;
    one.stop().await.unwrap();
}

/// A clock that was ahead silences a job until that time has come, or until somebody says so.
#[tokio::test]
async fn a_job_whose_clock_was_ahead_counts_from_now_on_when_told_to() {
    let world = World::new();
    let one = world.start("a", vec![world.noting("a")]);
    world.pass_until("a tick", || !world.ran().is_empty()).await;
    // The memory store has the real time of day, which is later than the test's.
    let real = world.store.request(&nightly(), "other").await.unwrap().scheduled_unix_ms;
    let ahead = Duration::from_millis((real - NOON) as u64) + Duration::from_secs(86_400);
    world.wall.step(ahead, false);
    world.pass_until("a tick of tomorrow", || world.ran().len() >= 3).await;
    // Back to what the store takes for now.
    world.wall.step(Duration::from_secs(86_400), true);
    let before = world.ran().len();
    world.pass_for(Duration::from_secs(10)).await;
    assert_eq!(world.ran().len(), before, "nothing is due until tomorrow");
    assert!(one.cron.steer("job", Steer::FromNow).await.unwrap());
    world.pass_until("the next ticks", || world.ran().len() >= before + 3).await;
    one.stop().await.unwrap();
}

/// What comes due while so many run as may is left out.
#[tokio::test]
async fn no_more_runs_go_on_at_a_time_than_are_allowed() {
    let world = World::new();
    let (running, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let (now, peak) = (running.clone(), most.clone());
    let job = Job::new("job", each_second(), move |_: Run| {
        peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        std::future::pending::<()>()
    });
    let mut one = world.start("a", vec![job.overlap("allow(3)".parse().unwrap())]);
    world.pass_for(Duration::from_secs(10)).await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
    let ledger = world.ledger().await;
    let left_out = ledger.iter().filter(|(_, it)| matches!(it, TickState::Skipped { .. }));
    assert_eq!(left_out.count(), ledger.len() - 3, "{ledger:?}");
    one.die();
}

/// As with a password that was changed. The election goes on, and so does cron.
#[tokio::test]
async fn a_ledger_that_refuses_us_for_a_while_is_no_end_and_another_instance_takes_over() {
    let world = World::new();
    let one = world.start("a", vec![world.noting("a")]);
    world.pass_until("a tick", || !world.ran().is_empty()).await;
    one.moody.denied.store(true, Ordering::Relaxed);
    let two = world.start("b", vec![world.noting("b")]);
    world
        .pass_until("the one that is let in", || {
            world.ran().last().is_some_and(|(label, ..)| label == "b")
        })
        .await;
    one.moody.denied.store(false, Ordering::Relaxed);
    two.stop().await.unwrap();
    world
        .pass_until("the first one again", || {
            world.ran().last().is_some_and(|(label, ..)| label == "a")
        })
        .await;
    one.stop().await.unwrap();
}

/// What refuses us from the beginning is told.
#[tokio::test]
async fn a_ledger_that_never_let_us_in_is_an_error() {
    let world = World::new();
    world.denied.store(true, Ordering::Relaxed);
    let mut one = world.start("a", vec![world.noting("a")]);
    world.pass_until("the end", || one.has_ended()).await;
    let error = one.result().await.unwrap_err();
    assert_eq!(error.kind(), tenure::ErrorKind::Denied);
}
