//! The real library on one thread: its driver, slots, relay, announcer, telemetry and cron engine
//! run as tasks of a simulated executor, which picks by its seed which of them goes on next. Time
//! stands still until nothing else is left to do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Candidate, Clock, Election, MemoryStore, Term};
use tenure_cron::{Cron, Job, Run, Schedule, WallClock};
use tenure_testkit::ManualClock;

use crate::stepper::{self, Stepper};

const TTL: Duration = Duration::from_secs(3);

/// What user code was told, in order.
type Diary = Arc<Mutex<Vec<String>>>;

fn term_of(election: &Election) -> Option<Term> {
    election.peek().map(|standing| standing.term)
}

fn candidate(world: &Stepper, store: &MemoryStore, label: &str) -> Candidate {
    let builder = Candidate::builder(Arc::new(store.clone())).label(label);
    builder.runtime(Arc::new(world.clone())).build().unwrap()
}

/// An election with callbacks that write into the diary.
fn election(world: &Stepper, store: &MemoryStore, label: &'static str, diary: &Diary) -> Election {
    let note = |diary: &Diary, word: &'static str| {
        let (diary, clock) = (diary.clone(), world.clock().clone());
        move |term: Term| {
            let line = format!("{:?} {label} {word} term {term}", clock.now());
            diary.lock().unwrap().push(line);
        }
    };
    candidate(world, store, label)
        .election("jobs")
        .ttl(TTL)
        .on_elected(note(diary, "leads"))
        .on_lost(note(diary, "lost"))
        .build()
        .unwrap()
}

/// Two candidates: one is elected, renews for ten seconds, and resigns; the other one leads.
fn hand_over(seed: u64) -> (Vec<String>, Vec<String>) {
    let world = Stepper::new(seed);
    let store = MemoryStore::with_clock(Arc::new(world.clock().clone()));
    let diary = Diary::default();
    let one = election(&world, &store, "one", &diary);
    let two = election(&world, &store, "two", &diary);

    let starts = one.clone();
    world.finish(async move { starts.start().await.unwrap() });
    let starts = two.clone();
    world.finish(async move { starts.start().await.unwrap() });
    assert_eq!((term_of(&one), term_of(&two)), (Term::new(1), None), "seed {seed}");

    // More than three times the ttl: it leads on only because it renews.
    world.pass(Duration::from_secs(10), || {
        assert!(
            one.peek().is_some() && two.peek().is_none(),
            "seed {seed}: the lease was not renewed"
        );
    });
    assert_eq!(term_of(&one), Term::new(1), "seed {seed}");

    let stops = one.clone();
    world.finish(async move { stops.stop().await.unwrap() });
    world.pass(Duration::from_millis(100), || {
        assert!(one.peek().is_none(), "seed {seed}: it was stopped");
    });
    assert_eq!((term_of(&one), term_of(&two)), (None, Term::new(2)), "seed {seed}");
    assert_eq!(stepper::threads_of_tenure(), Vec::<String>::new(), "seed {seed}");

    drop((one, two));
    world.pass(TTL * 2, || {});
    assert_eq!(world.alive(), Vec::<&str>::new(), "seed {seed}: what outlives its handles");
    (diary.lock().unwrap().clone(), world.trace())
}

#[test]
fn an_election_runs_on_one_thread_and_the_same_seed_gives_the_same_trace() {
    for seed in 0..50 {
        let (diary, trace) = hand_over(seed);
        let told: Vec<&str> =
            diary.iter().filter_map(|line| line.split_once(' ')).map(|(_, told)| told).collect();
        let wanted = ["one leads term 1", "one lost term 1", "two leads term 2", "two lost term 2"];
        assert_eq!(told, wanted, "seed {seed}");
        assert_eq!(hand_over(seed), (diary, trace), "seed {seed} is not the same twice");
    }
    assert_ne!(hand_over(1).1, hand_over(2).1, "the seed decides who goes on next");
}

/// The time of day of the simulated host.
struct SimWall(ManualClock);

impl WallClock for SimWall {
    fn now_unix_ms(&self) -> i64 {
        i64::try_from(self.0.now().as_nanos() / 1_000_000).unwrap()
    }
}

/// A job that is due each second, on two candidates, of which the first one goes.
fn ticks(seed: u64) -> (Vec<String>, Vec<String>) {
    let world = Stepper::new(seed);
    let store = MemoryStore::with_clock(Arc::new(world.clock().clone()));
    let diary = Diary::default();
    let mut elections = Vec::new();
    for label in ["one", "two"] {
        let election = candidate(&world, &store, label).election("nightly").ttl(TTL).build();
        let election = election.unwrap();
        let written = diary.clone();
        let schedule = Schedule::new("* * * * * *", "UTC").unwrap();
        let job = Job::new("report", schedule, move |run: Run| {
            let line = format!("{label} {} term {}", run.scheduled_unix_ms(), run.term());
            written.lock().unwrap().push(line);
            std::future::ready(())
        });
        let wall = Arc::new(SimWall(world.clock().clone()));
        let cron = Cron::builder(&election).job(job).wall(wall);
        let cron = cron.build().unwrap();
        world.spawn("cron", async move { cron.run().await.unwrap() });
        world.pass(Duration::from_millis(10), || {});
        elections.push(election);
    }
    world.pass(Duration::from_millis(3_500), || {});
    let stops = elections[0].clone();
    world.finish(async move { stops.stop().await.unwrap() });
    world.pass(Duration::from_secs(2), || {});
    let diary = diary.lock().unwrap().clone();
    (diary, world.trace())
}

#[test]
fn the_cron_engine_runs_on_one_thread_and_each_tick_is_run_once() {
    for seed in 0..20 {
        let (diary, trace) = ticks(seed);
        let wanted = [
            "one 1001000 term 1",
            "one 1002000 term 1",
            "one 1003000 term 1",
            "two 1004000 term 2",
            "two 1005000 term 2",
        ];
        assert_eq!(diary, wanted, "seed {seed}");
        assert_eq!(ticks(seed), (diary, trace), "seed {seed} is not the same twice");
    }
}
