//! `tenure drill` on Postgres and Redis: every kind of fault, the network's among them, and
//! nothing left in the store afterwards.
#![cfg(all(feature = "postgres", feature = "redis"))]

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tenure_testbed::postgres::OwnServer;

use crate::common;
use crate::servers::{self, Postgres};
use crate::support::{Done, Place, Process, finish, sabotaged_binary};

/// Short leases, so that many faults fit into the time that tests have.
const FLAGS: [&str; 6] = ["--json", "--ttl", "600ms", "--candidates", "4", "--rounds"];

/// Eight kinds, six times each.
const ROUNDS: u64 = 48;

const KINDS: [&str; 8] = ["kill", "die", "freeze", "resign", "cut", "hole", "reset", "delay"];

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
        assert_eq!(fault["rounds"], rounds / 8, "{fault}");
        if KINDS[..6].contains(&fault["fault"].as_str().unwrap()) {
            assert!(fault["gap_p50_ms"].as_f64().unwrap() > 0.0, "{fault}");
        }
    }
    assert!(json["stale_writes_stopped"].as_u64().unwrap() >= rounds / 8, "{json:#}");
    assert!(json["writes"].as_u64().unwrap() > rounds, "{json:#}");
    json
}

/// What a drill of this name has left in Postgres.
fn left(postgres: &Postgres, election: &str) -> i64 {
    let schema = election.replace('-', "_");
    postgres.number(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'"))
        + postgres.number(&format!("SELECT count(*) FROM pg_class WHERE relname LIKE '%{schema}%'"))
}

#[needs(postgres)]
#[test]
fn needs_postgres_mixed_faults_pass_and_leave_nothing() {
    let postgres = Postgres::connect();
    let json = mixed_faults(&postgres.url, ROUNDS);
    assert_eq!(json["overlaps"], 0, "{json:#}");
    assert_eq!(left(&postgres, json["election"].as_str().unwrap()), 0);
}

/// Its promise is weaker: the server may free a lock whose holder has not noticed. That overlap is
/// measured, ends within a ttl (or the drill fails), and the fence stops the older one.
#[needs(postgres)]
#[test]
fn needs_postgres_mixed_faults_pass_on_advisory_locks_too() {
    let postgres = Postgres::connect();
    let url = postgres.url.replacen("postgres://", "postgres+advisory://", 1);
    let json = mixed_faults(&url, ROUNDS);
    assert_eq!(json["overlap_admitted"], true);
    assert!(json["overlap_max_ms"].as_f64().is_none_or(|longest| longest <= 600.0), "{json:#}");
    assert_eq!(left(&postgres, json["election"].as_str().unwrap()), 0);
}

#[needs(postgres)]
#[test]
fn needs_postgres_after_ctrl_c_nothing_is_left() {
    let postgres = Postgres::connect();
    let mut drill = Process::new(drill(&postgres.url).args(["--ttl", "1s", "--rounds", "500"]));
    let told = drill.line("in the election ");
    let election = told.split("in the election ").nth(1).unwrap().split(',').next().unwrap();
    drill.line("round 1");
    common::eventually("the schema of the drill", || (left(&postgres, election) > 0).then_some(()));
    drill.signal(Signal::INT);
    assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
    assert_eq!(left(&postgres, election), 0);
}

/// A store that is not as it was found is no success, however the drill went.
#[needs(postgres)]
#[test]
fn needs_postgres_a_clean_up_that_fails_is_told_and_changes_the_code() {
    let postgres = Postgres::connect();
    let flags = ["--ttl", "600ms", "--candidates", "2", "--rounds", "1", "--faults", "resign"];
    let mut drill = Process::new(drill(&postgres.url).args(flags));
    let told = drill.line("in the election ");
    let election = told.split("in the election ").nth(1).unwrap().split(',').next().unwrap();
    let schema = election.replace('-', "_");
    drill.line("round 1");
    // A reader in a transaction keeps the table.
    postgres.run(&format!("BEGIN; SELECT count(*) FROM {schema}.written"));
    assert_eq!(drill.code(), 125, "{:#?}", drill.seen());
    let told = |part: &str| drill.seen().iter().any(|line| line.contains(part));
    assert!(told("may be left in the store") && told("passed: 1 fault"), "{:#?}", drill.seen());
    postgres.run(&format!("ROLLBACK; DROP SCHEMA {schema} CASCADE"));
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_role_that_may_create_nothing_gets_a_sentence() {
    let postgres = Postgres::connect();
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

#[needs(redis)]
#[test]
fn needs_redis_mixed_faults_pass_and_leave_nothing() {
    let redis = servers::redis();
    redis.ask("SET something else").unwrap();
    // It looks at no key but its own: the database of the user may be large.
    assert_eq!(redis.ask("ACL SETUSER default -scan -keys").unwrap(), "+OK");
    let json = mixed_faults(&format!("{}?prefix=shop:", redis.url()), ROUNDS);
    assert_eq!(json["overlaps"], 0, "{json:#}");
    assert_eq!(redis.size(), ":1");
}

#[needs(redis)]
#[test]
fn needs_redis_after_ctrl_c_nothing_is_left() {
    let redis = servers::redis();
    let flags = ["--ttl", "1s", "--rounds", "500", "--faults", "hole,freeze"];
    let mut drill = Process::new(drill(&redis.url()).args(flags));
    drill.line("round 1");
    common::eventually("keys of the drill", || (redis.size() != ":0").then_some(()));
    drill.signal(Signal::INT);
    assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
    assert_eq!(redis.size(), ":0");
}

#[needs(redis)]
#[test]
fn needs_redis_a_restart_is_done_by_the_users_own_command_only() {
    let redis = servers::redis();
    let done = finish(drill(&redis.url()).args(["--faults", "restart"]));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("--restart-cmd"), "{done:?}");
    // It forgets everything, and has another run id: nobody leads before it has settled.
    let client = tenure_testbed::redis::program().with_file_name("redis-cli");
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
    // This server keeps nothing, and promises nothing: told, and no failure.
    assert!(restarts["lost"].as_u64().unwrap() > 0, "{restarts}");
    assert_eq!((&json["writes_lost"], &json["passed"]), (&restarts["lost"], &true.into()));
    assert_eq!(redis.size(), ":0");
}

/// What was seen until then is evidence, too.
#[needs(redis)]
#[test]
fn needs_redis_a_restart_that_fails_ends_the_drill_and_what_was_seen_is_told() {
    let (redis, place) = (servers::redis(), Place::new());
    let report = place.path("report");
    let flags = ["1", "--faults", "restart", "--restart-cmd", "exit 3", "--report", &report];
    let broken = finish(drill(&redis.url()).args(FLAGS).args(flags));
    assert_eq!(broken.code, 2, "{broken:?}");
    assert!(broken.err.contains("exit status: 3"), "{broken:?}");
    let json = object(&broken);
    assert_eq!((&json["passed"], &json["broken_off"]), (&false.into(), &true.into()), "{json:#}");
    assert_eq!((&json["rounds"], &json["violations"]), (&1.into(), &Value::Array(vec![])));
    let page = std::fs::read_to_string(place.path("report/report.html")).unwrap();
    assert!(page.contains("Broken off: 1 fault so far"));
    assert_eq!(redis.size(), ":0");
}

/// Half a restart would be worse than one more moment, so a Ctrl-C at the terminal does not reach
/// the command; and one that hangs is ended by the next.
#[needs(redis)]
#[test]
fn needs_redis_ctrl_c_waits_for_the_users_command_and_twice_does_not() {
    let (redis, place) = (servers::redis(), Place::new());
    let (begun, go, done) = (place.path("begun"), place.path("go"), place.path("done"));
    let slow = format!("echo $$ > {begun}; until [ -e {go} ]; do sleep 0.02; done; echo > {done}");
    for twice in [false, true] {
        let flags = ["--faults", "restart", "--rounds", "9", "--restart-cmd", &slow];
        let mut drill = Process::new(drill(&redis.url()).args(flags).process_group(0));
        let shell: u32 = common::line_of(begun.as_ref()).parse().unwrap();
        let shell = common::Watched::new(shell);
        let group = Pid::from_raw(drill.pid() as i32).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        if twice {
            // The first one has to be taken in before the next: two at once would be one.
            common::eventually("the end of the command", || {
                kill_process_group(group, Signal::INT).ok();
                (!shell.is_alive()).then_some(())
            });
        } else {
            assert!(shell.is_alive(), "the terminal's signal is not for the command");
            std::fs::write(&go, "").unwrap();
        }
        assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
        assert_eq!(std::fs::exists(&done).unwrap(), !twice);
        for file in [&begun, &go, &done] {
            let _there_may_be_none = std::fs::remove_file(file);
        }
        assert_eq!(redis.size(), ":0");
    }
}

/// Everything that was not on the disk is gone then, and nothing that was acknowledged may be.
#[needs(postgres)]
#[test]
fn needs_postgres_crashes_of_the_server_lose_nothing_that_was_acknowledged() {
    let mut postgres = OwnServer::new(&[]);
    postgres.start();
    let command = postgres.crash_command();
    for scheme in ["postgres://", "postgres+advisory://"] {
        let url = postgres.url("postgres").replacen("postgres://", scheme, 1);
        let flags = ["6", "--faults", "restart,kill", "--restart-cmd", &command];
        let done = finish(drill(&url).args(FLAGS).args(flags));
        let json = object(&done);
        assert_eq!((done.code, &json["passed"]), (0, &true.into()), "{json:#}\n{}", done.err);
        assert_eq!(json["writes_lost"], 0, "{json:#}");
        let restarts = json["faults"].as_array().unwrap().last().unwrap();
        assert_eq!((&restarts["fault"], &restarts["rounds"]), (&"restart".into(), &3.into()));
    }
}

/// Nothing is there yet, so nothing is said to be left.
#[test]
fn a_store_that_is_down_is_told_at_once() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for url in [format!("redis://127.0.0.1:{port}/0"), format!("postgres://u@127.0.0.1:{port}/d")] {
        let done = finish(drill(&url).args(["--rounds", "1", "--ttl", "30s"]));
        assert_eq!(done.code, 69, "{done:?}");
        assert!(!done.err.contains("left in the store"), "{done:?}");
    }
}

#[test]
fn ctrl_c_is_heard_while_a_store_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for url in [format!("redis://127.0.0.1:{port}/0"), format!("postgres://u@127.0.0.1:{port}/d")] {
        let mut drill = Process::new(drill(&url).args(["--rounds", "1", "--ttl", "30s"]));
        let _caller = silent.accept().unwrap();
        drill.signal(Signal::INT);
        let asked = common::now();
        assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
        assert!(common::now() - asked < Duration::from_secs(4), "before any limit of its own");
        let told = |part: &str| drill.seen().iter().any(|line| line.contains(part));
        assert!(!told("left in the store"), "{:#?}", drill.seen());
    }
}

/// What no drill on SQLite can see, because no reply takes long there: `docs/proof-faults.md`.
#[needs(long, redis)]
#[test]
fn long_redis_a_drill_sees_trust_that_is_counted_from_replies() {
    let (binary, redis) = (sabotaged_binary(), servers::redis());
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
