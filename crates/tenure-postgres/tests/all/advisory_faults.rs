//! Groups that elect by locks, on a server that is frozen, full, or one of whose processes crashes.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Store, StoreExt};
use tenure_postgres::{AdvisoryConfig, AdvisoryStore};
use tenure_testbed::postgres::OwnServer;
use tokio::runtime::Handle;

use crate::advisory_common::advisory_url;
use crate::common::group::Group;
use crate::common::{PATIENCE, Session, name, now, real_wait, until};

const TTL: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);

fn open(url: &str) -> AdvisoryStore {
    AdvisoryConfig::from_url(&advisory_url(url)).unwrap().open()
}

async fn group(url: &str, size: usize) -> Group {
    let stores = (0..size).map(|_| Arc::new(open(url)) as Arc<dyn Store>).collect();
    Group::start(stores, TTL).await
}

async fn started(settings: &[&str]) -> OwnServer {
    let mut server = OwnServer::new(settings);
    server.start();
    let store = open(&server.url("postgres"));
    until("the server is up", || async { store.check().await.is_ok() }).await;
    server
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_frozen_server_leaves_nobody_leading_by_a_lock_and_then_one() {
    let server = started(&[]).await;
    let group = group(&server.url("postgres"), 3).await;
    let first = group.leads_within(PATIENCE).await;
    server.freeze();
    let frozen = now();
    while (now() - frozen) < TTL * 2 {
        let (waited, leading) = ((now() - frozen), group.leading());
        assert!(waited < TTL || leading == 0, "{leading} lead {waited:?} after the freeze");
        real_wait(Duration::from_millis(5)).await;
    }
    server.thaw();
    let thawed = now();
    let next = group.leader_above(first.term.get(), PATIENCE).await;
    println!("{:?} after the thaw term {} led", (now() - thawed), next.term);
    assert!((now() - thawed) < TTL + SECOND * 2, "{:?}", (now() - thawed));
    real_wait(SECOND).await;
    group.leads_within(PATIENCE).await;
    assert_eq!(group.leading(), 1);
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_without_a_connection_left_keeps_its_leader_by_a_lock() {
    let settings = ["max_connections=12", "superuser_reserved_connections=2"];
    let server = started(&settings).await;
    let admin = Session::open(&server.url("postgres")).await;
    admin.run("CREATE ROLE app LOGIN").await;
    let url = server.url("app");
    let leaders = group(&url, 1).await;
    let first = leaders.leads_within(PATIENCE).await;
    let listens = "SELECT EXISTS (SELECT FROM pg_stat_activity \
                   WHERE query ~ '^(LISTEN|SELECT pg_catalog.set_config)')";
    until("it listens", || async { admin.truth(listens).await }).await;
    let mut taken = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
    {
        taken.push((client, Handle::current().spawn(connection)));
    }
    // A newcomer starts, says why it can't, and goes on trying. Who leads goes on leading.
    let error = open(&url).read(&name("e")).await.unwrap_err();
    assert!(error.is_retryable() && error.message().contains("max_connections"), "{error}");
    let others = group(&url, 1).await;
    real_wait(TTL).await;
    assert_eq!((leaders.leading(), others.leading()), (1, 0));
    leaders.members[0].election.stop().await.unwrap();
    drop(taken);
    others.leader_above(first.term.get(), PATIENCE).await;
    others.finish().await;
}

/// A4: all locks are free at once, and the postmaster has not been started anew.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_crashed_process_of_the_server_ends_a_reign_and_no_term_comes_again() {
    let server = started(&[]).await;
    let url = server.url("postgres");
    let group = group(&url, 3).await;
    let mut last = group.leads_within(PATIENCE).await;
    let up_since = "SELECT extract(epoch FROM pg_postmaster_start_time())::bigint";
    let before = Session::open(&url).await.number(up_since).await;
    for _ in 0..3 {
        // Somebody else's session.
        let session = Session::open(&url).await;
        server.crash_session(session.pid().await);
        let crashed = now();
        // The watcher of the group sees it if two trust themselves at once for long.
        let next = group.leader_above(last.term.get(), PATIENCE).await;
        println!("{:?} after the crash term {} led", next.at - crashed, next.term);
        real_wait(SECOND).await;
        last = group.leads_within(PATIENCE).await;
        assert_eq!(group.leading(), 1);
    }
    assert_eq!(Session::open(&url).await.number(up_since).await, before, "the same postmaster");
    group.finish().await;
}
