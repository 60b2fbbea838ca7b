//! Everything that can be wrong with a server: a sentence that says what to do, without secrets.

use std::time::Duration;

use tenure_core::{ErrorKind, Hint, Hints, Store, StoreExt};
use tenure_postgres::{PostgresConfig, PostgresStore};

use crate::common::{self, Place, Player, Session, granted, name, now, unknown, until};

/// The same server with another user, password and database.
fn at(server: &str, user: &str, database: &str, options: &str) -> PostgresStore {
    let host = server.split('@').nth(1).unwrap();
    let (host, _) = host.split_once('/').unwrap();
    let url = format!("postgres://{user}@{host}/{database}?{options}");
    PostgresConfig::from_url(&url).unwrap().open()
}

fn database(server: &str) -> &str {
    server.rsplit('/').next().unwrap().split('?').next().unwrap()
}

async fn says(store: &PostgresStore) -> (ErrorKind, String) {
    let error = store.read(&name("e")).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("hunter2"), "{text}");
    (error.kind(), error.to_string())
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_what_is_missing_is_said_in_a_sentence() {
    let server = common::server();
    let admin = Session::open(&server).await;
    let role = format!("nobody_{}", std::process::id());
    admin.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'")).await;
    let user = format!("{role}:right");
    let here = database(&server);

    // A server that trusts everybody on loopback would not ask for it.
    let asks = "SELECT EXISTS (SELECT FROM pg_hba_file_rules WHERE auth_method LIKE 'scram%')";
    if admin.truth(asks).await {
        let (kind, text) = says(&at(&server, &format!("{role}:hunter2"), here, "")).await;
        assert!(kind == ErrorKind::Denied && text.contains("fix the password"), "{text}");
    }

    let (kind, text) = says(&at(&server, &user, "no_such_database", "")).await;
    assert!(kind == ErrorKind::Config && text.contains("\"no_such_database\""), "{text}");
    let (kind, text) = says(&at(&server, "no_such_role:hunter2", here, "")).await;
    assert!(kind == ErrorKind::Denied && text.contains("no_such_role"), "{text}");

    let (kind, text) = says(&Place::empty(&server).store()).await;
    assert!(kind == ErrorKind::Config && text.contains("run `tenure migrate`"), "{text}");
    let unmigrated = Place::empty(&server).store().check().await.unwrap_err();
    assert!(unmigrated.message().contains("run `tenure migrate`"), "{unmigrated}");

    let place = Place::new(&server).await;
    admin.run(&format!("GRANT USAGE ON SCHEMA {} TO {role}", place.schema)).await;
    let poor = at(&server, &user, here, &format!("schema={}", place.schema));
    let reply = Player::new(&poor, "a", 1).acquire("e", 1).await;
    let text = unknown(reply);
    assert!(text.contains("permission denied") && text.contains("roles.sql"), "{text}");
    let text = at(&server, &user, here, "schema=not_mine").migrate().await.unwrap_err();
    assert_eq!(text.kind(), ErrorKind::Denied, "{text}");
    assert!(text.message().contains("run what `tenure migrate --print` prints"), "{text}");

    let nobody = PostgresConfig::from_url("postgres://a:hunter2@127.0.0.1:9/d").unwrap().open();
    let (kind, text) = says(&nobody).await;
    assert!(kind == ErrorKind::Unavailable && text.contains("is it running?"), "{text}");
}

/// A real server that passes for an older one: its version is asked for by a function of ours.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_that_is_too_old_is_told_and_left_alone() {
    let server = common::server();
    let place = Place::empty(&server);
    let (old, admin) = (format!("old_{}", place.schema), Session::open(&server).await);
    admin
        .run(&format!(
            "CREATE SCHEMA {old}; CREATE FUNCTION {old}.current_setting(text) RETURNS text \
             LANGUAGE sql AS $$ SELECT CASE $1 WHEN 'server_version_num' THEN '130011' \
             ELSE pg_catalog.current_setting($1) END $$"
        ))
        .await;
    let path = format!("options=-csearch_path%3D{old},pg_catalog");
    let store = common::config(&server, &format!("schema={}&{path}", place.schema)).open();
    for error in [store.check().await.unwrap_err(), store.migrate().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let says = "the server is PostgreSQL 13, and 14 is the oldest that will do; upgrade it";
        assert!(error.message().contains(says), "{error}");
    }
    let made = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", place.schema);
    assert_eq!(admin.number(&made).await, 0, "nothing was made");
}

/// Names that are too long, and others that are odd but data, for those who call the functions.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_bad_names_are_refused_in_a_sentence_and_harm_no_lease() {
    let server = common::server();
    let place = Place::new(&server).await;
    let ours = Player::new(&place.store(), "ours", 1);
    let term = ours.takes("e", 1).await;
    let long = "x".repeat(256);
    let error = tenure_core::Name::new(&long).unwrap_err();
    assert!(error.message().contains("has 256 bytes, at most 255"), "{error}");
    let session = place.session().await;
    let odd = "Robert'); DROP TABLE leader_election; --\u{1f4a3}\u{e9}\\\"";
    let take = "SELECT try_become_leader($1, $2, 30)";
    for (name, id, refusal) in [
        (long.as_str(), "a", Some("too long")),
        ("f", long.as_str(), Some("too long")),
        ("f", "", Some("p_candidate_id is empty")),
        (odd, odd, None),
    ] {
        let answer = session.client.query_one(take, &[&name, &id]).await;
        match refusal {
            None => assert!(answer.unwrap().get::<_, bool>(0), "it is data"),
            Some(says) => {
                let error = answer.unwrap_err();
                let message = error.as_db_error().unwrap().message();
                assert!(message.contains(says), "{name}: {message}");
            }
        }
    }
    assert_eq!(place.row(odd).await, (odd.to_owned(), 1));
    granted(ours.renew("e", term).await);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_sql_and_odd_letters_in_metadata_are_data() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let json = r#"{"a'); DROP TABLE x; --":"\u{1f4a3} é {\"b\"} $$ \\ '' %s $1"}"#
        .replace("\\u{1f4a3}", "\u{1f4a3}");
    let metadata = tenure_core::Metadata::new(&json).unwrap();
    let acquire = match Player::new(&store, "a", 1).acquire_op("e", 1) {
        tenure_core::Op::Acquire { election, candidate, seq, above, floor, ttl, .. } => {
            let metadata = Some(metadata.clone());
            tenure_core::Op::Acquire { election, candidate, seq, above, floor, ttl, metadata }
        }
        other => panic!("{other:?}"),
    };
    granted(store.apply_one(&acquire).await);
    let seen = store.read(&name("e")).await.unwrap().lease.unwrap().metadata.unwrap();
    assert_eq!(seen.as_str(), metadata.as_str());
}

/// What `roles.sql` grants is enough to take part, and not enough to change the table.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_app_role_takes_part_and_alters_nothing() {
    let server = common::server();
    let place = Place::new(&server).await;
    let admin = Session::open(&server).await;
    let role = format!("app_{}", std::process::id());
    let roles = include_str!("../../roles.sql")
        .replace(":\"app\"", &role)
        .replace(":\"schema\"", &place.schema)
        .replace(":\"table\"", "leader_election")
        .replace(":\"released\"", "leader_election_released");
    // As on servers where nobody may call anything that is not theirs.
    let theirs = "CREATE FUNCTION theirs() RETURNS integer LANGUAGE sql AS 'SELECT 1'";
    admin
        .run(&format!(
            "SET search_path = {0}; {theirs}; \
             REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {0} FROM PUBLIC",
            place.schema
        ))
        .await;
    admin.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'; {roles}")).await;
    let forgotten = format!(
        "SELECT coalesce(string_agg(oid::regprocedure::text, ' '), '') FROM pg_proc \
         WHERE pronamespace = '{}'::regnamespace AND NOT has_function_privilege('{role}', oid, \
         'EXECUTE') AND prorettype <> 'trigger'::regtype \
         AND proname NOT IN ('theirs', 'tenure_raise_terms')",
        place.schema
    );
    let forgotten: String = admin.client.query_one(&forgotten, &[]).await.unwrap().get(0);
    assert_eq!(forgotten, "");
    let (user, here) = (format!("{role}:right"), database(&server));
    let store = at(&server, &user, here, &format!("schema={}", place.schema));
    store.check().await.unwrap();
    assert_eq!(store.missing_privileges().await.unwrap(), [], "the doctor asks for no more");
    let player = Player::new(&store, "a", 1);
    let term = player.takes("e", 1).await;
    granted(player.renew("e", term).await);
    granted(player.release("e", term, 1).await);
    assert_eq!(store.elections().await.unwrap(), [name("e")]);
    let host = server.split('@').nth(1).unwrap();
    let app = Session::open(&format!("postgres://{user}@{host}")).await;
    app.run(&format!("SET search_path = {}", place.schema)).await;
    assert!(app.truth("SELECT try_become_leader('e', 'a')").await);
    app.run("BEGIN; SELECT tenure_fence('e', 2); COMMIT").await;
    for sql in [
        "ALTER TABLE leader_election DISABLE TRIGGER ALL",
        "DROP TABLE leader_election",
        "DELETE FROM leader_election",
        "TRUNCATE leader_election",
        "CREATE TABLE mine (a integer)",
        "DROP FUNCTION tenure_fence",
        "SELECT theirs()",
    ] {
        let says = app.try_run(sql).await.unwrap_err();
        assert!(says.starts_with("42501"), "{sql}: {says}");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_terminated_backend_is_one_unknown_outcome() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let a = Player::new(&store, "a", 1);
    let term = a.takes("e", 1).await;
    let admin = place.session().await;
    let kill = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE application_name = 'tenure' AND query LIKE '%.tenure\\_%' \
                AND query LIKE '%' || current_schema() || '%'";
    for _ in 0..5 {
        assert_eq!(admin.number(kill).await, 1);
        // The first call may find it out, and the next one connects again.
        until("it is renewed again", || async {
            matches!(a.renew("e", term).await, tenure_core::Reply::Granted(_))
        })
        .await;
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_hints_come_back_after_their_connection_was_ended() {
    let server = common::server();
    let place = Place::new(&server).await;
    // So that its sessions can be told from those of other tests.
    let options = format!("schema={0}&application_name=hints-{0}", place.schema);
    let listening = common::config(&server, &options).open();
    let a = Player::new(&place.store(), "a", 1);
    let mut hints = listening.hints();
    listening.read(&name("e")).await.unwrap();
    let admin = place.session().await;
    // Not the one that is opened to see whether notifications are heard.
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE (query LIKE 'LISTEN%' OR query LIKE '%.tenure\\_%' \
               OR query LIKE '%tcp_user_timeout%') \
               AND application_name = 'hints-' || current_schema()";
    let mut ended = now();
    for seq in 1..=7 {
        // The first hint of a connection says that anything may have happened.
        assert_eq!(next(&mut *hints).await, Hint::Any);
        // However often: a connection that worked is not held against the next.
        let away = now() - ended;
        assert!(away < Duration::from_secs(3), "{away:?} after the end of number {}", seq - 1);
        let term = a.takes("e", seq).await;
        granted(a.release("e", term, seq).await);
        assert_eq!(next(&mut *hints).await, Hint::Election(name("e")));
        ended = now();
        assert_eq!(admin.number(end).await, 1);
    }
}

async fn next(hints: &mut dyn Hints) -> Hint {
    let hint = std::future::poll_fn(|cx| hints.poll_next(cx));
    tokio::time::timeout(common::PATIENCE, hint).await.unwrap().unwrap()
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_read_only_server_is_a_condition_and_not_a_crash() {
    let server = common::server();
    let place = Place::new(&server).await;
    let options = format!("schema={}&options=-cdefault_transaction_read_only%3Don", place.schema);
    let refused = common::config(&server, &options).open();
    let text = unknown(Player::new(&refused, "a", 1).acquire("e", 1).await);
    assert!(text.contains("is read-only"), "{text}");
    let any = format!("{options}&target_session_attrs=any");
    let store = common::config(&server, &any).open();
    let text = unknown(Player::new(&store, "a", 1).acquire("e", 1).await);
    assert!(text.contains("read-only") && text.contains("target_session_attrs"), "{text}");
    assert!(store.read(&name("e")).await.is_ok(), "reading is fine");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_another_isolation_level_is_refused_with_the_remedy() {
    let server = common::server();
    let place = Place::new(&server).await;
    let level = "options=-cdefault_transaction_isolation%3Dserializable";
    let store = common::config(&server, &format!("schema={}&{level}", place.schema)).open();
    let text = unknown(Player::new(&store, "a", 1).acquire("e", 1).await);
    assert!(text.contains("serializable") && text.contains("ALTER ROLE"), "{text}");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_that_hangs_costs_one_deadline_and_nothing_queues() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.config().with_call_timeout(Duration::from_millis(300)).open();
    let a = Player::new(&store, "a", 1);
    let term = a.takes("e", 1).await;
    // Nobody gets at the table: that is as if the server hung.
    let block = place.session().await;
    block.run("BEGIN; LOCK TABLE leader_election").await;
    let started = now();
    for _ in 0..3 {
        let text = unknown(a.renew("e", term).await);
        assert!(text.contains("took more than 300ms") || text.contains("lock timeout"), "{text}");
    }
    assert!((now() - started) < Duration::from_secs(5), "{:?}", (now() - started));
    block.run("ROLLBACK").await;
    until("it is renewed again", || async {
        matches!(a.renew("e", term).await, tenure_core::Reply::Granted(_))
    })
    .await;
}
