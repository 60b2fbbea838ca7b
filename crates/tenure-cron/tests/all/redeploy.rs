//! What becomes of ticks when the jobs change from one leader to the next: a rolling deploy, a
//! schedule that is written anew. On a memory store, with time driven by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::{LEDGER_OPEN_MAX, Ledger as _, Name, Tick, TickEnd, TickState};
use tenure_cron::{CronEvent, Delivery, Job, Missed, Run, Schedule};

use crate::common::{self, World, each_second, second};

/// A job of another name, so that an instance has something to do.
fn other(count: &Arc<AtomicUsize>) -> Job {
    let count = count.clone();
    Job::new("other", each_second(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    })
}

/// The job of [`World::noting`], by another schedule, which catches up with what was missed.
fn by_schedule(world: &World, label: &str, schedule: &str) -> Job {
    let (ran, label) = (world.ran.clone(), label.to_owned());
    let schedule = Schedule::new(schedule, "UTC").unwrap();
    let job = Job::new("job", schedule, move |run: Run| {
        let note = (label.clone(), second(run.scheduled_unix_ms()), run.attempt(), run.term());
        ran.lock().unwrap().push(note);
        async {}
    });
    job.missed(Missed::RunAll { most: 1_000 })
}

fn now(world: &World) -> i64 {
    use tenure_cron::WallClock as _;
    second(world.wall.now_unix_ms())
}

#[tokio::test]
async fn a_tick_stays_open_under_a_leader_without_its_job_and_runs_under_the_next_with_it() {
    for delivery in [Delivery::AtLeastOnce, Delivery::Transactional] {
        let world = World::new();
        *world.transactions.lock().unwrap() = Some(tenure_core::Transactions::Beside);
        let hangs = Job::new("job", each_second(), |_| std::future::pending::<()>());
        let mut old = world.start("old", vec![hangs.delivery(delivery)]);
        let events = old.events.clone();
        let started = |event: &CronEvent| matches!(event, CronEvent::Started { .. });
        world.pass_until("a start", || events.lock().unwrap().iter().any(started)).await;
        let tick = events.lock().unwrap().iter().find(|it| started(it)).unwrap().tick().clone();
        old.die();
        // The first of the new version leads, and has no such job.
        let count = Arc::new(AtomicUsize::new(0));
        let new = world.start("new", vec![other(&count)]);
        world.pass_until("it leads for a while", || count.load(Ordering::Relaxed) > 8).await;
        let told = new.events.lock().unwrap().clone();
        let unknown = |event: &&CronEvent| matches!(event, CronEvent::Unknown { .. });
        let unknown: Vec<&Tick> = told.iter().filter(unknown).map(CronEvent::tick).collect();
        assert_eq!(unknown, [&tick], "told of once: {told:?}");
        new.stop().await.unwrap();
        let last = world.start("last", vec![world.noting("last").delivery(delivery)]);
        let again = (second(tick.scheduled_unix_ms), 2);
        let ran = || world.ran().iter().any(|(_, at, attempt, _)| (*at, *attempt) == again);
        world.pass_until("the second attempt", ran).await;
        last.stop().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_asked_for_waits_for_a_leader_that_has_the_job() {
    let world = World::new();
    let count = Arc::new(AtomicUsize::new(0));
    let without = world.start("without", vec![other(&count)]);
    world.pass_until("it leads", || without.leads()).await;
    let asked = without.cron.trigger("job").await.unwrap();
    let later = count.load(Ordering::Relaxed) + 8;
    world.pass_until("it leads for a while", || count.load(Ordering::Relaxed) > later).await;
    let election = Name::new("nightly").unwrap();
    let history = world.store.history(&election, Some("job"), 10).await.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!((&history[0].tick, history[0].state), (&asked, TickState::Requested));
    // It has the job from now on.
    let count = Arc::new(AtomicUsize::new(0));
    let yearly = Schedule::new("@yearly", "UTC").unwrap();
    let counted = count.clone();
    let job = Job::new("job", yearly, move |run: Run| {
        assert!(run.is_manual());
        counted.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    without.cron.replace(vec![job]).unwrap();
    world.pass_until("it ran", || count.load(Ordering::Relaxed) == 1).await;
    world.pass_for(Duration::from_secs(6)).await;
    let history = world.store.history(&election, Some("job"), 10).await.unwrap();
    assert_eq!(history[0].state, TickState::Finished(TickEnd::Ok));
    assert_eq!(count.load(Ordering::Relaxed), 1);
    without.stop().await.unwrap();
}

/// What nobody knows stays open, and must not keep what is known from being seen.
#[tokio::test]
async fn any_number_of_unknown_ticks_hides_none_that_is_known() {
    let world = World::new();
    let election = Name::new("nightly").unwrap();
    for _ in 0..LEDGER_OPEN_MAX + 1 {
        world.store.request(&election, "nobody's").await.unwrap();
    }
    let count = Arc::new(AtomicUsize::new(0));
    let one = world.start("one", vec![other(&count)]);
    world.pass_until("it leads", || one.leads()).await;
    let asked = one.cron.trigger("other").await.unwrap();
    world.pass_for(Duration::from_secs(1)).await;
    let history = world.store.history(&election, Some("other"), 100).await.unwrap();
    let found = history.iter().find(|record| record.tick == asked).unwrap();
    assert_eq!(found.state, TickState::Finished(TickEnd::Ok));
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_is_new_has_no_backlog() {
    for missed in [Missed::RunAll { most: 1_000 }, Missed::RunOnce] {
        let world = World::new();
        let mut one = world.start("one", vec![world.noting("one")]);
        world.pass_until("three ticks", || world.ran().len() >= 3).await;
        one.die();
        world.pass_for(Duration::from_secs(30)).await;
        let before = world.ran().len();
        let redeployed = now(&world);
        let job = by_schedule(&world, "two", "*/2 * * * * *").missed(missed);
        let two = world.start("two", vec![job]);
        world.pass_until("three more", || world.ran().len() >= before + 3).await;
        let ran = world.ran()[before..].to_vec();
        assert!(ran.iter().all(|(_, at, ..)| *at >= redeployed), "from {redeployed} on: {ran:?}");
        two.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_schedule_that_is_new_counts_from_when_it_was_first_led() {
    let world = World::new();
    let one = world.start("one", vec![world.noting("one")]);
    world.pass_until("three ticks", || world.ran().len() >= 3).await;
    one.stop().await.unwrap();
    let new = "*/10 * * * * *";
    let mut two = world.start("two", vec![by_schedule(&world, "two", new)]);
    world.pass_until("it leads", || two.leads()).await;
    world.pass_for(Duration::from_millis(200)).await;
    let first_led = now(&world);
    let before = world.ran().len();
    // It is gone before the first tick of the new schedule, and away for two of them.
    two.die();
    world.pass_for(Duration::from_secs(25)).await;
    assert_eq!(world.ran().len(), before);
    let three = world.start("three", vec![by_schedule(&world, "three", new)]);
    world.pass_until("both", || world.ran().len() >= before + 2).await;
    let ran: Vec<i64> = world.ran_seconds()[before..].to_vec();
    let due: Vec<i64> = (first_led + 1..).filter(|at| at % 10 == 0).take(2).collect();
    assert_eq!(ran[..2], due, "first led at {first_led}");
    three.stop().await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_is_replaced_while_leading_is_known_to_the_next_leader() {
    let world = World::new();
    let mut one = world.start("one", vec![world.noting("one")]);
    world.pass_until("three ticks", || world.ran().len() >= 3).await;
    let new = "*/10 * * * * *";
    one.cron.replace(vec![by_schedule(&world, "one", new)]).unwrap();
    world.pass_for(Duration::from_millis(200)).await;
    let first_led = now(&world);
    one.die();
    let before = world.ran().len();
    world.pass_for(Duration::from_secs(25)).await;
    let two = world.start("two", vec![by_schedule(&world, "two", new)]);
    world.pass_until("both", || world.ran().len() >= before + 2).await;
    let ran: Vec<i64> = world.ran_seconds()[before..].to_vec();
    let due: Vec<i64> = (first_led + 1..).filter(|at| at % 10 == 0).take(2).collect();
    assert_eq!(ran[..2], due, "first led at {first_led}");
    two.stop().await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_is_the_same_has_its_backlog() {
    let world = World::new();
    let every = "*/10 * * * * *";
    let mut one = world.start("one", vec![by_schedule(&world, "one", every)]);
    world.pass_until("a tick", || !world.ran().is_empty()).await;
    one.die();
    world.pass_for(Duration::from_secs(30)).await;
    let two = world.start("two", vec![by_schedule(&world, "two", every)]);
    world.pass_until("three more", || world.ran().len() >= 4).await;
    let ran = world.ran_seconds();
    assert!(ran.windows(2).all(|pair| pair[1] == pair[0] + 10), "{ran:?}");
    two.stop().await.unwrap();
}

/// What older versions wrote has no schedule, and a schedule that nobody noted has not changed.
#[tokio::test]
async fn a_job_without_a_known_schedule_counts_as_unchanged() {
    use tenure_core::{CandidateId, LedgerStep, Op, Reply, Store as _};
    let world = World::new();
    let election = Name::new("nightly").unwrap();
    let acquire = Op::Acquire {
        election: election.clone(),
        candidate: CandidateId::new("old", 1).unwrap(),
        seq: 1,
        above: None,
        floor: None,
        ttl: common::TTL,
        metadata: None,
    };
    let replies = world.store.apply(std::slice::from_ref(&acquire)).await;
    let Some(Reply::Granted(grant)) = replies.first() else { panic!("granted") };
    let tick = Tick::new("job", common::NOON);
    let steps = [LedgerStep::Claim { tick, again: false }];
    world.store.record(&election, grant.term, &steps).await.unwrap();
    world.pass_for(Duration::from_secs(30)).await;
    let two = world.start("two", vec![by_schedule(&world, "two", "*/10 * * * * *")]);
    world.pass_until("the backlog", || world.ran().len() >= 3).await;
    assert_eq!(world.ran_seconds()[..3], [10, 20, 30]);
    two.stop().await.unwrap();
}
