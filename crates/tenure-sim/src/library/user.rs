//! What the programs of the simulation do: they are as hostile as user code can be.
//!
//! They block at any point, panic, forget to listen, hold on to what they should let go, and call
//! everything from everywhere. Whatever they do as leader they tell the judge. Once the run is
//! [`calm`](Proc::is_calm) they behave.

pub(crate) mod callbacks;
pub(crate) mod jobs;
pub(crate) mod mail;
pub(crate) mod meddle;
pub(crate) mod waker;
pub(crate) mod work;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tenure::{Clock, Term, Timing};
use tokio::sync::watch;

use super::executor::{LaneId, Sim};
use super::host::HostClock;
use super::judge::{Kind, Stay};
use super::plan::More;

/// One process: a host, and one life of it.
pub(crate) struct Proc {
    pub(crate) sim: Sim,
    pub(crate) host: usize,
    /// Its name among candidates. Each life has another.
    pub(crate) label: String,
    pub(crate) clock: HostClock,
    /// The program's own runtime.
    pub(crate) lane: LaneId,
    pub(crate) timing: Timing,
    /// Whether code that blocks and hangs is part of this run.
    pub(crate) hostile: bool,
    pub(crate) more: More,
    /// Whether unregistered answers are relied upon here, or somebody says `done` for all of them.
    pub(crate) relies: bool,
    pub(crate) calm: Arc<AtomicBool>,
    /// Turns true when everybody is to go.
    pub(crate) over: watch::Receiver<bool>,
}

impl Proc {
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// True once in so many times, while the storm lasts.
    pub(crate) fn is_hostile(&self, one_in: u32) -> bool {
        self.hostile && !self.is_calm() && self.one_in(one_in)
    }

    pub(crate) fn one_in(&self, count: u32) -> bool {
        self.sim.draw(|rng| rng.u32(..count)) == 0
    }

    pub(crate) fn pick(&self, count: u32) -> u32 {
        self.sim.draw(|rng| rng.u32(..count))
    }

    /// A span up to this long.
    pub(crate) fn span(&self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.sim.draw(|rng| rng.u64(..=nanos)))
    }

    /// Waits by the clock of this host.
    pub(crate) async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now() + span).await;
    }

    pub(crate) async fn nap(&self) {
        if self.is_calm() {
            return self.sleep(self.timing.ttl / 50).await;
        }
        self.sleep(self.timing.ttl / 40 + self.span(self.timing.ttl / 8)).await;
    }

    /// Hangs, while the storm lasts.
    pub(crate) async fn hang(&self) {
        while !self.is_calm() {
            self.sleep(self.timing.ttl / 4).await;
        }
    }

    pub(crate) fn effect(&self, election: &str, term: Term) {
        self.sim.judge().effect(self, election, term.get());
    }

    pub(crate) fn stay(self: &Arc<Proc>, election: &str, term: Term, hears: bool) -> Stay {
        self.sim.judge().stay(self, election, term.get(), Kind::Registered, hears)
    }

    pub(crate) fn broken(&self, rule: &'static str, what: impl Into<String>) {
        let what = format!("{}: {}", self.label, what.into());
        self.sim.judge().broken(self.sim.now(), rule, what);
    }

    /// A call that must end once faults do.
    pub(crate) async fn call<T>(&self, name: &'static str, call: impl Future<Output = T>) -> T {
        let _guard = self.sim.judge().call(self, name);
        call.await
    }

    /// Runs a program until it ends or everybody is to go.
    pub(crate) fn run(
        self: &Arc<Proc>,
        name: &'static str,
        program: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut over = self.over.clone();
        self.sim.spawn(self.lane, name, async move {
            tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => {}
                () = program => {}
            }
        });
    }

    /// The same, begun again after a panic.
    pub(crate) fn run_again<F>(
        self: &Arc<Proc>,
        name: &'static str,
        program: impl Fn() -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let proc = self.clone();
        self.run(name, async move {
            loop {
                let mut work = Box::pin(program());
                let went = poll_fn(|cx| {
                    let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
                    polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
                });
                if went.await {
                    return;
                }
                drop(work);
                proc.nap().await;
            }
        });
    }

    /// Work under a lease panics now and then.
    pub(crate) fn panic_if_planned(&self) {
        if self.more.panics && self.is_hostile(20) {
            self.sim.judge().book().seen.panics += 1;
            self.panic();
        }
    }

    /// A panic of the user's. Nobody prints it.
    pub(crate) fn panic(&self) -> ! {
        std::panic::resume_unwind(Box::new("hostile"))
    }
}
