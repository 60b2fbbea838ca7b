//! The memory store keeps the contract, bare and under faults, on a driven clock and the real one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{BootClock, MemoryStore};
use tenure_core::{
    BoxFuture, CandidateId, Clock, Error, Hint, Name, Op, RELEASE_MEMORY, Reply, Store, StoreExt,
    Time,
};
use tenure_testkit::ManualClock;
use tenure_testkit::conformance::{self, Subject};

/// Stores by number, all on one clock.
struct Memory<C> {
    clock: C,
    stores: Mutex<HashMap<u32, MemoryStore>>,
}

impl<C: Clock + Clone> Memory<C> {
    fn new(clock: C) -> Memory<C> {
        Memory { clock, stores: Mutex::default() }
    }

    fn store(&self, data: u32) -> Arc<dyn Store> {
        let mut stores = self.stores.lock().unwrap();
        let new = || MemoryStore::with_clock(Arc::new(self.clock.clone()));
        Arc::new(stores.entry(data).or_insert_with(new).clone())
    }
}

/// Time is moved by hand.
struct Driven(Memory<ManualClock>);

impl Driven {
    fn new() -> Driven {
        Driven(Memory::new(ManualClock::new()))
    }
}

impl Subject for Driven {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(self.0.store(data)) })
    }

    fn now(&self) -> Time {
        self.0.clock.now()
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.clock.advance(span) })
    }

    fn time_is_free(&self) -> bool {
        true
    }
}

/// Time passes by itself, and work that runs together does so on threads.
struct Real(Memory<BootClock>);

impl Subject for Real {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(self.0.store(data)) })
    }

    fn now(&self) -> Time {
        self.0.clock.now()
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.clock.sleep_until(self.0.clock.now() + span)
    }

    fn run_together(&self, work: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'_, ()> {
        let runtime = tokio::runtime::Handle::current();
        Box::pin(async move {
            let running: Vec<_> = work.into_iter().map(|work| runtime.spawn(work)).collect();
            for work in running {
                work.await.unwrap();
            }
        })
    }
}

#[tokio::test]
async fn keeps_the_contract() {
    conformance::run(&Driven::new()).await.assert_passed();
}

#[tokio::test]
async fn keeps_the_contract_under_faults() {
    for seed in 0..200 {
        conformance::run_under_faults(&Driven::new(), seed).await.assert_passed();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_on_the_real_clock_and_on_threads() {
    conformance::run(&Real(Memory::new(BootClock))).await.assert_passed();
}

#[tokio::test]
async fn keeps_the_contract_of_channels() {
    tenure_testkit::channels::run(&Driven::new()).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_of_channels_on_the_real_clock_and_on_threads() {
    tenure_testkit::channels::run(&Real(Memory::new(BootClock))).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_under_faults_on_the_real_clock() {
    conformance::run_under_faults(&Real(Memory::new(BootClock)), 1).await.assert_passed();
}

#[tokio::test]
async fn keeps_a_ledger() {
    tenure_testkit::ledger::run(&Driven::new()).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_a_ledger_on_the_real_clock_and_on_threads() {
    tenure_testkit::ledger::run(&Real(Memory::new(BootClock))).await.assert_passed();
}

fn release(election: &str, incarnation: u128) -> Op {
    Op::Release {
        election: Name::new(election).unwrap(),
        candidate: CandidateId::new("a", incarnation).unwrap(),
        term: None,
        seq: 1,
    }
}

fn acquire(election: &str, incarnation: u128) -> Op {
    Op::Acquire {
        election: Name::new(election).unwrap(),
        candidate: CandidateId::new("a", incarnation).unwrap(),
        seq: 1,
        above: None,
        floor: None,
        ttl: Duration::from_secs(30),
        metadata: None,
    }
}

#[tokio::test]
async fn a_release_is_remembered_for_its_time_and_then_forgotten() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    store.apply_one(&release("e", 1)).await;
    clock.advance(RELEASE_MEMORY);
    assert!(matches!(store.apply_one(&acquire("e", 1)).await, Reply::Refused(_)));
    clock.advance(Duration::from_nanos(1));
    assert!(matches!(store.apply_one(&acquire("e", 1)).await, Reply::Granted(_)));
}

#[tokio::test]
async fn a_release_that_comes_again_is_remembered_anew() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    store.apply_one(&release("e", 1)).await;
    clock.advance(RELEASE_MEMORY / 2);
    store.apply_one(&release("e", 1)).await;
    clock.advance(RELEASE_MEMORY);
    assert!(matches!(store.apply_one(&acquire("e", 1)).await, Reply::Refused(_)));
}

#[tokio::test]
async fn hints_that_nobody_reads_become_a_single_one() {
    let store = MemoryStore::new();
    let mut hints = store.hints();
    for number in 0..10_000 {
        let name = format!("election {number}");
        store.apply_one(&acquire(&name, 1)).await;
        store.apply_one(&release(&name, 1)).await;
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut seen = Vec::new();
    while let Poll::Ready(Some(hint)) = hints.poll_next(&mut cx) {
        seen.push(hint);
    }
    assert!(seen.contains(&Hint::Any));
    assert!(seen.len() <= 128, "{} hints were kept", seen.len());
}

#[tokio::test]
async fn a_clone_is_another_handle_onto_the_same_leases() {
    let store = MemoryStore::new();
    let other = store.clone();
    assert!(matches!(store.apply_one(&acquire("e", 1)).await, Reply::Granted(_)));
    assert!(matches!(other.apply_one(&acquire("e", 2)).await, Reply::Refused(_)));
}
