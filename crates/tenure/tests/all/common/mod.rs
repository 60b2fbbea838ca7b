//! What the tests of the facade share: a clock driven by hand and a store that can misbehave.
#![allow(dead_code, reason = "each of the two test binaries uses a part of it")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tenure::core::{BoxFuture, Channels, Error, ErrorKind, Hint, Hints, Ledger, Op, Reply, Store};
use tenure::{Candidate, Election, ElectionBuilder, Event, Events, MemoryStore};
use tenure::{Clock, Time};
use tenure_testkit::ManualClock;
use tokio::sync::{oneshot, watch};

/// ttl 3 s: renewed after 800 ms to 1 s, stepped down from at 2,350 ms, trusted until 2,850 ms.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// One store, one clock, any number of candidates.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
    candidates: Mutex<Vec<Candidate>>,
}

impl World {
    pub(crate) fn new() -> World {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1000));
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        World { clock, store, candidates: Mutex::default() }
    }

    /// A candidate that gets its turn in [`pass_until`](World::pass_until).
    pub(crate) fn candidate(&self, label: &str) -> (Candidate, Arc<Moody>) {
        let (candidate, moody) = self.untended_candidate(label);
        self.candidates.lock().unwrap().push(candidate.clone());
        (candidate, moody)
    }

    /// A candidate whose calls go through a store that can be told to misbehave.
    pub(crate) fn untended_candidate(&self, label: &str) -> (Candidate, Arc<Moody>) {
        let moody = Arc::new(Moody::new(self.store.clone()));
        let candidate = Candidate::builder(moody.clone())
            .label(label)
            .clock(Arc::new(self.clock.clone()))
            .build()
            .unwrap();
        (candidate, moody)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn election(&self, label: &str) -> ElectionBuilder {
        self.candidate(label).0.election("invoices").ttl(TTL).at_once()
    }

    /// Lets time pass in small steps until `done`; every driver has its turns in each.
    pub(crate) async fn pass_until(&self, mut done: impl FnMut() -> bool) {
        for _ in 0..4000 {
            if done() {
                return;
            }
            self.clock.advance(Duration::from_millis(10));
            let candidates = self.candidates.lock().unwrap().clone();
            // A turn to notice, a turn to send, a turn to hear.
            for _ in 0..3 {
                for candidate in &candidates {
                    candidate.synchronize().await;
                }
            }
            tokio::task::yield_now().await;
        }
        panic!("40 s of driven time passed and it did not happen");
    }
}

/// Gives other threads a moment, without counting on how long it is.
pub(crate) async fn breathe() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
    let mut tick = tokio::time::interval(Duration::from_micros(200));
    tick.tick().await;
    tick.tick().await;
}

/// Waits for something that other threads bring about, for as long as a busy machine may need.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        while !holds() {
            tick.tick().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "{what} did not happen within 60 s");
}

/// The next event that `pick` wants.
pub(crate) async fn event<T>(events: &mut Events, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    let picked = async {
        loop {
            let event = events.next().await.expect("the election is still there");
            if let Some(value) = pick(event) {
                return value;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), picked).await.expect("the event comes")
}

pub(crate) async fn leads(election: &Election) {
    eventually("leading", || election.is_leader()).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Calls never return.
    Hanging,
    /// Calls fail at once, and are not carried out.
    Failing,
    /// Calls are refused for good.
    Denying,
    /// Calls panic.
    Panicking,
    /// Calls block the thread that makes them.
    Blocking,
    /// Calls that only read never return.
    HangingReads,
    /// Calls with an op of this verb wait for another mood, and are carried out then.
    Holding(&'static str),
}

/// A store in moods, which also counts its calls. It keeps no ledger, and carries messages if told.
pub(crate) struct Moody {
    inner: MemoryStore,
    mood: watch::Sender<Mood>,
    pub(crate) calls: AtomicUsize,
    pub(crate) largest: AtomicUsize,
    pub(crate) ops: Mutex<Vec<Op>>,
    blocked: AtomicBool,
    /// Whether it carries messages.
    pub(crate) carries: AtomicBool,
}

impl Moody {
    fn new(inner: MemoryStore) -> Moody {
        let mood = watch::Sender::new(Mood::Well);
        let (calls, largest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (blocked, carries) = (AtomicBool::new(false), AtomicBool::new(false));
        Moody { inner, mood, calls, largest, ops: Mutex::default(), blocked, carries }
    }

    /// Whether a call has ever blocked its thread.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        self.ops.lock().unwrap().iter().map(Op::verb).collect()
    }
}

impl Store for Moody {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.largest.fetch_max(ops.len(), Ordering::Relaxed);
            self.ops.lock().unwrap().extend(ops.iter().cloned());
            let mood = *self.mood.borrow();
            let fail = |kind, message: &str| {
                ops.iter().map(|_| Reply::Unknown(Error::new(kind, message))).collect()
            };
            match mood {
                Mood::HangingReads if ops.iter().any(|op| matches!(op, Op::Read { .. })) => {
                    std::future::pending().await
                }
                Mood::Well | Mood::HangingReads => self.inner.apply(ops).await,
                Mood::Holding(verb) => {
                    if ops.iter().any(|op| op.verb() == verb) {
                        let mut changes = self.mood.subscribe();
                        drop(changes.wait_for(|now| *now != mood).await);
                    }
                    self.inner.apply(ops).await
                }
                Mood::Hanging => std::future::pending().await,
                Mood::Failing => fail(ErrorKind::Unavailable, "out of order"),
                Mood::Denying => fail(ErrorKind::Denied, "go away"),
                Mood::Panicking => panic!("the store panics on purpose"),
                Mood::Blocking => {
                    self.blocked.store(true, Ordering::SeqCst);
                    while *self.mood.borrow() == Mood::Blocking {
                        std::thread::yield_now();
                    }
                    fail(ErrorKind::Unavailable, "blocked on purpose")
                }
            }
        })
    }

    fn channels(&self) -> Option<&dyn Channels> {
        self.inner.channels().filter(|_| self.carries.load(Ordering::Relaxed))
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        None
    }

    tenure::core::forward!(inner: hints, info, elections, witness, checkup, migrate);
}

/// A store whose hints panic when the fuse is lit, on the driver's thread.
pub(crate) struct Mined {
    inner: MemoryStore,
    fuse: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Mined {
    pub(crate) fn new(inner: MemoryStore, fuse: oneshot::Receiver<()>) -> Mined {
        Mined { inner, fuse: Mutex::new(Some(fuse)) }
    }
}

struct Fuse(oneshot::Receiver<()>);

impl Hints for Fuse {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        match Pin::new(&mut self.0).poll(cx) {
            Poll::Ready(Ok(())) => panic!("the hints panic on purpose"),
            _ => Poll::Pending,
        }
    }
}

impl Store for Mined {
    fn hints(&self) -> Box<dyn Hints> {
        let fuse = self.fuse.lock().unwrap().take();
        Box::new(Fuse(fuse.expect("one driver")))
    }

    tenure::core::forward!(inner: apply, info, faces);
}
