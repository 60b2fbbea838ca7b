//! Servers and accounts that can't be used: each a sentence that says what to do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use tenure_core::{Channels as _, Error, ErrorKind, Post, Reply};
use tenure_redis::{RedisConfig, RedisStore, Settle};
use tracing_subscriber::fmt::MakeWriter;

use crate::common::fleet::{PASSWORD as SECRET, documented_acl};
use crate::common::{self, Server, Stores as _, granted, ms, player, unknown};

fn store(url: &str) -> RedisStore {
    RedisConfig::from_url(url).unwrap().with_settle(Settle::Off).open().unwrap()
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(words), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_wrong_password_is_told_without_it() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let url = |user: &str| format!("redis://{user}127.0.0.1:{}", server.port);
    let wrong = store(&url(&format!(":{SECRET}@"))).check().await.unwrap_err();
    says(&wrong, ErrorKind::Denied, "password");
    let unknown_user = store(&url(&format!("nobody:{SECRET}@"))).check().await.unwrap_err();
    says(&unknown_user, ErrorKind::Denied, "password");
    let none = store(&url("")).check().await.unwrap_err();
    says(&none, ErrorKind::Denied, "wants a password");
    store(&url(":right@")).check().await.unwrap();
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_password_that_nobody_wants_is_told() {
    let server = Server::start();
    let url = format!("redis://:{SECRET}@127.0.0.1:{}", server.port);
    let error = store(&url).check().await.unwrap_err();
    says(&error, ErrorKind::Denied, "password");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_missing_privilege_is_among_those_that_are_named() {
    let server = Server::start();
    let a = player("jobs", "a", ms(3_000));
    let rules = ["~*", "&*", "+@all"];
    for (user, denied, words) in [
        ("no-scripts", "-@scripting", "it lacks +eval;"),
        ("no-hashes", "-evalsha", "it lacks +evalsha;"),
        ("no-info", "-info", "needs: +evalsha +eval +info +time +get +set"),
        ("no-set", "-set", "needs: +evalsha +eval +info +time +get +set"),
        ("no-hmget", "-hmget", "+hget +hset +hmget +hdel"),
    ] {
        let mut command = vec!["ACL", "SETUSER", user, "on"];
        let password = format!(">{SECRET}");
        command.push(&password);
        command.extend(rules);
        command.push(denied);
        assert_eq!(server.run(&command), "+OK");
        let url = format!("redis://{user}:{SECRET}@127.0.0.1:{}/0", server.port);
        let settle = if user == "no-info" { "" } else { "?settle=off" };
        let store = RedisConfig::from_url(&format!("{url}{settle}")).unwrap().open().unwrap();
        let error = unknown(a.acquire(&store, 1).await);
        says(&error, ErrorKind::Denied, words);
    }
    let password = format!(">{SECRET}");
    let words = ["ACL", "SETUSER", "no-posts", "on", &password, "~*", "&*", "+@all", "-zadd"];
    assert_eq!(server.run(&words), "+OK");
    let post = |text: &str| text.to_owned();
    let posts = [Post { channel: post("c"), payload: post("1"), key: post("k") }];
    let store = store(&format!("redis://no-posts:{SECRET}@127.0.0.1:{}/0", server.port));
    let error = store.post(&a.election, &posts).await.unwrap_err();
    says(&error, ErrorKind::Denied, "+zadd +zrem");
    // A key is missing, and no command.
    let words = ["ACL", "SETUSER", "no-keys", "on", &password, "~x*", "&*", "+@all"];
    assert_eq!(server.run(&words), "+OK");
    let url = format!("redis://no-keys:{SECRET}@127.0.0.1:{}/0?settle=off", server.port);
    let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
    let error = unknown(a.acquire(&store, 1).await);
    says(&error, ErrorKind::Denied, "the keys of the elections");
    assert!(!error.message().contains("it lacks"), "{error}");
}

/// What the README says is enough, is enough; and without +info there is settle=off.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_the_documented_privileges_are_enough() {
    let server = Server::start();
    let words = documented_acl("app:");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(server.run(&words), "+OK");
    for (info, path) in
        [("+info", "0?settle=1ms"), ("-info", "0?settle=off"), ("+info", "1?settle=1ms")]
    {
        assert_eq!(server.run(&["ACL", "SETUSER", "tenure", info]), "+OK");
        let url = format!("redis://tenure:{SECRET}@127.0.0.1:{}/{path}&prefix=app:", server.port);
        let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
        store.check().await.unwrap();
        let a = player("jobs", "a", ms(50));
        common::wait(ms(60)).await;
        let seq = if info == "+info" { 1 } else { 2 };
        let term = granted(a.acquire(&store, seq).await).term;
        granted(a.renew(&store, term).await);
        a.sight(&store).await;
        granted(a.release(&store, Some(term), seq).await);
        let mut hints = tenure_core::Store::hints(&store);
        let hint = std::future::poll_fn(|cx| hints.poll_next(cx));
        tokio::time::timeout(ms(3_000), hint).await.expect("it may subscribe");
    }
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_what_is_not_a_redis_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 512]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = store(&format!("redis://127.0.0.1:{port}")).check().await.unwrap_err();
    says(&error, ErrorKind::Config, "is not a Redis server");
    server.join().unwrap();
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_key_of_another_type_is_left_alone() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("queue", "a", ms(3_000)));
    server.run(&["RPUSH", "queue", "precious"]);
    let error = unknown(a.acquire(&store, 1).await);
    says(&error, ErrorKind::Config, "another program's data");
    assert_eq!(server.run(&["LINDEX", "queue", "0"]), "precious");
    granted(player("other", "a", ms(3_000)).acquire(&store, 1).await);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_read_only_replica_is_told() {
    let primary = Server::start();
    let port = primary.port.to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let error = unknown(player("jobs", "a", ms(3_000)).acquire(&replica.settled(), 1).await);
    says(&error, ErrorKind::Unavailable, "replica");
    // Also where nothing is to be written yet.
    let error = replica.settled().check().await.unwrap_err();
    says(&error, ErrorKind::Unavailable, "connect to the primary");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_cluster_behind_a_single_address_is_told() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    let error = server.settled().check().await.unwrap_err();
    says(&error, ErrorKind::Unsupported, "Cluster");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_database_that_is_not_there_is_told() {
    let server = Server::start_with(&["--databases", "2"]);
    let error = store(&format!("redis://127.0.0.1:{}/7", server.port)).check().await.unwrap_err();
    says(&error, ErrorKind::Config, "database");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_full_server_renews_and_grants_nothing() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(3_000)));
    let term = granted(a.acquire(&store, 1).await).term;
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    granted(a.renew(&store, term).await);
    let error = unknown(player("other", "a", ms(3_000)).acquire(&store, 1).await);
    says(&error, ErrorKind::Unavailable, "maxmemory");
    granted(a.release(&store, Some(term), 1).await);
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(a.sight(&store).await.lease.is_none());
}

/// The server came back with its data and is full at once: the leader renews all the same.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_full_server_renews_after_a_restart() {
    let mut server = Server::start();
    let store = server.store(Settle::For(ms(50)));
    let a = player("jobs", "a", ms(20_000));
    // With a longer ttl it would settle as long.
    let first = player("jobs", "a", ms(50));
    let term = loop {
        if let Reply::Granted(grant) = first.acquire(&store, 1).await {
            break grant.term;
        }
        common::wait(ms(10)).await;
    };
    granted(a.renew(&store, term).await);
    server.run(&["SAVE"]);
    server.restart();
    assert_eq!(server.run(&["CONFIG", "SET", "maxmemory", "1"]), "+OK");
    let _cut = a.renew(&store, term).await;
    granted(a.renew(&store, term).await);
    let fresh = server.store(Settle::For(ms(50)));
    granted(a.renew(&fresh, term).await);
    let error = unknown(player("other", "a", ms(50)).acquire(&fresh, 1).await);
    says(&error, ErrorKind::Unavailable, "maxmemory");
}

/// A server that lost all data can't know that somebody has a longer ttl than it settles.
#[tokio::test]
async fn a_ttl_above_the_settling_time_is_warned_about_once() {
    for (ttl, warnings) in [(30_000, 0), (30_001, 1)] {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let url = format!("redis://127.0.0.1:{}/0?settle=30s", common::free_port());
        let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
        for seq in 1..3 {
            unknown(player("jobs", "a", ms(ttl)).acquire(&store, seq).await);
        }
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("with the largest ttl").count(), warnings, "{text}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_server_that_may_evict_a_lease_is_warned_about() {
    for (policy, warns) in [("allkeys-lru", true), ("volatile-ttl", true), ("noeviction", false)] {
        let settings = ["--maxmemory", "100mb", "--maxmemory-policy", policy];
        let server = Server::start_with(&settings);
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        server.settled().check().await.unwrap();
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.contains("may evict a lease"), warns, "{policy}: {text}");
    }
}

/// Without pub/sub everything works, slower; and both halves are said once.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_an_acl_without_pub_sub_is_told_and_works() {
    let server = Server::start();
    let password = format!(">{SECRET}");
    let words = ["ACL", "SETUSER", "mute", "on", &password, "~*", "resetchannels", "+@all"];
    assert_eq!(server.run(&words), "+OK");
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let url = format!("redis://mute:{SECRET}@127.0.0.1:{}/0", server.port);
    let (store, a) = (store(&url), player("jobs", "a", ms(3_000)));
    let term = granted(a.acquire(&store, 1).await).term;
    let mut hints = tenure_core::Store::hints(&store);
    let hint = tokio::time::timeout(ms(300), std::future::poll_fn(|cx| hints.poll_next(cx)));
    assert!(hint.await.is_err(), "it may not subscribe");
    granted(a.release(&store, Some(term), 1).await);
    granted(a.acquire(&store, 2).await);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("no hints for now").count(), 1, "{text}");
    assert!(text.contains("+subscribe") && text.contains("grant +publish"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
}
