//! Wakers and log subscribers that do what they should not: block, and call back into the library.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::Election;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Level, Metadata, Subscriber};

use super::Proc;
use crate::library::executor::{LaneKind, Sim};

/// Awaits with a waker of its own. Only for what the announcer wakes: timers are no user code.
pub(crate) async fn with_hostile_waker<F: Future>(
    proc: &Arc<Proc>,
    election: &Election,
    work: F,
) -> F::Output {
    WithWaker { work: Box::pin(work), proc: proc.clone(), election: election.clone() }.await
}

struct WithWaker<F> {
    work: Pin<Box<F>>,
    proc: Arc<Proc>,
    election: Election,
}

impl<F: Future> Future for WithWaker<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let hostile = HostileWaker {
            inner: cx.waker().clone(),
            proc: self.proc.clone(),
            election: self.election.clone(),
            // Drawn here: in which order wakers are called has no seed.
            mood: self.proc.pick(6),
            stall: match self.proc.is_hostile(18) {
                true => self.proc.span(Duration::from_millis(400)),
                false => Duration::ZERO,
            },
        };
        let waker = Waker::from(Arc::new(hostile));
        self.work.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

struct HostileWaker {
    inner: Waker,
    proc: Arc<Proc>,
    election: Election,
    mood: u32,
    stall: Duration,
}

impl Wake for HostileWaker {
    fn wake(self: Arc<HostileWaker>) {
        let proc = &self.proc;
        let (kind, lane) = proc.sim.here();
        if kind == LaneKind::Inner {
            proc.broken("L2", format!("a waker is called on the thread {lane}"));
        }
        proc.sim.judge().book().seen.wakes += 1;
        match self.mood {
            0 => drop(self.election.peek_events()),
            1 => drop(self.election.last_seen_leader()),
            2 => drop(self.election.overdue()),
            _ => {}
        }
        if self.stall > Duration::ZERO {
            proc.sim.stall(self.stall);
        }
        self.inner.wake_by_ref();
    }
}

thread_local! {
    static WORLD: RefCell<Option<Sim>> = const { RefCell::new(None) };
}

/// Which simulation runs on this thread, for the log. A subscriber is the same for all of them:
/// making one for each run would be slow.
pub(crate) fn enter_world(sim: Option<Sim>) {
    WORLD.with(|world| *world.borrow_mut() = sim);
}

/// A log that is slow now and then.
pub(crate) fn hostile_log() -> Dispatch {
    static LOG: OnceLock<Dispatch> = OnceLock::new();
    LOG.get_or_init(|| Dispatch::new(HostileLog)).clone()
}

struct HostileLog;

impl Subscriber for HostileLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &tracing::Event<'_>) {
        let Some(sim) = WORLD.with(|world| world.borrow().clone()) else { return };
        let (kind, lane) = sim.here();
        if kind == LaneKind::Inner {
            let what = format!("the log is called on the thread {lane}");
            sim.judge().broken(sim.now(), "L2", what);
        }
        let millis = sim.draw(|rng| if rng.u32(..12) == 0 { rng.u64(..800) } else { 0 });
        if millis > 0 {
            // Nothing else may log before this returns.
            sim.stall(Duration::from_millis(millis));
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
