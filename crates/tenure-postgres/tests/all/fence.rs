//! The fence on a real server: work of an old term commits before the new one, or not at all.

use std::time::Duration;

use tenure_postgres::fence::{self as store_fence, FenceError};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::common::frozen::{self, Came, LEVELS, SHORT, fence, next_term};
use crate::common::{
    self, Place, Player, Session, granted, name, now, real_wait, term, unknown, until,
};

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_no_write_of_an_old_term_follows_one_of_the_new() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (mut finished, mut undone) = (0, 0);
    for came in frozen::rounds(&place, 200).await {
        match came {
            Came::InTime => finished += 1,
            Came::Undone => undone += 1,
            Came::Stale(says) => panic!("{says}"),
        }
    }
    println!("old terms: {finished} committed in time, {undone} were undone");
    assert!(finished >= 20 && undone >= 20, "both must be seen: {finished} and {undone}");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_takeover_is_refused_under_a_fence_and_never_waits() {
    let server = common::server();
    for level in LEVELS {
        let place = Place::new(&server).await;
        let store = place.config().with_fence_grace(Duration::from_secs(2)).open();
        let old = Player::new(&store, "old", 1).with_ttl(SHORT);
        let new = Player::new(&store, "new", 2);
        let session = place.session().await;
        let pid = session.pid().await;
        session.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        let term = old.takes("e", 1).await;
        session.run(&fence("e", term)).await;
        // It is not idle, so no timeout of the server's ends it.
        let stuck =
            Handle::current().spawn(async move { session.try_run("SELECT pg_sleep(60)").await });
        real_wait(SHORT + Duration::from_millis(100)).await;
        let asked = now();
        let says = unknown(new.acquire("e", 1).await);
        assert!((now() - asked) < Duration::from_secs(1), "it waited for {:?}", (now() - asked));
        assert!(says.contains(&format!("backend {pid}")) && says.contains("fenced"), "{says}");
        let foreign = place.session().await;
        assert!(!foreign.truth("SELECT try_become_leader('e', 'foreign')").await);
        // After the grace its backend is ended, and the successor leads (P3).
        let next = timeout(common::PATIENCE, next_term(&new, "e")).await.unwrap();
        assert!(next > term);
        let ended = stuck.await.unwrap().unwrap_err();
        assert!(ended.contains("57P01") || ended.contains("closed"), "{ended}");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_long_fenced_transaction_holds_up_no_renewal() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let leader = Player::new(&store, "leader", 1);
    let term = leader.takes("e", 1).await;
    let session = place.session().await;
    session.run("BEGIN").await;
    session.run(&fence("e", term)).await;
    for _ in 0..50 {
        granted(leader.renew("e", term).await);
    }
    // Asking again heals, and a second fence of the same term passes.
    assert_eq!(leader.takes("e", 2).await, term);
    let second = place.session().await;
    second.run("BEGIN").await;
    second.run(&fence("e", term)).await;
    second.run("COMMIT").await;
    // The lease can be given up, but not taken before the work is over.
    granted(leader.release("e", term, 2).await);
    let next = Player::new(&store, "next", 2);
    unknown(next.acquire("e", 1).await);
    // At first it might be another candidate; then it is told what it is.
    until("it is told", || async { unknown(next.acquire("e", 1).await).contains("fenced") }).await;
    session.run("COMMIT").await;
    assert!(next.takes("e", 2).await > term);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_session_that_falls_silent_is_ended_with_its_lease() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let old = Player::new(&store, "old", 1).with_ttl(SHORT);
    let term = old.takes("e", 1).await;
    let session = place.session().await;
    session.run("BEGIN").await;
    session.run(&fence("e", term)).await;
    let new = Player::new(&store, "new", 2);
    // Long before a successor would end it: the server did.
    assert!(timeout(Duration::from_secs(5), next_term(&new, "e")).await.unwrap() > term);
    assert!(session.try_run("COMMIT").await.is_err());
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_shorter_idle_timeout_of_the_users_is_kept() {
    let server = common::server();
    let place = Place::new(&server).await;
    let term = Player::new(&place.store(), "a", 1).takes("e", 1).await;
    let session = place.session().await;
    let idle = "SELECT setting::bigint FROM pg_settings \
                WHERE name = 'idle_in_transaction_session_timeout'";
    for (before, least, most) in [(7_000, 7_000, 7_000), (90_000, 1, 30_000), (0, 1, 30_000)] {
        session.run(&format!("SET idle_in_transaction_session_timeout = {before}")).await;
        session.run("BEGIN").await;
        session.run(&fence("e", term)).await;
        let within = session.number(idle).await;
        assert!((least..=most).contains(&within), "{before} became {within}");
        session.run("COMMIT").await;
        assert_eq!(session.number(idle).await, before, "it is back after the transaction");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_fence_refuses_what_is_over() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let a = Player::new(&store, "a", 1);
    let session = place.session().await;
    let says = |sql: String| {
        let session = &session;
        async move { session.try_run(&sql).await.unwrap_err() }
    };
    assert!(says(fence("e", term(1))).await.contains("TN001: nobody ever led e"));
    let first = a.takes("e", 1).await;
    session.run(&fence("e", first)).await;
    granted(a.release("e", first, 1).await);
    assert!(
        says(fence("e", first)).await.contains("TN001: term 1 of e is over: the lease was given")
    );
    let second = a.clone().with_ttl(Duration::from_millis(100)).takes("e", 2).await;
    assert!(says(fence("e", first)).await.contains("TN001: term 1 of e is stale, the latest is 2"));
    real_wait(Duration::from_millis(150)).await;
    assert!(says(fence("e", second)).await.contains("ran out"));
    assert!(says("SELECT tenure_fence('e', NULL)".to_owned()).await.contains("TN001"));
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_guard_catches_a_fence_that_does_not_hold() {
    let server = common::server();
    let place = Place::new(&server).await;
    let term = Player::new(&place.store(), "a", 1).takes("it's", 1).await;
    let session = place.session().await;
    session
        .run(
            "CREATE TABLE invoice (id integer); \
             CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE ON invoice \
             FOR EACH ROW EXECUTE FUNCTION tenure_guard('it''s')",
        )
        .await;
    let (fence, write) = (fence("it''s", term), "INSERT INTO invoice VALUES (1)");
    let refused = |said: Result<(), String>| assert!(said.unwrap_err().starts_with("TN001"));
    // Forgotten; in autocommit; before a savepoint that was rolled back to (P4).
    refused(session.try_run(write).await);
    session.run(&fence).await;
    refused(session.try_run(write).await);
    session.run("BEGIN; SAVEPOINT s").await;
    session.run(&fence).await;
    session.run("ROLLBACK TO SAVEPOINT s").await;
    refused(session.try_run(write).await);
    session.run("ROLLBACK").await;
    session.run(&format!("BEGIN; {fence}; {write}; UPDATE invoice SET id = 2; COMMIT")).await;
    session.run(&format!("BEGIN; {fence}; DELETE FROM invoice; COMMIT")).await;
    assert_eq!(session.number("SELECT count(*) FROM invoice").await, 0);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_helper_fences_a_transaction_of_the_users() {
    let server = common::server();
    let place = Place::new(&server).await;
    let a = Player::new(&place.store(), "a", 1);
    let first = a.takes("e", 1).await;
    let Session { mut client } = place.session().await;
    let tx = client.transaction().await.unwrap();
    store_fence::check(&tx, &place.schema, &name("e"), first).await.unwrap();
    tx.commit().await.unwrap();
    granted(a.release("e", first, 1).await);
    a.takes("e", 2).await;
    let tx = client.transaction().await.unwrap();
    let error = store_fence::check(&tx, &place.schema, &name("e"), first).await.unwrap_err();
    assert!(matches!(error, FenceError::Stale(_)), "{error}");
    drop(tx);
    // It was rolled back: the connection is of use again.
    client.batch_execute("CREATE TEMPORARY TABLE later (id integer)").await.unwrap();
}
