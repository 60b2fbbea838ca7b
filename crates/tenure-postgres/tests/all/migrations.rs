//! Setting up a schema: at once from many instances, in place, beside leaders at work.

use std::time::Duration;

use tenure_core::Reply;
use tokio::runtime::Handle;

use crate::common::{self, Place, Player, granted, now, real_wait, refused, until};
use tenure_testbed::proxy::{Proxy, Trap};

/// The older design: table and functions.
const OLD: &str = include_str!("common/old.sql");

/// A schema with the older design in it.
async fn old_place(server: &str) -> Place {
    let place = Place::empty(server);
    let session = common::Session::open(server).await;
    let schema = &place.schema;
    session.run(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {OLD}")).await;
    place
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_fifty_migrations_at_once_all_succeed() {
    let server = common::server();
    for place in [Place::empty(&server), old_place(&server).await] {
        let mut running = Vec::new();
        for _ in 0..50 {
            let store = place.store();
            running.push(Handle::current().spawn(async move { store.migrate().await }));
        }
        let mut from_nothing = 0;
        for migrated in running {
            let migrated = migrated.await.unwrap().unwrap();
            from_nothing += u32::from(migrated.from == 0);
        }
        assert_eq!(from_nothing, 1, "one did the work");
        place.store().check().await.unwrap();
        Player::new(&place.store(), "a", 1).takes("e", 1).await;
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_an_old_table_is_upgraded_where_it_stands() {
    let server = common::server();
    let place = old_place(&server).await;
    let session = place.session().await;
    session
        .run(
            "INSERT INTO leader_election VALUES ('held', 'web-1', 41, now(), '{\"a\": 1}'), \
             ('gone', 'web-2', 7, now() - interval '91 seconds', '{}')",
        )
        .await;
    place.store().migrate().await.unwrap();
    // Its leader goes on, and nobody takes it away; it gave no ttl, so 90 s count.
    assert!(session.truth("SELECT leader_heartbeat('held', 'web-1')").await);
    let store = place.store();
    let new = Player::new(&store, "new", 1);
    let lease = refused(new.acquire("held", 1).await).lease.unwrap();
    assert_eq!((lease.holder.as_str(), lease.term), ("web-1", Some(common::term(41))));
    assert!(lease.remaining > Duration::from_secs(80) && lease.ttl.is_none(), "{lease:?}");
    assert_eq!(lease.metadata.unwrap().as_str(), "{\"a\":1}");
    assert!(!session.truth("SELECT try_become_leader('held', 'thief', 1)").await);
    // What ran out goes on with the next term.
    let grant = granted(new.acquire("gone", 1).await);
    assert_eq!((grant.term.get(), grant.expired), (8, Some(Duration::from_secs(90))));
    let fill = "SELECT 'fillfactor=40' = ANY (reloptions) FROM pg_class \
                WHERE oid = 'leader_election'::regclass";
    assert!(session.truth(fill).await);
    let again = place.store().migrate().await.unwrap();
    assert_eq!(again.from, again.to);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_migration_behind_an_open_transaction_stalls_no_leader() {
    let server = common::server();
    let place = old_place(&server).await;
    let leader = place.session().await;
    assert!(leader.truth("SELECT try_become_leader('e', 'web-1')").await);
    leader.run("SET lock_timeout = '1s'").await;
    let slow = place.session().await;
    slow.run("BEGIN; SELECT FROM leader_election FOR KEY SHARE").await;
    let store = place.store();
    let migrating = Handle::current().spawn(async move { store.migrate().await });
    let started = now();
    while (now() - started) < Duration::from_secs(2) {
        // It fails if it waits for a lock.
        leader.run("SELECT leader_heartbeat('e', 'web-1')").await;
        real_wait(Duration::from_millis(20)).await;
    }
    assert!(!migrating.is_finished(), "it could not be done yet");
    slow.run("COMMIT").await;
    migrating.await.unwrap().unwrap();
}

/// One that is frozen looks like that, too.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_migrator_that_is_cut_off_stalls_no_leader_and_keeps_nobody_out() {
    let server = common::server();
    let (login, place) = server.split_once('@').unwrap();
    let (host, database) = place.split_once('/').unwrap();
    let port = host.rsplit(':').next().unwrap().parse().unwrap();
    // When it has its turn, and in the middle of what it changes.
    for text in ["CREATE TABLE IF NOT EXISTS", "CREATE TRIGGER tenure_rules"] {
        let place = old_place(&server).await;
        let leader = place.session().await;
        assert!(leader.truth("SELECT try_become_leader('e', 'web-1')").await);
        leader.run("SET lock_timeout = '1s'").await;
        let proxy = Proxy::start(port);
        proxy.lay(Trap::Swallow(text));
        let through = format!("{login}@127.0.0.1:{}/{database}", proxy.port);
        let cut_off = common::config(&through, &format!("schema={}", place.schema)).open();
        let cut_off = Handle::current().spawn(async move { cut_off.migrate().await });
        proxy.swallows().await;
        let store = place.store();
        let migrating = Handle::current().spawn(async move { store.migrate().await });
        let started = now();
        while !migrating.is_finished() {
            leader.run("SELECT leader_heartbeat('e', 'web-1')").await;
            assert!((now() - started) < common::PATIENCE, "it is kept out");
            real_wait(Duration::from_millis(20)).await;
        }
        migrating.await.unwrap().unwrap();
        assert!(leader.truth("SELECT leader_heartbeat('e', 'web-1')").await);
        cut_off.abort();
    }
}

/// On managed servers nobody is a superuser.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_an_ordinary_owner_of_a_schema_can_migrate_and_lead() {
    let server = common::server();
    let place = Place::empty(&server);
    let (role, schema) = (format!("owner_{}", std::process::id()), &place.schema);
    let admin = common::Session::open(&server).await;
    admin.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'")).await;
    admin.run(&format!("CREATE SCHEMA {schema} AUTHORIZATION {role}")).await;
    let host = server.split('@').nth(1).unwrap();
    let url = format!("postgres://{role}:right@{host}");
    let store = common::config(&url, &format!("schema={schema}")).open();
    store.migrate().await.unwrap();
    let a = Player::new(&store, "a", 1);
    let term = a.takes("e", 1).await;
    let session = common::Session::open(&url).await;
    session.run(&format!("BEGIN; SELECT {schema}.tenure_fence('e', {term}); COMMIT")).await;
    granted(a.release("e", term, 1).await);
}

/// Whatever a caller has in its search path, the functions mean the same.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_every_function_has_a_safe_search_path() {
    let server = common::server();
    let place = Place::new(&server).await;
    let session = place.session().await;
    // Bodies that follow RETURN are bound when they are created.
    let loose = "SELECT coalesce(string_agg(oid::regprocedure::text, ' '), '') FROM pg_proc \
                 WHERE pronamespace = current_schema()::regnamespace AND prosqlbody IS NULL \
                 AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)";
    let loose: String = session.client.query_one(loose, &[]).await.unwrap().get(0);
    assert_eq!(loose, "");
    let all = "SELECT count(*) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace \
               AND NOT prosecdef";
    assert!(session.number(all).await > 20, "and they run with the rights of the caller");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_printed_script_does_the_same() {
    let server = common::server();
    let place = Place::empty(&server);
    let session = common::Session::open(&server).await;
    let script = place.store().migration_sql();
    session.run(&script).await;
    session.run(&script).await;
    place.store().check().await.unwrap();
}

/// Somebody keeps the script of an older tenure and runs it once more.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_printed_script_undoes_nothing_that_a_later_version_did() {
    let server = common::server();
    let place = Place::empty(&server);
    let script = place.store().migration_sql();
    let session = common::Session::open(&server).await;
    session.run(&script).await;
    let schema = &place.schema;
    let later = format!(
        "INSERT INTO {schema}.tenure_migrations SELECT max(version) + 1, min(table_name) \
         FROM {schema}.tenure_migrations; \
         CREATE OR REPLACE FUNCTION {schema}.tenure_unix_ms(p_at timestamptz) RETURNS bigint \
         LANGUAGE sql RETURN 7"
    );
    session.run(&later).await;
    let versions = format!("SELECT count(*) FROM {schema}.tenure_migrations");
    let before = session.number(&versions).await;
    session.run(&script).await;
    assert_eq!(session.number(&versions).await, before);
    assert!(session.truth(&format!("SELECT {schema}.tenure_unix_ms(now()) = 7")).await);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_tables_of_others_are_left_alone() {
    let server = common::server();
    for (columns, word) in [
        ("service_name varchar(255) PRIMARY KEY", "leader_id must be"),
        (
            "service_name varchar(255) PRIMARY KEY, leader_id varchar(255), term bigint, \
             last_heartbeat timestamptz, metadata jsonb",
            "term must be integer",
        ),
        (
            "service_name varchar(255), leader_id varchar(255), term integer, \
             last_heartbeat timestamptz, metadata jsonb",
            "primary key",
        ),
        (
            "service_name varchar(255) PRIMARY KEY, leader_id varchar(254), term integer, \
             last_heartbeat timestamptz, metadata jsonb",
            "leader_id must be character varying(255)",
        ),
        (
            "service_name varchar(40) PRIMARY KEY, leader_id text, term integer, \
             last_heartbeat timestamptz, metadata jsonb",
            "service_name must be character varying(255)",
        ),
    ] {
        let place = Place::empty(&server);
        let (session, schema) = (common::Session::open(&server).await, &place.schema);
        let table = format!("CREATE TABLE {schema}.leader_election ({columns})");
        session.run(&format!("CREATE SCHEMA {schema}; {table}")).await;
        let says = place.store().migrate().await.unwrap_err().to_string();
        assert!(says.contains("another shape") && says.contains(word), "{says}");
        let left = format!(
            "SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace \
             AND relkind = 'r'"
        );
        assert_eq!(session.number(&left).await, 1, "nothing else was made");
    }
    // A wider one, or one without end, serves as well.
    let place = Place::empty(&server);
    let (session, schema) = (common::Session::open(&server).await, &place.schema);
    let wide = "service_name text PRIMARY KEY, leader_id varchar(300), term integer, \
                last_heartbeat timestamptz, metadata jsonb";
    let table = format!("CREATE TABLE {schema}.leader_election ({wide})");
    session.run(&format!("CREATE SCHEMA {schema}; {table}")).await;
    place.store().migrate().await.unwrap();

    let place = Place::new(&server).await;
    let second = common::config(&server, &format!("schema={}&table=second", place.schema)).open();
    let says = second.migrate().await.unwrap_err().to_string();
    assert!(says.contains("in use for the table") && says.contains("?schema="), "{says}");
}

/// Somebody runs the old migration again and gets the old functions back (P6).
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_table_keeps_the_rules_if_the_old_functions_come_back() {
    let server = common::server();
    let place = Place::new(&server).await;
    let session = place.session().await;
    session.run(OLD).await;
    let store = place.store();
    let ours = Player::new(&store, "ours", 1).with_ttl(Duration::from_secs(3));
    let term = ours.takes("e", 1).await;
    real_wait(Duration::from_millis(1_200)).await;
    let stolen = session.try_run("SELECT try_become_leader('e', 'thief', 1)").await.unwrap_err();
    assert!(stolen.starts_with("TN003") && stolen.contains("is held by"), "{stolen}");
    // The server tells of an error a moment before it lets go of the row.
    until("it is renewed", || async { matches!(ours.renew("e", term).await, Reply::Granted(_)) })
        .await;
    // A deleted row is a vacant one, and the term goes on.
    let id = ours.id.as_str();
    session.run(&format!("SELECT step_down('e', '{id}')")).await;
    assert_eq!(place.row("e").await, (String::new(), 1));
    assert!(matches!(ours.renew("e", term).await, Reply::Refused(_)));
    assert_eq!(ours.takes("e", 2).await.get(), 2);
    // The old functions as followers and leaders in a new election.
    assert!(session.truth("SELECT try_become_leader('f', 'old-1')").await);
    assert!(session.truth("SELECT leader_heartbeat('f', 'old-1')").await);
    assert!(!session.truth("SELECT try_become_leader('f', 'old-2')").await);
    let lease = refused(ours.acquire("f", 1).await).lease.unwrap();
    assert!(lease.remaining > Duration::from_secs(85), "90 s for who gives no ttl: {lease:?}");
    for (sql, code) in [
        ("UPDATE leader_election SET term = term + 2 WHERE service_name = 'e'", "TN003"),
        ("UPDATE leader_election SET term = term - 1 WHERE service_name = 'e'", "TN003"),
        ("UPDATE leader_election SET service_name = 'g' WHERE service_name = 'e'", "TN003"),
        ("TRUNCATE leader_election", "TN003"),
    ] {
        let says = session.try_run(sql).await.unwrap_err();
        assert!(says.starts_with(code), "{sql}: {says}");
    }
    // A beat of a lease that ran out finds no row.
    let short = Player::new(&store, "short", 3).with_ttl(Duration::from_millis(100));
    short.takes("g", 1).await;
    real_wait(Duration::from_millis(150)).await;
    let late = format!("SELECT leader_heartbeat('g', '{}')", short.id);
    assert!(!session.truth(&late).await);
    assert_eq!(place.row("g").await.1, 1);
    place.store().migrate().await.unwrap();
}

/// Writes to the table by hand: terms in turn only, and nothing under a fence (P1, P6).
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_table_refuses_terms_out_of_turn_and_takeovers_under_a_fence() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    let a = Player::new(&store, "a", 1);
    for seq in 1..=2 {
        let term = a.takes("vacant", seq).await;
        granted(a.release("vacant", term, seq).await);
    }
    let steal = |name: &str, leader: &str, term: &str| {
        format!(
            "UPDATE leader_election SET leader_id = '{leader}', term = {term} \
             WHERE service_name = '{name}'"
        )
    };
    for (leader, term) in [
        ("thief", "term"),
        ("thief", "term - 1"),
        ("thief", "1"),
        ("thief", "term + 2"),
        ("", "term + 1"),
        ("", "0"),
    ] {
        let says = session.try_run(&steal("vacant", leader, term)).await.unwrap_err();
        assert!(says.starts_with("TN003"), "{leader:?} {term}: {says}");
    }
    assert_eq!(place.row("vacant").await, (String::new(), 2));
    session.run(&steal("vacant", "next", "term + 1")).await;
    assert_eq!(place.row("vacant").await, ("next".to_owned(), 3));

    let term = a.with_ttl(Duration::from_millis(300)).takes("fenced", 1).await;
    let working = place.session().await;
    working.run(&format!("BEGIN; SELECT tenure_fence('fenced', {term})")).await;
    let work = Handle::current().spawn(async move {
        // Not idle, so that the server does not end it with the lease.
        working.run("SELECT pg_sleep(1.5)").await;
        working.run("COMMIT").await;
    });
    real_wait(Duration::from_millis(600)).await;
    let thief = steal("fenced", "thief", "term + 1");
    let says = session.try_run(&thief).await.unwrap_err();
    assert!(says.starts_with("55P03") && says.contains("is not over"), "{says}");
    work.await.unwrap();
    session.run(&thief).await;
    assert_eq!(place.row("fenced").await.1, 2);
}
