//! What the doctor says, and with which code.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::{Place, finish};

fn examined(place: &Place, url: &str, more: &[&str]) -> (i32, Value) {
    let args: Vec<&str> = ["doctor", "--json"].iter().chain(more).copied().collect();
    let done = finish(place.command(&args).env("TENURE_STORE", url));
    let json = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
    (done.code, json)
}

fn safety(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    let safety = findings.filter(|finding| finding["level"] == "safety");
    safety.map(|finding| finding["what"].as_str().unwrap()).collect()
}

#[test]
fn a_store_that_is_well_has_no_findings() {
    let place = Place::new();
    let done = place.run(&["doctor"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("there is no such file yet"), "{done:?}");
    assert!(!std::path::Path::new(&place.path("tenure.db")).exists(), "and none was made");
    assert_eq!(place.run(&["run", "job", "--", "true"]).code, 0);
    let done = place.run(&["doctor"]);
    assert_eq!(done.code, 0, "{done:?}");
    for part in ["durable terms", "round trip", "p99", "not promised", "no findings"] {
        assert!(done.out.contains(part), "{part}: {done:?}");
    }
    let (code, report) = examined(&place, &place.url(), &["--samples", "20"]);
    assert_eq!((code, safety(&report).len()), (0, 0), "{report}");
    assert_eq!(report["guarantees"]["durable_terms"], true);
    assert_eq!(report["round_trip"]["samples"], 20);
    assert!(report["round_trip"]["p99_us"].as_u64() >= report["round_trip"]["p50_us"].as_u64());
}

#[test]
fn a_file_that_others_may_write_to_endangers_safety() {
    let place = Place::new();
    assert_eq!(place.run(&["run", "job", "--", "true"]).code, 0);
    fs::set_permissions(place.path("tenure.db"), fs::Permissions::from_mode(0o666)).unwrap();
    let (code, report) = examined(&place, &place.url(), &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("others may open"), "{report}");
    let done = place.run(&["doctor"]);
    for part in ["SAFETY: others may open", "why: ", "do:  chmod"] {
        assert!(done.out.contains(part), "{part}: {done:?}");
    }
}

#[test]
fn a_ttl_that_does_not_suit_the_store_is_found() {
    let place = Place::new();
    assert_eq!(place.run(&["run", "job", "--", "true"]).code, 0);
    let (code, report) = examined(&place, &place.url(), &["--ttl", "30ms"]);
    assert_eq!(code, 0, "slow is not unsafe: {report}");
    let what = report["findings"].to_string();
    assert!(what.contains("shorter than this store can keep"), "{what}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    for (args, says) in [
        (&["doctor", "--ttl", "30"][..], "--ttl: \"30\" has no unit"),
        (&["doctor", "--samples", "0"], "--samples must be a number from 1"),
        (&["doctor", "--store", "mysql://h/x"], "there is no store of the scheme"),
    ] {
        let done = place.run(args);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
    }
}

#[test]
#[ignore = "needs a PostgreSQL server"]
fn needs_postgres_a_database_without_tables_is_found_and_one_with_them_is_well() {
    let server = std::env::var("TENURE_TEST_POSTGRES").expect("xtask names a server");
    let place = Place::new();
    let url = format!("{server}?schema=doctor_{}", std::process::id());
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!(code, 1, "{report}");
    assert!(report["findings"].to_string().contains("tenure migrate"), "{report}");
    let secret = server.split(':').nth(2).unwrap().split('@').next().unwrap();
    assert!(!report.to_string().contains(secret), "the password is not told");
    // The schema must exist: psql is not at hand, so the default one is examined when migrated.
    let done = finish(place.command(&["migrate"]).env("TENURE_STORE", &server));
    assert_eq!(done.code, 0, "{done:?}");
    let (code, report) = examined(&place, &server, &[]);
    assert_eq!((code, safety(&report)), (0, vec![]), "{report}");
    assert_eq!(report["facts"]["migrations"], "all applied");
    assert_eq!(report["facts"]["server"], "the primary");
    assert!(report["round_trip"]["clock_skew_ms"].as_i64().unwrap().abs() < 5_000, "{report}");
}

#[test]
#[ignore = "needs a PostgreSQL server"]
fn needs_postgres_a_server_that_is_away_is_a_finding_and_not_a_crash() {
    let place = Place::new();
    let (code, report) = examined(&place, "postgres://u:pw@127.0.0.1:1/db", &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("can't be used"), "{report}");
}

#[test]
#[ignore = "needs a Redis server"]
fn needs_redis_a_server_that_throws_keys_away_endangers_safety() {
    let place = Place::new();
    let program = std::env::var("TENURE_TEST_REDIS_SERVER").expect("xtask names the program");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = std::process::Command::new(program);
    server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    server.args(["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--dir"]);
    server.arg(place.dir.path()).stdout(std::process::Stdio::null());
    let server = crate::support::Process::new(&mut server);
    let url = format!("redis://127.0.0.1:{port}/0");
    crate::common::eventually("the server answers", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("allkeys-lru"), "{report}");
    assert_eq!(report["facts"]["role"], "master");
    server.signal(rustix::process::Signal::TERM);
}
