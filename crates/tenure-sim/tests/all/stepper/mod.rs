//! A runtime for the library that is one thread, one seed and a clock driven by hand.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::runtime::{Part, Runtime, Spawn, Spawner};
use tenure::{Clock, Error};
use tenure_core::BoxFuture;
use tenure_testkit::ManualClock;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;

/// Which lines are written at all depends on who in this process could read them. Other tests have
/// subscribers that want everything, from some time on: so does this one, which reads nothing.
static READER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// How many steps there are at most before time must pass.
const STEPS_MAX: usize = 100_000;

#[derive(Clone)]
pub(crate) struct Stepper(Arc<World>);

struct World {
    clock: ManualClock,
    state: Mutex<State>,
    /// The tasks that can go on. Apart from the rest: a task that runs may wake any other.
    ready: Arc<Mutex<Vec<u64>>>,
}

struct State {
    rng: fastrand::Rng,
    tasks: BTreeMap<u64, Task>,
    begun: u64,
    trace: Vec<String>,
}

struct Task {
    name: &'static str,
    log: Option<Dispatch>,
    work: BoxFuture<'static, ()>,
}

struct Ready {
    id: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Ready>) {
        let mut ready = self.ready.lock().unwrap();
        if !ready.contains(&self.id) {
            ready.push(self.id);
        }
    }
}

impl Stepper {
    pub(crate) fn new(seed: u64) -> Stepper {
        LazyLock::force(&READER);
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE, "another test changes what is said");
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        let rng = fastrand::Rng::with_seed(seed);
        let state = State { rng, tasks: BTreeMap::new(), begun: 0, trace: Vec::new() };
        Stepper(Arc::new(World { clock, state: Mutex::new(state), ready: Arc::default() }))
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.0.clock
    }

    /// Which task went on at which instant, in order.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.0.state.lock().unwrap().trace.clone()
    }

    /// The tasks that have not ended.
    pub(crate) fn alive(&self) -> Vec<&'static str> {
        self.0.state.lock().unwrap().tasks.values().map(|task| task.name).collect()
    }

    pub(crate) fn spawn(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.begin(Task { name, log: None, work: Box::pin(work) });
    }

    /// Runs user code to its end, and lets time pass only where all wait for it.
    pub(crate) fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let result = Arc::new(Mutex::new(None));
        let written = result.clone();
        self.spawn("user", async move {
            let value = work.await;
            *written.lock().unwrap() = Some(value);
        });
        let limit = self.clock().now() + Duration::from_secs(60);
        loop {
            self.run_ready();
            if let Some(value) = result.lock().unwrap().take() {
                return value;
            }
            let due = self.clock().next_due().expect("somebody waits for time to pass");
            assert!(due < limit, "it did not end within a minute");
            self.clock().set(due);
        }
    }

    /// Lets this much time pass, from one instant at which something is due to the next.
    pub(crate) fn pass(&self, span: Duration, mut check: impl FnMut()) {
        let end = self.clock().now() + span;
        loop {
            self.run_ready();
            check();
            if self.clock().now() >= end {
                return;
            }
            let due = self.clock().next_due().unwrap_or(end);
            self.clock().set(due.min(end));
        }
    }

    fn begin(&self, task: Task) {
        let mut state = self.0.state.lock().unwrap();
        state.begun += 1;
        let id = state.begun;
        state.tasks.insert(id, task);
        drop(state);
        self.0.ready.lock().unwrap().push(id);
    }

    /// Runs tasks, one at a time, until none can go on.
    fn run_ready(&self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("{STEPS_MAX} steps and no end: {:?}", self.trace().last());
    }

    fn step(&self) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let id = {
            let mut ready = self.0.ready.lock().unwrap();
            if ready.is_empty() {
                return false;
            }
            let choice = state.rng.usize(..ready.len());
            ready.remove(choice)
        };
        let Some(mut task) = state.tasks.remove(&id) else { return true };
        let line = format!("{:?} {id} {}", self.clock().now(), task.name);
        state.trace.push(line);
        drop(state);
        let waker = Waker::from(Arc::new(Ready { id, ready: self.0.ready.clone() }));
        let mut poll = || task.work.as_mut().poll(&mut Context::from_waker(&waker));
        let polled = match &task.log {
            Some(log) => tracing::dispatcher::with_default(log, poll),
            None => poll(),
        };
        if polled == Poll::Pending {
            self.0.state.lock().unwrap().tasks.insert(id, task);
        }
        true
    }
}

impl Runtime for Stepper {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.0.clock.clone())
    }

    fn start(&self, part: Part) -> Result<(), Error> {
        let Part { name, log, run: work, .. } = part;
        self.begin(Task { name, log, work });
        Ok(())
    }

    fn tasks(&self) -> Option<Spawner> {
        Some(Arc::new(self.clone()))
    }

    fn incarnation(&self) -> u128 {
        self.0.state.lock().unwrap().rng.u128(..)
    }

    fn random(&self) -> u64 {
        self.0.state.lock().unwrap().rng.u64(..)
    }
}

impl Spawn for Stepper {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.begin(Task { name: "task", log: None, work: task });
    }
}

/// The threads of this process that the library would have started.
pub(crate) fn threads_of_tenure() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("tenure-")).collect()
}
