//! A Cluster: slots, markers, redirections, failover of a primary.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tenure::Election;
use tenure_core::{ErrorKind, Hint, Name, Op, Reply, Store};
use tenure_redis::{RedisConfig, RedisStore, Settle};

use crate::common::fleet::{ClusterSet, PASSWORD, documented_acl};
use crate::common::{
    self, Player, Server, Stores as _, granted, ms, now, player, refused, unknown, wait,
};

const TTL: Duration = Duration::from_secs(2);

/// Longer than a lease that was copied lasts, so that one can tell who waited for what.
const SETTLE: Duration = Duration::from_secs(4);

fn open(set: &ClusterSet, settle: Settle) -> RedisStore {
    set.config().with_settle(settle).open().unwrap()
}

/// Asks until granted.
async fn takes_in_time(store: &RedisStore, player: &Player) -> tenure_core::Term {
    for seq in 1..600 {
        if let Reply::Granted(grant) = player.acquire(store, seq).await {
            return grant.term;
        }
        wait(ms(20)).await;
    }
    panic!("{} was never granted {}", player.candidate, player.election);
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_cluster_and_a_single_server_are_told_apart() {
    let set = ClusterSet::start();
    open(&set, Settle::Off).check().await.unwrap();
    let refusal = async |url: String| {
        let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
        store.check().await.unwrap_err()
    };
    // One of them has the slot of the marker, and sends nobody elsewhere.
    for server in &set.servers[..3] {
        let error = refusal(format!("redis://127.0.0.1:{}", server.port)).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.message().contains("write redis+cluster://"), "{error}");
    }
    let single = Server::start();
    let error = refusal(format!("redis+cluster://127.0.0.1:{}", single.port)).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.message().contains("not part of a Cluster; write redis://"), "{error}");
    // One seed that lives is enough.
    let url = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{}",
        common::free_port(),
        set.servers[4].port
    );
    RedisConfig::from_url(&url).unwrap().open().unwrap().check().await.unwrap();
}

/// R4.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_names_that_a_cluster_would_take_apart_are_refused() {
    let set = ClusterSet::start();
    let store = open(&set, Settle::Off);
    for name in ["a}b", "a{}b", "{}"] {
        let error = unknown(player(name, "a", TTL).acquire(&store, 1).await);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.message().contains("hash tag"), "{error}");
    }
    let names = ["plain", "{tag}:x", "x{tag}y}", "a{b"];
    let mut ops: Vec<Op> =
        names.iter().map(|name| player(name, "a", TTL).acquire_op(1, None)).collect();
    ops.push(player("a}b", "a", TTL).acquire_op(1, None));
    let replies = store.apply(&ops).await;
    assert!(replies[..4].iter().all(|reply| matches!(reply, Reply::Granted(_))), "{replies:?}");
    assert!(matches!(replies[4], Reply::Unknown(_)), "and it harms no neighbour: {replies:?}");
    let error = set.config().with_prefix("x{").open().unwrap_err();
    assert!(error.message().contains("hash tag"), "{error}");
    let tagged = set.config().with_prefix("{app}:").with_settle(Settle::For(ms(1)));
    let tagged = tagged.open().unwrap();
    takes_in_time(&tagged, &player("jobs", "a", ms(100))).await;
    assert_eq!(tagged.elections().await.unwrap(), [Name::new("jobs").unwrap()]);
    let mut expected: Vec<Name> = names.iter().map(|name| Name::new(name).unwrap()).collect();
    expected.push(Name::new("{app}:jobs").unwrap());
    expected.sort_unstable();
    assert_eq!(store.elections().await.unwrap(), expected, "from all primaries");
}

/// R2: once per primary, and not for each election.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_each_primary_of_a_cluster_settles_once() {
    let set = ClusterSet::start();
    let store = open(&set, Settle::For(TTL));
    let names = set.a_name_on_each();
    store.check().await.unwrap();
    for name in &names {
        let sight = refused(player(name, "a", TTL).acquire(&store, 1).await);
        assert!(sight.settling.is_some_and(|left| left <= TTL), "{sight:?}");
    }
    wait(TTL).await;
    for number in 0..30 {
        player(&format!("new-{number}"), "a", TTL).takes(&store, 1).await;
    }
    // Another process does not wait either.
    let other = open(&set, Settle::For(TTL));
    let started = now();
    player("another", "a", TTL).takes(&other, 1).await;
    assert!(now() - started < ms(1_000));
    // One primary forgets, and only that one settles again.
    let a = player(&names[1], "a", TTL);
    let term = a.takes(&store, 2).await.term;
    let sent = now();
    set.servers[1].run(&["FLUSHALL"]);
    let b = player(&names[1], "bb", TTL);
    let sight = refused(b.acquire(&store, 1).await);
    assert!(sight.lease.is_none() && sight.settling.is_some(), "R2: {sight:?}");
    for name in [&names[0], &names[2]] {
        player(name, "a", TTL).takes(&store, 2).await;
    }
    let next = takes_in_time(&store, &b).await;
    assert!(next > term, "R1: {next} after {term}");
    assert!(now() - sent >= TTL, "R2: granted too early");
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_batch_is_spread_over_the_cluster_and_hints_come_from_everywhere() {
    let set = ClusterSet::start();
    let (store, other) = (open(&set, Settle::Off), open(&set, Settle::Off));
    let names = set.a_name_on_each();
    let mut hints = store.hints();
    let mut next = async || {
        let hint = tokio::time::timeout(ms(5_000), poll_fn(|cx| hints.poll_next(cx))).await;
        hint.expect("a hint").unwrap()
    };
    let players: Vec<Player> =
        (0..90).map(|number| player(&format!("jobs-{number}"), "a", TTL * 5)).collect();
    let ops: Vec<Op> = players.iter().map(|player| player.acquire_op(1, None)).collect();
    let replies = store.apply(&ops).await;
    assert!(replies.iter().all(|reply| matches!(reply, Reply::Granted(_))), "{replies:?}");
    assert_eq!(next().await, Hint::Any);
    for name in &names {
        let a = player(name, "a", TTL * 5);
        granted(a.release(&other, None, 1).await);
        assert_eq!(next().await, Hint::Election(a.election.clone()), "from its own primary");
    }
    // The channel is a sharded one.
    let channels = set.servers[0].run(&["PUBSUB", "SHARDCHANNELS"]);
    assert!(channels.starts_with("*1"), "{channels}");
}

/// A slot moves under a running leader: MOVED and ASK are followed, nothing is lost.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_lease_moves_with_its_slot() {
    let set = ClusterSet::start();
    let store = open(&set, Settle::Off);
    let name = set.a_name_on_each().swap_remove(0);
    let (a, b) = (player(&name, "a", ms(20_000)), player(&name, "bb", ms(20_000)));
    let term = a.takes(&store, 1).await.term;
    let (from, to) = (&set.servers[0], &set.servers[2]);
    let slot = from.run(&["CLUSTER", "KEYSLOT", &name]).trim_start_matches(':').to_owned();
    let ids = [from.run(&["CLUSTER", "MYID"]), to.run(&["CLUSTER", "MYID"])];
    assert_eq!(to.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]), "+OK");
    assert_eq!(from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]), "+OK");
    granted(a.renew(&store, term).await);
    let port = to.port.to_string();
    let companion = format!("{{{name}}}:tenure");
    // Half of it has moved: nobody can tell.
    assert_eq!(from.run(&["MIGRATE", "127.0.0.1", &port, &name, "0", "1000"]), "+OK");
    let error = unknown(a.renew(&store, term).await);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("slot"), "{error}");
    assert_eq!(from.run(&["MIGRATE", "127.0.0.1", &port, &companion, "0", "1000"]), "+OK");
    // ASK.
    assert_eq!(granted(a.renew(&store, term).await).term, term);
    for server in [to, from, &set.servers[1]] {
        assert_eq!(server.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "+OK");
    }
    // MOVED.
    assert_eq!(granted(a.renew(&store, term).await).term, term);
    let lease = refused(b.acquire(&store, 1).await).lease.unwrap();
    assert_eq!(lease.term, Some(term));
    granted(a.release(&store, Some(term), 1).await);
    assert!(b.takes(&store, 2).await.term > term, "I2");
}

/// The lowest slot of a primary moves away, and its marker with it: a new one is begun, and what
/// is in doubt settles.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_marker_that_moves_away_is_begun_anew() {
    let set = ClusterSet::start();
    let settle = ms(700);
    let store = open(&set, Settle::For(settle));
    let name = set.a_name_on_each().swap_remove(0);
    let a = player(&name, "a", settle);
    let term = takes_in_time(&store, &a).await;
    let (from, to) = (&set.servers[0], &set.servers[1]);
    let marker = from.run(&["EVAL", "return redis.call('KEYS', 'tenure:server:*')[1]", "0"]);
    assert_eq!(from.run(&["CLUSTER", "KEYSLOT", &marker]), ":0", "{marker}");
    let ids = [from.run(&["CLUSTER", "MYID"]), to.run(&["CLUSTER", "MYID"])];
    assert_eq!(to.run(&["CLUSTER", "SETSLOT", "0", "IMPORTING", &ids[0]]), "+OK");
    assert_eq!(from.run(&["CLUSTER", "SETSLOT", "0", "MIGRATING", &ids[1]]), "+OK");
    let port = to.port.to_string();
    assert_eq!(from.run(&["MIGRATE", "127.0.0.1", &port, &marker, "0", "1000"]), "+OK");
    for server in [to, from, &set.servers[2]] {
        assert_eq!(server.run(&["CLUSTER", "SETSLOT", "0", "NODE", &ids[1]]), "+OK");
    }
    granted(a.renew(&store, term).await);
    let sight = refused(player(&name, "bb", settle).acquire(&store, 1).await);
    assert!(sight.lease.is_some(), "held: {sight:?}");
    // On the same primary, and nobody holds it.
    let free = (0..).map(|number| format!("free-{number}")).find(|name| set.home_of(name) == 0);
    let free = player(&free.unwrap(), "bb", settle);
    let left = refused(free.acquire(&store, 1).await).settling.expect("R2: it settles");
    assert!(left > settle / 2 && left <= settle, "{left:?}");
    wait(left).await;
    takes_in_time(&store, &free).await;
    takes_in_time(&store, &player(&name, "a", settle)).await;
    let marker = from.run(&["EVAL", "return redis.call('KEYS', 'tenure:server:*')[1]", "0"]);
    assert_eq!(from.run(&["CLUSTER", "KEYSLOT", &marker]), ":1", "{marker}");
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_documented_privileges_are_enough_on_a_cluster() {
    let set = ClusterSet::start();
    let mut words = documented_acl("app:");
    let more = ["+cluster|slots", "+spublish", "+ssubscribe", "+sunsubscribe", "+asking", "+scan"];
    let readme = include_str!("../../README.md");
    assert!(more.iter().all(|word| readme.contains(word)), "the README has them all");
    words.extend(more.map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for server in &set.servers {
        assert_eq!(server.run(&words), "+OK");
    }
    let url = set.url().replace("://", &format!("://tenure:{PASSWORD}@"));
    let store = RedisConfig::from_url(&format!("{url}?prefix=app:&settle=1ms")).unwrap();
    let store = store.open().unwrap();
    store.check().await.unwrap();
    let mut hints = store.hints();
    let mut next = async || {
        let hint = tokio::time::timeout(ms(5_000), poll_fn(|cx| hints.poll_next(cx))).await;
        hint.expect("a hint").unwrap()
    };
    for name in set.a_name_on_each() {
        let a = player(&name, "a", ms(100));
        let term = takes_in_time(&store, &a).await;
        granted(a.renew(&store, term).await);
        if name == "jobs-0" {
            assert_eq!(next().await, Hint::Any);
        }
        assert_eq!(a.sight(&store).await.lease.and_then(|lease| lease.term), Some(term));
    }
    assert_eq!(store.elections().await.unwrap().len(), 3);
}

/// One primary dies under a running group.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_group_survives_the_failover_of_one_cluster_primary() {
    let mut set = ClusterSet::start();
    // Its replica takes over when the lease has run out, and not before (R2).
    for server in &set.servers {
        assert_eq!(server.run(&["CONFIG", "SET", "cluster-node-timeout", "3000"]), "+OK");
    }
    let name = set.a_name_on_each().swap_remove(1);
    let candidate = |label: &str| {
        let store = Arc::new(open(&set, Settle::For(SETTLE)));
        Election::builder(&name, store).label(label).ttl(TTL)
    };
    let a = candidate("a").start().await.unwrap();
    let reign = a.campaign().await.unwrap();
    let b = candidate("b").start().await.unwrap();
    let (term, cut) = (reign.term(), now());
    set.servers[1].kill();
    let elected = async {
        reign.ended().await;
        let lost = now();
        drop(reign);
        tokio::select! {
            next = a.campaign() => (lost, next.unwrap(), now()),
            next = b.campaign() => (lost, next.unwrap(), now()),
        }
    };
    let (lost, next, led) = tokio::time::timeout(TTL * 40, elected).await.expect("a leader");
    println!("failover: trust ended after {:?}, a leader after {:?}", lost - cut, led - cut);
    assert!(next.term() > term, "I2: {} after {term}", next.term());
    assert!(lost <= led && lost - cut <= TTL, "I1: two leaders");
    assert!(led - cut >= SETTLE, "R2: settling was skipped: {:?}", led - cut);
    set.servers[1].come_back();
    wait(TTL).await;
    assert!(next.is_current(), "the old primary comes back as a replica, and nobody minds");
}
