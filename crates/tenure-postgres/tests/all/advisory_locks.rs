//! What is locked, by whom and how: numbers, terms, sessions, and clients of another kind.

use std::time::Duration;

use tenure_core::{ErrorKind, Hint, Hints, Op, Reply, Store, StoreExt, Term};
use tenure_postgres::AdvisoryConfig;
use tenure_testbed::postgres::{OwnServer, Pooler};

use crate::advisory_common::{Database, Player, advisory_url, store_at};
use crate::common::{self, granted, name, now, real_wait, refused, unknown, until};

/// Locks of elections: the numbers of 64 bits.
const LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                     AND database = \
                     (SELECT oid FROM pg_database WHERE datname = current_database())";

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_numeric_name_is_the_lock_of_plain_clients() {
    let server = common::server();
    let database = Database::new(&server).await;
    let a = Player::new(&database.store(), "a").with_ttl(Duration::from_secs(3));
    let plain = database.session().await;
    plain.run("SET application_name = 'plain client'").await;
    for number in ["42", "-7", "9223372036854775807"] {
        assert!(plain.truth(&format!("SELECT pg_try_advisory_lock({number})")).await);
        let sight = refused(a.acquire(number).await);
        let lease = sight.lease.unwrap();
        assert_eq!(lease.holder.as_str(), "plain client");
        assert_eq!((lease.term, lease.ttl), (None, None), "it knows of neither");
        // How the machine learns to poll: as often as a leader would renew.
        assert_eq!(lease.remaining, Duration::from_secs(1));
        let ask = Op::Ask { election: name(number), term: None };
        let says = unknown(a.store.apply_one(&ask).await);
        assert!(says.contains("can't be asked"), "{says}");
        assert!(plain.truth(&format!("SELECT pg_advisory_unlock({number})")).await);
        let term = a.takes(number).await;
        assert!(!plain.truth(&format!("SELECT pg_try_advisory_lock({number})")).await);
        granted(a.release(number, term).await);
        assert!(plain.truth(&format!("SELECT pg_try_advisory_lock({number})")).await);
    }
    // Not canonical: no number, so nobody's lock.
    for name in ["042", "+42", " 42"] {
        a.takes(name).await;
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_foreign_holder_is_polled_for() {
    let server = common::server();
    let database = Database::new(&server).await;
    let plain = database.session().await;
    assert!(plain.truth("SELECT pg_try_advisory_lock(5)").await);
    let store = std::sync::Arc::new(database.store());
    let election =
        tenure::Election::builder("5", store).ttl(Duration::from_secs(3)).build().unwrap();
    election.start().await.unwrap();
    // Until then it looks again by itself, because it may have missed something.
    let listens = "query ~ '^(LISTEN|SELECT pg_catalog.set_config)'";
    until("it listens", || async { database.sessions(listens).await == 1 }).await;
    real_wait(Duration::from_millis(300)).await;
    assert!(!election.is_leader());
    drop(plain);
    let started = now();
    let reign = tokio::time::timeout(common::PATIENCE, election.campaign()).await.unwrap().unwrap();
    let after = now() - started;
    println!("a foreign holder was succeeded after {after:?}");
    assert!(after < Duration::from_millis(2_500), "not polled for: {after:?}");
    drop(reign);
    election.stop().await.unwrap();
}

/// A3: locks re-enter, so the holder of one must not try for it again.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_locks_never_nest() {
    let server = common::server();
    let database = Database::new(&server).await;
    let (store, plain) = (database.store(), database.session().await);
    let (a, b) = (Player::new(&store, "a"), Player::new(&store, "b"));
    let term = a.takes("e").await;
    for _ in 0..3 {
        assert_eq!(a.takes("e").await, term, "healed, with the same term");
        let lease = refused(b.acquire("e").await).lease.unwrap();
        assert!(lease.holder.is(&a.id), "two candidates of one process would both win");
    }
    // Many at once, and calls that nobody waits for.
    for _ in 0..20 {
        let ops = [a.acquire_op("e")];
        let call = a.store.apply(&ops);
        let _ = tokio::time::timeout(Duration::from_micros(50), call).await;
    }
    assert_eq!(a.takes("e").await, term);
    granted(a.release("e", term).await);
    assert_eq!(plain.number(LOCKS).await, 0, "one unlock frees it");
}

/// A2: a frozen client is found idle, because nothing is ever left open on its session.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_session_with_locks_is_idle_and_listens_to_nothing() {
    let server = common::server();
    let database = Database::new(&server).await;
    let store = database.store();
    let a = Player::new(&store, "a");
    let _hints = store.hints();
    let term = a.takes("e").await;
    granted(a.renew("e", term).await);
    let asked = store.ask(&name("e"), None).await.unwrap();
    assert_eq!(asked.unwrap(), term);
    assert!(granted(a.renew("e", term).await).asked);
    let held = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1)";
    assert_eq!(database.sessions(&format!("{held} AND state = 'idle'")).await, 1);
    assert_eq!(database.sessions(&format!("{held} AND xact_start IS NOT NULL")).await, 0);
    assert_eq!(database.sessions(&format!("{held} AND query LIKE 'LISTEN%'")).await, 0);
    assert_eq!(database.sessions("state LIKE 'idle in transaction%'").await, 0);
}

/// A wait has a snapshot, and VACUUM keeps all that it could see.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_followers_hold_no_snapshot_for_the_length_of_a_reign() {
    let server = common::server();
    let database = Database::new(&server).await;
    let a = Player::new(&database.store(), "a").with_ttl(Duration::from_secs(600));
    let config = AdvisoryConfig::from_url(&advisory_url(&database.url)).unwrap();
    let store = config.with_wait_limit(Duration::from_millis(100)).open();
    let (mut hints, b) = (store.hints(), Player::new(&store, "b"));
    let term = a.takes("e").await;
    refused(b.acquire("e").await);
    let session = database.session().await;
    let oldest = async || {
        session.run("SELECT pg_current_xact_id()").await;
        let sql = "SELECT coalesce(max(backend_xmin::text::bigint), 0) FROM pg_stat_activity \
                   WHERE datname = current_database() AND query LIKE '%xact_lock_shared%' \
                   AND state = 'active' AND pid <> pg_backend_pid()";
        session.number(sql).await
    };
    until("it waits for the holder", || async { oldest().await > 0 }).await;
    let first = oldest().await;
    until("its snapshot is a later one", || async { oldest().await > first + 2 }).await;
    // And however often it waits again, it learns at once that the session has ended.
    let heard = async |hints: &mut dyn Hints| {
        let hint = std::future::poll_fn(|cx| hints.poll_next(cx));
        tokio::time::timeout(common::PATIENCE, hint).await.unwrap().unwrap()
    };
    assert_eq!(heard(&mut *hints).await, Hint::Any);
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_locks \
               WHERE locktype = 'advisory' AND objsubid = 1 AND database = \
               (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(session.number(end).await, 1);
    assert_eq!(heard(&mut *hints).await, Hint::Election(name("e")));
    assert!(b.takes("e").await > term);
}

/// A5: who holds it is known by 63 plain bytes, whatever the label.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_holder_is_known_by_its_incarnation_to_everybody() {
    let server = common::server();
    let database = Database::new(&server).await;
    let (here, elsewhere) = (database.store(), database.store());
    let watcher = Player::new(&elsewhere, "watcher");
    for label in ["web-1:4711", "Büro 日本", &"x".repeat(200), "it's \"odd\"; --"] {
        let a = Player::new(&here, label);
        let term = a.takes(label).await;
        let lease = watcher.sees(label).await.lease.unwrap();
        assert!(lease.holder.as_str().ends_with(a.id.incarnation()), "{lease:?}");
        assert!(lease.holder.as_str().is_ascii() && lease.holder.as_str().len() <= 63);
        assert_eq!((lease.term, lease.ttl), (Some(term), Some(a.ttl)));
        let own = a.sees(label).await.lease.unwrap();
        assert!(own.holder.is(&a.id), "known in full where it is one of our own: {own:?}");
        let plain = lease.holder.is(&a.id);
        assert_eq!(plain, label.is_ascii() && label.len() <= 30, "{lease:?}");
    }
}

/// A1: all locks first, then one transaction for all of them; each election's terms rise.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_batch_of_elections_gets_terms_that_rise_for_each() {
    let server = common::server();
    let database = Database::new(&server).await;
    let (one, two) = (Player::new(&database.store(), "a"), Player::new(&database.store(), "b"));
    let names: Vec<String> = (0..200).map(|n| format!("e{n}")).collect();
    let mut last: Vec<u64> = vec![0; names.len()];
    for round in 0..6 {
        let player = if round % 2 == 0 { &one } else { &two };
        let acquires: Vec<Op> = names.iter().map(|name| player.acquire_op(name)).collect();
        let terms: Vec<Term> = player
            .store
            .apply(&acquires)
            .await
            .into_iter()
            .map(|reply| granted(reply).term)
            .collect();
        for (last, term) in last.iter_mut().zip(&terms) {
            assert!(term.get() > *last, "I2: {term} after {last}");
            *last = term.get();
        }
        for (name, term) in names.iter().zip(terms) {
            granted(player.release(name, term).await);
        }
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_floor_above_the_transactions_needs_an_offset() {
    let server = common::server();
    let database = Database::new(&server).await;
    let floor = Term::new(5_000_000_000).unwrap();
    let with_floor = |player: &Player| match player.acquire_op("e") {
        Op::Acquire { election, candidate, seq, above, ttl, metadata, .. } => {
            Op::Acquire { election, candidate, seq, above, floor: Some(floor), ttl, metadata }
        }
        other => other,
    };
    let a = Player::new(&database.store(), "a");
    let says = unknown(a.store.apply_one(&with_floor(&a)).await);
    assert!(says.contains("term_offset") && says.contains("5000000000"), "{says}");
    assert_eq!(database.session().await.number(LOCKS).await, 0, "and nothing is held");
    let b = Player::new(&store_at(&format!("{}?term_offset=5000000000", database.url)), "b");
    let term = granted(b.store.apply_one(&with_floor(&b)).await).term;
    assert!(term > floor);
    // Beyond 32 bits, it is still read back from the locks.
    let other = store_at(&format!("{}?term_offset=5000000000", database.url));
    let lease = other.read(&name("e")).await.unwrap().lease.unwrap();
    assert_eq!(lease.term, Some(term));
}

/// One session for all of them, and what is not renewed ends alone.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_lease_that_is_not_renewed_ends_while_its_session_lives_on() {
    let server = common::server();
    let database = Database::new(&server).await;
    let ttl = Duration::from_millis(1_500);
    let a = Player::new(&database.store(), "a").with_ttl(ttl);
    let b = Player::new(&database.store(), "b").with_ttl(ttl);
    let (kept, stuck) = (a.takes("kept").await, a.takes("stuck").await);
    let started = now();
    loop {
        granted(a.renew("kept", kept).await);
        if let Reply::Granted(grant) = b.acquire("stuck").await {
            assert!((now() - started) >= ttl - ttl / 50, "after {:?}", (now() - started));
            assert!(grant.term > stuck);
            break;
        }
        assert!((now() - started) < common::PATIENCE, "it is never freed");
        real_wait(Duration::from_millis(20)).await;
    }
    granted(a.renew("kept", kept).await);
    refused(a.renew("stuck", stuck).await);
    let holders = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1)";
    assert_eq!(database.sessions(holders).await, 2, "one for each candidate");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_thousands_of_elections_take_one_session() {
    let server = common::server();
    let database = Database::new(&server).await;
    let store = database.store();
    let _hints = store.hints();
    let a = Player::new(&store, "a");
    let names: Vec<String> = (0..3_000).map(|n| format!("e{n}")).collect();
    let acquires: Vec<Op> = names.iter().map(|name| a.acquire_op(name)).collect();
    let started = now();
    let terms: Vec<Term> =
        store.apply(&acquires).await.into_iter().map(|reply| granted(reply).term).collect();
    println!("3,000 were acquired in {:?}", (now() - started));
    let renewals: Vec<Op> =
        names.iter().zip(&terms).map(|(name, term)| a.renew_op(name, *term)).collect();
    let started = now();
    for reply in store.apply(&renewals).await {
        granted(reply);
    }
    println!("3,000 were renewed in {:?}", (now() - started));
    // A follower of all of them is answered in one statement, too.
    let b = Player::new(&database.store(), "b");
    let tries: Vec<Op> = names.iter().map(|name| b.acquire_op(name)).collect();
    let started = now();
    for (reply, term) in b.store.apply(&tries).await.into_iter().zip(&terms) {
        assert_eq!(refused(reply).lease.unwrap().term, Some(*term));
    }
    println!("3,000 were refused in {:?}", (now() - started));
    drop(b);
    until("others are gone", || async { database.sessions("true").await <= 3 }).await;
    assert_eq!(database.session().await.number(LOCKS).await, 3_000);
}

/// Locks outlive the statement that failed: none may be left behind.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_without_room_for_locks_says_so_and_nothing_is_left_behind() {
    let settings = ["max_locks_per_transaction=10", "max_connections=20"];
    let mut server = OwnServer::new(&settings);
    server.start();
    let url = server.url("postgres");
    let store = store_at(&url);
    until("the server is up", || async { store.check().await.is_ok() }).await;
    let a = Player::new(&store, "a");
    let term = a.takes("kept").await;
    let names: Vec<String> = (0..9_000).map(|n| format!("e{n}")).collect();
    let acquires: Vec<Op> = names.iter().map(|name| a.acquire_op(name)).collect();
    for reply in store.apply(&acquires).await {
        let says = unknown(reply);
        assert!(says.contains("max_locks_per_transaction"), "{says}");
    }
    granted(a.renew("kept", term).await);
    let session = common::Session::open(&url).await;
    assert_eq!(session.number(LOCKS).await, 1);
    a.takes("e1").await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_pooler_in_transaction_mode_is_refused_with_the_remedy() {
    let pooler = Pooler::take();
    // Also when its pool has several sessions at hand.
    let mut busy = Vec::new();
    for _ in 0..3 {
        let session = common::Session::open(&pooler.url).await;
        session.run("BEGIN").await;
        busy.push(session);
    }
    for session in &busy {
        session.run("ROLLBACK").await;
    }
    // A name that is the number of its lock: other tests have locks in this database, too.
    let key = 7_461_700_315_i64;
    for round_robin in [false, true] {
        crate::pooler::round_robin(&pooler, round_robin).await;
        for _ in 0..5 {
            let store = AdvisoryConfig::from_url(&advisory_url(&pooler.url)).unwrap().open();
            let reply = Player::new(&store, "a").acquire(&key.to_string()).await;
            let Reply::Unknown(error) = reply else {
                panic!("a lock behind a pooler is nobody's");
            };
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.message().contains("pooler in transaction mode"), "{error}");
            assert!(error.message().contains("session mode"), "{error}");
        }
    }
    crate::pooler::round_robin(&pooler, false).await;
    let left = common::Session::open(&common::server()).await;
    let held = format!("{LOCKS} AND (classid::bigint << 32) | objid::bigint = {key}");
    assert_eq!(left.number(&held).await, 0, "nothing is left locked in the pool");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_standby_is_no_place_for_locks() {
    let mut primary = OwnServer::new(&["wal_level=replica"]);
    primary.start();
    let store = store_at(&primary.url("postgres"));
    until("the server is up", || async { store.check().await.is_ok() }).await;
    let mut standby = primary.standby();
    standby.start();
    let store = store_at(&standby.url("postgres"));
    until("the standby says what it is", || async {
        let reply = Player::new(&store, "a").acquire("e").await;
        assert!(!matches!(reply, Reply::Granted(_)), "two servers, two leaders");
        unknown(reply).contains("standby")
    })
    .await;
    assert!(store.check().await.unwrap_err().message().contains("standby"));
}

/// A role with no rights but to connect leads, is followed and is asked by another such role.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_no_privilege_is_needed() {
    let server = common::server();
    let roles = ["one", "two"].map(|label| format!("advisory_{label}_{}", std::process::id()));
    let admin = common::Session::open(&server).await;
    for role in &roles {
        admin.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'")).await;
    }
    {
        let database = Database::new(&server).await;
        let place = database.url.split('@').nth(1).unwrap();
        let player = |role: &String| {
            let store = store_at(&format!("postgres://{role}:right@{place}"));
            Player::new(&store, "a")
        };
        let (one, two) = (player(&roles[0]), player(&roles[1]));
        let term = one.takes("e").await;
        granted(one.renew("e", term).await);
        let lease = refused(two.acquire("e").await).lease.unwrap();
        assert!(lease.holder.is(&one.id), "{lease:?}");
        assert_eq!((lease.term, lease.ttl), (Some(term), Some(one.ttl)));
        let ask = Op::Ask { election: name("e"), term: Some(term) };
        granted(two.store.apply_one(&ask).await);
        assert!(granted(one.renew("e", term).await).asked);
        granted(one.release("e", term).await);
        assert!(two.takes("e").await > term);
    }
}

/// What other programs see is what `info` says.
#[test]
fn the_weaker_promise_is_told() {
    let store = AdvisoryConfig::from_url("postgres+advisory://a:pw@h/d").unwrap().open();
    let info = store.info();
    assert_eq!(info.expiry, tenure_core::Expiry::Connection);
    assert!(!info.survives_restart && info.sees_death && info.durable_terms);
    assert!(info.residual.iter().any(|says| says.contains("only a fence stops that")));
    assert!(!format!("{info:?} {store:?}").contains("pw"));
    let old = "postgres+advisory://h/d?frozen_leaders=stay";
    let info = AdvisoryConfig::from_url(old).unwrap().open().info();
    assert!(info.residual.iter().any(|says| says.contains("a frozen leader keeps the lock")));
}
