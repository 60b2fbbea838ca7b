//! How long a server that may have forgotten a leader grants nothing new (R2), and when it need not
//! wait because nothing can have been forgotten (ADR 32).

use std::sync::Arc;
use std::time::Duration;

use tenure::Election;
use tenure_core::Reply;
use tenure_redis::{RedisConfig, RedisStore};
use tenure_testbed::proxy::Proxy;

use crate::clock::Stepped;
use crate::common::{Server, Stores as _, granted, ms, now, player, refused, wait};

/// How long to wait for what ought to happen soon.
const PATIENCE: Duration = Duration::from_secs(60);

/// A ttl that is over once a server is up for [`UP`] seconds, whatever the rounding.
const TTL: Duration = Duration::from_millis(2_000);
const UP: u64 = 4;

/// A store as it is without any options.
fn plain(server: &Server) -> RedisStore {
    server.config().open().unwrap()
}

/// Whether a candidate that asks for the first time is granted the lease at once.
async fn is_granted_at_once(store: &RedisStore) -> bool {
    match player("jobs", "a", TTL).acquire(store, 1).await {
        Reply::Granted(_) => true,
        Reply::Refused(sight) => {
            let left = sight.settling.expect("R2: nobody holds it");
            assert!(left <= TTL && left > TTL / 2, "{left:?}");
            false
        }
        other => panic!("{other:?}"),
    }
}

/// The default ttl on a server that has been up for a minute and that nobody has used yet.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_first_leader_on_a_fresh_server_waits_for_nothing() {
    let stepped = Stepped::start();
    stepped.step(60_000);
    stepped.server.until_up(60);
    let store = Arc::new(plain(&stepped.server));
    let started = now();
    let election = Election::builder("jobs", store).label("a").start().await.unwrap();
    let reign = tokio::time::timeout(PATIENCE, election.campaign()).await.expect("a leader");
    let took = now() - started;
    println!("the first leader on a server that was up for a minute: after {took:?}");
    assert!(reign.unwrap().is_current());
    assert!(took < ms(3_000), "{took:?}");
}

/// It restarts empty, and nobody says how long it settles: as long as the ttl of whoever asks.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_after_a_restart_without_data_nobody_waits_longer_than_a_ttl() {
    let ttl = Duration::from_secs(3);
    let mut server = Server::start();
    let candidate = |label: &str| {
        let store = Arc::new(plain(&server));
        Election::builder("jobs", store).label(label).ttl(ttl)
    };
    let a = candidate("a").start().await.unwrap();
    let reign = tokio::time::timeout(PATIENCE, a.campaign()).await.expect("a leader").unwrap();
    let b = candidate("b").start().await.unwrap();
    let term = reign.term();
    server.kill();
    let killed = now();
    server.come_back();
    let back = now();
    reign.ended().await;
    let ended = now();
    drop(reign);
    let next = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            next = a.campaign() => next.unwrap(),
            next = b.campaign() => next.unwrap(),
        }
    });
    let next = next.await.expect("somebody leads again");
    let led = now();
    println!("a restart without data at a ttl of 3 s: a leader after {:?}", led - back);
    assert!(next.term() > term, "I2");
    assert!(ended <= led && led - killed >= ttl, "R2: {:?}", led - killed);
    assert!(led - back < ttl + ms(3_000), "{:?}", led - back);
}

/// What a server does not show to be harmless is waited for, a ttl and no longer.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_server_that_may_have_forgotten_something_settles() {
    let debug = ["--enable-debug-command", "yes"];
    let cases: [(&str, &[&[&str]]); 12] = [
        ("nothing at all", &[]),
        (
            "reads and plain writes",
            &[&["SET", "x", "1"], &["DEL", "x"], &["CONFIG", "GET", "save"]],
        ),
        ("a script", &[&["EVAL", "return 1", "0"]]),
        (
            "a script, and its traces removed",
            &[&["EVAL", "return 1", "0"], &["CONFIG", "RESETSTAT"]],
        ),
        ("FLUSHALL", &[&["FLUSHALL"]]),
        ("FLUSHDB in a script", &[&["EVAL", "redis.call('FLUSHDB')", "0"], &["SCRIPT", "FLUSH"]]),
        ("FLUSHDB", &[&["FLUSHDB", "ASYNC"]]),
        ("SWAPDB", &[&["SWAPDB", "0", "1"]]),
        ("DEBUG RELOAD", &[&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]]),
        (
            "a replica that was promoted",
            &[&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]],
        ),
        ("a marker of another run", &[&["HSET", "tenure:server", "run", "0123", "from", "1000"]]),
        (
            "a key evicted",
            &[
                &["SET", "x", "1", "PX", "100000"],
                &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"],
                &["CONFIG", "SET", "maxmemory", "1"],
                &["SET", "y", "1"],
                &["CONFIG", "SET", "maxmemory", "0"],
            ],
        ),
    ];
    let servers: Vec<Server> = cases.iter().map(|_| Server::start_with(&debug)).collect();
    for (server, (case, commands)) in servers.iter().zip(&cases) {
        for command in *commands {
            let answer = server.run(command);
            let is_known = !answer.starts_with("-ERR unknown");
            assert!(is_known, "{case}: {command:?} was answered {answer}");
        }
    }
    let mut wrong = Vec::new();
    for (server, (case, _)) in servers.iter().zip(&cases) {
        server.until_up(UP);
        let harmless = ["nothing at all", "reads and plain writes"].contains(case);
        if is_granted_at_once(&plain(server)).await != harmless {
            wrong.push(*case);
        }
    }
    assert!(wrong.is_empty(), "R2: these were judged wrongly: {wrong:?}");
}

/// The wait is the asker's own: a server that nobody knows is not asked to wait for longer.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_settling_lasts_as_long_as_the_ttl_of_whoever_asks() {
    let server = Server::start();
    server.run(&["EVAL", "return 1", "0"]);
    let store = plain(&server);
    let (short, long) = (player("short", "a", ms(400)), player("long", "a", ms(8_000)));
    let left = refused(long.acquire(&store, 1).await).settling.expect("R2: it settles");
    assert!(left <= ms(8_000) && left > ms(4_000), "{left:?}");
    let taken = tokio::time::timeout(PATIENCE, async {
        for seq in 1.. {
            match short.acquire(&store, seq).await {
                Reply::Granted(_) => return,
                reply => assert!(refused(reply).settling.is_some_and(|left| left <= ms(400))),
            }
            wait(ms(20)).await;
        }
    });
    taken.await.expect("the short one is over soon");
    assert!(refused(long.acquire(&store, 2).await).settling.is_some(), "and the long one is not");
}

/// The address leads to another server, which has been up for long and was never a replica: a
/// standby, or the next pod of a rollout. It has forgotten nothing, and does not know who leads.
/// Those who knew the first server tell it.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_another_server_at_the_same_address_settles() {
    let (first, second) = (Server::start(), Server::start());
    let proxy = Proxy::start(first.port);
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    let open = || RedisConfig::from_url(&url).unwrap().open().unwrap();
    first.until_up(UP);
    let (leader, follower) = (open(), open());
    granted(player("jobs", "leader", TTL).acquire(&leader, 1).await);
    let rival = player("jobs", "bb", TTL);
    refused(rival.acquire(&follower, 1).await);
    second.until_up(UP);
    proxy.lead_to(second.port);
    drop(first);
    let mut left = None;
    for seq in 2..100 {
        // The old connection has to be found out.
        if let Reply::Refused(sight) = rival.acquire(&follower, seq).await {
            left = sight.settling;
            break;
        }
    }
    assert!(left.is_some_and(|left| left > TTL / 2), "R2: {left:?}");
}

/// The same, but a process that knows of no other server comes first.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_whoever_knew_another_server_starts_settling_over() {
    let (first, second) = (Server::start(), Server::start());
    let proxy = Proxy::start(first.port);
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    first.until_up(UP);
    let follower = RedisConfig::from_url(&url).unwrap().open().unwrap();
    granted(player("other", "bb", TTL).acquire(&follower, 1).await);
    second.until_up(UP);
    granted(player("free", "new", TTL).acquire(&plain(&second), 1).await);
    proxy.lead_to(second.port);
    drop(first);
    let rival = player("jobs", "bb", TTL);
    for seq in 1..100 {
        if let Reply::Refused(sight) = rival.acquire(&follower, seq).await {
            assert!(sight.settling.is_some_and(|left| left > TTL / 2), "R2: {sight:?}");
            // Once is enough: the next who knew the first server does not start it over.
            let from = second.run(&["HGET", "tenure:server", "from"]);
            let next = RedisConfig::from_url(&url).unwrap().open().unwrap();
            refused(player("jobs", "ccc", TTL).acquire(&next, 1).await);
            assert_eq!(second.run(&["HGET", "tenure:server", "from"]), from);
            return;
        }
    }
    panic!("it was never refused");
}
