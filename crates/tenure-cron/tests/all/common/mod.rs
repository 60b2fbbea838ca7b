//! A world for cron: one store, clocks driven by hand, instances that come and go.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::core::{
    BoxFuture, Error, ErrorKind, JobProgress, Ledger, LedgerStep, Marked, Name, Op, Reply, Store,
    Term, Tick, TickRecord, TickState, Transactions,
};
use tenure::{Candidate, Clock, Election, MemoryStore};
use tenure_cron::{Cron, CronEvent, Job, Run, Schedule, WallClock};
use tenure_testkit::ManualClock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// ttl 3 s: renewed each second, stepped down from at 2,350 ms, trusted until 2,850 ms.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// The time of day when a test begins: 2026-01-01 at noon.
pub(crate) const NOON: i64 = 1_767_268_800_000;

/// The time of day, in step with a clock that a test moves.
#[derive(Clone)]
pub(crate) struct Wall {
    clock: ManualClock,
    ahead: Arc<AtomicI64>,
}

impl Wall {
    /// Sets the clock on the wall, and no other.
    pub(crate) fn step(&self, by: Duration, back: bool) {
        let by = by.as_millis() as i64;
        self.ahead.fetch_add(if back { -by } else { by }, Ordering::Relaxed);
    }
}

impl WallClock for Wall {
    fn now_unix_ms(&self) -> i64 {
        let ms = (self.clock.now().as_nanos() / 1_000_000) as i64;
        NOON + ms + self.ahead.load(Ordering::Relaxed)
    }
}

/// What ran: instance, tick, attempt, term.
pub(crate) type Ran = (String, i64, u32, Term);

/// All that instances share.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
    pub(crate) wall: Wall,
    /// What the store says of transactions, where it is to say something else than it can.
    pub(crate) transactions: Mutex<Option<Transactions>>,
    /// Instances that start are refused by the ledger.
    pub(crate) denied: AtomicBool,
    /// The listener for events panics.
    pub(crate) jumpy: Arc<AtomicBool>,
    /// How many turns somebody else had on this runtime, if he counts them.
    pub(crate) turns: Arc<AtomicI64>,
    candidates: Mutex<Vec<Candidate>>,
    pub(crate) ran: Arc<Mutex<Vec<Ran>>>,
}

/// One instance with its own view of the store.
pub(crate) struct Instance {
    pub(crate) election: Election,
    pub(crate) cron: Cron,
    pub(crate) moody: Arc<Moody>,
    pub(crate) events: Arc<Mutex<Vec<CronEvent>>>,
    /// After how many turns of others it was told of each.
    pub(crate) told_at: Arc<Mutex<Vec<i64>>>,
    task: Option<JoinHandle<Result<(), Error>>>,
}

impl World {
    pub(crate) fn new() -> World {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let wall = Wall { clock: clock.clone(), ahead: Arc::default() };
        World {
            clock,
            store,
            wall,
            transactions: Mutex::default(),
            denied: AtomicBool::new(false),
            jumpy: Arc::default(),
            turns: Arc::default(),
            candidates: Mutex::default(),
            ran: Arc::default(),
        }
    }

    /// A job each second that notes each of its runs.
    pub(crate) fn noting(&self, label: &str) -> Job {
        let (ran, label) = (self.ran.clone(), label.to_owned());
        Job::new("job", each_second(), move |run: Run| {
            let note = (label.clone(), second(run.scheduled_unix_ms()), run.attempt(), run.term());
            ran.lock().unwrap().push(note);
            async {}
        })
    }

    /// Starts an instance with these jobs, on the clock that all share.
    pub(crate) fn start(&self, label: &str, jobs: Vec<Job>) -> Instance {
        self.start_on(label, jobs, self.clock.clone())
    }

    /// Starts an instance on a clock of its own.
    pub(crate) fn start_on(&self, label: &str, jobs: Vec<Job>, clock: ManualClock) -> Instance {
        let mut moody = Moody::new(self.store.clone(), self.clock.clone());
        moody.transactions = *self.transactions.lock().unwrap();
        moody.denied = AtomicBool::new(self.denied.load(Ordering::Relaxed));
        let moody = Arc::new(moody);
        let candidate = Candidate::builder(moody.clone())
            .label(label)
            .clock(Arc::new(clock.clone()))
            .build()
            .unwrap();
        self.candidates.lock().unwrap().push(candidate.clone());
        let election = candidate.election("nightly").ttl(TTL).build().unwrap();
        let events: Arc<Mutex<Vec<CronEvent>>> = Arc::default();
        let (told, jumpy) = (events.clone(), self.jumpy.clone());
        let told_at: Arc<Mutex<Vec<i64>>> = Arc::default();
        let (turns, noted) = (self.turns.clone(), told_at.clone());
        let cron = Cron::builder(&election)
            .jobs(jobs)
            .clock(Arc::new(clock))
            .wall(Arc::new(self.wall.clone()))
            .on_event(move |event| {
                told.lock().unwrap().push(event.clone());
                noted.lock().unwrap().push(turns.load(Ordering::Relaxed));
                assert!(!jumpy.load(Ordering::Relaxed), "on purpose");
            })
            .build()
            .unwrap();
        let running = cron.clone();
        let runtime = tokio::runtime::Handle::current();
        let task = runtime.spawn(async move { running.run().await });
        Instance { election, cron, moody, events, told_at, task: Some(task) }
    }

    /// Lets time pass in small steps until `done`; every driver has its turns in each.
    pub(crate) async fn pass_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        for _ in 0..6000 {
            if done() {
                return;
            }
            self.pass().await;
        }
        panic!("60 s of driven time passed, and it did not happen: {what}");
    }

    /// Lets this much time pass.
    pub(crate) async fn pass_for(&self, span: Duration) {
        let until = self.clock.now() + span;
        while self.clock.now() < until {
            self.pass().await;
        }
    }

    async fn pass(&self) {
        self.clock.advance(Duration::from_millis(10));
        let candidates = self.candidates.lock().unwrap().clone();
        for _ in 0..3 {
            for candidate in &candidates {
                candidate.synchronize().await;
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The records of the ledger, by second; skips are spread over all that they stand for.
    pub(crate) async fn ledger(&self) -> Vec<(i64, TickState)> {
        let election = Name::new("nightly").unwrap();
        let mut all = Vec::new();
        for record in self.store.history(&election, Some("job"), 10_000).await.unwrap() {
            let at = second(record.tick.scheduled_unix_ms);
            match record.state {
                TickState::Skipped { through_unix_ms, .. } => {
                    all.extend((at..=second(through_unix_ms)).map(|at| (at, record.state)));
                }
                state => all.push((at, state)),
            }
        }
        all.sort_by_key(|(at, _)| *at);
        all
    }

    pub(crate) fn ran(&self) -> Vec<Ran> {
        self.ran.lock().unwrap().clone()
    }

    pub(crate) fn ran_seconds(&self) -> Vec<i64> {
        self.ran().into_iter().map(|(_, second, ..)| second).collect()
    }
}

impl Instance {
    pub(crate) fn leads(&self) -> bool {
        self.term().is_some()
    }

    /// The term that it leads, asked without relying on it.
    pub(crate) fn term(&self) -> Option<Term> {
        self.election.peek().map(|standing| standing.term)
    }

    /// Ends as a process does that is killed: nothing is given back, nothing more is said.
    pub(crate) fn die(&mut self) {
        self.moody.cut.store(true, Ordering::Relaxed);
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// Whether `Cron::run` has returned.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What it has returned.
    pub(crate) async fn result(&mut self) -> Result<(), Error> {
        self.task.take().expect("it was not stopped").await.unwrap()
    }

    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        self.election.stop().await.unwrap();
        match self.task.take() {
            Some(task) => task.await.unwrap(),
            None => Ok(()),
        }
    }
}

pub(crate) fn each_second() -> Schedule {
    Schedule::new("* * * * * *", "UTC").unwrap()
}

/// Seconds since noon.
pub(crate) fn second(unix_ms: i64) -> i64 {
    (unix_ms - NOON) / 1000
}

/// A handle onto the store that can be told to misbehave.
pub(crate) struct Moody {
    store: MemoryStore,
    clock: ManualClock,
    /// Nothing goes through any more.
    pub(crate) cut: AtomicBool,
    /// The ledger alone does not answer.
    pub(crate) no_ledger: AtomicBool,
    /// The ledger alone refuses everybody.
    pub(crate) denied: AtomicBool,
    /// What others have written is not told.
    pub(crate) deaf: AtomicBool,
    /// After the next claim, or start, is done, this much time passes before its answer arrives.
    pub(crate) pause_after_claim: Mutex<Option<Duration>>,
    pub(crate) pause_after_start: Mutex<Option<Duration>>,
    /// What was claimed before a pause, and how often such a tick was to be started after it.
    paused: Mutex<Vec<Tick>>,
    pub(crate) late_starts: AtomicI64,
    /// How many answers of the ledger are lost, after it was done.
    pub(crate) lose_answers: AtomicI64,
    /// The next claim waits for this before it reaches the ledger.
    pub(crate) hold_claim: Mutex<Option<Arc<Notify>>>,
    /// Calls with a start in them fail, and are made again.
    pub(crate) hold_starts: AtomicBool,
    /// Has the ledger believe that a call comes from this term: it is not fenced then.
    pub(crate) forge: Mutex<Option<Term>>,
    /// All steps that reached the ledger.
    pub(crate) steps: Mutex<Vec<LedgerStep>>,
    /// A call had two steps about one tick, which no ledger has to understand.
    pub(crate) doubled: AtomicBool,
    transactions: Option<Transactions>,
}

impl Moody {
    fn new(store: MemoryStore, clock: ManualClock) -> Moody {
        Moody {
            store,
            clock,
            cut: AtomicBool::new(false),
            no_ledger: AtomicBool::new(false),
            denied: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            pause_after_claim: Mutex::default(),
            pause_after_start: Mutex::default(),
            paused: Mutex::default(),
            late_starts: AtomicI64::new(0),
            lose_answers: AtomicI64::new(0),
            hold_claim: Mutex::default(),
            hold_starts: AtomicBool::new(false),
            forge: Mutex::default(),
            steps: Mutex::default(),
            doubled: AtomicBool::new(false),
            transactions: None,
        }
    }

    fn count_late_starts(&self, steps: &[LedgerStep]) {
        let paused = self.paused.lock().unwrap();
        let late = |step: &&LedgerStep| match step {
            LedgerStep::Start { tick, .. } => paused.contains(tick),
            _ => false,
        };
        let late = steps.iter().filter(late).count() as i64;
        self.late_starts.fetch_add(late, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), Error> {
        if self.denied.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Denied, "the password is another now"));
        }
        Ok(())
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }
}

/// Which tick a step of its life is about.
fn tick_of(step: &LedgerStep) -> Option<&Tick> {
    match step {
        LedgerStep::Claim { tick, .. }
        | LedgerStep::Start { tick, .. }
        | LedgerStep::End { tick, .. }
        | LedgerStep::Confirm { tick, .. } => Some(tick),
        _ => None,
    }
}

fn away() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is away")
}

impl Store for Moody {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        if self.is_cut() {
            return Box::pin(async { ops.iter().map(|_| Reply::Unknown(away())).collect() });
        }
        self.store.apply(ops)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    tenure::core::forward!(store: hints, info, channels, elections, witness, checkup, migrate);
}

impl Ledger for Moody {
    fn transactions(&self) -> Transactions {
        self.transactions.unwrap_or_else(|| self.store.transactions())
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        Box::pin(async move {
            if self.is_cut() || self.no_ledger.load(Ordering::Relaxed) {
                return Err(away());
            }
            self.check()?;
            let ticks: Vec<&Tick> = steps.iter().filter_map(tick_of).collect();
            if ticks.iter().enumerate().any(|(place, tick)| ticks[..place].contains(tick)) {
                self.doubled.store(true, Ordering::Relaxed);
            }
            let claims = steps.iter().any(|step| matches!(step, LedgerStep::Claim { .. }));
            let held = claims.then(|| self.hold_claim.lock().unwrap().take()).flatten();
            if let Some(held) = held {
                held.notified().await;
            }
            let starts = steps.iter().any(|step| matches!(step, LedgerStep::Start { .. }));
            if starts && self.hold_starts.load(Ordering::Relaxed) {
                return Err(away());
            }
            let term = self.forge.lock().unwrap().unwrap_or(term);
            let marks = self.store.record(election, term, steps).await?;
            self.steps.lock().unwrap().extend_from_slice(steps);
            self.count_late_starts(steps);
            let pause = claims.then(|| self.pause_after_claim.lock().unwrap().take()).flatten();
            let later = starts.then(|| self.pause_after_start.lock().unwrap().take()).flatten();
            if pause.is_some() {
                let claimed = steps.iter().filter_map(|step| match step {
                    LedgerStep::Claim { tick, .. } => Some(tick.clone()),
                    _ => None,
                });
                self.paused.lock().unwrap().extend(claimed);
            }
            if let Some(pause) = pause.or(later) {
                self.clock.advance(pause);
            }
            if self.lose_answers.fetch_sub(1, Ordering::Relaxed) > 0 {
                return Err(away());
            }
            Ok(marks)
        })
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move {
            self.check()?;
            self.store.open(election, after).await
        })
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(async move {
            self.check()?;
            let mut latest = self.store.latest(election).await?;
            if self.deaf.load(Ordering::Relaxed) {
                latest.iter_mut().for_each(|progress| progress.paused_unix_ms = None);
            }
            Ok(latest)
        })
    }

    tenure::core::forward!(store: request, steer, history, once, once_record, once_history);
}
