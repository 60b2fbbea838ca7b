//! Servers that hang, pause, vanish and forget; requests that arrive twice.

use std::future::{Future, poll_fn};
use std::net::TcpListener;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::{ErrorKind, Hint, Name, Op, Reply, Store, StoreExt};
use tenure_redis::{RedisConfig, Settle};

use crate::common::{Server, Stores as _, granted, ms, now, player, refused, unknown, wait};
use tenure_testbed::proxy::Proxy;

/// A call on a ttl of 3 s takes at most 500 ms to connect and 500 ms to be answered.
const TTL: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_millis(1_400);

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_hung_server_is_an_unknown_outcome_in_bounded_time() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    let term = a.takes(&store, 1).await.term;
    server.signal(Signal::STOP);
    // The first hangs on the old connection, the second on a new one that the kernel took.
    for _ in 0..2 {
        let started = now();
        let error = unknown(a.renew(&store, term).await);
        let took = now() - started;
        assert!(took < BOUND, "{took:?}");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    server.signal(Signal::CONT);
    granted(a.renew(&store, term).await);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_paused_server_is_an_unknown_outcome_and_works_on() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    let term = a.takes(&store, 1).await.term;
    server.run(&["CLIENT", "PAUSE", "1500", "ALL"]);
    let started = now();
    unknown(a.renew(&store, term).await);
    assert!(now() - started < BOUND);
    wait(ms(1_600)).await;
    granted(a.renew(&store, term).await);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_nothing_queues_while_the_server_is_away() {
    let mut server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    a.takes(&store, 1).await;
    server.kill();
    let started = now();
    for seq in 2..6 {
        unknown(a.acquire(&store, seq).await);
    }
    assert!(now() - started < BOUND, "a refused connection needs no waiting");
    let error = unknown(a.acquire(&store, 6).await);
    assert!(error.message().contains("nobody listens"), "{error}");
    server.come_back();
    assert!(a.sight(&store).await.lease.is_none(), "what was sent meanwhile came after all");
    a.takes(&store, 7).await;
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_black_hole_is_given_up_in_time() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", hole.local_addr().unwrap().port());
    let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
    let started = now();
    let error = unknown(player("jobs", "a", TTL).acquire(&store, 1).await);
    assert!(now() - started < BOUND, "{error}");
    assert!(error.message().contains("out of reach"), "{error}");
}

/// The server is well, and the network swallows one connection: the next call has a new one.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_connection_that_hangs_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(server.port);
    let url = format!("redis://127.0.0.1:{}/0?settle=off", proxy.port);
    let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
    let a = player("jobs", "a", TTL);
    let term = a.takes(&store, 1).await.term;
    proxy.forget();
    unknown(a.renew(&store, term).await);
    granted(a.renew(&store, term).await);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_flushed_script_cache_changes_nothing() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    let term = a.takes(&store, 1).await.term;
    server.run(&["SCRIPT", "FLUSH"]);
    granted(a.renew(&store, term).await);
    server.run(&["SCRIPT", "FLUSH"]);
    let names: Vec<Name> = (0..50).map(|i| Name::new(format!("many {i}")).unwrap()).collect();
    let mut ops: Vec<Op> =
        names.iter().map(|name| player(name.as_str(), "a", TTL).acquire_op(1, None)).collect();
    ops.extend(names.iter().map(|name| Op::Read { election: name.clone() }));
    let replies = store.apply(&ops).await;
    assert_eq!(replies.len(), 100);
    assert!(replies[..50].iter().all(|reply| matches!(reply, Reply::Granted(_))), "{replies:?}");
    assert!(replies[50..].iter().all(|reply| matches!(reply, Reply::Seen(_))), "{replies:?}");
}

/// Clients and proxies send a request again when they lost its reply.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_scripts_that_run_twice_do_no_harm() {
    let server = Server::start();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("jobs", "bb", TTL));
    let acquire = a.acquire_op(1, None);
    let term = granted(store.apply_one(&acquire).await).term;
    assert_eq!(granted(store.apply_one(&acquire).await).term, term, "C1");
    let again = a.acquire_op(2, Some(term));
    let next = granted(store.apply_one(&again).await).term;
    assert!(next > term);
    assert_eq!(granted(store.apply_one(&again).await).term, next, "C1");
    for _ in 0..2 {
        assert_eq!(granted(a.renew(&store, next).await).term, next);
    }
    granted(a.release(&store, Some(next), 2).await);
    refused(a.release(&store, Some(next), 2).await);
    refused(store.apply_one(&acquire).await);
    refused(store.apply_one(&again).await);
    refused(a.renew(&store, next).await);
    let others = b.takes(&store, 1).await.term;
    refused(a.release(&store, Some(next), 2).await);
    granted(b.renew(&store, others).await);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_hints_come_back_with_the_server() {
    let mut server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    a.takes(&store, 1).await;
    let other = server.settled();
    let mut hints = store.hints();
    assert_eq!(poll_fn(|cx| hints.poll_next(cx)).await, Some(Hint::Any), "from now on");
    server.restart();
    let subscribed = tokio::time::timeout(TTL, poll_fn(|cx| hints.poll_next(cx))).await;
    assert_eq!(subscribed.unwrap(), Some(Hint::Any), "some were missed");
    let term = a.takes(&other, 2).await.term;
    player("unrelated", "a", TTL).takes(&other, 1).await;
    granted(player("unrelated", "a", TTL).release(&other, None, 1).await);
    granted(a.release(&other, Some(term), 2).await);
    let told = tokio::time::timeout(TTL, poll_fn(|cx| hints.poll_next(cx))).await;
    assert_eq!(told.unwrap(), Some(Hint::Election(a.election.clone())));
}

/// Pub/sub knows no databases, so the channels have to (R7).
#[needs(redis)]
#[tokio::test]
async fn needs_redis_hints_stay_in_their_database() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/1", server.port);
    let other = RedisConfig::from_url(&url).unwrap().with_settle(Settle::Off).open().unwrap();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("others", "a", TTL));
    a.takes(&store, 1).await;
    b.takes(&store, 1).await;
    let mut hints = store.hints();
    assert_eq!(poll_fn(|cx| hints.poll_next(cx)).await, Some(Hint::Any), "from now on");
    a.takes(&other, 1).await;
    granted(a.release(&other, None, 1).await);
    granted(b.release(&store, None, 1).await);
    // One connection hears all of it in order.
    let told = tokio::time::timeout(TTL, poll_fn(|cx| hints.poll_next(cx))).await;
    assert_eq!(told.unwrap(), Some(Hint::Election(b.election.clone())), "R7");
}

/// C3: a runtime of the user's that is blocked holds up no call on another one.
#[needs(redis)]
#[test]
fn needs_redis_a_blocked_runtime_holds_up_no_other() {
    let server = Server::start();
    let store = server.settled();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let blocked = runtime();
    blocked.block_on(store.check()).unwrap();
    // Nobody drives the first runtime from here on.
    runtime().block_on(async {
        player("jobs", "a", TTL).takes(&store, 1).await;
    });
    drop(blocked);
}

/// The same for a runtime that is blocked in the middle of connecting.
#[needs(redis)]
#[test]
fn needs_redis_a_runtime_that_is_blocked_as_it_connects_holds_up_no_other() {
    let server = Server::start();
    let store = server.settled();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let blocked = runtime();
    let mut check = pin!(store.check());
    blocked.block_on(async {
        // As far as it goes without an answer.
        for _ in 0..3 {
            assert!(poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx).is_pending())).await);
            tokio::task::yield_now().await;
        }
    });
    runtime().block_on(async {
        player("jobs", "a", TTL).takes(&store, 1).await;
    });
}

/// The address leads to another server, because this one was demoted: connections that wait for
/// replicas follow it as well.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_demoted_server_behind_an_address_is_left_by_those_who_wait_for_replicas() {
    let (old, new) = (Server::start(), Server::start());
    let (old_port, new_port) = (old.port.to_string(), new.port.to_string());
    let proxy = Proxy::start(old.port);
    new.run(&["REPLICAOF", "127.0.0.1", &old_port]);
    old.until(&["INFO", "replication"], "state=online");
    let url = format!("redis://127.0.0.1:{}/0?settle=off&wait_replicas=1", proxy.port);
    let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
    let a = player("jobs", "a", ms(20_000));
    let mut term = None;
    for seq in 1..200 {
        // A replica that is called online may need another second.
        if let Reply::Granted(grant) = a.acquire(&store, seq).await {
            term = Some(grant.term);
            break;
        }
    }
    let term = term.expect("the replica has it");
    new.run(&["REPLICAOF", "NO", "ONE"]);
    old.run(&["REPLICAOF", "127.0.0.1", &new_port]);
    proxy.lead_to(new.port);
    let error = unknown(a.renew(&store, term).await);
    assert!(error.message().contains("read-only replica"), "{error}");
    new.until(&["INFO", "replication"], "state=online");
    let mut renewed = None;
    for _ in 0..40 {
        match a.renew(&store, term).await {
            Reply::Granted(grant) => {
                renewed = Some(grant.term);
                break;
            }
            // The old one copies all of it first.
            Reply::Unknown(error) => {
                assert!(error.message().contains("replicas of"), "it is still there: {error}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(renewed, Some(term));
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_elections_are_listed_under_their_prefix() {
    let server = Server::start();
    let mine = server.config().with_settle(Settle::Off).with_prefix("mine:").open().unwrap();
    let names = ["a", "b:c", "odd}", "{tag}:x", "日本"];
    for name in names {
        player(name, "a", TTL).takes(&mine, 1).await;
        granted(player(name, "a", TTL).release(&mine, None, 1).await);
    }
    player("theirs", "a", TTL).takes(&server.settled(), 1).await;
    let mut expected: Vec<Name> = names.iter().map(|name| Name::new(name).unwrap()).collect();
    expected.sort_unstable();
    assert_eq!(mine.elections().await.unwrap(), expected);
}
