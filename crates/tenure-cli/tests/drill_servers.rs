//! `tenure drill` on Postgres and Redis: every kind of fault, the network's among them, and
//! nothing left in the store afterwards.
#![cfg(all(feature = "postgres", feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod servers;
mod support;

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use servers::{Postgres, Redis};
use support::{Done, Place, Process, finish, sabotaged_binary};

/// Short leases, so that many faults fit into the time that tests have.
const FLAGS: [&str; 6] = ["--json", "--ttl", "600ms", "--candidates", "4", "--rounds"];

/// Seven kinds, six times each.
const ROUNDS: u64 = 42;

const KINDS: [&str; 7] = ["kill", "freeze", "resign", "cut", "hole", "reset", "delay"];

fn drill(url: &str) -> Command {
    let mut command = Place::new().command(&["drill"]);
    command.env("TENURE_STORE", url);
    command
}

/// The object that a drill ended with.
#[track_caller]
fn object(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// Runs the whole of it. Whatever the store promises, terms rise and no stale write passes: the
/// checker of the drill fails it otherwise.
#[track_caller]
fn mixed_faults(url: &str, rounds: u64) -> Value {
    let done = finish(drill(url).args(FLAGS).arg(rounds.to_string()).args(["--seed", "5"]));
    let json = object(&done);
    assert_eq!((done.code, &json["passed"]), (0, &true.into()), "{json:#}\n{}", done.err);
    assert_eq!(json["rounds"], rounds);
    assert_eq!(json["violations"], Value::Array(vec![]));
    let faults = json["faults"].as_array().unwrap();
    let kinds: Vec<&str> = faults.iter().map(|fault| fault["fault"].as_str().unwrap()).collect();
    assert_eq!(kinds, KINDS);
    for fault in faults {
        assert_eq!(fault["rounds"], rounds / 7, "{fault}");
        if ["kill", "freeze", "resign", "cut", "hole"].contains(&fault["fault"].as_str().unwrap()) {
            assert!(fault["gap_p50_ms"].as_f64().unwrap() > 0.0, "{fault}");
        }
    }
    assert!(json["stale_writes_stopped"].as_u64().unwrap() >= rounds / 7, "{json:#}");
    assert!(json["writes"].as_u64().unwrap() > rounds, "{json:#}");
    json
}

/// What a drill of this name has left in Postgres.
fn left(postgres: &Postgres, election: &str) -> i64 {
    let schema = election.replace('-', "_");
    postgres.number(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'"))
        + postgres.number(&format!("SELECT count(*) FROM pg_class WHERE relname LIKE '%{schema}%'"))
}

#[test]
#[ignore = "needs a PostgreSQL server"]
fn needs_postgres_mixed_faults_pass_and_leave_nothing() {
    let Some(postgres) = Postgres::find() else { return };
    let json = mixed_faults(&postgres.url, ROUNDS);
    assert_eq!(json["overlaps"], 0, "{json:#}");
    assert_eq!(left(&postgres, json["election"].as_str().unwrap()), 0);
}

/// Its promise is weaker: the server may free a lock whose holder has not noticed. That overlap is
/// measured, ends within a ttl (or the drill fails), and the fence stops the older one.
#[test]
#[ignore = "needs a PostgreSQL server"]
fn needs_postgres_mixed_faults_pass_on_advisory_locks_too() {
    let Some(postgres) = Postgres::find() else { return };
    let url = postgres.url.replacen("postgres://", "postgres+advisory://", 1);
    let json = mixed_faults(&url, ROUNDS);
    assert_eq!(json["overlap_admitted"], true);
    assert!(json["overlap_max_ms"].as_f64().is_none_or(|longest| longest <= 600.0), "{json:#}");
    assert_eq!(left(&postgres, json["election"].as_str().unwrap()), 0);
}

#[test]
#[ignore = "needs a PostgreSQL server"]
fn needs_postgres_after_ctrl_c_nothing_is_left() {
    let Some(postgres) = Postgres::find() else { return };
    let mut drill = Process::new(drill(&postgres.url).args(["--ttl", "1s", "--rounds", "500"]));
    let told = drill.line("in the election ");
    let election = told.split("in the election ").nth(1).unwrap().split(',').next().unwrap();
    drill.line("round 1");
    common::eventually("the schema of the drill", || (left(&postgres, election) > 0).then_some(()));
    drill.signal(Signal::INT);
    assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
    assert_eq!(left(&postgres, election), 0);
}

#[test]
#[ignore = "needs a PostgreSQL server"]
fn needs_postgres_a_role_that_may_create_nothing_gets_a_sentence() {
    let Some(postgres) = Postgres::find() else { return };
    let role = format!("drill_nobody_{}", std::process::id());
    postgres.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'nothing'"));
    let (_, place) = postgres.url.rsplit_once('@').unwrap();
    let url = format!("postgres://{role}:nothing@{place}");
    let done = finish(drill(&url).args(["--rounds", "1"]));
    postgres.run(&format!("DROP ROLE {role}"));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("GRANT CREATE ON DATABASE"), "{done:?}");
    assert!(!done.err.contains("left in the store"), "{done:?}");
}

#[test]
#[ignore = "needs a Redis server"]
fn needs_redis_mixed_faults_pass_and_leave_nothing() {
    let redis = Redis::start().once_up();
    redis.ask("SET something else").unwrap();
    let json = mixed_faults(&format!("{}?prefix=shop:", redis.url()), ROUNDS);
    assert_eq!(json["overlaps"], 0, "{json:#}");
    assert_eq!(redis.size(), ":1");
}

#[test]
#[ignore = "needs a Redis server"]
fn needs_redis_after_ctrl_c_nothing_is_left() {
    let redis = Redis::start().once_up();
    let flags = ["--ttl", "1s", "--rounds", "500", "--faults", "hole,freeze"];
    let mut drill = Process::new(drill(&redis.url()).args(flags));
    drill.line("round 1");
    common::eventually("keys of the drill", || (redis.size() != ":0").then_some(()));
    drill.signal(Signal::INT);
    assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
    assert_eq!(redis.size(), ":0");
}

#[test]
#[ignore = "needs a Redis server"]
fn needs_redis_a_restart_is_done_by_the_users_own_command_only() {
    let redis = Redis::start().once_up();
    let done = finish(drill(&redis.url()).args(["--faults", "restart"]));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("--restart-cmd"), "{done:?}");
    // It forgets everything, and has another run id: nobody leads before it has settled.
    let client = servers::program().with_file_name("redis-cli");
    let command = format!(
        "{0} -p {1} DEBUG RESTART; until {0} -p {1} PING | grep -q PONG; do sleep 0.02; done",
        client.display(),
        redis.port
    );
    let flags = ["4", "--faults", "restart,kill", "--restart-cmd", &command];
    let done = finish(drill(&redis.url()).args(FLAGS).args(flags));
    let json = object(&done);
    assert_eq!((done.code, &json["overlaps"]), (0, &0.into()), "{json:#}\n{}", done.err);
    let restarts = json["faults"].as_array().unwrap().last().unwrap();
    assert_eq!((&restarts["fault"], &restarts["rounds"]), (&"restart".into(), &2.into()));
    assert!(restarts["gap_p50_ms"].as_f64().unwrap() >= 600.0, "the leases are gone: {restarts}");
    let broken = finish(
        drill(&redis.url())
            .args(FLAGS)
            .args(["1", "--faults", "restart"])
            .args(["--restart-cmd", "exit 3"]),
    );
    assert_eq!(broken.code, 2, "{broken:?}");
    assert!(broken.err.contains("exit status: 3"), "{broken:?}");
    assert_eq!(redis.size(), ":0");
}

/// What no drill on SQLite can see, because no reply takes long there: `docs/proof-faults.md`.
#[test]
#[ignore = "takes minutes: it builds a binary of its own"]
fn long_redis_a_drill_sees_trust_that_is_counted_from_replies() {
    let (binary, redis) = (sabotaged_binary(), Redis::start().once_up());
    let judged = |sabotage: Option<&str>| {
        let mut command = Command::new(&binary);
        command.args(["drill", "--json", "--ttl", "1s", "--candidates", "3", "--rounds", "12"]);
        command.args(["--faults", "hole", "--store", &redis.url()]).env_remove("TENURE_SABOTAGE");
        command.envs(sabotage.map(|name| ("TENURE_SABOTAGE", name)));
        let done = finish(&mut command);
        (done.code, object(&done)["violations"].to_string())
    };
    assert_eq!(judged(None), (0, "[]".to_owned()));
    let (code, violations) = judged(Some("trust-from-reply"));
    assert!(code == 1 && violations.contains("I1: "), "{violations}");
}
