//! The engine on a memory store, with time driven by hand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Clock as _, Ledger as _, LedgerStep, Name, TickEnd, TickState, Transactions};
use tenure_cron::{Cron, CronEvent, Delivery, Job, Missed, Outcome, Overlap, Run, Schedule};

use crate::common::{self, TTL, World, each_second};

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

/// Work that winds up when it is told to has not ended for good.
#[tokio::test]
async fn an_instance_that_resigned_fires_on_when_it_leads_again() {
    let world = World::new();
    let only = world.start("a", vec![world.noting("a")]);
    world.pass_until("the first ticks", || world.ran().len() >= 2).await;
    let first = only.term();
    let mut resigned = Box::pin(only.election.resign());
    let mut done = false;
    world
        .pass_until("the next reign", || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            done = done || resigned.as_mut().poll(&mut context).is_ready();
            done && only.term() > first
        })
        .await;
    drop(resigned);
    let before = world.ran().len();
    world.pass_until("more ticks", || world.ran().len() >= before + 2).await;
    only.stop().await.unwrap();
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
    let job = job.missed(Missed::RunAll { most: 100 });
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

/// A transactional job waits until its start is in the ledger. A leader that is paused over it does
/// not run the tick any more; the next reign does, as the second attempt.
#[tokio::test]
async fn a_pause_between_start_and_work_ends_the_attempt_there() {
    const PAUSES: usize = 8;
    let world = World::new();
    // Beside: the end is written as that of any other job.
    *world.transactions.lock().unwrap() = Some(Transactions::Beside);
    let job = world.noting("one").delivery(Delivery::Transactional);
    let one = world.start("one", vec![job.missed(Missed::RunAll { most: 100 })]);
    world.pass_until("a first tick", || !world.ran().is_empty()).await;
    for _ in 0..PAUSES {
        *one.moody.pause_after_start.lock().unwrap() = Some(Duration::from_secs(10));
        let over = || one.moody.pause_after_start.lock().unwrap().is_none();
        world.pass_until("the pause", over).await;
        let ran = world.ran().len();
        world.pass_until("it leads again", || world.ran().len() > ran + 1).await;
    }
    let ran = world.ran();
    let again = ran.iter().filter(|(_, _, attempt, _)| *attempt == 2).count();
    assert_eq!(again, PAUSES, "{ran:?}");
    assert!(is_gapless(&world.ran_seconds()), "an attempt that was paused ran late: {ran:?}");
    one.stop().await.unwrap();
}

/// What a claim is enough for: nobody waits for a second call before the work begins.
#[tokio::test]
async fn the_work_begins_with_the_claim_and_its_start_is_known_before_its_end() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("one")]);
    let steps = || one.moody.steps.lock().unwrap().clone();
    let starts = |step: &LedgerStep| matches!(step, LedgerStep::Start { .. });
    one.moody.hold_starts.store(true, Ordering::Relaxed);
    world.pass_until("a run", || !world.ran().is_empty()).await;
    assert!(!steps().iter().any(starts), "it was waited for: {:?}", steps());
    world.pass_for(Duration::from_millis(100)).await;
    let ends = |step: &LedgerStep| matches!(step, LedgerStep::End { .. });
    assert!(!steps().iter().any(ends), "the end has overtaken it: {:?}", steps());
    one.moody.hold_starts.store(false, Ordering::Relaxed);
    world.pass_until("an end", || steps().iter().any(ends)).await;
    let place = |which: fn(&LedgerStep) -> bool| steps().iter().position(which).unwrap();
    assert!(place(starts) < place(ends), "{:?}", steps());
    assert!(!one.moody.doubled.load(Ordering::Relaxed), "two steps of one tick in one call");
    one.stop().await.unwrap();
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

/// The frozen leader wakes up after somebody else has led, with a tick to run that nobody else has.
#[tokio::test]
async fn a_frozen_leader_s_late_tick_is_refused_by_the_ledger() {
    assert_eq!(late_tick_after_a_freeze(true).await, (false, true));
}

/// The same with a ledger that does not look at the term: it is the fence that stops the tick.
#[tokio::test]
async fn without_a_fence_a_frozen_leader_s_late_tick_would_run() {
    assert_eq!(late_tick_after_a_freeze(false).await, (true, false));
}

/// Whether a leader that was frozen while its claim was on its way ran the tick, and whether it was
/// told that it may not.
async fn late_tick_after_a_freeze(fenced: bool) -> (bool, bool) {
    let world = World::new();
    let its_clock = world.clock.shifted(Duration::from_secs(5));
    let mut one = world.start_on("one", vec![world.noting("one")], its_clock.clone());
    world.pass_until("a first tick", || !world.ran().is_empty()).await;
    let gate = Arc::new(tokio::sync::Notify::new());
    *one.moody.hold_claim.lock().unwrap() = Some(gate.clone());
    world.pass_until("a claim", || one.moody.hold_claim.lock().unwrap().is_none()).await;
    its_clock.freeze();
    let before = world.ran().len();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let other = Job::new("other", each_second(), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    let two = world.start("two", vec![other]);
    world.pass_until("the other runs some", || count.load(Ordering::Relaxed) > 2).await;
    // By its own clock no time has passed.
    assert!(one.leads() && one.term() < two.term());
    if !fenced {
        *one.moody.forge.lock().unwrap() = two.term();
    }
    gate.notify_one();
    world.pass_for(Duration::from_secs(1)).await;
    let late = world.ran().len() > before;
    let refused = |event: &CronEvent| matches!(event, CronEvent::Refused { .. });
    let refused = one.events.lock().unwrap().iter().any(refused);
    // Its clock stands still, so it could not wind up.
    one.die();
    two.stop().await.unwrap();
    (late, refused)
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
    assert_eq!(state(unknown), Some(TickState::Requested), "for a leader that has the job");
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
    let built = Cron::builder(&one.election).job(Job::new("", each_second(), |_| async {}));
    assert!(built.build().unwrap_err().message().contains("the name of a job is empty"));
    one.stop().await.unwrap();
}

/// Whatever the overlap is by default: a slow job that is caught up with leaves out nothing.
#[tokio::test]
async fn at_least_once_with_run_all_runs_every_tick_by_default() {
    let world = World::new();
    let job = |label: &str| {
        let (ran, clock, label) = (world.ran.clone(), world.clock.clone(), label.to_owned());
        Job::new("job", each_second(), move |run: Run| {
            let at = common::second(run.scheduled_unix_ms());
            ran.lock().unwrap().push((label.clone(), at, run.attempt(), run.term()));
            let clock = clock.clone();
            async move { clock.sleep_until(clock.now() + Duration::from_millis(1_200)).await }
        })
        .delivery(Delivery::AtLeastOnce)
        .missed(Missed::RunAll { most: 100 })
    };
    let mut one = world.start("one", vec![job("one")]);
    world.pass_until("a start", || !world.ran().is_empty()).await;
    one.die();
    let mut two = world.start("two", vec![job("two")]);
    world.pass_until("eight runs", || world.ran().len() >= 9).await;
    let ran = world.ran();
    assert_eq!((ran[1].1, ran[1].2), (ran[0].1, 2), "the first is run again: {ran:?}");
    assert!(is_gapless(&world.ran_seconds()[1..]), "{ran:?}");
    let ledger = world.ledger().await;
    let skipped = |(_, state): &(i64, TickState)| matches!(state, TickState::Skipped { .. });
    assert!(!ledger.iter().any(skipped), "{ledger:?}");
    two.die();
}

/// A panic of whoever is told, or of what timed-out work leaves behind, is no end of the job.
#[tokio::test]
async fn panics_around_the_work_do_not_stop_the_job() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let world = World::new();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let job = Job::new("job", each_second(), move |_| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                let _bomb = Bomb;
                std::future::pending::<()>().await;
            }
        }
    });
    let one = world.start("one", vec![job.timeout(Duration::from_millis(300))]);
    world.pass_until("a second tick", || count.load(Ordering::Relaxed) >= 2).await;
    world.jumpy.store(true, Ordering::Relaxed);
    world.pass_until("some more", || count.load(Ordering::Relaxed) >= 5).await;
    world.jumpy.store(false, Ordering::Relaxed);
    world.pass_for(Duration::from_millis(50)).await;
    let states: Vec<TickState> = world.ledger().await.iter().map(|(_, state)| *state).collect();
    assert_eq!(states[0], TickState::Finished(TickEnd::TimedOut));
    assert!(states.len() >= 5 && states[1..].iter().all(|state| *state == OK), "{states:?}");
    one.stop().await.unwrap();
}

/// If it were the other way round, a leader killed in between would leave a hole.
#[tokio::test]
async fn a_tick_is_claimed_before_what_is_left_out_after_it() {
    let world = World::new();
    let (hold, clock) = (Arc::new(AtomicUsize::new(0)), world.clock.clone());
    let held = hold.clone();
    let job = Job::new("job", each_second(), move |_| {
        let long = held.swap(0, Ordering::Relaxed) as u64;
        let clock = clock.clone();
        async move { clock.sleep_until(clock.now() + Duration::from_millis(long)).await }
    });
    let job = job.missed(Missed::RunAll { most: 9 }).overlap(Overlap::Skip);
    let one = world.start("one", vec![job]);
    world.pass_until("it leads", || one.leads()).await;
    world.pass_for(Duration::from_millis(1_100)).await;
    // Two are missed; while the first of them runs, others come and are left out.
    hold.store(3_500, Ordering::Relaxed);
    world.wall.step(Duration::from_secs(2), false);
    world.pass_for(Duration::from_secs(5)).await;
    let steps = one.moody.steps.lock().unwrap().clone();
    let mut seen = i64::MIN;
    let mut skips = 0;
    for step in &steps {
        let at = match step {
            LedgerStep::Claim { tick, .. } => tick.scheduled_unix_ms,
            LedgerStep::Skip { tick, count: 1.., .. } => {
                skips += 1;
                tick.scheduled_unix_ms
            }
            _ => continue,
        };
        assert!(at > seen, "out of order: {steps:?}");
        seen = at;
    }
    assert!(skips > 0, "nothing was left out: {steps:?}");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_silent_because_a_clock_was_ahead_is_told_of() {
    let world = World::new();
    let ahead = |instance: &common::Instance| {
        let events = instance.events.clone();
        move || {
            let events = events.lock().unwrap();
            events.iter().filter(|event| matches!(event, CronEvent::Ahead { .. })).count()
        }
    };
    let mut one = world.start("one", vec![world.noting("one")]);
    world.pass_until("a tick", || !world.ran().is_empty()).await;
    world.wall.step(Duration::from_secs(3600), false);
    let ran = world.ran().len();
    world.pass_until("a tick too early", || world.ran().len() > ran).await;
    assert_eq!(ahead(&one)(), 0);
    world.wall.step(Duration::from_secs(3600), true);
    // The leader itself, which looks now and then, and tells it once.
    world.pass_until("it is told", || ahead(&one)() == 1).await;
    world.pass_for(Duration::from_secs(12)).await;
    assert_eq!(ahead(&one)(), 1);
    one.die();
    let two = world.start("two", vec![world.noting("two")]);
    world.pass_until("the next leader tells it", || ahead(&two)() == 1).await;
    two.stop().await.unwrap();
}

#[tokio::test]
async fn jitter_delays_each_tick_by_the_same_and_keeps_its_instant() {
    let world = World::new();
    let began: Arc<Mutex<Vec<(i64, i64)>>> = Arc::default();
    let (noted, wall) = (began.clone(), world.wall.clone());
    let job = Job::new("job", each_second(), move |run: Run| {
        let now = tenure_cron::WallClock::now_unix_ms(&wall);
        noted.lock().unwrap().push((run.scheduled_unix_ms(), now));
        async {}
    });
    let one = world.start("one", vec![job.jitter(Duration::from_secs(30))]);
    world.pass_until("five ticks", || began.lock().unwrap().len() >= 5).await;
    let began = began.lock().unwrap().clone();
    let late: Vec<i64> = began.iter().map(|(at, now)| now - at).collect();
    assert!(began.iter().all(|(at, _)| at % 1_000 == 0), "{began:?}");
    assert!(began.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1_000), "{began:?}");
    let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
    assert!(*least > 1_000 && *most < 30_100 && most - least <= 40, "{late:?}");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_transactional_job_whose_transaction_did_not_end_its_tick_has_failed() {
    let world = World::new();
    *world.transactions.lock().unwrap() = Some(Transactions::Same);
    let job = world.noting("one").delivery(Delivery::Transactional);
    let one = world.start("one", vec![job]);
    let failed = |event: &CronEvent| match event {
        CronEvent::Ended { outcome: Outcome::Failed { code: 1, reason }, recorded, .. } => {
            reason.contains("call tenure_tick in it") && *recorded
        }
        _ => false,
    };
    let events = one.events.clone();
    world.pass_until("an end", || events.lock().unwrap().iter().any(failed)).await;
    let ledger = world.ledger().await;
    assert_eq!(ledger[0].1, TickState::Finished(TickEnd::Failed(1)), "{ledger:?}");
    one.stop().await.unwrap();
}

#[tokio::test]
async fn more_missed_ticks_than_can_be_caught_up_with_are_refused() {
    let world = World::new();
    let one = world.start("one", Vec::new());
    world.pass_until("it leads", || one.leads()).await;
    for most in [0, 10_001] {
        let job = world.noting("x").missed(Missed::RunAll { most });
        let error = one.cron.replace(vec![job]).unwrap_err();
        assert!(error.message().contains("catch up with 1 to 10000 ticks"), "{error}");
    }
    one.stop().await.unwrap();
}

#[tokio::test]
async fn others_have_their_turns_while_the_jobs_of_a_long_gap_are_counted() {
    const JOBS: usize = 5;
    let world = World::new();
    let job = |number| Job::new(format!("job {number}"), each_second(), |_| async {});
    let one = world.start("one", (0..JOBS).map(job).collect());
    world.pass_until("it leads", || one.leads()).await;
    let turns = world.turns.clone();
    let other = tokio::runtime::Handle::current().spawn(async move {
        loop {
            turns.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    world.wall.step(Duration::from_secs(300), false);
    let skipped = || {
        let events = one.events.lock().unwrap();
        let told_at = one.told_at.lock().unwrap();
        let skips = events.iter().zip(told_at.iter());
        let many = |event: &CronEvent| matches!(event, CronEvent::Skipped { count: 100.., .. });
        skips.filter(|(event, _)| many(event)).map(|(_, turn)| *turn).collect::<Vec<i64>>()
    };
    world.pass_until("all gaps", || skipped().len() == JOBS).await;
    let turns = skipped();
    assert!(turns[0] < turns[JOBS - 1], "all in one go: {turns:?}");
    other.abort();
    one.stop().await.unwrap();
}

/// A job that blocks can't be told of a loss. So the lease is not kept alive for it, though the
/// task that fires the jobs is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_blocks_its_thread_does_not_keep_the_lease_alive() {
    /// Lets the job go, also if the test fails: its runtime waits for its threads.
    struct Opens(Arc<(Mutex<bool>, std::sync::Condvar)>);
    impl Drop for Opens {
        fn drop(&mut self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
        }
    }
    let world = World::new();
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let opens = Opens(gate.clone());
    let (blocks, began) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = began.clone();
    let job = Job::new("job", each_second(), move |_: Run| {
        let (blocks, counted) = (blocks.clone(), counted.clone());
        async move {
            tokio::task::yield_now().await;
            counted.fetch_add(1, Ordering::SeqCst);
            let (open, bell) = &*blocks;
            drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        }
    });
    let one = world.start("one", vec![job]);
    world.pass_until("a run that blocks", || began.load(Ordering::SeqCst) > 0).await;
    let two = world.start("two", vec![world.noting("two")]);
    world.pass_until("the other leads", || two.leads()).await;
    assert!(!one.leads());
    drop(opens);
    two.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_that_merely_waits_keeps_the_lease() {
    let world = World::new();
    let began = Arc::new(AtomicUsize::new(0));
    let counted = began.clone();
    let job = Job::new("job", each_second(), move |_: Run| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>()
    });
    let one = world.start("one", vec![job]);
    world.pass_until("a run", || began.load(Ordering::SeqCst) > 0).await;
    let term = one.term();
    world.pass_for(TTL * 4).await;
    assert!(one.leads() && one.term() == term);
}
