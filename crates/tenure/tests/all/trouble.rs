//! User code and stores at their worst: nothing of it keeps leadership in silence, starves a
//! renewal or leaves somebody waiting for ever.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Candidate, ErrorKind, Event, MemoryStore, Reason};
use tokio::sync::oneshot;

use crate::common::{Mined, Mood, TTL, World, event, eventually};

/// How long the tests wait for what ought to happen at once.
const PATIENCE: Duration = Duration::from_secs(60);

fn poll_once<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn reads_that_hang_take_no_renewals_place() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let mut events = election.events();
    store.set(Mood::HangingReads);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let election = election.clone();
        asking.spawn(async move {
            // Each asks again as soon as it is told that nobody answers.
            loop {
                let _unanswered = election.current_leader().await;
            }
        });
    }
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    world.pass_until(|| renewals() >= 8).await;
    assert!(election.is_leader());
    asking.shutdown().await;
    store.set(Mood::Well);
    election.stop().await.unwrap();
    let reason = event(&mut events, |event| match event {
        Event::SteppedDown { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason.await, Reason::Resigned, "it never stepped down before");
}

#[tokio::test]
async fn whoever_campaigns_after_a_stop_is_not_put_out_by_those_who_waited_before_it() {
    let world = World::new();
    let (holder, _) = world.candidate("a");
    let holder = holder.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let (candidate, _) = world.candidate("b");
    let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
    let mut before = Box::pin(election.campaign());
    assert!(poll_once(before.as_mut()).is_pending());
    election.stop().await.unwrap();
    let mut after = Box::pin(election.campaign());
    assert!(poll_once(after.as_mut()).is_pending());
    candidate.synchronize().await;
    // It leaves only now: the one who came after the stop stays.
    drop(before);
    candidate.synchronize().await;
    holder.stop().await.unwrap();
    let tenure = tokio::time::timeout(PATIENCE, after).await.expect("it leads").unwrap();
    tenure.resign().await.unwrap();
}

#[tokio::test]
async fn stopping_again_while_the_work_still_runs_is_answered_and_so_is_starting() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let tenure = election.campaign().await.unwrap();
    store.set(Mood::Failing);
    // Lost, aborted, and nobody waits any more: the work goes on all the same.
    let mut first = Box::pin(election.stop());
    let mut answer = None;
    world
        .pass_until(|| match poll_once(first.as_mut()) {
            Poll::Ready(result) => {
                answer = Some(result);
                true
            }
            Poll::Pending => false,
        })
        .await;
    let error = answer.unwrap().unwrap_err().to_string();
    assert!(error.contains("still runs"), "{error}");
    store.set(Mood::Well);
    let again = tokio::time::timeout(PATIENCE, election.stop()).await.expect("it is answered");
    assert!(again.unwrap_err().to_string().contains("still runs"));
    let started = tokio::time::timeout(PATIENCE, election.start()).await.expect("it is answered");
    started.unwrap();
    assert!(!election.is_leader(), "not while the old work runs");
    drop(tenure);
    world.pass_until(|| election.is_leader()).await;
}

/// A start is answered by an attempt of its own, and not by an answer to what was asked
/// before it: a release of the last reign, a look of an observer.
#[tokio::test]
async fn starting_waits_for_its_own_attempt() {
    for before in ["release", "read"] {
        let world = World::new();
        let (candidate, store) = world.candidate("a");
        let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
        if before == "release" {
            election.start().await.unwrap();
        }
        store.set(Mood::Holding(before));
        let mut first: std::pin::Pin<Box<dyn Future<Output = _>>> = match before {
            "release" => Box::pin(election.stop()),
            _ => Box::pin(election.observe()),
        };
        assert!(poll_once(first.as_mut()).is_pending());
        let asked = |verb| store.verbs().last() == Some(&verb);
        eventually(before, || asked(before)).await;
        let mut starting = Box::pin(election.start());
        assert!(poll_once(starting.as_mut()).is_pending());
        candidate.synchronize().await;
        store.set(Mood::Holding("acquire"));
        world.pass_until(|| asked("acquire")).await;
        candidate.synchronize().await;
        assert!(poll_once(starting.as_mut()).is_pending(), "the {before} answered it");
        store.set(Mood::Well);
        tokio::time::timeout(PATIENCE, starting).await.expect("it is answered").unwrap();
        assert!(election.is_leader(), "a lone instance leads when start returns");
        tokio::time::timeout(PATIENCE, first).await.expect("it is answered").unwrap();
    }
}

#[tokio::test]
async fn a_start_that_is_stopped_before_its_attempt_is_answered() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    store.set(Mood::Holding("release"));
    let mut first = Box::pin(election.stop());
    assert!(poll_once(first.as_mut()).is_pending());
    eventually("a release", || store.verbs().last() == Some(&"release")).await;
    let mut starting = Box::pin(election.start());
    assert!(poll_once(starting.as_mut()).is_pending());
    let mut second = Box::pin(election.stop());
    assert!(poll_once(second.as_mut()).is_pending());
    candidate.synchronize().await;
    store.set(Mood::Well);
    for answer in [first as std::pin::Pin<Box<dyn Future<Output = _>>>, starting, second] {
        tokio::time::timeout(PATIENCE, answer).await.expect("it is answered").unwrap();
    }
    assert!(!election.is_leader());
}

#[tokio::test]
async fn a_campaign_does_not_tell_whoever_stops_that_the_work_has_ended() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
    let tenure = election.campaign().await.unwrap();
    let mut stopping = Box::pin(election.stop());
    assert!(poll_once(stopping.as_mut()).is_pending());
    candidate.synchronize().await;
    let mut again = Box::pin(election.campaign());
    assert!(poll_once(again.as_mut()).is_pending());
    candidate.synchronize().await;
    assert!(poll_once(stopping.as_mut()).is_pending(), "it was told so while the work drains");
    let term = tenure.term();
    drop(tenure);
    tokio::time::timeout(PATIENCE, stopping).await.expect("it is answered").unwrap();
    let next = tokio::time::timeout(PATIENCE, again).await.expect("it leads").unwrap();
    assert!(next.term() > term);
}

#[tokio::test]
async fn an_on_error_that_hangs_keeps_nobody_from_being_told() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let (elected, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |counter: &Arc<AtomicUsize>| {
        let counter = counter.clone();
        move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    };
    store.set(Mood::Failing);
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .at_once()
        .on_error(|_| std::future::pending::<()>())
        .on_elected(count(&elected))
        .on_lost(count(&lost))
        .start()
        .await
        .unwrap();
    store.set(Mood::Well);
    world.pass_until(|| election.is_leader()).await;
    eventually("on_elected", || elected.load(Ordering::SeqCst) == 1).await;
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    election.stop().await.unwrap();
    assert_eq!((elected.load(Ordering::SeqCst), lost.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn an_on_change_that_hangs_delays_neither_on_elected_nor_on_lost_nor_the_end() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let said = Arc::new(Mutex::new(Vec::<&str>::new()));
    let say = |what: &'static str| {
        let said = said.clone();
        move |_| said.lock().unwrap().push(what)
    };
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .at_once()
        .on_change(|_| std::future::pending::<()>())
        .on_elected(say("elected"))
        .on_lost(say("lost"))
        .start()
        .await
        .unwrap();
    eventually("on_elected", || said.lock().unwrap().len() == 1).await;
    // It is given the time for winding up, and no more.
    let mut stop = Box::pin(election.stop());
    world.pass_until(|| poll_once(stop.as_mut()).is_ready()).await;
    assert_eq!(*said.lock().unwrap(), ["elected", "lost"]);
}

#[tokio::test]
async fn work_of_run_if_leader_that_blocks_its_thread_does_not_keep_the_lease_alive() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let release = Arc::new((Mutex::new(false), Condvar::new()));
    let began = Arc::new(AtomicBool::new(false));
    let blocked = std::thread::spawn({
        let (election, release, began) = (election.clone(), release.clone(), began.clone());
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(election.run_if_leader(async {
                tokio::task::yield_now().await;
                began.store(true, Ordering::SeqCst);
                let (open, bell) = &*release;
                drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            }))
        }
    });
    eventually("the work", || began.load(Ordering::SeqCst)).await;
    let next = world.election("b").start().await.unwrap();
    world.pass_until(|| next.is_leader()).await;
    assert!(!election.is_leader());
    *release.0.lock().unwrap() = true;
    release.1.notify_all();
    assert_eq!(blocked.join().unwrap(), None, "what it did late counts for nothing");
}

#[tokio::test]
async fn a_driver_that_panics_takes_everybodys_trust_with_it() {
    let (light, fuse) = oneshot::channel();
    let store = Arc::new(Mined::new(MemoryStore::new(), fuse));
    let lost = Arc::new(AtomicUsize::new(0));
    let candidate = Candidate::builder(store).build().unwrap();
    let counted = lost.clone();
    let election = candidate
        .election("invoices")
        .on_lost(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        })
        .start()
        .await
        .unwrap();
    let mut events = election.events();
    let tenure = election.campaign().await.unwrap();
    light.send(()).unwrap();
    let told = tokio::time::timeout(PATIENCE, async {
        tenure.lost().await;
        tenure.ended().await;
    });
    told.await.expect("the work is told");
    assert!(!tenure.is_current() && !tenure.is_leader() && !election.is_leader());
    assert_eq!(election.run_if_leader(async {}).await, None);
    let waiting = tokio::time::timeout(PATIENCE, election.campaign()).await.expect("answered");
    assert_eq!(waiting.unwrap_err().kind(), ErrorKind::Crashed);
    while tokio::time::timeout(PATIENCE, events.next()).await.expect("the feed ends").is_some() {}
    eventually("on_lost", || lost.load(Ordering::SeqCst) == 1).await;
}
