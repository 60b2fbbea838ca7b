//! The fence for elections by advisory locks, where `tenure migrate` has made its tables.

use std::time::Duration;

use tenure_core::{Metadata, Op, Reply, StoreExt, Term};
use tenure_postgres::AdvisoryConfig;

use crate::advisory_common::{Database, Player, advisory_url, store_at};
use crate::common::{self, Session, granted, name, now, real_wait, refused, unknown, until};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn fence(election: &str, term: Term) -> String {
    format!("SELECT tenure_fence('{election}', {term})")
}

async fn migrated(server: &str) -> Database {
    let database = Database::new(server).await;
    database.store().migrate().await.unwrap();
    database.session().await.run("CREATE TABLE work (term bigint)").await;
    database
}

async fn stale(session: &Session, election: &str, term: Term) -> String {
    let says = session.try_run(&fence(election, term)).await.unwrap_err();
    assert!(says.starts_with("TN001"), "{says}");
    says
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_fence_passes_the_latest_term_while_its_session_holds_the_lock() {
    let server = common::server();
    let database = migrated(&server).await;
    let (a, b) = (Player::new(&database.store(), "a"), Player::new(&database.store(), "b"));
    let user = database.session().await;
    let first = a.takes("42").await;
    user.run(&fence("42", first)).await;
    // Stale, and not yet issued.
    for other in [first.get() - 1, first.get() + 1] {
        stale(&user, "42", Term::new(other).unwrap()).await;
    }
    granted(a.release("42", first).await);
    assert!(stale(&user, "42", first).await.contains("does not hold the lock"));
    let second = b.takes("42").await;
    assert!(stale(&user, "42", first).await.contains("stale"));
    user.run(&fence("42", second)).await;
    // The session of the leader ends, and nobody knows it yet.
    let admin = database.session().await;
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_locks \
               WHERE locktype = 'advisory' AND objsubid = 1 AND objid = 42";
    assert_eq!(admin.number(end).await, 1);
    until("the fence refuses it", || async {
        user.try_run(&fence("42", second)).await.is_err_and(|says| says.starts_with("TN001"))
    })
    .await;
    // Nor does it pass because somebody else has the lock, who knows of no terms.
    assert!(admin.truth("SELECT pg_try_advisory_lock(42)").await);
    stale(&user, "42", second).await;
    assert!(user.try_run(&fence("nobody", second)).await.unwrap_err().contains("nobody ever led"));
}

/// Work of one term commits before the next one exists, or not at all.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_fenced_transaction_keeps_a_successor_out_at_every_isolation_level() {
    let server = common::server();
    let database = migrated(&server).await;
    let (one, two) = (database.store(), database.store());
    for level in LEVELS {
        let (a, b) = (Player::new(&one, "a"), Player::new(&two, "b"));
        let term = a.takes(level).await;
        let (user, late) = (database.session().await, database.session().await);
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM work");
        late.run(&begin).await;
        user.run(&format!("{begin}; {}; INSERT INTO work VALUES ({term})", fence(level, term)))
            .await;
        granted(a.renew(level, term).await);
        granted(a.release(level, term).await);
        let says = unknown(b.acquire(level).await);
        let pid = user.pid().await.to_string();
        assert!(says.contains("fenced transaction") && says.contains(&pid), "{level}: {says}");
        assert!(b.sees(level).await.lease.is_none(), "{level}: and nothing is held meanwhile");
        user.run("COMMIT").await;
        let next = b.takes(level).await;
        assert!(next > term);
        // A snapshot from before the change of hands does not help.
        let says = late.try_run(&fence(level, term)).await.unwrap_err();
        let serial = ["TN001", "40001"].iter().any(|code| says.starts_with(code));
        assert!(serial, "{level}: {says}");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_whoever_fences_a_term_long_over_is_ended() {
    let server = common::server();
    let database = migrated(&server).await;
    let a = Player::new(&database.store(), "a");
    let term = a.takes("e").await;
    let user = database.session().await;
    // Not idle: a statement runs, and no timeout of the server's ends it.
    let pid = user.pid().await;
    let work = format!("BEGIN; {}; SELECT pg_sleep(600)", fence("e", term));
    let running = tokio::runtime::Handle::current().spawn(async move { user.try_run(&work).await });
    until("it sleeps", || async {
        database.sessions(&format!("pid = {pid} AND wait_event = 'PgSleep'")).await == 1
    })
    .await;
    granted(a.release("e", term).await);
    let url = format!("{}?fence_grace=1s", advisory_url(&database.url));
    let b = Player::new(&AdvisoryConfig::from_url(&url).unwrap().open(), "b");
    until("its successor is granted", || async {
        matches!(b.acquire("e").await, Reply::Granted(_))
    })
    .await;
    assert!(running.await.unwrap().is_err(), "its work was undone");
}

/// Its grace counts from the end of its own term, not from that of an earlier one.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_whoever_fences_a_later_term_has_the_whole_grace() {
    let server = common::server();
    let database = migrated(&server).await;
    let grace = Duration::from_secs(2);
    let url = format!("{}?fence_grace=2s", advisory_url(&database.url));
    let b = Player::new(&AdvisoryConfig::from_url(&url).unwrap().open(), "b");
    // Once it sees the reign in between, and once it does not.
    for sees in [false, true] {
        let election = format!("seen {sees}");
        let (a, c) = (Player::new(&database.store(), "a"), Player::new(&database.store(), "c"));
        let term = a.takes(&election).await;
        let user = database.session().await;
        user.run(&format!("BEGIN; {}", fence(&election, term))).await;
        granted(a.release(&election, term).await);
        assert!(unknown(b.acquire(&election).await).contains("fenced"));
        let since = now();
        user.run("COMMIT").await;

        let term = c.takes(&election).await;
        user.run(&format!("BEGIN; {}", fence(&election, term))).await;
        if sees {
            refused(b.acquire(&election).await);
        }
        real_wait((since + grace) - now()).await;
        granted(c.release(&election, term).await);
        assert!(unknown(b.acquire(&election).await).contains("fenced"));
        user.run("INSERT INTO work VALUES (1); COMMIT").await;
        b.takes(&election).await;
    }
}

/// A session that falls silent in its fenced transaction is ended within a ttl.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_silent_fenced_transaction_is_ended_within_a_ttl() {
    let server = common::server();
    let database = migrated(&server).await;
    let ttl = Duration::from_millis(700);
    let a = Player::new(&database.store(), "a").with_ttl(ttl);
    let b = Player::new(&database.store(), "b").with_ttl(ttl);
    let term = a.takes("e").await;
    let user = database.session().await;
    user.run(&format!("BEGIN; {}; INSERT INTO work VALUES ({term})", fence("e", term))).await;
    until("its successor is granted", || async {
        matches!(b.acquire("e").await, Reply::Granted(_))
    })
    .await;
    assert!(user.try_run("COMMIT").await.is_err());
    assert_eq!(database.session().await.number("SELECT count(*) FROM work").await, 0);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_metadata_needs_the_table_and_says_so() {
    let server = common::server();
    let bare = Database::new(&server).await;
    let with_metadata = |player: &Player| match player.acquire_op("e") {
        Op::Acquire { election, candidate, seq, above, floor, ttl, .. } => {
            let metadata = Some(Metadata::new(r#"{"url":"http://10.0.0.7"}"#).unwrap());
            Op::Acquire { election, candidate, seq, above, floor, ttl, metadata }
        }
        other => other,
    };
    let a = Player::new(&bare.store(), "a");
    let says = unknown(a.store.apply_one(&with_metadata(&a)).await);
    assert!(says.contains("run `tenure migrate`"), "{says}");
    a.takes("e").await;

    let database = migrated(&server).await;
    let a = Player::new(&database.store(), &"long".repeat(40));
    let term = granted(a.store.apply_one(&with_metadata(&a)).await).term;
    let b = Player::new(&database.store(), "b");
    let lease = refused(b.acquire("e").await).lease.unwrap();
    assert!(lease.holder.is(&a.id), "in full: {lease:?}");
    assert_eq!(lease.term, Some(term));
    assert_eq!(lease.metadata.unwrap().as_str(), r#"{"url":"http://10.0.0.7"}"#);
    granted(a.release("e", term).await);
    let fresh = Player::new(&database.store(), "c").sees("e").await;
    assert_eq!((fresh.lease, fresh.last_term), (None, Some(term)), "the table remembers it");
    assert_eq!(database.store().elections().await.unwrap(), [name("e")]);
    let says = bare.store().elections().await.unwrap_err();
    assert!(says.message().contains("run `tenure migrate`"), "{says}");
}

/// A candidate that can't see fences does not campaign.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_candidate_that_can_not_use_the_tables_does_not_campaign() {
    let server = common::server();
    let database = migrated(&server).await;
    let admin = database.session().await;
    let role = format!("poor_{}", std::process::id());
    admin.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'")).await;
    let place = database.url.split('@').nth(1).unwrap();
    let poor = Player::new(&store_at(&format!("postgres://{role}:right@{place}")), "poor");
    let other = Player::new(&store_at(&format!("{}?schema=other", database.url)), "other");
    let a = Player::new(&database.store(), "a");
    let term = a.takes("e").await;
    let user = database.session().await;
    user.run(&format!("BEGIN; {}; INSERT INTO work VALUES ({term})", fence("e", term))).await;
    granted(a.release("e", term).await);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                AND mode = 'ExclusiveLock' \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    for _ in 0..2 {
        let says = unknown(poor.acquire("e").await);
        assert!(says.contains("may not use the tables") && says.contains("roles.sql"), "{says}");
        let says = unknown(other.acquire("e").await);
        assert!(says.contains("\"other\"") && says.contains("public has"), "{says}");
        assert_eq!(admin.number(held).await, 0, "nothing is held");
    }
    user.run("COMMIT").await;
    // With the rights, and with the right schema, they take part.
    let roles = include_str!("../../roles.sql").replace(":\"app\"", &role);
    let roles = roles.replace(":\"schema\"", "public").replace(":\"table\"", "leader_election");
    admin.run(&roles.replace(":\"released\"", "leader_election_released")).await;
    let next = poor.takes("e").await;
    assert!(next > term);
    user.run(&format!("BEGIN; {}; COMMIT", fence("e", next))).await;
}

/// Two schemas with tables of their own have the same locks: a fence in one counts in the other.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_fence_keeps_out_candidates_of_every_schema() {
    let server = common::server();
    let database = migrated(&server).await;
    let second = store_at(&format!("{}?schema=second&fence_grace=1s", database.url));
    second.migrate().await.unwrap();
    let (a, b) = (Player::new(&database.store(), "a"), Player::new(&second, "b"));
    let term = a.takes("e").await;
    let user = database.session().await;
    user.run(&format!("BEGIN; {}; INSERT INTO work VALUES ({term})", fence("e", term))).await;
    granted(a.release("e", term).await);
    let says = unknown(b.acquire("e").await);
    let pid = user.pid().await.to_string();
    assert!(says.contains("fenced transaction") && says.contains(&pid), "{says}");
    // Nor does it last for ever (P3).
    until("its successor is granted", || async {
        matches!(b.acquire("e").await, Reply::Granted(_))
    })
    .await;
    assert!(user.try_run("COMMIT").await.is_err());
    assert_eq!(database.session().await.number("SELECT count(*) FROM work").await, 0);
}

/// A session from before `tenure migrate` does not take over past a fence either.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_session_from_before_the_migration_sees_the_fence() {
    let server = common::server();
    let database = Database::new(&server).await;
    let b = Player::new(&database.store(), "b");
    let early = b.takes("e").await;
    granted(b.release("e", early).await);
    database.store().migrate().await.unwrap();
    let a = Player::new(&database.store(), "a");
    let term = a.takes("e").await;
    let user = database.session().await;
    user.run(&format!("BEGIN; {}", fence("e", term))).await;
    granted(a.release("e", term).await);
    for _ in 0..3 {
        assert!(!matches!(b.acquire("e").await, Reply::Granted(_)), "past a fence");
    }
    user.run("COMMIT").await;
    let next = b.takes("e").await;
    assert!(next > term);
    user.run(&format!("BEGIN; {}; COMMIT", fence("e", next))).await;
}
