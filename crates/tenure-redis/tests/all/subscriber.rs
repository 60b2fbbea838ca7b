//! What hints and messages share: one task, one connection for each server, one way to reconnect.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Election;
use tenure_core::{Arrival, Channels as _, Hint, Hints, Inbox, Name, Store, Term};
use tenure_redis::Settle;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::common::fleet::ClusterSet;
use crate::common::{Server, Stores as _, granted, ms, now, player, wait};

const TTL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn next_hint(hints: &mut Box<dyn Hints>) -> Hint {
    timeout(PATIENCE, poll_fn(|cx| hints.poll_next(cx))).await.expect("a hint").unwrap()
}

async fn next_arrival(inbox: &mut Box<dyn Inbox>) -> Arrival {
    timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await.expect("an arrival").unwrap()
}

fn notice(text: &str) -> Arrival {
    Arrival::Notice { channel: "c".to_owned(), payload: text.to_owned() }
}

fn jobs() -> Name {
    Name::new("jobs").unwrap()
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_hints_and_notices_come_back_on_one_connection() {
    let server = Server::start();
    let (store, channels) = (server.settled(), ["c".to_owned()]);
    let a = player("jobs", "a", TTL);
    a.takes(&store, 1).await;
    let mut hints = store.hints();
    assert_eq!(next_hint(&mut hints).await, Hint::Any);
    let mut inbox = store.listen(&jobs(), Term::FIRST, &channels).await.unwrap();
    for round in 1..4 {
        assert_eq!(server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]), ":1", "there is one");
        assert_eq!(next_hint(&mut hints).await, Hint::Any, "round {round}");
        assert_eq!(next_arrival(&mut inbox).await, Arrival::Gap, "round {round}");
        store.notify(&jobs(), "c", "1").await.unwrap();
        assert_eq!(next_arrival(&mut inbox).await, notice("1"));
    }
    granted(a.release(&store, None, 1).await);
    assert_eq!(next_hint(&mut hints).await, Hint::Election(jobs()));
    // Nobody listens for messages any more, so the server has nobody to tell.
    drop(inbox);
    let script = "return redis.call('PUBSUB', 'NUMSUB', 'tenure:hints:0:mail:jobs')[2]";
    server.until(&["EVAL", script, "0"], ":0");
    let mut again = store.listen(&jobs(), Term::FIRST, &channels).await.unwrap();
    store.notify(&jobs(), "c", "2").await.unwrap();
    assert_eq!(next_arrival(&mut again).await, notice("2"), "M1");
}

/// Candidates on one store come and go, and the thread that listened for all is one of theirs.
#[needs(redis)]
#[test]
fn needs_redis_another_listens_on_when_the_runtime_that_did_ends() {
    let server = Server::start();
    let (store, channels) = (server.settled(), ["c".to_owned()]);
    // It goes on by itself, as the thread of a driver does.
    let mut first = tokio::runtime::Builder::new_multi_thread();
    let first = first.worker_threads(1).enable_all().build().unwrap();
    let second = runtime();
    let mut hints = store.hints();
    first.block_on(async { assert_eq!(next_hint(&mut hints).await, Hint::Any) });
    let mut inbox = second.block_on(store.listen(&jobs(), Term::FIRST, &channels)).unwrap();
    drop(first);
    second.block_on(async {
        assert_eq!(next_arrival(&mut inbox).await, Arrival::Gap, "some may be missed");
        store.notify(&jobs(), "c", "1").await.unwrap();
        assert_eq!(next_arrival(&mut inbox).await, notice("1"));
        assert_eq!(next_hint(&mut hints).await, Hint::Any);
    });
}

/// C3: a runtime that is blocked holds up nobody who begins to listen on another.
#[needs(redis)]
#[test]
fn needs_redis_a_blocked_runtime_holds_up_nobody_who_begins_to_listen() {
    let server = Server::start();
    let (store, channels) = (server.settled(), ["c".to_owned()]);
    let blocked = runtime();
    let mut hints = store.hints();
    blocked.block_on(async { assert_eq!(next_hint(&mut hints).await, Hint::Any) });
    // Nobody drives the first runtime from here on.
    runtime().block_on(async {
        let started = now();
        let mut inbox = store.listen(&jobs(), Term::FIRST, &channels).await.unwrap();
        assert!(now() - started < ms(2_000), "{:?}", now() - started);
        store.notify(&jobs(), "c", "1").await.unwrap();
        assert_eq!(next_arrival(&mut inbox).await, notice("1"));
    });
    drop(blocked);
}

/// Notes on which threads it is woken.
#[derive(Default)]
struct Foreign(Mutex<Vec<ThreadId>>);

impl Wake for Foreign {
    fn wake(self: Arc<Foreign>) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

/// L2: a listener on another runtime is woken there.
#[needs(redis)]
#[test]
fn needs_redis_nobody_is_woken_on_the_thread_that_listens_for_another() {
    let server = Server::start();
    let store = server.settled();
    let a = player("jobs", "a", TTL);
    let (host, other) = (runtime(), runtime());
    let mut hints = store.hints();
    host.block_on(async {
        a.takes(&store, 1).await;
        assert_eq!(next_hint(&mut hints).await, Hint::Any);
    });
    let (foreign, mut others) = (Arc::new(Foreign::default()), store.hints());
    {
        let _entered = other.enter();
        let waker = Waker::from(foreign.clone());
        let mut cx = Context::from_waker(&waker);
        assert_eq!(others.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)), "it missed some");
        assert_eq!(others.poll_next(&mut cx), Poll::Pending);
    }
    host.block_on(async {
        granted(a.release(&store, None, 1).await);
        assert_eq!(next_hint(&mut hints).await, Hint::Election(jobs()));
    });
    assert_eq!(*foreign.0.lock().unwrap(), [], "L2: on the thread that listens");
    let wakes = std::thread::spawn(move || {
        other.block_on(wait(ms(200)));
        std::thread::current().id()
    });
    let wakes = wakes.join().unwrap();
    assert_eq!(*foreign.0.lock().unwrap(), [wakes]);
}

/// A flood of notices delays no renewal: they are read on the thread of the driver.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_flood_of_notices_delays_no_renewal() {
    let server = Server::start();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    let failures = Arc::new(AtomicUsize::new(0));
    let failed = failures.clone();
    let election = Election::builder("jobs", Arc::new(server.settled()))
        .label("a")
        .ttl(TTL)
        .on_notify("c", move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .on_error(move |_| {
            failed.fetch_add(1, Ordering::Relaxed);
        });
    let election = election.start().await.unwrap();
    let reign = election.campaign().await.unwrap();
    let (over, url) = (Arc::new(AtomicBool::new(false)), server.url());
    let flood = std::thread::spawn({
        let over = over.clone();
        move || {
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            let mut pipeline = redis::pipe();
            for _ in 0..200 {
                let payload = format!("c\n\"{}\"", "x".repeat(200));
                pipeline.publish("tenure:hints:0:mail:jobs", payload).ignore();
            }
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                pipeline.query::<()>(&mut connection).unwrap();
                sent += 200;
            }
            sent
        }
    });
    wait(TTL * 2).await;
    over.store(true, Ordering::Relaxed);
    let sent: usize = flood.join().unwrap();
    assert!(sent > 10_000, "not a flood: {sent}");
    assert!(heard.load(Ordering::Relaxed) > 1_000, "they are heard: {heard:?} of {sent}");
    assert!(reign.is_current() && election.is_leader(), "it leads on");
    assert_eq!(failures.load(Ordering::Relaxed), 0, "no renewal has failed");
}

/// One that hangs makes nobody deaf who listens to another, nor keeps them from beginning to.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_notices_of_other_primaries_come_in_time_while_one_hangs() {
    let set = ClusterSet::start();
    for server in &set.servers {
        assert_eq!(server.run(&["CONFIG", "SET", "cluster-node-timeout", "600000"]), "+OK");
    }
    let store = set.config().with_settle(Settle::Off).open().unwrap();
    let (names, channels) = (set.a_name_on_each(), ["c".to_owned()]);
    let names: Vec<Name> = names.iter().map(|name| Name::new(name).unwrap()).collect();
    let mut hints = store.hints();
    assert_eq!(next_hint(&mut hints).await, Hint::Any);
    let mut before = store.listen(&names[0], Term::FIRST, &channels).await.unwrap();
    let mut of_hung = store.listen(&names[1], Term::FIRST, &channels).await.unwrap();
    set.servers[1].signal(Signal::STOP);
    let started = now();
    let mut after = store.listen(&names[2], Term::FIRST, &channels).await.unwrap();
    for (name, inbox) in [(&names[0], &mut before), (&names[2], &mut after)] {
        store.notify(name, "c", "1").await.unwrap();
        assert_eq!(next_arrival(inbox).await, notice("1"));
    }
    // To give up on the one that hangs takes three seconds.
    assert!(now() - started < ms(2_500), "{:?}", now() - started);
    let error = timeout(PATIENCE, store.listen(&names[1], Term::FIRST, &channels)).await;
    assert!(error.expect("in bounded time").is_err(), "M1: it does not answer");
    set.servers[1].signal(Signal::CONT);
    assert_eq!(next_arrival(&mut of_hung).await, Arrival::Gap, "it was given up on");
    store.notify(&names[1], "c", "2").await.unwrap();
    assert_eq!(next_arrival(&mut of_hung).await, notice("2"));
}
