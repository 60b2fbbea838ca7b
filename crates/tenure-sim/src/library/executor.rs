//! One thread that runs every task of every host, and picks by its seed which goes on next.
//!
//! A *lane* is what a thread or a runtime of threads is to a real process: it runs so many tasks at
//! a time. Code that blocks its thread calls [`Sim::block`], from inside its poll: the others go on
//! from there, on this same stack, and its own lane does not until the time is over. A host that is
//! frozen runs nothing at all. Time passes only where nothing can go on.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use tenure_core::sync::lock;
use tenure_core::{BoxFuture, Clock, Time};
use tenure_testkit::ManualClock;
use tracing::Dispatch;

use super::judge::Judge;

/// How many steps there are at most before time must pass.
const STEPS_MAX: u32 = 50_000;
/// How deep blocked code may lie on the stack. What blocks beyond that does not.
const DEPTH_MAX: u32 = 8;

/// A lane, by its number.
pub(crate) type LaneId = usize;

/// What a lane is for: some of them must never run user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// Of the simulation itself.
    World,
    /// A thread of the library that runs no user code (L2).
    Inner,
    /// A thread of the library that calls wakers and subscribers.
    Calling,
    /// The runtime of the user's program.
    User,
}

/// The simulation. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct Sim(Arc<Inner>);

struct Inner {
    truth: ManualClock,
    judge: Judge,
    state: Mutex<State>,
    /// The tasks that can go on. Apart from the rest: a task that runs may wake any other.
    ready: Arc<Mutex<BTreeSet<u64>>>,
}

struct State {
    rng: Rng,
    tasks: BTreeMap<u64, Task>,
    lanes: Vec<Lane>,
    hosts: Vec<Host>,
    /// Those whose code is on the stack.
    running: Vec<u64>,
    begun: u64,
    /// Steps since time last passed.
    in_a_row: u32,
    steps: u64,
    depth: u32,
    /// Where the code that runs right now runs.
    current: LaneId,
    /// All that happened, as one number.
    hash: u64,
    transcript: Option<String>,
    /// Where user code logs, if not nowhere.
    log: Option<Dispatch>,
}

struct Lane {
    host: usize,
    kind: LaneKind,
    name: &'static str,
    /// How many tasks it runs at a time.
    width: u32,
    busy: u32,
    open: bool,
    stalled_until: Time,
}

impl Lane {
    fn new(host: usize, kind: LaneKind, name: &'static str, width: u32) -> Lane {
        Lane { host, kind, name, width, busy: 0, open: true, stalled_until: Time::ZERO }
    }
}

#[derive(Default)]
struct Host {
    frozen_until: Time,
    /// How much of its code stands still on the stack. It may hold locks of its host.
    held: u32,
    /// When something of it last stood still that is to tell the user of a loss.
    disturbed_at: Time,
    /// When a thread of the library that runs no user code was last blocked, by the store.
    stalled_at: Time,
}

struct Task {
    lane: LaneId,
    name: &'static str,
    log: Option<Dispatch>,
    work: BoxFuture<'static, ()>,
}

struct Ready {
    id: u64,
    ready: Arc<Mutex<BTreeSet<u64>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Ready>) {
        lock(&self.ready).insert(self.id);
    }
}

impl Sim {
    /// A world without hosts. Lane 0 is the world's own.
    pub(crate) fn new(seed: u64, record: bool, judge: Judge) -> Sim {
        let truth = ManualClock::new();
        truth.advance(Duration::from_secs(1_000));
        let world = Lane::new(0, LaneKind::World, "world", 99);
        let state = State {
            rng: Rng::with_seed(seed),
            tasks: BTreeMap::new(),
            lanes: vec![world],
            hosts: vec![Host::default()],
            running: Vec::new(),
            begun: 0,
            in_a_row: 0,
            steps: 0,
            depth: 0,
            current: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            transcript: record.then(String::new),
            log: None,
        };
        Sim(Arc::new(Inner { truth, judge, state: Mutex::new(state), ready: Arc::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// The clock that is never wrong. Hosts have clocks of their own.
    pub(crate) fn truth(&self) -> &ManualClock {
        &self.0.truth
    }

    pub(crate) fn now(&self) -> Time {
        self.0.truth.now()
    }

    pub(crate) fn judge(&self) -> &Judge {
        &self.0.judge
    }

    /// Has everything log there that may.
    pub(crate) fn log_to(&self, log: Dispatch) {
        self.state().log = Some(log);
    }

    /// Draws from the one stream of chance.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.state().rng)
    }

    /// Writes a line of what happens.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if self.state().transcript.is_none() {
            return;
        }
        let (now, line) = (self.now(), line());
        self.state().write(now, &line);
    }

    /// All that happened, as one number; how many steps it took; and as text if that was asked for.
    pub(crate) fn trace(&self) -> (u64, u64, String) {
        let state = self.state();
        (state.hash, state.steps, state.transcript.clone().unwrap_or_default())
    }

    /// A new host: a process with lanes of its own.
    pub(crate) fn add_host(&self) -> usize {
        let mut state = self.state();
        state.hosts.push(Host::default());
        state.hosts.len() - 1
    }

    pub(crate) fn add_lane(
        &self,
        host: usize,
        kind: LaneKind,
        name: &'static str,
        width: u32,
    ) -> LaneId {
        let mut state = self.state();
        state.lanes.push(Lane::new(host, kind, name, width));
        state.lanes.len() - 1
    }

    /// What kind of lane the code runs on that asks.
    pub(crate) fn here(&self) -> (LaneKind, &'static str) {
        let state = self.state();
        let lane = &state.lanes[state.current];
        (lane.kind, lane.name)
    }

    /// Begins a task on a lane, or drops it if there is none such any more.
    pub(crate) fn spawn(
        &self,
        lane: LaneId,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.begin(lane, name, None, Box::pin(work));
    }

    pub(crate) fn begin(
        &self,
        lane: LaneId,
        name: &'static str,
        log: Option<Dispatch>,
        work: BoxFuture<'static, ()>,
    ) {
        let mut state = self.state();
        if !state.lanes[lane].open {
            drop(state);
            // As a runtime does that has ended; what the task leaves behind may panic.
            let _panicked = catch_unwind(AssertUnwindSafe(|| drop(work)));
            return;
        }
        state.begun += 1;
        let id = state.begun;
        state.tasks.insert(id, Task { lane, name, log, work });
        drop(state);
        lock(&self.0.ready).insert(id);
    }

    /// The tasks of these hosts' libraries and programs that have not ended.
    pub(crate) fn alive(&self) -> Vec<&'static str> {
        let state = self.state();
        let of_hosts = state.tasks.values().filter(|task| state.lanes[task.lane].host != 0);
        of_hosts.map(|task| task.name).collect()
    }

    /// Runs until this instant of the true time.
    pub(crate) fn run_until(&self, end: Time) {
        loop {
            while self.step() {}
            if self.now() >= end || self.0.judge.is_broken() {
                return;
            }
            let due = self.0.truth.next_due().unwrap_or(end);
            self.state().in_a_row = 0;
            self.0.truth.set(due.min(end));
        }
    }

    /// Blocks the thread that this is called on: nothing else of its lane goes on meanwhile, unless
    /// the lane is wide. It may take longer than asked for, as real ones do.
    pub(crate) fn block(&self, span: Duration) {
        let lane = {
            let mut state = self.state();
            if state.depth >= DEPTH_MAX {
                return;
            }
            state.depth += 1;
            state.current
        };
        self.note(|| format!("{} blocks for {span:?}", self.here().1));
        let end = self.now() + span;
        self.run_until(end);
        let now = self.now();
        let mut state = self.state();
        state.depth -= 1;
        state.current = lane;
        if state.lanes[lane].kind == LaneKind::Inner {
            let host = state.lanes[lane].host;
            state.hosts[host].stalled_at = now;
        }
        if state.lanes[lane].kind != LaneKind::Inner || state.lanes[lane].name == "tenure-alarm" {
            let host = state.lanes[lane].host;
            let disturbed_at = &mut state.hosts[host].disturbed_at;
            *disturbed_at = now.max(*disturbed_at);
        }
    }

    /// As [`block`](Sim::block), but from when the code returns on: for where nothing else can run
    /// in between.
    pub(crate) fn stall(&self, span: Duration) {
        let mut state = self.state();
        let lane = state.current;
        // One after the other, if several stall it before it goes on.
        let until = state.lanes[lane].stalled_until.max(self.now()) + span;
        state.lanes[lane].stalled_until = until;
        let host = state.lanes[lane].host;
        let disturbed_at = &mut state.hosts[host].disturbed_at;
        *disturbed_at = until.max(*disturbed_at);
        drop(state);
        let truth = self.0.truth.clone();
        self.spawn(0, "goes on", async move { truth.sleep_until(until).await });
    }

    /// Freezes a host: its clock goes on and nothing else of it does.
    pub(crate) fn freeze(&self, host: usize, span: Duration) {
        let until = self.now() + span;
        {
            let mut state = self.state();
            let host = &mut state.hosts[host];
            host.frozen_until = host.frozen_until.max(until);
            host.disturbed_at = host.disturbed_at.max(until);
        }
        self.note(|| format!("host {host} is frozen for {span:?}"));
        // Somebody must be there to be due then.
        let truth = self.0.truth.clone();
        self.spawn(0, "thaw", async move { truth.sleep_until(until).await });
    }

    /// The same from inside code of this host, which stands still with it.
    pub(crate) fn freeze_here(&self, host: usize, span: Duration) {
        let lane = {
            let mut state = self.state();
            if state.depth >= DEPTH_MAX {
                return;
            }
            state.depth += 1;
            state.hosts[host].held += 1;
            state.current
        };
        self.freeze(host, span);
        self.run_until(self.now() + span);
        let now = self.now();
        let mut state = self.state();
        state.depth -= 1;
        state.current = lane;
        let host = &mut state.hosts[host];
        host.held -= 1;
        host.disturbed_at = now.max(host.disturbed_at);
    }

    /// Whether nothing of a host that tells the user of a loss has stood still since.
    pub(crate) fn is_undisturbed_since(&self, host: usize, since: Time) -> bool {
        self.state().hosts[host].disturbed_at < since
    }

    /// Whether the driver of a host could run all the time since.
    pub(crate) fn drives_since(&self, host: usize, since: Time) -> bool {
        let state = self.state();
        // It may be blocked right now, and longer than it asked for.
        let is_blocked = state.lanes.iter().enumerate().any(|(id, lane)| {
            let other = id != state.current && lane.host == host;
            other && lane.kind == LaneKind::Inner && lane.busy > 0
        });
        let last = state.hosts[host].disturbed_at.max(state.hosts[host].stalled_at);
        !is_blocked && last < since
    }

    /// Closes the lanes of a host that `wanted` names and drops their tasks where they stand;
    /// `false` if code of one of them is on the stack. Ask again later then.
    pub(crate) fn close(&self, host: usize, wanted: impl Fn(LaneKind) -> bool) -> bool {
        let mut state = self.state();
        let of_host = |lane: &Lane| lane.host == host && wanted(lane.kind);
        if state.lanes.iter().any(|lane| of_host(lane) && lane.busy > 0) {
            return false;
        }
        state.lanes.iter_mut().filter(|lane| of_host(lane)).for_each(|lane| lane.open = false);
        loop {
            let gone = |task: &Task| !state.lanes[task.lane].open;
            let Some(id) = state.tasks.iter().find(|(_, task)| gone(task)).map(|(id, _)| *id)
            else {
                return true;
            };
            let task = state.tasks.remove(&id);
            drop(state);
            let _panicked = catch_unwind(AssertUnwindSafe(|| drop(task)));
            state = self.state();
        }
    }

    /// Lets one task go on; `false` if none can.
    fn step(&self) -> bool {
        let Some((id, mut task, before)) = self.pick() else { return false };
        let log = task.log.clone().or_else(|| self.state().log.clone());
        let waker = Waker::from(Arc::new(Ready { id, ready: self.0.ready.clone() }));
        let poll = || {
            catch_unwind(AssertUnwindSafe(|| {
                task.work.as_mut().poll(&mut Context::from_waker(&waker))
            }))
        };
        // Always set: what lies below on the stack has a log of its own.
        let log = log.unwrap_or_else(Dispatch::none);
        let polled = tracing::dispatcher::with_default(&log, poll);
        let mut state = self.state();
        state.running.retain(|one| *one != id);
        state.lanes[task.lane].busy -= 1;
        state.current = before;
        let kind = state.lanes[task.lane].kind;
        match polled {
            Ok(Poll::Pending) if state.lanes[task.lane].open => {
                state.tasks.insert(id, task);
                return true;
            }
            // User code may panic. The library's own may not.
            Err(panic) if kind != LaneKind::User => {
                drop(state);
                self.0.judge.broken(
                    self.now(),
                    "panic",
                    format!("{}: {}", task.name, said(&*panic)),
                );
            }
            _ => drop(state),
        }
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(task)));
        true
    }

    fn pick(&self) -> Option<(u64, Task, LaneId)> {
        if self.0.judge.is_broken() {
            return None;
        }
        let now = self.now();
        let mut state = self.state();
        let id = {
            let mut ready = lock(&self.0.ready);
            // Those that have ended were woken for nothing.
            ready.retain(|id| state.tasks.contains_key(id) || state.running.contains(id));
            let lanes = &state.lanes;
            let can_run = |id: &u64| {
                state.tasks.get(id).is_some_and(|task| {
                    let lane = &lanes[task.lane];
                    lane.busy < lane.width
                        && lane.stalled_until <= now
                        && state.hosts[lane.host].held == 0
                        && state.hosts[lane.host].frozen_until <= now
                })
            };
            let runnable: Vec<u64> = ready.iter().copied().filter(can_run).collect();
            if runnable.is_empty() {
                return None;
            }
            let id = runnable[state.rng.usize(..runnable.len())];
            ready.remove(&id);
            id
        };
        let task = state.tasks.remove(&id)?;
        state.running.push(id);
        state.lanes[task.lane].busy += 1;
        state.steps += 1;
        state.in_a_row += 1;
        let before = std::mem::replace(&mut state.current, task.lane);
        state.mix(now.as_nanos());
        state.mix(id);
        if state.transcript.is_some() {
            let line = format!("h{} {} #{id}", state.lanes[task.lane].host, task.name);
            state.write(now, &line);
        }
        if state.in_a_row > STEPS_MAX {
            drop(state);
            self.0.judge.broken(now, "spins", format!("{} and others never rest", task.name));
        }
        Some((id, task, before))
    }
}

impl State {
    /// FNV-1a, by words.
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3);
    }

    fn write(&mut self, now: Time, line: &str) {
        let micros = now.as_nanos() / 1_000;
        if let Some(text) = &mut self.transcript {
            let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
            text.push_str(&format!("{seconds}.{micros:06} {line}\n"));
        }
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
