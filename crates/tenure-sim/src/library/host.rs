//! One process of the simulation: its clocks, its threads, and the runtime that the library asks.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::runtime::{Part, Runtime, Spawn, Spawner};
use tenure::{Clock, Error};
use tenure_core::sync::lock;
use tenure_core::{BoxFuture, Time};
use tenure_cron::WallClock;
use tenure_fork::Origin;
use tenure_testkit::ManualClock;

use super::executor::{LaneId, LaneKind, Sim};

/// A pause of the whole process that begins at one of its next readings of the clock: in the midst
/// of what the library does.
#[derive(Clone, Copy)]
pub(crate) struct Pause {
    /// So many readings from now.
    pub(crate) reads: u64,
    pub(crate) span: Duration,
    /// The time was read before the pause, and is old when it is used. On threads of the library
    /// only: what user code is told must be true when it is told.
    pub(crate) stale: bool,
}

/// The clock of a host. It may gain or lose up to half a per cent, and never steps.
#[derive(Clone)]
pub(crate) struct HostClock {
    sim: Sim,
    host: usize,
    inner: ManualClock,
    pause: Arc<Mutex<Option<Pause>>>,
    /// How many readings are left until the pause; 0 if none is planned.
    countdown: Arc<AtomicU64>,
}

impl HostClock {
    pub(crate) fn new(sim: &Sim, host: usize, ppm: i32, ahead: Duration) -> HostClock {
        let inner = sim.truth().shifted(ahead).drifting(ppm);
        let (pause, countdown) = (Arc::default(), Arc::default());
        HostClock { sim: sim.clone(), host, inner, pause, countdown }
    }

    /// Plans a pause.
    pub(crate) fn plan(&self, pause: Pause) {
        *lock(&self.pause) = Some(pause);
        self.countdown.store(pause.reads.max(1), Ordering::Relaxed);
    }

    /// No pause is planned any more.
    pub(crate) fn forget_pause(&self) {
        self.countdown.store(0, Ordering::Relaxed);
    }

    /// The time without a pause, for the judge.
    pub(crate) fn peek(&self) -> Time {
        self.inner.now()
    }

    fn pause_if_planned(&self) -> Option<Time> {
        let left = self.countdown.load(Ordering::Relaxed);
        if left == 0 || IN_CHILD.get() {
            return None;
        }
        self.countdown.store(left - 1, Ordering::Relaxed);
        if left > 1 {
            return None;
        }
        let pause = lock(&self.pause).take()?;
        let before = self.inner.now();
        let stale = pause.stale && self.sim.here().0 == LaneKind::Inner;
        self.sim.freeze_here(self.host, pause.span);
        stale.then_some(before)
    }
}

impl Clock for HostClock {
    fn now(&self) -> Time {
        self.pause_if_planned().unwrap_or_else(|| self.inner.now())
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        self.inner.sleep_until(at)
    }
}

/// The time of day of a host: about right, and it may step.
pub(crate) struct HostWall {
    pub(crate) clock: ManualClock,
    pub(crate) ahead_ms: AtomicI64,
}

impl WallClock for HostWall {
    fn now_unix_ms(&self) -> i64 {
        let true_ms = i64::try_from(self.clock.now().as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        true_ms + self.ahead_ms.load(Ordering::Relaxed)
    }
}

/// What the library asks of its surroundings, answered by the simulation.
pub(crate) struct HostRuntime {
    pub(crate) sim: Sim,
    pub(crate) host: usize,
    pub(crate) clock: HostClock,
    /// The program's own runtime.
    pub(crate) user: LaneId,
    pub(crate) fault: Option<tenure::Fault>,
    /// No other life of any host in any run has the same.
    pub(crate) process: u64,
}

impl Runtime for HostRuntime {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    fn start(&self, part: Part) -> Result<(), Error> {
        let Part { name, calls_user_code, log, run } = part;
        let kind = if calls_user_code { LaneKind::Calling } else { LaneKind::Inner };
        let lane = self.sim.add_lane(self.host, kind, name, 1);
        self.sim.begin(lane, name, log, run);
        Ok(())
    }

    fn tasks(&self) -> Option<Spawner> {
        Some(Arc::new(UserLane { sim: self.sim.clone(), lane: self.user }))
    }

    fn incarnation(&self) -> u128 {
        self.sim.draw(|rng| rng.u128(..))
    }

    fn random(&self) -> u64 {
        self.sim.draw(|rng| rng.u64(..))
    }

    fn process(&self) -> u64 {
        self.process
    }

    fn origin(&self) -> Result<Origin, Error> {
        Ok(Origin::counted_by(FORKS.with(|forks| *forks)))
    }

    fn fault(&self) -> Option<tenure::Fault> {
        self.fault
    }
}

struct UserLane {
    sim: Sim,
    lane: LaneId,
}

impl Spawn for UserLane {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.sim.begin(self.lane, "library", None, task);
    }
}

thread_local! {
    /// How many forks lie behind the code that runs. Each thread of ours has other processes.
    static FORKS: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    static IN_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// Runs code as a child would that was forked just now. It has all memory of its parent and may
/// only look: what it changed would be changed in the parent, too, which no fork does.
pub(crate) fn in_child<T>(look: impl FnOnce() -> T) -> T {
    struct Child(&'static AtomicU64);
    impl Drop for Child {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
            IN_CHILD.set(false);
        }
    }
    let forks = FORKS.with(|forks| *forks);
    forks.fetch_add(1, Ordering::Relaxed);
    IN_CHILD.set(true);
    let _child = Child(forks);
    look()
}
