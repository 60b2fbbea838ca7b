//! User code that blocks, hangs or panics where the driver used to run it: nobody else notices.
//!
//! A test binary of its own, because its subscriber of `tracing` is the whole process's.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::{Candidate, ErrorKind, MemoryStore, Reason, Tenure};
use tokio::sync::{Notify, oneshot};

use crate::common::{self, Mood, TTL, World, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that comes here stays until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    bell: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.bell.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.bell.notify_all();
    }
}

/// A subscriber that blocks at whatever is logged about elections of one name.
struct Blocking;

static BLOCKED: OnceLock<Arc<Gate>> = OnceLock::new();
const BLOCKED_ELECTION: &str = "logs-block";

struct Mentions(bool);

impl tracing::field::Visit for Mentions {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 |= format!("{value:?}").contains(BLOCKED_ELECTION);
    }
}

impl tracing::Subscriber for Blocking {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut mentions = Mentions(false);
        event.record(&mut mentions);
        if mentions.0 {
            BLOCKED.get().unwrap().pass();
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_subscriber_that_blocks_stalls_neither_renewals_nor_the_news() {
    let gate = Arc::new(Gate::default());
    BLOCKED.set(gate.clone()).ok().unwrap();
    tracing::subscriber::set_global_default(Blocking).unwrap();
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election(BLOCKED_ELECTION).ttl(TTL).build().unwrap();
    let tenure = tokio::time::timeout(PATIENCE, election.campaign()).await.unwrap().unwrap();
    eventually("the subscriber blocks", || gate.waiting.load(Ordering::SeqCst) > 0).await;
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    world.pass_until(|| renewals() >= 5).await;
    assert!(tenure.is_current(), "the lease is renewed while the log hangs");
    store.set(Mood::Hanging);
    let mut told = Box::pin(async { (tenure.lost().await, tenure.ended().await) });
    world.pass_until(|| poll_once(&mut told).is_ready()).await;
    assert!(!tenure.is_current());
    drop(told);
    store.set(Mood::Well);
    gate.open();
}

fn poll_once<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that blocks whoever calls it.
struct BlockingWaker(Arc<Gate>);

impl Wake for BlockingWaker {
    fn wake(self: Arc<Self>) {
        self.0.pass();
    }
}

#[tokio::test]
async fn a_waker_that_blocks_stalls_nobody_else() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let first = candidate.election("first").ttl(TTL).build().unwrap();
    let second = candidate.election("second").ttl(TTL).build().unwrap();
    let (one, two) = (first.campaign().await.unwrap(), second.campaign().await.unwrap());
    let gate = Arc::new(Gate::default());
    let waker = Waker::from(Arc::new(BlockingWaker(gate.clone())));
    let mut blocks = Box::pin(one.lost());
    assert!(blocks.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    first.stop().now_or_later().await;
    eventually("the waker blocks", || gate.waiting.load(Ordering::SeqCst) > 0).await;
    // Another election of the same candidate goes on, and its work is told.
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    let before = renewals();
    world.pass_until(|| renewals() >= before + 3).await;
    second.stop().now_or_later().await;
    let reason = tokio::time::timeout(PATIENCE, two.lost()).await.expect("it is told");
    assert_eq!(reason, Reason::Resigned);
    gate.open();
}

/// Begins something and does not wait for its end.
trait NowOrLater: Future + Sized {
    async fn now_or_later(self) {
        let mut future = Box::pin(self);
        let _pending = poll_once(&mut future);
    }
}

impl<F: Future> NowOrLater for F {}

/// A waker that calls back into the library, and panics.
struct ReentrantWaker(Mutex<Option<Tenure>>, AtomicUsize);

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        drop(self.0.lock().unwrap().take());
        panic!("wakers should not panic, and this one does");
    }
}

#[tokio::test]
async fn a_waker_that_calls_back_and_panics_harms_nobody() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let first = candidate.election("first").ttl(TTL).build().unwrap();
    let second = candidate.election("second").ttl(TTL).start().await.unwrap();
    let (one, two) = (first.campaign().await.unwrap(), second.campaign().await.unwrap());
    let reentrant = Arc::new(ReentrantWaker(Mutex::new(Some(one)), AtomicUsize::new(0)));
    let waker = Waker::from(reentrant.clone());
    // It waits for the end of the second one, and drops the first when woken.
    let mut lost = Box::pin(two.lost());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    second.stop().now_or_later().await;
    eventually("the waker", || reentrant.1.load(Ordering::SeqCst) > 0).await;
    drop(lost);
    drop(two);
    tokio::time::timeout(PATIENCE, second.stop()).await.expect("it is answered").unwrap();
    tokio::time::timeout(PATIENCE, first.stop()).await.expect("it is answered").unwrap();
}

#[tokio::test]
async fn work_learns_of_the_end_of_its_trust_though_the_driver_stands_still() {
    let world = World::new();
    let (candidate, store) = world.untended_candidate("a");
    let election = candidate.election("invoices").ttl(TTL).build().unwrap();
    let tenure = election.campaign().await.unwrap();
    let running = election.clone();
    let work = tokio::runtime::Handle::current()
        .spawn(async move { running.run_if_leader(std::future::pending::<()>()).await });
    tokio::task::yield_now().await;
    // A store that blocks its thread is a bug, and the thread is the driver's.
    store.set(Mood::Blocking);
    world.clock.advance(Duration::from_secs(1));
    eventually("the driver stands still", || store.is_blocked()).await;
    world.clock.advance(TTL * 2);
    let told = async { (tenure.lost().await, tenure.ended().await) };
    tokio::time::timeout(PATIENCE, told).await.expect("the work is told");
    let ended = tokio::time::timeout(PATIENCE, work).await.expect("the work is ended");
    assert_eq!(ended.unwrap(), None);
    store.set(Mood::Well);
}

/// The bell is registered before the work is called, so that work which blocks at once is noticed.
#[test]
fn no_lease_is_kept_for_work_of_lead_that_blocks_from_its_first_poll_on() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // An unbiased choice got it right now and then.
    for round in 0..8 {
        runtime.block_on(async {
            let world = World::new();
            let (candidate, _) = world.candidate("a");
            let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
            let (gate, blocked) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
            let thread = std::thread::spawn({
                let (election, gate, blocked) = (election.clone(), gate.clone(), blocked.clone());
                move || {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(election.lead(|_tenure| {
                        let (gate, blocked) = (gate.clone(), blocked.clone());
                        async move {
                            blocked.store(true, Ordering::SeqCst);
                            gate.pass();
                            std::future::pending::<()>().await;
                        }
                    }))
                }
            });
            eventually("the work", || blocked.load(Ordering::SeqCst)).await;
            let next = world.election("b").start().await.unwrap();
            world.pass_until(|| next.is_leader()).await;
            assert!(!election.is_leader(), "round {round}");
            election.stop().now_or_later().await;
            gate.open();
            tokio::time::timeout(PATIENCE, async {
                while !thread.is_finished() {
                    world.clock.advance(Duration::from_millis(10));
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("it ends once it is let go");
            thread.join().unwrap().unwrap();
        });
    }
}

#[tokio::test]
async fn work_that_ends_while_it_winds_up_has_been_done_and_is_not_run_again() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let began = Arc::new(Notify::new());
    let (counts, begins) = (runs.clone(), began.clone());
    let leading = election.lead(move |tenure| {
        let (counts, begins) = (counts.clone(), begins.clone());
        async move {
            counts.fetch_add(1, Ordering::SeqCst);
            begins.notify_one();
            tenure.lost().await;
            assert!(tenure.is_current(), "its lease may be trusted");
            "sent"
        }
    });
    let resign = async {
        began.notified().await;
        election.resign().await
    };
    let both = async { tokio::join!(leading, resign) };
    let (value, resigned) = tokio::time::timeout(PATIENCE, both).await.expect("it ends");
    resigned.unwrap();
    assert_eq!(value.unwrap(), Some("sent"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn lead_says_so_when_nobody_acts_for_the_candidate_any_more() {
    let (light, fuse) = oneshot::channel();
    let store = Arc::new(common::Mined::new(MemoryStore::new(), fuse));
    let candidate = Candidate::builder(store).build().unwrap();
    let election = candidate.election("invoices").start().await.unwrap();
    let leading = election.lead(|_| std::future::pending::<()>());
    let mut leading = Box::pin(leading);
    assert!(poll_once(&mut leading).is_pending());
    light.send(()).unwrap();
    let ended = tokio::time::timeout(PATIENCE, leading).await.expect("it ends");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Crashed);
}

#[tokio::test]
async fn a_name_that_was_just_dropped_can_be_started_again() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let mut terms = Vec::new();
    for round in 0..50 {
        // Now and then the store is down, and the one before takes its time to leave.
        store.set(if round % 10 == 9 { Mood::Failing } else { Mood::Well });
        let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
        let mut start = Box::pin(election.start());
        world.pass_until(|| poll_once(&mut start).is_ready()).await;
        drop(start);
        store.set(Mood::Well);
        world.pass_until(|| election.is_leader()).await;
        terms.push(election.term().unwrap());
        let error = candidate.election("invoices").build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "but not twice at the same time");
    }
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
}
