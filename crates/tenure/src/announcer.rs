//! Wakes those who wait for news, off the driver's thread (L2).
//!
//! A waker is user code: it may block, panic or call back into the library. The driver therefore
//! changes what the handles read and queues a wake-up; threads of the announcer's own call the
//! wakers. One thread is enough unless a waker blocks: then another one takes its place. A third
//! thread, the alarm, calls no user code at all. It sees to both: that a blocked waker is noticed,
//! and that a handle learns of the end of its trust even if the driver's thread stands still.
//!
//! Nothing that is queued here can be dropped, so the queue is bounded by what it is about: each
//! handle, reign and bell waits in it once at most, and each call for one answer.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{Clock, Error, Reply, Time};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::clock::AnyClock;
use crate::pulse::Pulse;
use crate::runtime::{Part, Runtime};
use crate::sabotage::{Fault, Faults};
use crate::shared::{Reign, Shared};
use crate::slot::Done;

/// How long a waker may take before another thread goes on with the others.
const BLOCKED_AFTER: Duration = Duration::from_millis(100);
/// How late the alarm may be: many reigns end their trust at about the same time.
const SLACK: Duration = Duration::from_millis(5);
/// How many threads wake at most: so many blocked wakers, less one, hold up nobody else.
const THREADS_MAX: usize = 16;

/// Somebody to be woken.
enum Wake {
    Status(Arc<Shared>),
    Feeds(Arc<Shared>),
    Phase(Arc<Reign>),
    Deadline(Arc<Reign>),
    Pulse(Arc<Pulse>),
    Done(Done, Result<(), Error>),
    Reply(oneshot::Sender<Reply>, Reply),
    Turn(oneshot::Sender<()>),
}

impl Wake {
    fn carry_out(self) {
        match self {
            Wake::Status(shared) => {
                shared.status_queued.store(false, Ordering::Release);
                shared.status.wake();
            }
            Wake::Feeds(shared) => {
                shared.feeds_queued.store(false, Ordering::Release);
                shared.wake_feeds();
            }
            Wake::Phase(reign) => reign.phase.wake(),
            Wake::Deadline(reign) => {
                reign.deadline_queued.store(false, Ordering::Release);
                reign.deadline.wake();
            }
            Wake::Pulse(pulse) => pulse.wake(),
            Wake::Done(done, result) => drop(done.send(result)),
            Wake::Reply(done, reply) => drop(done.send(reply)),
            Wake::Turn(done) => drop(done.send(())),
        }
    }
}

/// The driver's end: queues wake-ups and never waits. The threads end with it.
pub(crate) struct Announcer {
    queue: Arc<Queue>,
    reigns: mpsc::UnboundedSender<Arc<Reign>>,
}

impl Announcer {
    /// Starts its threads. The queue outlives a driver that panics: what it said last is told.
    pub(crate) fn start(
        clock: AnyClock,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Arc<Announcer>, Error> {
        let queue = Arc::new(Queue::new(runtime.clone()));
        queue.clone().add_thread()?;
        let (reigns, watched) = mpsc::unbounded_channel();
        let (reigns_known, count) = (BTreeMap::new(), 0);
        let alarm = Alarm { queue: queue.clone(), clock, watched, reigns: reigns_known, count };
        runtime.start(Part::new("tenure-alarm", alarm.run()))?;
        Ok(Arc::new(Announcer { queue, reigns }))
    }

    pub(crate) fn status_changed(&self, shared: &Arc<Shared>) {
        if self.queue.faults.has(Fault::StatusWakesNobody) {
            return;
        }
        if !shared.status_queued.swap(true, Ordering::AcqRel) {
            self.queue.push(Wake::Status(shared.clone()));
        }
    }

    pub(crate) fn feeds_changed(&self, shared: &Arc<Shared>) {
        if !shared.feeds_queued.swap(true, Ordering::AcqRel) {
            self.queue.push(Wake::Feeds(shared.clone()));
        }
    }

    /// A reign begins: its handles learn of its end whatever becomes of the driver.
    pub(crate) fn reign_begins(&self, reign: &Arc<Reign>) {
        let _alarm_gone = self.reigns.send(reign.clone());
    }

    pub(crate) fn phase_changed(&self, reign: &Arc<Reign>) {
        self.queue.push(Wake::Phase(reign.clone()));
    }

    pub(crate) fn deadline_moved(&self, reign: &Arc<Reign>) {
        self.queue.deadline_moved(reign);
    }

    pub(crate) fn ring(&self, pulses: Vec<Arc<Pulse>>) {
        for pulse in pulses {
            self.queue.push(Wake::Pulse(pulse));
        }
    }

    pub(crate) fn done(&self, done: Done, result: Result<(), Error>) {
        self.queue.push(Wake::Done(done, result));
    }

    pub(crate) fn reply(&self, done: oneshot::Sender<Reply>, reply: Reply) {
        self.queue.push(Wake::Reply(done, reply));
    }

    /// Tells that the driver has taken a turn, after everything that was queued before.
    pub(crate) fn turn_taken(&self, done: oneshot::Sender<()>) {
        self.queue.push(Wake::Turn(done));
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// What waits to be carried out, and the threads that do it.
struct Queue {
    // A std mutex: it is held to put in or to take out, never while somebody is woken.
    waiting: Mutex<Waiting>,
    filled: Notify,
    runtime: Arc<dyn Runtime>,
    /// The clock of the host, whatever clock the candidate has: threads block by this one.
    clock: Arc<dyn Clock>,
    threads: AtomicUsize,
    /// When the wake-up that is being carried out began, on the host's clock; 0 if none is.
    busy_since: AtomicU64,
    /// Has the alarm look whether a waker blocks.
    nudge: Notify,
    faults: Faults,
}

#[derive(Default)]
struct Waiting {
    wakes: VecDeque<Wake>,
    closed: bool,
    /// Which thread takes out; those that were given up on end when they come back.
    turn: usize,
}

impl Queue {
    fn new(runtime: Arc<dyn Runtime>) -> Queue {
        Queue {
            waiting: Mutex::default(),
            filled: Notify::new(),
            clock: runtime.clock(),
            faults: Faults::of(&*runtime),
            runtime,
            threads: AtomicUsize::new(0),
            busy_since: AtomicU64::new(0),
            nudge: Notify::new(),
        }
    }

    fn push(&self, wake: Wake) {
        if self.faults.has(Fault::DriverWakes) {
            return wake.carry_out();
        }
        self.waiting().wakes.push_back(wake);
        self.filled.notify_one();
        if self.busy_since.load(Ordering::Acquire) != 0 {
            self.nudge.notify_one();
        }
    }

    fn deadline_moved(&self, reign: &Arc<Reign>) {
        if !reign.deadline_queued.swap(true, Ordering::AcqRel) {
            self.push(Wake::Deadline(reign.clone()));
        }
    }

    fn close(&self) {
        self.waiting().closed = true;
        self.filled.notify_one();
        self.nudge.notify_one();
    }

    fn add_thread(self: Arc<Queue>) -> Result<(), Error> {
        let turn = {
            let mut waiting = self.waiting();
            waiting.turn += 1;
            waiting.turn
        };
        self.threads.fetch_add(1, Ordering::AcqRel);
        let queue = self.clone();
        let work = async move { queue.carry_out(turn).await };
        let started = self.runtime.start(Part::for_user_code("tenure-wake", work));
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
        started
    }

    async fn carry_out(&self, turn: usize) {
        while let Some(wake) = self.next(turn).await {
            // A waker that panics harms nobody else.
            let _panicked = catch_unwind(AssertUnwindSafe(|| wake.carry_out()));
        }
        // The alarm ends when all is carried out, and may have looked before that was so.
        self.nudge.notify_one();
        self.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// The next one; `None` when there is nothing more to come, or another thread has taken over.
    async fn next(&self, turn: usize) -> Option<Wake> {
        loop {
            if let Some(next) = self.take(turn) {
                return next;
            }
            self.filled.notified().await;
        }
    }

    /// What [`next`](Queue::next) tells; `None` if it is not known yet.
    fn take(&self, turn: usize) -> Option<Option<Wake>> {
        let mut waiting = self.waiting();
        if waiting.turn != turn {
            // The signal may have been meant for the thread that took over.
            self.filled.notify_one();
            return Some(None);
        }
        if let Some(wake) = waiting.wakes.pop_front() {
            self.busy_since.store(self.clock.now().as_nanos().max(1), Ordering::Release);
            return Some(Some(wake));
        }
        self.busy_since.store(0, Ordering::Release);
        waiting.closed.then_some(None)
    }

    /// If a waker blocks, has another thread go on with the others. Says whether one may.
    fn look_after(self: &Arc<Queue>) -> bool {
        let since = self.busy_since.load(Ordering::Acquire);
        if since == 0 {
            return false;
        }
        let blocked = self.clock.now() - Time::from_nanos(since) >= BLOCKED_AFTER;
        if !blocked {
            return true;
        }
        let room = self.threads.load(Ordering::Acquire) < THREADS_MAX;
        // It may be the last one that is waited for: then nobody is held up.
        if room && !self.waiting().wakes.is_empty() {
            let _later = self.clone().add_thread();
        }
        room
    }

    fn is_done(&self) -> bool {
        let waiting = self.waiting();
        waiting.closed && waiting.wakes.is_empty()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

/// The thread that calls no user code: nothing of the user's can stall it.
struct Alarm {
    queue: Arc<Queue>,
    clock: AnyClock,
    watched: mpsc::UnboundedReceiver<Arc<Reign>>,
    /// By when their trust was to end when it was last looked at.
    reigns: BTreeMap<(Time, u64), Arc<Reign>>,
    count: u64,
}

impl Alarm {
    async fn run(mut self) {
        let mut open = true;
        while open || !self.queue.is_done() {
            let next = self.pass(self.clock.now());
            let busy = self.queue.look_after();
            let host = &self.queue.clock;
            tokio::select! {
                biased;
                reign = self.watched.recv(), if open => match reign {
                    Some(reign) => self.watch(reign),
                    None => open = false,
                },
                () = self.clock.sleep_until(next) => {}
                () = self.queue.nudge.notified() => {}
                () = host.sleep_until(host.now() + BLOCKED_AFTER), if busy => {}
            }
        }
    }

    fn watch(&mut self, reign: Arc<Reign>) {
        self.count += 1;
        self.reigns.insert((reign.trust_until(), self.count), reign);
    }

    /// Tells those whose trust has ended, and says when to look again.
    fn pass(&mut self, now: Time) -> Time {
        while let Some(first) = self.reigns.first_entry()
            && first.key().0 <= now
        {
            let reign = first.remove();
            if reign.is_over() {
                continue;
            }
            if reign.trust_until() > now {
                self.watch(reign);
                continue;
            }
            if !self.queue.faults.has(Fault::AlarmSleeps) && reign.advance_to_end() {
                self.queue.push(Wake::Phase(reign.clone()));
            }
        }
        // Not for each of thousands of reigns apart: `is_current()` needs no alarm.
        let next = self.reigns.first_key_value().map_or(Time::MAX, |((at, _), _)| *at);
        if next == Time::MAX { next } else { next.max(now + SLACK) }
    }
}
