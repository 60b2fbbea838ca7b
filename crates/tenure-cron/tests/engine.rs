//! The engine on a memory store, with time driven by hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Ledger as _, Name, TickEnd, TickState};
use tenure_cron::{Cron, CronEvent, Delivery, Job, Missed, Outcome, Overlap, Run, Schedule};

use common::{World, each_second};

const OK: TickState = TickState::Finished(TickEnd::Ok);

/// All seconds from the first to the last, each once.
fn is_gapless(seconds: &[i64]) -> bool {
    seconds.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[tokio::test]
async fn each_tick_runs_once_and_on_the_leader_only() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("one")]);
    let two = world.start("two", vec![world.noting("two")]);
    world.pass_until("ten ticks", || world.ran().len() >= 10).await;
    let seconds = world.ran_seconds();
    assert!(is_gapless(&seconds), "{seconds:?}");
    let leader = if one.leads() { "one" } else { "two" };
    assert!(world.ran().iter().all(|(label, ..)| label == leader));
    world.pass_for(Duration::from_millis(50)).await;
    let ledger = world.ledger().await;
    assert!(ledger.iter().all(|(_, state)| *state == OK), "{ledger:?}");
    assert_eq!(ledger.len(), world.ran().len());
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test]
async fn at_most_once_abandons_what_a_dead_leader_left_and_accounts_for_every_tick() {
    let world = World::new();
    let began = Arc::new(AtomicUsize::new(0));
    let hangs = {
        let began = began.clone();
        Job::new("job", each_second(), move |_| {
            began.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>()
        })
    };
    let mut one = world.start("one", vec![hangs]);
    world.pass_until("a start", || began.load(Ordering::Relaxed) == 1).await;
    one.die();
    let two = world.start("two", vec![world.noting("two").missed(Missed::RunOnce)]);
    world.pass_until("three more", || world.ran().len() >= 3).await;
    world.pass_for(Duration::from_millis(50)).await;
    let ledger = world.ledger().await;
    let seconds: Vec<i64> = ledger.iter().map(|(second, _)| *second).collect();
    assert!(is_gapless(&seconds), "{ledger:?}");
    assert_eq!(ledger[0].1, TickState::Abandoned, "{ledger:?}");
    assert_eq!(began.load(Ordering::Relaxed), 1, "it was run again");
    assert!(ledger.iter().any(|(_, state)| matches!(state, TickState::Skipped { .. })));
    two.stop().await.unwrap();
}

#[tokio::test]
async fn at_least_once_runs_it_again_as_the_next_attempt() {
    let world = World::new();
    let hangs = Job::new("job", each_second(), |_| std::future::pending::<()>());
    let mut one = world.start("one", vec![hangs.delivery(Delivery::AtLeastOnce)]);
    let started = |event: &CronEvent| matches!(event, CronEvent::Started { .. });
    let events = one.events.clone();
    world.pass_until("a start", || events.lock().unwrap().iter().any(started)).await;
    one.die();
    let job = world.noting("two").delivery(Delivery::AtLeastOnce);
    let job = job.missed(Missed::RunAll { most: 100 }).overlap(Overlap::Queue);
    let two = world.start("two", vec![job]);
    world.pass_until("six runs", || world.ran().len() >= 6).await;
    world.pass_for(Duration::from_millis(50)).await;
    let ran = world.ran();
    assert_eq!(ran[0].2, 2, "the first one is run for the second time: {ran:?}");
    assert!(ran[1..].iter().all(|(_, _, attempt, _)| *attempt == 1), "{ran:?}");
    assert!(is_gapless(&world.ran_seconds()), "{ran:?}");
    let ledger = world.ledger().await;
    assert!(ledger.iter().all(|(_, state)| *state == OK), "{ledger:?}");
    two.stop().await.unwrap();
}

/// K1: a leader that is paused between the claim and the start does not start.
#[tokio::test]
async fn a_pause_between_claim_and_start_ends_the_tick_there() {
    pauses_end_ticks(|moody| &moody.pause_after_claim).await;
}

#[tokio::test]
async fn a_pause_between_start_and_work_ends_the_tick_there() {
    pauses_end_ticks(|moody| &moody.pause_after_start).await;
}

/// A tick during which its leader is paused is not run, and is abandoned by the next reign.
async fn pauses_end_ticks(pause: fn(&common::Moody) -> &Mutex<Option<Duration>>) {
    const PAUSES: usize = 8;
    let world = World::new();
    let one = world.start("one", vec![world.noting("one")]);
    world.pass_until("a first tick", || !world.ran().is_empty()).await;
    for _ in 0..PAUSES {
        // Longer than trust lasts. Whatever the leader does next, it does too late.
        *pause(&one.moody).lock().unwrap() = Some(Duration::from_secs(10));
        world.pass_until("the pause", || pause(&one.moody).lock().unwrap().is_none()).await;
        let ran = world.ran().len();
        world.pass_until("it leads again", || world.ran().len() > ran + 1).await;
    }
    world.pass_for(Duration::from_millis(50)).await;
    let ledger = world.ledger().await;
    let abandoned = ledger.iter().filter(|(_, state)| *state == TickState::Abandoned);
    let abandoned: Vec<i64> = abandoned.map(|(second, _)| *second).collect();
    assert_eq!(abandoned.len(), PAUSES, "{ledger:?}");
    let ran = world.ran_seconds();
    let late: Vec<&i64> = abandoned.iter().filter(|second| ran.contains(second)).collect();
    assert!(late.is_empty(), "run too late: {late:?}");
    let late = one.moody.late_starts.load(Ordering::Relaxed);
    assert_eq!(late, 0, "the leader did not look between claim and start");
    one.stop().await.unwrap();
}

/// The frozen leader wakes up after somebody else has led, with a tick to run.
#[tokio::test]
async fn a_frozen_leader_s_late_tick_is_refused_by_the_ledger() {
    let world = World::new();
    let frozen_clock = world.clock.shifted(Duration::from_secs(5));
    let one = world.start_on("one", vec![world.noting("one")], frozen_clock.clone());
    world.pass_until("a first tick", || !world.ran().is_empty()).await;
    frozen_clock.freeze();
    let two = world.start("two", vec![world.noting("two").missed(Missed::RunOnce)]);
    world.pass_until("the other leads", || two.leads()).await;
    let terms = |label: &str| {
        let of =
            |(who, .., term): &(String, i64, u32, tenure::Term)| (who == label).then_some(*term);
        world.ran().iter().filter_map(of).max()
    };
    world.pass_until("the other runs some", || terms("two").is_some()).await;
    // By its own clock no time has passed: it believes that it leads. Its driver can't renew
    // before its clock goes on, and the ledger knows better.
    let stale = one.election.term();
    assert!(stale < two.election.term());
    let before = world.ran().len();
    world.pass_for(Duration::from_secs(3)).await;
    let by_one = world.ran()[before..].iter().filter(|(who, ..)| who == "one").count();
    assert_eq!(by_one, 0, "{:?}", world.ran());
    let mut seconds = world.ran_seconds();
    seconds.sort_unstable();
    seconds.dedup();
    assert_eq!(seconds.len(), world.ran().len(), "a tick ran twice: {:?}", world.ran());
    frozen_clock.thaw();
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test]
async fn an_answer_of_the_ledger_that_is_lost_is_asked_for_again_and_nothing_runs_twice() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("one").overlap(Overlap::Queue)]);
    world.pass_until("a first tick", || world.ran().len() == 1).await;
    for _ in 0..8 {
        one.moody.lose_answers.store(1, Ordering::Relaxed);
        world.pass_for(Duration::from_millis(470)).await;
    }
    one.moody.no_ledger.store(true, Ordering::Relaxed);
    world.pass_for(Duration::from_millis(1500)).await;
    one.moody.no_ledger.store(false, Ordering::Relaxed);
    world.pass_for(Duration::from_secs(3)).await;
    let seconds = world.ran_seconds();
    assert!(is_gapless(&seconds) && seconds.len() >= 8, "{seconds:?}");
    let ledger = world.ledger().await;
    assert_eq!(ledger.len(), seconds.len());
    one.stop().await.unwrap();
}

#[tokio::test]
async fn failures_panics_and_timeouts_are_ends_like_others() {
    let world = World::new();
    let count = Arc::new(AtomicUsize::new(0));
    let job = Job::new("job", each_second(), move |_: Run| {
        let count = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match count {
                0 => Outcome::Ok,
                1 => Outcome::from(Err::<(), _>("no paper")),
                2 => Outcome::Failed { code: 42, reason: String::new() },
                3 => panic!("on purpose"),
                4 => std::future::pending().await,
                _ => Outcome::Ok,
            }
        }
    });
    let job = job.timeout(Duration::from_millis(300));
    let one = world.start("one", vec![job]);
    let ended = |event: &CronEvent| matches!(event, CronEvent::Ended { .. });
    let events = one.events.clone();
    let ends = || events.lock().unwrap().iter().filter(|event| ended(event)).count();
    world.pass_until("six ends", || ends() >= 6).await;
    let states: Vec<TickState> = world.ledger().await.iter().map(|(_, state)| *state).collect();
    let failed = |code| TickState::Finished(TickEnd::Failed(code));
    let timed_out = TickState::Finished(TickEnd::TimedOut);
    assert_eq!(states[..6], [OK, failed(1), failed(42), failed(101), timed_out, OK]);
    assert!(one.leads(), "a panic of a job costs nobody the leadership");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_that_still_runs_when_leadership_ends_is_told_and_then_recorded_as_abandoned() {
    let world = World::new();
    let told = Arc::new(AtomicUsize::new(0));
    let job = {
        let told = told.clone();
        Job::new("job", each_second(), move |run: Run| {
            let told = told.clone();
            async move {
                run.lost().await;
                told.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
        })
    };
    let one = world.start("one", vec![job]);
    world.pass_until("it leads", || one.leads()).await;
    world.pass_for(Duration::from_millis(1500)).await;
    let stopping = {
        let election = one.election.clone();
        tokio::runtime::Handle::current().spawn(async move { election.stop().await })
    };
    world.pass_until("it has stopped", || stopping.is_finished()).await;
    stopping.await.unwrap().unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1);
    let ledger = world.ledger().await;
    assert_eq!(ledger[0].1, TickState::Abandoned, "{ledger:?}");
    let lost = |event: &CronEvent| {
        matches!(event, CronEvent::Ended { outcome: Outcome::Lost, recorded: true, .. })
    };
    assert!(one.events.lock().unwrap().iter().any(lost));
}

#[tokio::test]
async fn a_clock_on_the_wall_that_is_set_runs_nothing_twice() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("one").missed(Missed::RunOnce)]);
    world.pass_until("three ticks", || world.ran().len() >= 3).await;
    world.wall.step(Duration::from_secs(2), true);
    world.pass_for(Duration::from_secs(5)).await;
    world.wall.step(Duration::from_secs(7), false);
    world.pass_for(Duration::from_secs(3)).await;
    let seconds = world.ran_seconds();
    assert!(seconds.is_sorted(), "{seconds:?}");
    let mut once = seconds.clone();
    once.dedup();
    assert_eq!(once.len(), seconds.len(), "{seconds:?}");
    world.pass_for(Duration::from_millis(50)).await;
    let all: Vec<i64> = world.ledger().await.iter().map(|(second, _)| *second).collect();
    assert!(is_gapless(&all), "{all:?}");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn somebody_can_ask_for_a_job_now() {
    let world = World::new();
    let yearly = Schedule::new("@yearly", "UTC").unwrap();
    let manual: Arc<Mutex<Vec<bool>>> = Arc::default();
    let job = {
        let manual = manual.clone();
        Job::new("report", yearly, move |run: Run| {
            manual.lock().unwrap().push(run.is_manual());
            async {}
        })
    };
    let one = world.start("one", vec![job]);
    world.pass_until("it leads", || one.leads()).await;
    let asked = one.cron.trigger("report").await.unwrap();
    let unknown = one.cron.trigger("unknown").await.unwrap();
    // Well before requests are looked for without a hint.
    world.pass_for(Duration::from_millis(200)).await;
    assert_eq!(*manual.lock().unwrap(), [true]);
    let history = one.cron.history(None, 10).await.unwrap();
    let state = |tick| history.iter().find(|it| it.tick == tick).map(|it| it.state);
    assert_eq!(state(asked), Some(OK));
    assert_eq!(state(unknown), Some(TickState::Abandoned));
    one.stop().await.unwrap();
}

#[tokio::test]
async fn jobs_can_be_replaced_while_leading() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("old")]);
    world.pass_until("two ticks", || world.ran().len() >= 2).await;
    let every_third = Schedule::new("*/3 * * * * *", "UTC").unwrap();
    let (ran, label) = (world.ran.clone(), "new".to_owned());
    let job = Job::new("job", every_third, move |run: Run| {
        let at = common::second(run.scheduled_unix_ms());
        ran.lock().unwrap().push((label.clone(), at, run.attempt(), run.term()));
        async {}
    });
    one.cron.replace(vec![job]).unwrap();
    let from = world.ran().len();
    world.pass_for(Duration::from_secs(7)).await;
    let after = world.ran()[from..].to_vec();
    assert!(after.len() >= 2 && after.iter().all(|(who, at, ..)| who == "new" && at % 3 == 0));
    let two = vec![world.noting("a"), world.noting("b")];
    assert!(one.cron.replace(two).unwrap_err().message().contains("two jobs of the name"));
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_first_tick_that_is_missed_is_known_as_such() {
    let world = World::new();
    let soon = Schedule::new("5 0 12 * * *", "UTC").unwrap();
    let job = |label: &str| {
        let (ran, label) = (world.ran.clone(), label.to_owned());
        Job::new("job", soon.clone(), move |run: Run| {
            let at = common::second(run.scheduled_unix_ms());
            ran.lock().unwrap().push((label.clone(), at, run.attempt(), run.term()));
            async {}
        })
    };
    let mut one = world.start("one", vec![job("one")]);
    world.pass_until("it leads", || one.leads()).await;
    world.pass_for(Duration::from_millis(4_900)).await;
    one.die();
    let two = world.start("two", vec![job("two")]);
    // The failover takes longer than the tick is away, and the grace covers it.
    world.pass_until("it ran", || !world.ran().is_empty()).await;
    assert_eq!(world.ran()[0].1, 5);
    two.stop().await.unwrap();
}

#[tokio::test]
async fn history_is_trimmed() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("one").keep(5)]);
    world.pass_until("thirty ticks", || world.ran().len() >= 30).await;
    let election = Name::new("nightly").unwrap();
    let kept = world.store.history(&election, None, 1_000).await.unwrap().len();
    assert!(kept <= 8, "{kept} are kept");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn what_the_store_can_not_keep_is_refused_before_anything_starts() {
    let world = World::new();
    let one = world.start("one", Vec::new());
    world.pass_until("it leads", || one.leads()).await;
    let job = world.noting("x").delivery(Delivery::Transactional);
    let error = one.cron.replace(vec![job]).unwrap_err();
    assert!(error.message().contains("the memory store has no transactions"), "{error}");
    let store = std::sync::Arc::new(world.store.clone());
    let built = Cron::builder(&one.election, store).job(Job::new("", each_second(), |_| async {}));
    assert!(built.build().unwrap_err().message().contains("the name of a job is empty"));
    one.stop().await.unwrap();
}
