//! The three functions for clients over HTTP, called as PostgREST calls them: one transaction for
//! each call, parameters by name, and a role that may do nothing else.

use std::future::poll_fn;
use std::time::Duration;

use tenure_core::{Hint, Hints, Store, StoreExt};
use tokio_postgres::Row;

use crate::common::{self, Place, Player, Session, granted, name, now, real_wait, refused, until};

const GUIDE: &str = include_str!("../../../../docs/supabase.md");

/// The roles of Supabase, on a server that all tests share.
const ROLES: &str = "DO $$ DECLARE r text; BEGIN \
    FOREACH r IN ARRAY ARRAY['anon', 'authenticated', 'service_role'] LOOP BEGIN \
    EXECUTE 'CREATE ROLE ' || r; \
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; END LOOP; END $$";

#[derive(Debug, PartialEq)]
struct Answer {
    granted: bool,
    term: i32,
    remaining_ms: i32,
    holder: String,
}

fn answer(row: &Row) -> Answer {
    Answer {
        granted: row.get("granted"),
        term: row.get("term"),
        remaining_ms: row.get("remaining_ms"),
        holder: row.get("holder"),
    }
}

/// A schema as Supabase would have it, and a session of its service role.
pub(crate) async fn supabase(server: &str) -> (Place, Session) {
    let place = Place::empty(server);
    let (admin, schema) = (Session::open(server).await, &place.schema);
    admin.run(ROLES).await;
    let mut sql = format!("CREATE SCHEMA {schema}; ");
    for what in ["TABLES", "FUNCTIONS", "SEQUENCES"] {
        sql += &format!(
            "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT ALL ON {what} \
             TO anon, authenticated, service_role; "
        );
    }
    let all = "anon, authenticated, service_role";
    admin.run(&format!("{sql} GRANT USAGE ON SCHEMA {schema} TO {all}")).await;
    place.store().migrate().await.unwrap();
    let client = place.session().await;
    (place, client)
}

/// The pieces of SQL in the guide, for this schema.
pub(crate) fn guide(place: &Place) -> Vec<String> {
    let pieces = GUIDE.split("```sql\n").skip(1);
    pieces.map(|rest| rest.split("```").next().unwrap().replace("public.", &dot(place))).collect()
}

fn dot(place: &Place) -> String {
    format!("{}.", place.schema)
}

/// Nothing but what the guide grants.
pub(crate) async fn worker(place: &Place) -> Session {
    let admin = place.session().await;
    let [_, revoke, grant] = &guide(place)[..] else { panic!("the guide has other pieces") };
    admin.run(&format!("{revoke} {grant}")).await;
    let all = "REVOKE ALL ON ALL TABLES IN SCHEMA";
    admin.run(&format!("{all} {} FROM service_role", place.schema)).await;
    let worker = place.session().await;
    worker.run("SET ROLE service_role").await;
    worker
}

async fn lead(session: &Session, candidate: &str, above: i32, seq: i64) -> Answer {
    let sql = "SELECT * FROM tenure_try_lead(service => $1, candidate => $2, ttl_ms => $3, \
               above => $4, seq => $5)";
    let rows = session.client.query(sql, &[&"e", &candidate, &30_000, &above, &seq]).await.unwrap();
    assert_eq!(rows.len(), 1);
    answer(&rows[0])
}

async fn renew(session: &Session, candidate: &str, term: i32) -> Result<Answer, String> {
    let sql = "SELECT * FROM tenure_renew(ttl_ms => 20000, term => $3, candidate => $2, \
               service => $1)";
    match session.client.query_one(sql, &[&"e", &candidate, &term]).await {
        Ok(row) => Ok(answer(&row)),
        Err(error) => Err(error.code().unwrap().code().to_owned()),
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_role_without_rights_on_tables_leads_renews_and_releases() {
    let server = common::server();
    let (place, _) = supabase(&server).await;
    let worker = worker(&place).await;
    let yes = |term| Answer { granted: true, term, remaining_ms: 30_000, holder: "a".to_owned() };
    // The usual call, with what is not needed left out.
    let sql = "SELECT * FROM tenure_try_lead(service => 'e', candidate => 'a', ttl_ms => 30000)";
    assert_eq!(answer(&worker.client.query_one(sql, &[]).await.unwrap()), yes(1));
    assert_eq!(lead(&worker, "a", 0, 1).await, yes(1), "a lost answer is healed (C1)");
    let no = lead(&worker, "b", 0, 1).await;
    assert!(!no.granted && no.term == 1 && no.holder == "a", "{no:?}");
    assert!((1..=30_000).contains(&no.remaining_ms), "{no:?}");
    let renewed = renew(&worker, "a", 1).await.unwrap();
    assert_eq!(renewed, Answer { remaining_ms: 20_000, ..yes(1) });
    for (candidate, term) in [("b", 1), ("a", 2), ("a", 0)] {
        let no = renew(&worker, candidate, term).await.unwrap();
        assert!(!no.granted && no.term == 1 && no.holder == "a", "{no:?}");
    }
    // The same term is never led twice (C1).
    assert_eq!(lead(&worker, "a", 1, 2).await, yes(2));
    // tenure sees it, and is refused.
    let ours = Player::new(&place.store(), "ours", 1);
    let lease = refused(ours.acquire("e", 1).await).lease.unwrap();
    assert_eq!((lease.holder.as_str(), lease.term), ("a", Some(common::term(2))));

    let release = async |arguments: &str| {
        worker.truth(&format!("SELECT tenure_release(service => 'e', {arguments})")).await
    };
    assert!(!release("candidate => 'b'").await);
    assert!(!release("candidate => 'a', term => 1").await);
    assert!(release("candidate => 'a', term => 2, seq => 7").await);
    assert!(!release("candidate => 'a', term => 2").await);
    assert!(!renew(&worker, "a", 2).await.unwrap().granted);
    // A call that was late does not take it again (C2); the next one does.
    let late = lead(&worker, "a", 2, 7).await;
    let nobody = Answer { granted: false, term: 2, remaining_ms: 0, holder: String::new() };
    assert_eq!(late, nobody);
    assert_eq!(lead(&worker, "a", 2, 8).await, yes(3));
    // By the candidate alone, with and without a number.
    assert!(!release("candidate => 'a', seq => 7").await, "it has asked again since");
    assert!(release("candidate => 'a'").await);
    assert_eq!(lead(&worker, "b", 0, 0).await.term, 4);
    assert!(release("candidate => 'b'").await);
    assert_eq!(lead(&worker, "b", 4, 0).await.term, 5, "without numbers nothing is held back");

    // It ran out: vacant for its holder, too.
    let short = "SELECT * FROM tenure_try_lead('short', 'a', 100)";
    assert!(answer(&worker.client.query_one(short, &[]).await.unwrap()).granted);
    real_wait(Duration::from_millis(150)).await;
    let sql = "SELECT granted FROM tenure_renew('short', 'a', 1, 30000)";
    assert!(!worker.truth(sql).await);
    assert!(!worker.truth("SELECT tenure_release('short', 'a', 1)").await);
    assert_eq!(answer(&worker.client.query_one(short, &[]).await.unwrap()).term, 2);

    // Whoever has the right to call these has no other.
    for sql in [
        "SELECT FROM leader_election",
        "UPDATE leader_election SET leader_id = 'thief'",
        "SELECT try_become_leader('f', 'a')",
        "SELECT FROM tenure_apply('{read}', '{e}', '{}', '{}', '{}', '{}', '{}', '{}')",
    ] {
        let says = worker.try_run(sql).await.unwrap_err();
        assert!(says.starts_with("42501"), "{sql}: {says}");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_calls_wait_for_nobody_and_take_nothing_from_a_fence() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (client, other) = (place.session().await, place.session().await);
    assert!(lead(&client, "a", 0, 1).await.granted);
    client.run("SET lock_timeout = '5s'").await;
    other.run("BEGIN; SELECT FROM leader_election WHERE service_name = 'e' FOR UPDATE").await;
    let started = now();
    assert_eq!(renew(&client, "a", 1).await.unwrap_err(), "55P03");
    for sql in ["SELECT tenure_release('e', 'a', 1)", "SELECT tenure_try_lead('e', 'a', 30000)"] {
        let says = client.try_run(sql).await.unwrap_err();
        assert!(says.starts_with("55P03") && says.contains("try again"), "{says}");
    }
    let b = lead(&client, "b", 0, 1).await;
    assert!(!b.granted && b.holder == "a", "whoever only asks needs no lock: {b:?}");
    assert!(now() - started < Duration::from_secs(4), "it waited for the lock");
    other.run("ROLLBACK").await;
    assert!(renew(&client, "a", 1).await.unwrap().granted);

    // A fence passes renewals, and keeps a successor out (P1).
    other.run("BEGIN; SELECT tenure_fence('e', 1)").await;
    assert!(renew(&client, "a", 1).await.unwrap().granted);
    assert!(client.truth("SELECT tenure_release('e', 'a', 1)").await);
    let nobody = Answer { granted: false, term: 1, remaining_ms: 0, holder: String::new() };
    assert_eq!(lead(&client, "b", 0, 1).await, nobody);
    other.run("COMMIT").await;
    until("it is to be had", || async { lead(&client, "b", 0, 1).await.granted }).await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_calls_are_durable_and_tell_others_and_spoil_no_transaction() {
    let server = common::server();
    let place = Place::new(&server).await;
    let client = place.session().await;
    let setting = "SELECT current_setting('synchronous_commit') = ";
    client.run("SET synchronous_commit = off").await;
    for (call, after) in [
        ("tenure_try_lead('e', 'a', 30000)", "on"),
        ("tenure_renew('e', 'a', 1, 30000)", "on"),
        ("tenure_release('e', 'a', 1)", "off"),
    ] {
        client.run(&format!("BEGIN; SELECT {call}")).await;
        assert!(client.truth(&format!("{setting}'{after}'")).await, "{call}");
        client.run("COMMIT").await;
    }
    // A release in a transaction of the user's leaves that one durable.
    client.run("RESET synchronous_commit").await;
    assert!(lead(&client, "a", 1, 0).await.granted);
    client.run("BEGIN; SELECT tenure_release('e', 'a', 2)").await;
    assert!(client.truth(&format!("{setting}'on'")).await);
    client.run("COMMIT").await;

    let store = place.store();
    let mut hints = store.hints();
    store.read(&name("e")).await.unwrap();
    assert_eq!(next(&mut *hints).await, Hint::Any);
    assert!(lead(&client, "a", 2, 0).await.granted);
    assert!(client.truth("SELECT tenure_release('e', 'a')").await);
    assert_eq!(next(&mut *hints).await, Hint::Election(name("e")));

    for (sql, code) in [
        ("BEGIN READ ONLY; SELECT tenure_try_lead('e', 'a', 30000)", "25006"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT tenure_try_lead('e', 'a', 30000)", "TN004"),
        ("SELECT tenure_try_lead('', 'a', 30000)", "22023"),
        ("SELECT tenure_try_lead(NULL, 'a', 30000)", "22023"),
        ("SELECT tenure_try_lead('e', '', 30000)", "22023"),
        ("SELECT tenure_try_lead('e', E'a\\n', 30000)", "22023"),
        ("SELECT tenure_try_lead('e', repeat('a', 256), 30000)", "22023"),
        ("SELECT tenure_try_lead('e', 'a', 99)", "22023"),
        ("SELECT tenure_try_lead('e', 'a', NULL)", "22023"),
        ("SELECT tenure_try_lead('e', 'a', 30000, 2147483647)", "22023"),
        ("SELECT tenure_renew('e', 'a', NULL, 30000)", "22023"),
    ] {
        let says = client.try_run(sql).await.unwrap_err();
        assert!(says.starts_with(code), "{sql}: {says}");
        let _ = client.try_run("ROLLBACK").await;
    }
    assert_eq!(place.row("e").await, (String::new(), 3));
}

/// Terms that do not fit are in the base; these clients have the column, which the fence takes.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_terms_above_all_integers_stay_integers_there() {
    let server = common::server();
    let place = Place::new(&server).await;
    let client = place.session().await;
    assert_eq!(lead(&client, "a", 0, 1).await.term, 1);
    place.store().raise_terms(common::term(1_800_000_000_000)).await.unwrap();
    assert_eq!(lead(&client, "a", 1, 2).await.term, 2);
    assert_eq!(lead(&client, "a", 1, 3).await.term, 2, "a lost answer");
    assert_eq!(client.number("SELECT tenure_term('e')").await, 1_800_000_000_001);
    assert!(renew(&client, "a", 2).await.unwrap().granted);
    let no = lead(&client, "b", 0, 1).await;
    assert!(!no.granted && no.term == 2, "{no:?}");
    client.run("BEGIN; SELECT tenure_fence('e', 2); COMMIT").await;
    assert!(client.truth("SELECT tenure_release('e', 'a', 2)").await);
    assert_eq!(lead(&client, "a", 2, 4).await.term, 3);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_an_election_by_an_advisory_lock_is_not_to_be_had() {
    let server = common::server();
    let place = Place::new(&server).await;
    let url = server.replacen("postgres://", "postgres+advisory://", 1);
    let url = format!("{url}?schema={}", place.schema);
    let lock = tenure_postgres::AdvisoryConfig::from_url(&url).unwrap().open();
    let holder = crate::advisory_common::Player::new(&lock, "holder");
    let election = format!("advisory {}", place.schema);
    granted(holder.acquire(&election).await);
    let client = place.session().await;
    let sql = format!("SELECT tenure_try_lead('{election}', 'a', 30000)");
    let says = client.try_run(&sql).await.unwrap_err();
    assert!(says.starts_with("TN003") && says.contains("by an advisory lock, as holder"), "{says}");
}

/// What the guide says of `anon`: nothing of tenure's is left to it, and all that is not tenure's.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_guide_leaves_anon_nothing_of_tenure_and_all_of_the_rest() {
    let server = common::server();
    let (place, admin) = supabase(&server).await;
    let can = async |role: &str| -> String {
        let sql = format!(
            "SELECT coalesce(string_agg(what, ' ' ORDER BY what), '') FROM ( \
             SELECT proname::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace \
             AND has_function_privilege('{role}', oid, 'EXECUTE') \
             UNION ALL SELECT relname::text FROM pg_class \
             WHERE relnamespace = current_schema()::regnamespace AND (relkind = 'r' \
             AND has_table_privilege('{role}', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE') \
             OR CASE relkind WHEN 'S' THEN has_sequence_privilege('{role}', oid, 'USAGE, SELECT') \
             END)) AS u (what)"
        );
        admin.client.query_one(&sql, &[]).await.unwrap().get(0)
    };
    // Of what runs with the rights of its owner nothing was given away to begin with.
    for role in ["anon", "authenticated", "service_role"] {
        let before = can(role).await;
        assert!(before.contains("leader_election") && before.contains("tenure_apply"), "{before}");
        for call in ["tenure_try_lead", "tenure_renew", "tenure_release"] {
            assert!(!before.contains(call), "{role}: {before}");
        }
    }
    admin.run("CREATE TABLE mine (a integer); CREATE TABLE tenure_track (a integer)").await;
    admin.run("CREATE FUNCTION tenure_of_mine() RETURNS integer LANGUAGE sql RETURN 1").await;
    let [_, revoke, grant] = &guide(&place)[..] else { panic!("the guide has other pieces") };
    admin.run(&format!("{revoke} {grant}")).await;
    for role in ["anon", "authenticated"] {
        assert_eq!(can(role).await, "mine tenure_of_mine tenure_track");
    }
    let worker = can("service_role").await;
    assert!(worker.contains("tenure_try_lead") && worker.contains("tenure_release"), "{worker}");
    // Creating them again keeps what was said; those that are new are for nobody again.
    let again = place.store().migration_sql();
    admin.run("GRANT EXECUTE ON FUNCTION tenure_renew TO anon").await;
    let undone = "DROP FUNCTION tenure_release; DELETE FROM tenure_migrations WHERE version >= 9";
    admin.run(undone).await;
    admin.run(&again).await;
    let anon = can("anon").await;
    assert!(anon.contains("tenure_renew") && !anon.contains("tenure_release"), "{anon}");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_function_of_the_guide_writes_while_its_term_is_the_latest() {
    let server = common::server();
    let (place, admin) = supabase(&server).await;
    admin.run("CREATE TABLE invoice (id bigint, sent boolean)").await;
    admin.run("INSERT INTO invoice VALUES (7, false)").await;
    admin.run(&guide(&place)[0]).await;
    let worker = worker(&place).await;
    assert!(lead_at(&worker, "invoices", "a").await.granted);
    let write = "SELECT send_invoice(term => 1, invoice_id => 7)";
    worker.run(write).await;
    assert!(admin.truth("SELECT sent FROM invoice").await);
    admin.run("UPDATE invoice SET sent = false").await;
    assert!(worker.truth("SELECT tenure_release('invoices', 'a', 1)").await);
    assert_eq!(lead_at(&worker, "invoices", "b").await.term, 2);
    let says = worker.try_run(write).await.unwrap_err();
    assert!(says.starts_with("TN001"), "{says}");
    assert!(!admin.truth("SELECT sent FROM invoice").await, "nothing was written");
    let anon = place.session().await;
    anon.run("SET ROLE anon").await;
    let says = anon.try_run(&write.replace('1', "2")).await.unwrap_err();
    assert!(says.starts_with("42501"), "{says}");
}

async fn lead_at(session: &Session, service: &str, candidate: &str) -> Answer {
    let sql = "SELECT * FROM tenure_try_lead($1, $2, 30000)";
    answer(&session.client.query_one(sql, &[&service, &candidate]).await.unwrap())
}

async fn next(hints: &mut dyn Hints) -> Hint {
    let next = poll_fn(|context| hints.poll_next(context));
    tokio::time::timeout(common::PATIENCE, next).await.unwrap().unwrap()
}
