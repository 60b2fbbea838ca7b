//! A set of servers under Sentinel: finding the primary, losing it, and who leads meanwhile.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Election, Event};
use tenure_core::{ErrorKind, Reply};
use tenure_redis::{RedisConfig, RedisStore, Settle};

use crate::common::fleet::SentinelSet;
use crate::common::{self, Server, Stores as _, granted, ms, now, player, refused, unknown, wait};

const TTL: Duration = Duration::from_secs(2);

/// Sentinels that were kept from running for two seconds do nothing for half a minute (TILT).
const PATIENCE: Duration = Duration::from_secs(100);

/// Longer than a lease that was copied lasts, so that one can tell who waited for what.
const SETTLE: Duration = Duration::from_secs(4);

fn settling(set: &SentinelSet) -> RedisStore {
    set.config().with_settle(Settle::For(SETTLE)).open().unwrap()
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_sentinels_that_can_not_help_are_told() {
    let set = SentinelSet::start();
    set.config().open().unwrap().check().await.unwrap();
    let port = set.sentinels[0].port;
    let refusal = async |url: String| {
        let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
        store.check().await.unwrap_err()
    };
    let error = refusal(format!("redis+sentinel://127.0.0.1:{port}/other")).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("no primary called \"other\""), "{error}");
    let error = refusal(format!("redis+sentinel://127.0.0.1:{}/main", set.servers[0].port)).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("is not a sentinel"), "{error}");
    let error = refusal(format!("redis://127.0.0.1:{port}/0")).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("redis+sentinel://"), "{error}");
    // One that lives is enough.
    let dead = common::free_port();
    let url = format!("redis+sentinel://127.0.0.1:{dead},127.0.0.1:{port}/main");
    RedisConfig::from_url(&url).unwrap().open().unwrap().check().await.unwrap();
    let error = refusal(format!("redis+sentinel://127.0.0.1:{dead}/main")).await;
    assert!(error.message().contains("nobody listens"), "{error}");
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_sentinels_have_passwords_of_their_own() {
    let lines = "requirepass geheim-4711\nsentinel monitor main 127.0.0.1 9 1";
    let sentinel = Server::start_sentinel(lines);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.message().contains("sentinel_password"), "{error}");
    let url = format!("{url}?sentinel_password=geheim-4711");
    let error = RedisConfig::from_url(&url).unwrap().open().unwrap().check().await.unwrap_err();
    assert!(error.message().contains("nobody listens at 127.0.0.1:9"), "{error}");
}

/// The primary is killed under a running group, and the failover takes longer than the lease. The
/// promoted replica settles, because the old leader may trust itself; then somebody leads, under a
/// higher term.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_group_survives_a_failover_of_its_sentinel_set() {
    let mut set = SentinelSet::start();
    // Whatever was heard of the primary last, nobody calls it dead while its lease runs.
    set.call_dead_after(TTL + Duration::from_secs(1));
    let candidate =
        |label: &str| Election::builder("jobs", Arc::new(settling(&set))).label(label).ttl(TTL);
    let a = candidate("a").start().await.unwrap();
    let reign = a.campaign().await.unwrap();
    let b = candidate("b").start().await.unwrap();
    let (term, primary) = (reign.term(), set.primary());
    let cut = now();
    set.servers[primary].kill();
    let elected = async {
        reign.ended().await;
        let lost = now();
        drop(reign);
        tokio::select! {
            next = a.campaign() => (lost, next.unwrap(), now()),
            next = b.campaign() => (lost, next.unwrap(), now()),
        }
    };
    let (lost, next, led) = tokio::time::timeout(PATIENCE, elected).await.expect("a leader");
    println!("failover: trust ended after {:?}, a leader after {:?}", lost - cut, led - cut);
    assert!(next.term() > term, "I2: {} after {term}", next.term());
    assert!(lost <= led && lost - cut <= TTL, "I1: two leaders");
    // It is a former replica that settled after its promotion.
    assert!(led - cut >= SETTLE, "R2: settling was skipped: {:?}", led - cut);
    set.servers[primary].come_back();
    wait(TTL).await;
    assert!(next.is_current(), "the old primary comes back as a replica, and nobody minds");
}

/// The failover is over before the lease is: it was copied, so its leader renews it on the promoted
/// replica and goes on under the same term (R2). Others do not get it.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_leader_outlives_a_quick_failover_of_its_sentinel_set() {
    let mut set = SentinelSet::start();
    let candidate = |label: &str, settle| {
        let store = Arc::new(set.config().with_settle(settle).open().unwrap());
        // It lasts, however long the sentinels take.
        Election::builder("jobs", store).label(label).ttl(PATIENCE).renew_every(ms(500))
    };
    // A server that nobody knows settles as well; here that is put off until the failover.
    let a = candidate("a", Settle::Off).start().await.unwrap();
    let reign = a.campaign().await.unwrap();
    let b = candidate("b", Settle::For(SETTLE)).start().await.unwrap();
    let primary = set.primary();
    for server in &set.servers {
        server.until(&["GET", "jobs"], a.candidate().as_str());
    }
    let mut events = a.events();
    set.servers[primary].kill();
    let mut lost = false;
    let back = async {
        while let Some(event) = events.next().await {
            match event {
                Event::StoreLost { .. } => lost = true,
                Event::StoreBack if lost => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("a promoted replica");
    assert!(reign.is_current(), "the lease was copied");
    let new = set.primary();
    assert_eq!(set.servers[new].run(&["GET", "jobs"]), a.candidate().as_str());
    let seen = b.current_leader().await.unwrap().unwrap();
    assert_eq!(seen.term, Some(reign.term()), "the same reign");
    assert!(!b.is_leader());
    // It resigns, and the promoted one has yet to settle for whoever asks.
    let mut events = b.events();
    drop(reign);
    a.stop().await.unwrap();
    let settling = async {
        while let Some(event) = events.next().await {
            match event {
                Event::Settling { .. } => return,
                Event::Elected { .. } => panic!("R2: settling was skipped"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, settling).await.expect("it settles");
}

/// A frozen primary is demoted; when it wakes it must not grant anything that counts.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_frozen_primary_is_left_for_the_promoted_one() {
    let set = SentinelSet::start();
    let store = set.config().with_settle(Settle::Off).open().unwrap();
    let (a, b) = (player("jobs", "a", ms(1_500)), player("jobs", "bb", ms(1_500)));
    let term = a.takes(&store, 1).await.term;
    let old = set.primary();
    set.servers[old].signal(Signal::STOP);
    let mut next = None;
    for seq in 1..200 {
        if let Reply::Granted(grant) = b.acquire(&store, seq).await {
            next = Some((grant.term, seq));
            break;
        }
        wait(ms(50)).await;
    }
    let (next, seq) = next.expect("the promoted one grants");
    assert!(next > term, "R1: {next} after {term}");
    let is_new = |index: &usize| {
        let server = &set.servers[*index];
        server.run(&["INFO", "replication"]).contains("role:master")
    };
    let new = (0..3).filter(|index| *index != old).find(is_new).unwrap();
    // The other replica has left the old one as well.
    set.servers[new].until(&["INFO", "replication"], "connected_slaves:1");
    set.servers[old].signal(Signal::CONT);
    // For an instant it takes itself for the primary. Whoever still talks to it and waits for
    // replicas is not granted anything, until it learns what it is.
    let direct = set.servers[old].config().with_settle(Settle::Off).with_wait_replicas(1);
    let direct = direct.open().unwrap();
    let mut demoted = false;
    for seq in 2..400 {
        match a.acquire(&direct, seq).await {
            Reply::Unknown(error) if error.message().contains("read-only replica") => {
                demoted = true;
                break;
            }
            Reply::Granted(grant) => panic!("two leaders: {} beside {next}", grant.term),
            _ => wait(ms(20)).await,
        }
        granted(b.renew(&store, next).await);
    }
    assert!(demoted, "it learns what it is");
    granted(b.renew(&store, next).await);
    let fresh = set.config().with_settle(Settle::Off).open().unwrap();
    refused(a.acquire(&fresh, 1_000).await);
    granted(b.release(&store, Some(next), seq).await);
}

/// R3: a grant that the replicas do not have does not count, and counts once they have it.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_grant_counts_only_once_enough_replicas_have_it() {
    let set = SentinelSet::start();
    let open = |replicas| {
        let config = set.config().with_settle(Settle::Off).with_wait_replicas(replicas);
        config.open().unwrap()
    };
    let (a, b) = (player("jobs", "a", ms(3_000)), player("jobs", "bb", ms(3_000)));
    let store = open(2);
    let term = a.takes(&store, 1).await.term;
    granted(a.renew(&store, term).await);
    let primary = set.primary();
    let replicas: Vec<&Server> =
        set.servers.iter().enumerate().filter(|(i, _)| *i != primary).map(|(_, s)| s).collect();
    for replica in &replicas {
        assert_eq!(replica.run(&["GET", "jobs"]), a.candidate.as_str(), "it has the lease");
    }
    replicas[0].signal(Signal::STOP);
    let started = now();
    let error = unknown(a.renew(&store, term).await);
    assert!(error.message().contains("only 1 of 2 replicas"), "{error}");
    assert!(now() - started < ms(1_500), "bounded");
    // Others are not held up meanwhile: the wait, for half a second, has its own connection.
    let waiting = async { (a.renew(&store, term).await, now()) };
    let reading = async {
        wait(ms(100)).await;
        (a.sight(&store).await, now())
    };
    let ((waited, waited_until), (sight, read_at)) = tokio::join!(waiting, reading);
    unknown(waited);
    assert!(sight.lease.is_some() && read_at < waited_until, "the read came behind the wait");
    // One replica is enough for those who ask for one.
    granted(a.renew(&open(1), term).await);
    refused(b.acquire(&store, 1).await);
    replicas[0].signal(Signal::CONT);
    granted(a.renew(&store, term).await);
    // A grant that did not count is healed by asking again, under the same term (C1).
    granted(a.release(&store, Some(term), 1).await);
    replicas[0].signal(Signal::STOP);
    unknown(b.acquire(&store, 2).await);
    let taken = b.sight(&open(0)).await.lease.unwrap();
    assert!(taken.holder.is(&b.candidate), "it has it, and does not lead");
    refused(a.acquire(&open(0), 2).await);
    replicas[0].signal(Signal::CONT);
    let healed = b.takes(&store, 3).await.term;
    assert_eq!(Some(healed), taken.term, "C1");
    assert!(healed > term);
}

/// A restart ends all connections at once: one call finds out, and not each of them.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_connections_that_wait_for_replicas_are_replaced_together() {
    let set = SentinelSet::start();
    let config = set.config().with_settle(Settle::Off).with_wait_replicas(1);
    let store = config.open().unwrap();
    let players: Vec<_> = (0..5).map(|i| player(&format!("jobs {i}"), "a", TTL * 5)).collect();
    let primary = &set.servers[set.primary()];
    let replicas: Vec<_> =
        set.servers.iter().filter(|server| server.port != primary.port).collect();
    // Nobody confirms, so each of the five waits on a connection of its own.
    replicas.iter().for_each(|replica| replica.signal(Signal::STOP));
    let asked = players.iter().map(|player| player.acquire(&store, 1));
    futures_util::future::join_all(asked).await.into_iter().for_each(|reply| drop(unknown(reply)));
    replicas.iter().for_each(|replica| replica.signal(Signal::CONT));
    let term = players[0].takes(&store, 2).await.term;
    let killed = primary.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let killed: u32 = killed.trim_start_matches(':').parse().unwrap();
    assert!(killed >= 5, "{killed}");
    let player = &players[0];
    unknown(player.renew(&store, term).await);
    granted(player.renew(&store, term).await);
}
