//! The engine of one reign: what came due before it is settled, then each tick is fired in time.

mod due;
mod steering;
mod tick;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure::runtime::{TaskEnded, TaskSet};
use tenure::{Error, Fault, Tenure, Term, Time};
use tenure_core::{
    Hint, Hints, JobProgress, LEDGER_OPEN_MAX, LedgerStep, Tick, TickRecord, TickState,
};
use tokio::sync::watch;
use tokio::task::yield_now;

use self::due::{JobState, Pending, Why};
use self::tick::{After, Life};
use crate::cron::{Core, Jobs};
use crate::ledger_writer::LedgerWriter;
use crate::{CronEvent, Delivery, Job, show_instant};

/// The wall clock may be set at any time: it is looked at this often at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often requests are looked for, should their hint have been lost.
const REQUESTS_EVERY: Duration = Duration::from_secs(5);

/// How long to wait before the ledger is read again.
const READ_AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Engine {
    core: Arc<Core>,
    tenure: Arc<Tenure>,
    writer: LedgerWriter,
    /// The jobs as they are now.
    known: Arc<Jobs>,
    /// How far they have got, and those that are gone and still run.
    jobs: BTreeMap<String, JobState>,
    /// When which job wants something: one entry for each job.
    timers: BinaryHeap<Reverse<(i64, String)>>,
    lives: TaskSet<After>,
    /// Which tick each of them is of, so that one that panics is known to have ended.
    ticks: BTreeMap<u64, (Tick, Why)>,
    /// Ticks that wait for their next attempt, and until when.
    retries: BTreeSet<(Time, Tick)>,
    stop: watch::Sender<bool>,
    requests_at: Time,
    /// Open ticks of jobs that are not known here, which were told of.
    unknown: HashSet<Tick>,
}

/// What woke the loop.
enum Woken {
    Time,
    Ended(u64, Result<After, TaskEnded>),
    Hinted,
    Replaced,
    Lost,
    Broken(Error),
}

impl Engine {
    /// Fires jobs until leadership is lost and what runs has ended.
    ///
    /// # Errors
    /// What makes the ledger useless for good.
    pub(crate) async fn run(core: Arc<Core>, tenure: Arc<Tenure>) -> Result<(), Error> {
        let tasks = core.tasks()?;
        let (writer, work) = LedgerWriter::new(core.clone(), tenure.clone());
        let mut writing = TaskSet::new(tasks.clone());
        writing.spawn(work);
        // Listened to before the ledger is read, so that no request falls in between.
        let mut hints = core.election.store().hints();
        let mut changes = core.jobs.subscribe();
        let mut engine = Engine {
            writer,
            known: Arc::default(),
            jobs: BTreeMap::new(),
            timers: BinaryHeap::new(),
            lives: TaskSet::new(tasks),
            ticks: BTreeMap::new(),
            retries: BTreeSet::new(),
            stop: watch::Sender::new(false),
            requests_at: core.clock.now() + REQUESTS_EVERY,
            unknown: HashSet::new(),
            core,
            tenure,
        };
        let jobs = changes.borrow_and_update().clone();
        if !engine.adopt(&jobs).await? || !engine.look_for_open().await? {
            return engine.wind_up().await;
        }
        loop {
            engine.fire().await;
            engine.retry();
            match engine.next(&mut hints, &mut changes, &mut writing).await {
                Woken::Time => {
                    if engine.core.clock.now() >= engine.requests_at {
                        engine.look_for_news().await?;
                    }
                }
                Woken::Ended(id, ended) => engine.ended(id, ended),
                Woken::Hinted => engine.look_for_news().await?,
                Woken::Replaced => {
                    let jobs = changes.borrow_and_update().clone();
                    engine.adopt(&jobs).await?;
                }
                Woken::Lost => return engine.wind_up().await,
                Woken::Broken(error) => return Err(error),
            }
        }
    }

    async fn next(
        &mut self,
        hints: &mut Box<dyn Hints>,
        changes: &mut watch::Receiver<Arc<Jobs>>,
        writing: &mut TaskSet<Result<(), Error>>,
    ) -> Woken {
        let until = self.wake_at();
        tokio::select! {
            biased;
            _ = self.tenure.lost() => Woken::Lost,
            Some((id, ended)) = self.lives.next() => Woken::Ended(id, ended),
            Some((_, Ok(Err(error)))) = writing.next() => Woken::Broken(error),
            Ok(()) = changes.changed() => Woken::Replaced,
            () = hinted(hints, &self.core) => Woken::Hinted,
            () = self.core.clock.sleep_until(until) => Woken::Time,
        }
    }

    /// When to look at the clock again.
    fn wake_at(&self) -> Time {
        let now = self.core.clock.now();
        let due = self.timers.peek().map(|Reverse((at, _))| {
            let left = at.saturating_sub(self.core.wall.now_unix_ms()).max(0);
            Duration::from_millis(left.unsigned_abs())
        });
        let nap = due.map_or(LOOK_EVERY, |due| due.min(LOOK_EVERY));
        let at = (now + nap).min(self.requests_at.max(now));
        self.next_retry().map_or(at, |retry| at.min(retry.max(now)))
    }

    /// Takes the jobs over as they are now, and settles what came due before this reign; `false`
    /// if leadership was lost over it.
    async fn adopt(&mut self, jobs: &Arc<Jobs>) -> Result<bool, Error> {
        let core = self.core.clone();
        let name = core.election.name();
        let Some(latest) = self.read(|| async { core.ledger()?.latest(name).await }).await? else {
            return Ok(false);
        };
        let latest = by_name(latest);
        let now = core.wall.now_unix_ms();
        self.known = jobs.clone();
        self.jobs.retain(|job, state| jobs.contains_key(job) || !state.is_idle());
        for (name, job) in jobs.iter() {
            let follow = match self.jobs.get_mut(name) {
                Some(state) => state.replace(job.clone(), now),
                None => {
                    let (state, follow) = JobState::adopt(job.clone(), latest.get(name), now);
                    self.jobs.insert(name.clone(), state);
                    follow
                }
            };
            // Noted, so that a first tick that is missed can be known as such.
            if let Some(follow) = follow {
                self.writer.note(follow);
            }
        }
        self.set_timers();
        self.look_at_clock();
        Ok(true)
    }

    fn set_timers(&mut self) {
        self.timers = self
            .jobs
            .iter()
            .filter(|(name, _)| self.known.contains_key(*name))
            .filter_map(|(name, state)| Some(Reverse((state.wake_at()?, name.clone()))))
            .collect();
    }

    /// Tells of jobs that are silent because the ledger is ahead of the clock.
    fn look_at_clock(&mut self) {
        let now_unix_ms = self.core.wall.now_unix_ms();
        for (name, state) in &mut self.jobs {
            let grace = self.core.grace_ms(&state.job);
            let Some(latest) = state.newly_ahead(now_unix_ms, grace) else { continue };
            tracing::warn!(
                election = %self.core.election.name(),
                job = name,
                latest = show_instant(latest),
                "the ledger is ahead of the clock, and the job is not due before that; set the \
                 clocks"
            );
            self.core
                .tell(CronEvent::Ahead { tick: Tick::new(name.as_str(), latest), now_unix_ms });
        }
    }

    /// Fires whatever is due.
    async fn fire(&mut self) {
        let now = self.core.wall.now_unix_ms();
        while let Some(Reverse((at, _))) = self.timers.peek()
            && *at <= now
        {
            let Some(Reverse((_, name))) = self.timers.pop() else { return };
            let Some(state) = self.jobs.get_mut(&name) else { continue };
            let due = state.due(now, self.core.grace_ms(&state.job));
            let many = due.len() > 1;
            state.add(due);
            if let Some(at) = state.wake_at() {
                self.timers.push(Reverse((at, name.clone())));
            }
            self.advance(&name);
            if many {
                // A long gap takes a while to count, and there may be a thousand jobs.
                yield_now().await;
                if !self.tenure.is_leader() {
                    return;
                }
            }
        }
    }

    /// Does what can be done of a job now.
    fn advance(&mut self, name: &str) {
        while let Some(state) = self.jobs.get_mut(name)
            && let Some(ready) = state.ready()
        {
            let job = state.job.clone();
            if state.wants_trim() {
                let (job, keep) = (job.name.clone(), job.keep);
                self.writer.note(LedgerStep::Trim { job, keep });
            }
            match ready {
                Pending::Skip { from, through, count } => {
                    self.leave_out(Tick::new(name, from), through, count);
                }
                Pending::Run { at, why } => self.begin(Tick::new(name, at), job, why),
            }
        }
    }

    /// Claims a tick, and runs it.
    fn begin(&mut self, tick: Tick, job: Arc<Job>, why: Why) {
        // Handed in here and not by its task, so that what is left out after it can't be in the
        // ledger before it.
        let again = why == Why::Again;
        let claimed = self.writer.enter(LedgerStep::Claim { tick: tick.clone(), again });
        let life = Life {
            core: self.core.clone(),
            tenure: self.tenure.clone(),
            writer: self.writer.clone(),
            tick: tick.clone(),
            claimed,
            job,
            stop: self.stop.subscribe(),
        };
        let id = self.lives.spawn(life.live());
        self.ticks.insert(id, (tick, why));
    }

    fn leave_out(&mut self, tick: Tick, through_unix_ms: i64, count: u64) {
        self.core.tell(CronEvent::Skipped { tick: tick.clone(), through_unix_ms, count });
        if !self.core.election.faults().has(Fault::SkipsUnnoted) {
            self.writer.note(LedgerStep::Skip { tick, through_unix_ms, count });
        }
    }

    fn ended(&mut self, id: u64, ended: Result<After, TaskEnded>) {
        let Some((tick, why)) = self.ticks.remove(&id) else { return };
        match ended {
            Ok(After::End) => {}
            Ok(After::Retry(wait)) => {
                self.retries.insert((self.core.clock.now() + wait, tick));
                return;
            }
            Ok(After::Paused) => return self.paused(tick, why),
            Err(error) => {
                tracing::error!(%error, "the task of a tick has ended; report this as a bug");
            }
        }
        self.is_over(&tick);
    }

    /// Nothing more is done about a tick.
    fn is_over(&mut self, tick: &Tick) {
        if let Some(state) = self.jobs.get_mut(&tick.job) {
            state.ended(tick.scheduled_unix_ms);
            if state.is_idle() && !self.known.contains_key(&tick.job) {
                self.jobs.remove(&tick.job);
            }
        }
        self.advance(&tick.job);
    }

    /// Takes up what former leaders left open and what somebody asked for; `false` if leadership
    /// was lost over it.
    async fn look_for_open(&mut self) -> Result<bool, Error> {
        let core = self.core.clone();
        let name = core.election.name();
        self.requests_at = core.clock.now() + REQUESTS_EVERY;
        if core.election.faults().has(Fault::OpenForgotten) {
            return Ok(true);
        }
        let mut after: Option<Tick> = None;
        loop {
            let read = || async { core.ledger()?.open(name, after.as_ref()).await };
            let Some(open) = self.read(read).await? else { return Ok(false) };
            let last = open.last().filter(|_| open.len() >= LEDGER_OPEN_MAX);
            let next = last.map(|record| record.tick.clone());
            for record in open {
                self.take(record);
            }
            if next.is_none() {
                return Ok(true);
            }
            after = next;
        }
    }

    fn take(&mut self, record: TickRecord) {
        let requested = record.state == TickState::Requested;
        if requested && self.core.election.faults().has(Fault::RequestsUnseen) {
            return;
        }
        if !requested && record.term == Some(self.term()) {
            return;
        }
        let retrying = matches!(record.state, TickState::Retrying { .. });
        if retrying && self.known.contains_key(&record.tick.job) {
            return self.take_retry(record);
        }
        let tick = record.tick;
        let known = self.jobs.get_mut(&tick.job);
        let Some(known) = known.filter(|_| self.known.contains_key(&tick.job)) else {
            // In a rolling deploy the next leader may have the job. What it promises about its
            // ticks is known to those who have it.
            if self.core.election.faults().has(Fault::UnknownAbandoned) {
                return self.writer.note(LedgerStep::Abandon { tick });
            }
            return self.leave_open(tick);
        };
        let always = self.core.election.faults().has(Fault::MostOnceAgain);
        let again = |state: &&mut JobState| state.job.delivery != Delivery::AtMostOnce || always;
        match Some(known).filter(|state| requested || again(state)) {
            Some(state) => {
                let why = if requested { Why::Requested } else { Why::Again };
                let taken = state.take(tick.scheduled_unix_ms, why);
                state.add(taken);
                self.advance(&tick.job);
            }
            None => {
                self.core.tell(CronEvent::Abandoned { tick: tick.clone() });
                self.writer.note(LedgerStep::Abandon { tick });
            }
        }
    }

    /// Tells of a tick that this instance can't do anything about, once.
    fn leave_open(&mut self, tick: Tick) {
        if self.unknown.insert(tick.clone()) {
            tracing::warn!(
                election = %self.core.election.name(),
                job = tick.job,
                scheduled = show_instant(tick.scheduled_unix_ms),
                "a tick is open, and this instance has no such job; it is left to one that has"
            );
            self.core.tell(CronEvent::Unknown { tick });
        }
    }

    /// Reads from the ledger, again and again if need be; `None` if leadership is lost first.
    async fn read<T, F>(&self, ask: impl Fn() -> F) -> Result<Option<T>, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let reading = async {
            let mut denied_since = None;
            loop {
                let answer = ask().await;
                if answer.is_ok() {
                    self.core.answered();
                }
                match answer {
                    Err(error) if self.core.asks_again(&error, &mut denied_since) => {
                        tracing::warn!(%error, "the ledger can't be read, trying again");
                        let clock = &self.core.clock;
                        clock.sleep_until(clock.now() + READ_AGAIN).await;
                    }
                    answer => return answer,
                }
            }
        };
        tokio::select! {
            biased;
            _ = self.tenure.lost() => Ok(None),
            answer = reading => answer.map(Some),
        }
    }

    /// Waits for what runs. It was told by its tenure; what has not ended shortly before trust
    /// does is dropped, in time for the ledger to know.
    async fn wind_up(mut self) -> Result<(), Error> {
        let drain = self.core.election.timing().drain;
        let clock = self.core.clock.clone();
        let trusted = self.tenure.trusted_until() - drain / 4;
        let stop_at = trusted.min(clock.now() + drain * 3 / 4);
        let all = async { while self.lives.next().await.is_some() {} };
        tokio::select! {
            biased;
            () = all => return Ok(()),
            () = clock.sleep_until(stop_at) => {}
        }
        self.stop.send_replace(true);
        while self.lives.next().await.is_some() {}
        Ok(())
    }

    fn term(&self) -> Term {
        self.tenure.term()
    }
}

fn by_name(all: Vec<JobProgress>) -> BTreeMap<String, JobProgress> {
    all.into_iter().map(|progress| (progress.job.clone(), progress)).collect()
}

/// Waits for a hint about our election.
async fn hinted(hints: &mut Box<dyn Hints>, core: &Core) {
    loop {
        match std::future::poll_fn(|cx| hints.poll_next(cx)).await {
            Some(Hint::Election(name)) if name != *core.election.name() => {}
            Some(_) => return,
            None => std::future::pending().await,
        }
    }
}
