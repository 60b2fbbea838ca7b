//! What others have changed of tenure's tables and functions is told and put right (P8).

use tenure_core::{Checkup, Level};
use tokio::runtime::Handle;

use crate::common::{self, Place, Player, granted, until};

/// The older design: table and functions.
const OLD: &str = include_str!("common/old.sql");

/// What somebody did, and a word of what is said of it.
const CHANGES: [(&str, &str); 12] = [
    (OLD, "the function try_become_leader(p_service_name character varying"),
    (
        "ALTER TABLE leader_election DISABLE TRIGGER tenure_rules",
        "trigger tenure_rules of leader_el",
    ),
    (
        "DROP TRIGGER tenure_rules_rows ON leader_election",
        "tenure_rules_rows of leader_election is m",
    ),
    (
        "ALTER TABLE leader_election DROP COLUMN tenure_base",
        "leader_election.tenure_base is missing",
    ),
    ("ALTER TABLE tenure_ledger DROP COLUMN attempt", "column tenure_ledger.attempt is missing"),
    ("ALTER TABLE tenure_ledger ALTER attempt DROP DEFAULT", "is \"integer NOT NULL\", not"),
    (
        "ALTER TABLE tenure_floor DROP CONSTRAINT tenure_floor_term_check",
        "constraint tenure_floor: CH",
    ),
    (
        "DROP INDEX leader_election_released_at",
        "released_at of leader_election_released is missing",
    ),
    ("DROP TABLE tenure_once_key", "the table tenure_once_key is missing"),
    ("DROP FUNCTION tenure_call CASCADE", "the function tenure_call("),
    ("ALTER FUNCTION tenure_fence SECURITY DEFINER", "SECURITY DEFINER"),
    (
        "CREATE OR REPLACE FUNCTION tenure_expires(p_last timestamptz, p_ttl_us bigint, \
         p_caller_us bigint) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN p_last",
        "function tenure_expires(",
    ),
];

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_what_others_changed_is_told_and_put_right() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    assert_eq!(store.differences().await.unwrap(), [""; 0]);
    let a = Player::new(&store, "a", 1);
    let term = a.takes("e", 1).await;
    for (change, word) in CHANGES {
        session.run(change).await;
        let differs = store.differences().await.unwrap();
        assert!(differs.iter().any(|differs| differs.contains(word)), "{change}: {differs:?}");
        let report = store.examine(common::TTL).await;
        let finding = report.findings.iter().find(|finding| finding.what.contains(word));
        let finding = finding.unwrap_or_else(|| panic!("{change}: {report:?}"));
        assert!(finding.level == Level::Safety && finding.todo.contains("tenure migrate"));
        let migrated = store.migrate().await.unwrap();
        assert_eq!(migrated.repaired, differs, "{change}");
        assert_eq!(store.differences().await.unwrap(), [""; 0], "{change}");
        assert_eq!(store.migrate().await.unwrap().repaired, [""; 0]);
        granted(a.renew("e", term).await);
    }
    // What begins as ours does and is not ours is left alone.
    session
        .run("CREATE TABLE tenure_track (a integer); ALTER TABLE leader_election ADD x int")
        .await;
    session.run("CREATE FUNCTION tenure_of_mine() RETURNS integer LANGUAGE sql RETURN 1").await;
    session.run("CREATE FUNCTION step_down(integer) RETURNS integer LANGUAGE sql RETURN 1").await;
    assert_eq!(store.differences().await.unwrap(), [""; 0]);
}

/// The printed script puts right what people change most, waits for nobody for long, and may run
/// inside of a transaction, as some editors have it.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_printed_script_puts_right_and_tries_again() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    session.run(OLD).await;
    session.run("ALTER TABLE leader_election DISABLE TRIGGER ALL").await;
    assert!(store.differences().await.unwrap().len() >= 6);
    let slow = place.session().await;
    slow.run("BEGIN; LOCK TABLE leader_election IN ROW EXCLUSIVE MODE").await;
    let (editor, script) = (place.session().await, store.migration_sql());
    let script = format!("BEGIN; {script} SELECT 1; COMMIT");
    let pid = editor.pid().await;
    let running = Handle::current().spawn(async move { editor.try_run(&script).await });
    // It has been given up, and is tried again.
    let sleeps = format!(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'"
    );
    until("it tries again", || async { session.truth(&sleeps).await }).await;
    assert!(!running.is_finished());
    slow.run("COMMIT").await;
    running.await.unwrap().unwrap();
    assert_eq!(store.differences().await.unwrap(), [""; 0]);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_older_functions_keep_their_rights_and_take_the_place_of_others() {
    let server = common::server();
    let place = Place::empty(&server);
    let admin = common::Session::open(&server).await;
    let (schema, role) = (&place.schema, format!("old_{}", std::process::id()));
    admin.run(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {OLD}")).await;
    // One more of each, with texts, and rights of their own.
    admin
        .run(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema} TO {role}; \
             CREATE FUNCTION step_down(p_service_name text, p_leader_id text) RETURNS boolean \
             LANGUAGE sql AS 'SELECT false'; \
             REVOKE EXECUTE ON FUNCTION step_down(text, text) FROM PUBLIC; \
             GRANT EXECUTE ON FUNCTION step_down(text, text) TO {role}; \
             DROP FUNCTION step_down(varchar, varchar); \
             ALTER FUNCTION try_become_leader SECURITY DEFINER; \
             ALTER FUNCTION step_down SECURITY DEFINER"
        ))
        .await;
    place.store().migrate().await.unwrap();
    assert_eq!(place.store().differences().await.unwrap(), [""; 0]);
    let client = place.session().await;
    client.run(&format!("SET ROLE {role}")).await;
    // Its role has no right on any table; it led before, and leads now.
    let lead = "SELECT try_become_leader(p_service_name => 'e', p_candidate_id => 'a')";
    assert!(client.truth(lead).await);
    let down = "SELECT step_down(p_service_name => 'e'::text, p_leader_id => 'a'::text)";
    assert!(client.truth(down).await);
    let says = client.try_run("SELECT leader_heartbeat('e', 'a')").await.unwrap_err();
    assert!(says.starts_with("42501"), "this one had the caller's rights: {says}");
    let public =
        "SELECT has_function_privilege('public', 'step_down(varchar, varchar)', 'EXECUTE')";
    assert!(!admin.truth(public).await);

    // A second one, beside ours: calls by name would be ambiguous.
    let again = "CREATE FUNCTION leader_heartbeat(p_service_name text, p_leader_id text) \
                 RETURNS boolean LANGUAGE sql AS 'SELECT true'";
    admin.run(again).await;
    let differs = place.store().differences().await.unwrap();
    assert!(differs[0].contains("is in the way of tenure's"), "{differs:?}");
    assert_eq!(place.store().migrate().await.unwrap().repaired, differs);
    admin.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_constraint_that_keeps_leases_out_is_named() {
    let server = common::server();
    for (constraint, name) in [
        ("ADD CONSTRAINT first_term CHECK (term > 0)", "first_term"),
        ("ADD CONSTRAINT one_each UNIQUE (leader_id)", "one_each"),
        ("ADD CONSTRAINT somebody CHECK (leader_id <> '')", "somebody"),
        ("ALTER metadata SET NOT NULL", "metadata"),
    ] {
        let place = Place::empty(&server);
        let (admin, schema) = (common::Session::open(&server).await, &place.schema);
        admin.run(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {OLD}")).await;
        admin.run(&format!("ALTER TABLE leader_election {constraint}")).await;
        let says = place.store().migrate().await.unwrap_err().to_string();
        assert!(says.contains("refuses what tenure writes") && says.contains(name), "{says}");
        let made = format!("SELECT to_regclass('{schema}.tenure_floor') IS NULL");
        assert!(admin.truth(&made).await, "nothing was changed");
    }
    // One that does no harm stays.
    let place = Place::empty(&server);
    let (admin, schema) = (common::Session::open(&server).await, &place.schema);
    admin.run(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {OLD}")).await;
    admin.run("ALTER TABLE leader_election ADD CHECK (length(service_name) < 300)").await;
    place.store().migrate().await.unwrap();
}
