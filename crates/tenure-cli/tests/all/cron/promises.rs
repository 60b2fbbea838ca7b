//! What is promised about ticks, kept by three processes whose leader is killed or frozen.

use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;

use super::fleet::{Fleet, Outcome, second};
use super::workload;
use crate::servers::{self, Postgres};
use crate::support::Place;

/// In the normal run: a kill, a freeze and two kills more, some 20 s.
const SHORT: (usize, usize) = (4, 3);

/// Two minutes of it.
const LONG: (usize, usize) = (24, 4);

fn at_most_once(url: Option<&str>, (rounds, ticks): (usize, usize)) {
    // It takes a while, so that faults find it running.
    let fleet = Fleet::new(url, &["--missed", "run-once"]).then("sleep 0.4");
    let outcome = fleet.play(rounds, ticks);
    outcome.is_gapless();
    outcome.ran_once();
    let known = ["ok", "failed", "timed_out", "abandoned", "skipped"];
    assert!(outcome.ledger.values().all(|state| known.contains(&state.as_str())));
    for at in outcome.ran.keys() {
        let state = &outcome.ledger[&second(at)];
        assert!(["ok", "abandoned"].contains(&state.as_str()), "{at} ran and is {state}");
    }
    tell("at-most-once", &outcome);
}

fn at_least_once(url: Option<&str>, (rounds, ticks): (usize, usize)) {
    let flags = ["--delivery", "at-least-once", "--missed", "run-all(1000)"];
    let outcome = Fleet::new(url, &flags).then("sleep 0.4").play(rounds, ticks);
    outcome.is_gapless();
    let not_ok: Vec<_> = outcome.ledger.iter().filter(|(_, state)| *state != "ok").collect();
    assert!(not_ok.is_empty(), "{not_ok:?}");
    assert_eq!(outcome.ran.len(), outcome.ledger.len(), "a tick did not run");
    tell("at-least-once", &outcome);
}

const TRANSACTIONAL: [&str; 4] = ["--delivery", "transactional", "--missed", "run-all(1000)"];

/// Each tick of the ledger took effect exactly once.
fn took_effect_once(outcome: &Outcome, effects: &[String]) {
    outcome.is_gapless();
    let mut seconds: Vec<i64> = effects.iter().map(|at| second(at)).collect();
    seconds.sort_unstable();
    let ok: Vec<i64> = outcome.ledger.keys().copied().collect();
    assert_eq!(outcome.count("ok"), ok.len(), "{:?}", outcome.ledger);
    // The last one may have been interrupted by the end of the fleet, before or after its effect.
    let last = ok.last().copied().unwrap_or(0);
    seconds.retain(|at| *at <= last);
    assert_eq!(seconds, ok, "effects and ticks differ");
    tell("transactional", outcome);
}

fn transactional_on_sqlite((rounds, ticks): (usize, usize)) {
    let command = workload::command().join(" ");
    let fleet = Fleet::new(None, &TRANSACTIONAL).then(&format!("{command} >/dev/null"));
    let file = fleet.path("users.db");
    let conn = Connection::open(&file).unwrap();
    conn.pragma_update(None, "journal_mode", "WAL").unwrap();
    tenure_sqlite::tick::install(&conn).unwrap();
    conn.execute_batch("CREATE TABLE effect (at TEXT NOT NULL)").unwrap();
    // The directory goes with the fleet.
    let outcome = fleet.env(workload::FILE, &file.display().to_string()).play(rounds, ticks);
    let mut select = conn.prepare("SELECT at FROM effect").unwrap();
    let effects = select.query_map((), |row| row.get(0)).unwrap();
    let effects: Vec<String> = effects.map(Result::unwrap).collect();
    took_effect_once(&outcome, &effects);
}

fn transactional_on_postgres(base: &Postgres, url: &str, schema: &str, size: (usize, usize)) {
    base.run(&format!("CREATE TABLE {schema}.effect (at text NOT NULL)"));
    let sql = "BEGIN; SELECT tenure_tick('$TENURE_ELECTION', $TENURE_TERM, '$TENURE_JOB', \
               '$TENURE_SCHEDULED_AT', $TENURE_ATTEMPT); \
               INSERT INTO effect VALUES ('$TENURE_SCHEDULED_AT'); COMMIT";
    let psql = format!("psql -X -q -v ON_ERROR_STOP=1 \"$CRON_TEST_URL\" -c \"{sql}\" >/dev/null");
    let outcome = Fleet::new(Some(url), &TRANSACTIONAL)
        .then(&psql)
        .env("CRON_TEST_URL", &base.url)
        .env("PGOPTIONS", &format!("-c search_path={schema}"))
        .play(size.0, size.1);
    let count = |sql: &str| base.number(&format!("SELECT {sql} FROM {schema}.effect"));
    assert_eq!(count("count(*)"), count("count(DISTINCT at)"), "a tick took effect twice");
    let effects: Vec<String> = outcome
        .ledger
        .keys()
        .map(|at| tenure_cron::show_instant(at * 1000))
        .filter(|at| {
            base.number(&format!("SELECT count(*) FROM {schema}.effect WHERE at = '{at}'")) > 0
        })
        .collect();
    // All but what the end of the fleet interrupted.
    assert!(usize::try_from(count("count(*)")).unwrap() <= effects.len() + 1);
    took_effect_once(&outcome, &effects);
}

#[allow(clippy::print_stdout, reason = "the numbers of a long run are worth reading")]
fn tell(what: &str, outcome: &Outcome) {
    println!(
        "{what}: {} ticks, {} ok, {} abandoned, {} skipped, {} runs, {} faults",
        outcome.ledger.len(),
        outcome.count("ok"),
        outcome.count("abandoned"),
        outcome.count("skipped"),
        outcome.ran.values().sum::<usize>(),
        outcome.faults
    );
}

/// A schema of its own, migrated, and the URL of a store in it.
fn migrated(base: &Postgres, scheme: &str) -> (String, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("cron_{}_{number}", std::process::id());
    let sign = if base.url.contains('?') { '&' } else { '?' };
    let (_, rest) = base.url.split_once("://").unwrap();
    let migrates = format!("postgres://{rest}{sign}schema={schema}");
    base.run(&format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
    let mut command = Place::new().command(&["migrate"]);
    let done = crate::support::finish(command.env("TENURE_STORE", &migrates));
    assert_eq!(done.code, 0, "{done:?}");
    (format!("{scheme}://{rest}{sign}schema={schema}"), schema)
}

#[test]
fn sqlite_at_most_once() {
    at_most_once(None, SHORT);
}

#[test]
fn sqlite_at_least_once() {
    at_least_once(None, SHORT);
}

#[test]
fn sqlite_transactional() {
    transactional_on_sqlite(SHORT);
}

#[needs(long)]
#[test]
fn long_sqlite_keeps_all_promises() {
    at_most_once(None, LONG);
    at_least_once(None, LONG);
    transactional_on_sqlite(LONG);
}

fn on_postgres(scheme: &str, size: (usize, usize)) {
    let base = Postgres::connect();
    at_most_once(Some(&migrated(&base, scheme).0), size);
    at_least_once(Some(&migrated(&base, scheme).0), size);
    let (url, schema) = migrated(&base, scheme);
    transactional_on_postgres(&base, &url, &schema, size);
}

#[needs(postgres)]
#[test]
fn needs_postgres_all_promises_are_kept() {
    on_postgres("postgres", SHORT);
}

#[needs(postgres)]
#[test]
fn needs_postgres_all_promises_are_kept_with_advisory_locks() {
    on_postgres("postgres+advisory", SHORT);
}

#[needs(long, postgres)]
#[test]
fn long_postgres_keeps_all_promises() {
    on_postgres("postgres", LONG);
    on_postgres("postgres+advisory", LONG);
}

fn on_redis(size: (usize, usize)) {
    let redis = servers::redis();
    let url = format!("{}?settle=off", redis.url());
    at_most_once(Some(&format!("{url}&prefix=a:")), size);
    at_least_once(Some(&format!("{url}&prefix=b:")), size);
}

#[needs(redis)]
#[test]
fn needs_redis_promises_are_kept() {
    on_redis(SHORT);
}

#[needs(long, redis)]
#[test]
fn long_redis_keeps_promises() {
    on_redis(LONG);
}
