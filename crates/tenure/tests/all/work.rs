//! Work under a reign: it is told, waited for, and never kept alive in silence.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Event, Reason, Term};
use tokio::sync::{Notify, oneshot};

use crate::common::{Mood, TTL, World, breathe, event, eventually, leads};

#[tokio::test]
async fn a_lease_is_given_back_only_when_the_work_has_ended() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let tenure = election.campaign().await.unwrap();
    let stopping = tokio::task::LocalSet::new();
    stopping
        .run_until(async {
            let stop = tokio::task::spawn_local({
                let election = election.clone();
                async move { election.stop().await }
            });
            assert_eq!(tenure.lost().await, Reason::Resigned);
            assert!(!election.is_leader(), "nothing new is started");
            assert!(tenure.is_current(), "but the work may wind up");
            breathe().await;
            assert!(!store.verbs().contains(&"release"), "the work has not ended");
            drop(tenure);
            stop.await.unwrap().unwrap();
        })
        .await;
    assert!(store.verbs().contains(&"release"));
}

#[tokio::test]
async fn work_that_does_not_end_is_aborted_and_its_lease_never_released() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let tenure = election.campaign().await.unwrap();
    let (done, stopped) = oneshot::channel();
    let local = tokio::task::LocalSet::new();
    local.spawn_local({
        let election = election.clone();
        async move { done.send(election.stop().await) }
    });
    let mut stopped = Some(stopped);
    let mut result = None;
    local
        .run_until(world.pass_until(|| {
            result = stopped.as_mut().and_then(|stopped| stopped.try_recv().ok());
            result.is_some()
        }))
        .await;
    let error = result.unwrap().unwrap_err();
    assert!(error.to_string().contains("still runs"), "{error}");
    assert!(!tenure.is_current(), "it was aborted");
    assert!(!store.verbs().contains(&"release"));
    drop(tenure);
}

#[tokio::test]
async fn lead_runs_the_work_in_each_reign_and_stops_it_on_loss() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let terms = Arc::new(Mutex::new(Vec::<u64>::new()));
    let (ended, over) = oneshot::channel();
    let local = tokio::task::LocalSet::new();
    local.spawn_local({
        let (election, terms) = (election.clone(), terms.clone());
        async move {
            let result = election
                .lead(|tenure| {
                    let terms = terms.clone();
                    async move {
                        terms.lock().unwrap().push(tenure.term().get());
                        std::future::pending::<()>().await;
                    }
                })
                .await;
            ended.send(result)
        }
    });
    let count = || terms.lock().unwrap().len();
    local.run_until(eventually("the first reign", || count() == 1)).await;
    store.set(Mood::Failing);
    local.run_until(world.pass_until(|| !election.is_leader())).await;
    store.set(Mood::Well);
    local.run_until(world.pass_until(|| count() == 2)).await;
    assert_eq!(*terms.lock().unwrap(), [1, 2], "a new reign, a new term");
    local
        .run_until(async {
            let stopped = election.stop();
            tokio::pin!(stopped);
            let mut done = false;
            while !done {
                done = tokio::time::timeout(Duration::from_millis(1), &mut stopped).await.is_ok();
                world.clock.advance(Duration::from_millis(10));
            }
        })
        .await;
    assert_eq!(local.run_until(over).await.unwrap().unwrap(), None, "stopped");
}

/// Work that stays winds up when it is told to, and begins again in the next reign.
#[tokio::test]
async fn lead_each_goes_on_after_a_resignation_and_ends_with_a_stop_or_an_error() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).start().await.unwrap();
    let terms = Mutex::new(Vec::<u64>::new());
    let count = || terms.lock().unwrap().len();
    let mut staying = Box::pin(election.lead_each(|tenure| {
        terms.lock().unwrap().push(tenure.term().get());
        async move {
            tenure.lost().await;
            Ok::<(), tenure::Error>(())
        }
    }));
    world.pass_until(|| poll_once(&mut staying).is_pending() && count() == 1).await;
    let mut resign = Box::pin(election.resign());
    world
        .pass_until(|| {
            assert!(poll_once(&mut staying).is_pending(), "it is not over");
            poll_once(&mut resign).is_ready()
        })
        .await;
    world.pass_until(|| poll_once(&mut staying).is_pending() && count() == 2).await;
    let mut stop = Box::pin(election.stop());
    let (mut stopped, mut ended) = (false, false);
    world
        .pass_until(|| {
            stopped = stopped || poll_once(&mut stop).is_ready();
            ended = ended || matches!(poll_once(&mut staying), Poll::Ready(Ok(())));
            stopped && ended
        })
        .await;
    assert_eq!(*terms.lock().unwrap(), [1, 2]);

    election.start().await.unwrap();
    let failed: Result<(), Broken> = election.lead_each(|_| async { Err(Broken::OnPurpose) }).await;
    assert!(matches!(failed, Err(Broken::OnPurpose)));
}

#[derive(Debug)]
enum Broken {
    OnPurpose,
    #[allow(dead_code, reason = "shown when the test fails")]
    Tenure(tenure::Error),
}

impl From<tenure::Error> for Broken {
    fn from(error: tenure::Error) -> Broken {
        Broken::Tenure(error)
    }
}

fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn lead_returns_what_the_work_returns() {
    let world = World::new();
    let election = world.election("a").build().unwrap();
    let value = election.lead(|tenure| async move { tenure.term().get() * 10 }).await.unwrap();
    assert_eq!(value, Some(10));
    assert_eq!(election.current_leader().await.unwrap(), None, "and gives the lease back");
}

#[tokio::test]
async fn a_panic_in_the_work_gives_leadership_up() {
    let world = World::new();
    let election = world.election("a").start().await.unwrap();
    let next = world.election("b").start().await.unwrap();
    let work = {
        let election = election.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(election.lead(|_| async { panic!("on purpose") }))
        })
    };
    leads(&next).await;
    assert!(work.join().is_err(), "the panic went on to the caller");
    assert!(!election.is_leader());
}

#[tokio::test]
async fn run_if_leader_runs_only_on_the_leader_and_not_beyond_its_trust() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let leader = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let follower = world.election("b").start().await.unwrap();
    assert_eq!(leader.run_if_leader(async { 7 }).await, Some(7));
    assert_eq!(follower.run_if_leader(async { 7 }).await, None);

    store.set(Mood::Hanging);
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = SetOnDrop(dropped.clone());
    let endless = leader.run_if_leader(async move {
        let _guard = guard;
        std::future::pending::<()>().await
    });
    let passing = world.pass_until(|| dropped.load(Ordering::Relaxed));
    let (value, ()) = tokio::join!(endless, passing);
    assert_eq!(value, None);
    assert!(!leader.is_leader());
}

#[tokio::test]
async fn run_if_leader_is_waited_for_before_the_lease_is_given_back() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let (go, gate) = oneshot::channel::<()>();
    let work = election.run_if_leader(async { gate.await.is_ok() });
    let stop = async {
        let stopping = election.stop();
        tokio::pin!(stopping);
        assert!(tokio::time::timeout(Duration::from_millis(30), &mut stopping).await.is_err());
        assert!(!store.verbs().contains(&"release"));
        go.send(()).unwrap();
        stopping.await
    };
    let (worked, stopped) = tokio::join!(work, stop);
    assert_eq!(worked, Some(true));
    stopped.unwrap();
}

#[tokio::test]
async fn callbacks_come_in_order_and_only_for_transitions() {
    let world = World::new();
    let told = Arc::new(Mutex::new(Vec::<String>::new()));
    let tell = |what: &'static str| {
        let told = told.clone();
        move |term: Term| told.lock().unwrap().push(format!("{what} {term}"))
    };
    let changed = told.clone();
    let election = world
        .election("a")
        .on_elected(tell("elected"))
        .on_lost({
            let told = told.clone();
            move |term| {
                let told = told.clone();
                async move { told.lock().unwrap().push(format!("lost {term}")) }
            }
        })
        .on_change(move |term: Option<Term>| {
            changed.lock().unwrap().push(format!("change {:?}", term.map(Term::get)));
        })
        .start()
        .await
        .unwrap();
    election.stop().await.unwrap();
    let said = told.lock().unwrap().clone();
    assert_eq!(said, ["change Some(1)", "elected 1", "change None", "lost 1"]);

    let follower = world.election("b").on_lost(tell("never")).start().await.unwrap();
    let other = world.election("c").on_lost(tell("never")).start().await.unwrap();
    other.stop().await.unwrap();
    follower.stop().await.unwrap();
    assert!(!told.lock().unwrap().contains(&"never 3".to_owned()), "it never led");
}

#[tokio::test]
async fn the_lease_is_kept_until_on_lost_has_wound_up() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let (entered, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .at_once()
        .on_lost({
            let (entered, finish) = (entered.clone(), finish.clone());
            move |_| {
                let (entered, finish) = (entered.clone(), finish.clone());
                async move {
                    entered.notify_one();
                    finish.notified().await;
                }
            }
        })
        .start()
        .await
        .unwrap();
    let stop = async {
        let stopping = election.stop();
        tokio::pin!(stopping);
        tokio::select! {
            _ = &mut stopping => panic!("on_lost has not ended"),
            () = entered.notified() => {}
        }
        breathe().await;
        assert!(!store.verbs().contains(&"release"));
        finish.notify_one();
        stopping.await
    };
    stop.await.unwrap();
    assert!(store.verbs().contains(&"release"));
}

#[tokio::test]
async fn a_panic_in_a_callback_resigns_and_is_reported() {
    let world = World::new();
    let errors = Arc::new(Mutex::new(Vec::<String>::new()));
    let election = world
        .election("a")
        .on_elected(|_| async { panic!("on purpose") })
        .on_error({
            let errors = errors.clone();
            move |error| errors.lock().unwrap().push(error.to_string())
        })
        .start()
        .await
        .unwrap();
    eventually("the resignation", || !election.is_leader()).await;
    eventually("the report", || !errors.lock().unwrap().is_empty()).await;
    assert!(errors.lock().unwrap()[0].contains("on_elected panicked: on purpose"));
}

#[tokio::test]
async fn an_on_elected_that_hangs_neither_delays_renewals_nor_the_loss() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let lost = Arc::new(AtomicUsize::new(0));
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .at_once()
        .on_elected(|_| std::future::pending::<()>())
        .on_lost({
            let lost = lost.clone();
            move |_| {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        })
        .start()
        .await
        .unwrap();
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    world.pass_until(|| renewals() >= 5).await;
    assert!(election.is_leader());
    election.stop().await.unwrap();
    assert_eq!(lost.load(Ordering::Relaxed), 1);
}

/// The work blocks its thread: it can't be told of a loss, so the lease must not be kept for it.
#[tokio::test]
async fn a_blocked_runtime_does_not_keep_the_lease_alive() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let mut events = election.events();
    let release = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let blocked = std::thread::spawn({
        let (election, release) = (election.clone(), release.clone());
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let tenure = election.campaign().await.unwrap();
                let block = async {
                    tokio::task::yield_now().await;
                    let (open, bell) = &*release;
                    drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
                };
                tokio::select! {
                    biased;
                    _ = tenure.lost() => {}
                    () = block => {}
                }
            });
        }
    });
    let next = world.election("b").start().await.unwrap();
    world.pass_until(|| next.is_leader()).await;
    assert!(!election.is_leader());
    let failed = event(&mut events, |event| match event {
        Event::RenewalFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    assert!(failed.await.contains("has not listened"));
    *release.0.lock().unwrap() = true;
    release.1.notify_all();
    blocked.join().unwrap();
}

/// Nobody but a reader of `is_leader` works here, and nobody polls what vouches for it.
#[tokio::test]
async fn a_lease_is_not_kept_for_those_who_do_not_vouch_any_more() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    let mut vouching = Box::pin(election.vouch());
    tokio::select! {
        never = &mut vouching => match never {},
        () = world.pass_until(|| renewals() >= 5) => {}
    }
    assert!(election.is_leader());
    let next = world.election("b").start().await.unwrap();
    world.pass_until(|| next.is_leader()).await;
    assert!(!election.is_leader());
    next.stop().await.unwrap();
    // Without the promise it is nobody's business.
    drop(vouching);
    world.pass_until(|| election.is_leader()).await;
    let before = renewals();
    world.pass_until(|| renewals() >= before + 5).await;
    assert!(election.is_leader());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_gone_does_not_keep_the_lease_alive() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let builder = world.election("a").on_lost(|_| {});
    let election = runtime.spawn(builder.start()).await.unwrap().unwrap();
    assert!(election.is_leader());
    std::thread::spawn(move || drop(runtime)).join().unwrap();
    let next = world.election("b").start().await.unwrap();
    world.pass_until(|| next.is_leader()).await;
    assert!(!election.is_leader());
}

#[tokio::test]
async fn asking_through_the_store_makes_the_leader_resign() {
    use tenure::core::StoreExt;
    let world = World::new();
    let first = world.election("a").start().await.unwrap();
    let second = world.election("b").start().await.unwrap();
    let mut events = first.events();
    world.store.ask(first.name(), None).await.unwrap().unwrap();
    let reason = event(&mut events, |event| match event {
        Event::SteppedDown { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason.await, Reason::Asked);
    leads(&second).await;
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
