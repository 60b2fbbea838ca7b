//! What the doctor says, and with which code.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use tenure_testbed::redis::RedisServer;

use crate::servers::{self, Postgres};
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
    for part in ["durable terms", "p50", "p99", "or more suits it", "file system", "no findings"] {
        assert!(done.out.contains(part), "{part}: {done:?}");
    }
    let (code, report) = examined(&place, &place.url(), &["--samples", "20"]);
    assert_eq!((code, safety(&report).len()), (0, 0), "{report}");
    assert_eq!(report["guarantees"]["durable_terms"], true);
    assert!(report["facts"]["file system"].is_string(), "{report}");
    assert_eq!(report["round_trip"]["samples"], 20);
    assert!(report["round_trip"]["p99_us"].as_u64() >= report["round_trip"]["p50_us"].as_u64());
}

#[test]
fn a_drain_that_outlasts_the_grace_of_a_container_is_told() {
    let place = Place::new();
    assert_eq!(place.run(&["run", "job", "--", "true"]).code, 0);
    let told = |more: &[&str]| {
        let (code, report) = examined(&place, &place.url(), more);
        assert_eq!(code, 0, "it costs time, and not safety: {report}");
        let findings = report["findings"].as_array().unwrap().iter();
        let mut told = findings.map(|finding| finding["what"].as_str().unwrap().to_owned());
        (report["drain_ms"].as_u64().unwrap(), told.find(|what| what.contains("docker stop")))
    };
    assert_eq!(told(&[]), (5_000, None));
    assert_eq!(told(&["--ttl", "48s"]), (8_000, None));
    let (drain_ms, what) = told(&["--ttl", "90s"]);
    let what = what.unwrap();
    assert!(drain_ms == 15_000 && what.contains("17s") && !what.contains("Kubernetes"), "{what}");
    assert!(told(&["--ttl", "180s"]).1.unwrap().contains("Kubernetes"));
    assert_eq!(told(&["--ttl", "90s", "--drain", "5s"]), (5_000, None));
    let done = place.run(&["doctor", "--drain", "20s"]);
    assert!(done.code == 2 && done.err.contains("margin + drain"), "{done:?}");
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
fn a_file_system_that_is_refused_is_a_finding_and_not_a_crash() {
    let place = Place::new();
    // It is there, and on a file system that nobody keeps leases on.
    let (code, report) = examined(&place, "sqlite:/proc/version", &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("put the file on a local file system"), "{report}");
    let done = place.run(&["doctor", "--store", "sqlite:/proc/version"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.out.contains("SAFETY: the store can't be used"), "{done:?}");
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

#[needs(postgres)]
#[test]
fn needs_postgres_a_database_without_tables_is_found_and_one_with_them_is_well() {
    let server = tenure_testbed::postgres::server();
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

#[needs(postgres)]
#[test]
fn needs_postgres_a_role_that_lacks_privileges_is_told_which() {
    let server = Postgres::connect();
    let place = Place::new();
    let (schema, role) =
        (format!("lacks_{}", std::process::id()), format!("poor_{}", std::process::id()));
    let owners = format!("{}?schema={schema}", server.url);
    server.run(&format!("CREATE SCHEMA {schema}"));
    assert_eq!(finish(place.command(&["migrate"]).env("TENURE_STORE", &owners)).code, 0);
    server.run(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'poor-and-honest'; GRANT USAGE ON SCHEMA {schema} TO \
         {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
    ));
    let at = server.url.split_once('@').unwrap().1;
    let url = format!("postgres://{role}:poor-and-honest@{at}?schema={schema}");
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!(code, 1, "{report}");
    let said = safety(&report).join("\n");
    assert!(said.contains(&format!("INSERT, UPDATE on {schema}.leader_election")), "{report}");
    assert!(!said.contains("tenure migrate") && !said.contains("SELECT"), "{report}");
    assert_eq!(report["facts"]["migrations"], "all applied");
    server.run(&format!("REVOKE USAGE ON SCHEMA {schema} FROM {role}"));
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!(code, 1, "{report}");
    let said = safety(&report).join("\n");
    assert!(said.contains(&format!("USAGE on the schema {schema}")), "{report}");
    assert!(!report["findings"].to_string().contains("tenure migrate"), "{report}");
    server.run(&format!("DROP SCHEMA {schema} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[needs(postgres)]
#[test]
fn needs_postgres_every_url_of_the_advisory_store_is_examined() {
    let server = tenure_testbed::postgres::server();
    let place = Place::new();
    assert_eq!(finish(place.command(&["migrate"]).env("TENURE_STORE", &server)).code, 0);
    let at = server.split_once("://").unwrap().1;
    for (scheme, options) in [
        ("postgres+advisory", "?schema=nothing_there"),
        ("postgresql+advisory", "?term_offset=7"),
        ("postgres+advisory", "?frozen_leaders=stay&schema=nothing_there"),
    ] {
        let (code, report) = examined(&place, &format!("{scheme}://{at}{options}"), &[]);
        // Where others have the tables, nobody campaigns without them.
        let refused = safety(&report).join("\n").contains("has no tables of `tenure migrate`");
        assert_eq!(
            (code, refused),
            if options.contains("nothing_there") { (1, true) } else { (0, false) },
            "{report}"
        );
        assert_eq!(report["facts"]["idle sessions"], "can be ended");
        assert_eq!(report["facts"]["pooler"], "none to be seen");
        let migrations = report["facts"]["migrations"].as_str().unwrap();
        let there = !options.contains("nothing_there");
        assert_eq!(migrations.starts_with("not applied"), !there, "{report}");
    }
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_pooler_that_is_idle_is_found_all_the_same() {
    let pooler = tenure_testbed::postgres::Pooler::take().url;
    let place = Place::new();
    let (_, report) = examined(&place, &pooler, &[]);
    assert_eq!(report["facts"]["pooler"], "transactions share sessions", "{report}");
    let findings = report["findings"].to_string();
    assert!(findings.contains("a pooler in transaction mode"), "{report}");
    let advisory = pooler.replacen("postgres://", "postgres+advisory://", 1);
    let (code, report) = examined(&place, &advisory, &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report).join("\n").contains("a pooler in transaction mode"), "{report}");
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_server_that_is_away_is_a_finding_and_not_a_crash() {
    let place = Place::new();
    let (code, report) = examined(&place, "postgres://u:pw@127.0.0.1:1/db", &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("can't be used"), "{report}");
}

#[needs(redis)]
#[test]
fn needs_redis_a_server_that_throws_keys_away_endangers_safety() {
    let place = Place::new();
    let settings = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::start_with(&settings);
    let (code, report) = examined(&place, &server.url(), &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("allkeys-lru"), "{report}");
    assert_eq!(report["facts"]["role"], "master");
    // Such a policy spares the notes, and so the end of each lease (R6).
    let set = server.ask("CONFIG SET maxmemory-policy volatile-ttl");
    assert_eq!(set.as_deref(), Some("+OK"));
    let (code, report) = examined(&place, &server.url(), &[]);
    assert_eq!((code, safety(&report)), (0, vec![]), "{report}");
    let findings = report["findings"].to_string();
    assert!(findings.contains("volatile-ttl") && findings.contains("noted end"), "{report}");
}

#[needs(redis)]
#[test]
fn needs_redis_sentinels_are_asked_and_the_primary_that_they_name_is_examined() {
    let (primary, place) = (servers::redis(), Place::new());
    let lines = format!("sentinel monitor main 127.0.0.1 {} 1", primary.port);
    let sentinel = RedisServer::start_sentinel(&lines);
    let port = sentinel.port;
    let url = format!("redis+sentinel://127.0.0.1:{port}/main/0?settle=off");
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!((code, safety(&report)), (0, vec![]), "{report}");
    assert_eq!(report["facts"]["sentinels"], "1 of 1 answer");
    assert_eq!(report["facts"]["primary"], format!("127.0.0.1:{}", primary.port));
    assert_eq!(report["facts"]["role"], "master", "{report}");
    assert!(report["facts"]["eviction"].is_string() && report["facts"]["persistence"].is_string());
    // One of two is not most of them: nobody is made primary when this one dies.
    let url = format!("redis+sentinel://127.0.0.1:{port},127.0.0.1:1/main/0?settle=off");
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!(code, 1, "{report}");
    assert!(safety(&report)[0].contains("only 1 of 2 sentinels answer"), "{report}");
}

#[needs(redis)]
#[test]
fn needs_redis_a_cluster_with_slots_that_nobody_serves_is_found() {
    let place = Place::new();
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bus = bus.to_string();
    let server = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let done = |asked: &str| assert_eq!(server.ask(asked).as_deref(), Some("+OK"), "{asked}");
    done("CLUSTER ADDSLOTSRANGE 0 16000");
    let url = format!("redis+cluster://127.0.0.1:{}?settle=off", server.port);
    let (code, report) = examined(&place, &url, &[]);
    assert_eq!(code, 1, "{report}");
    let said = safety(&report).join("\n");
    assert!(said.contains("the Cluster is in state fail"), "{report}");
    done("CLUSTER ADDSLOTSRANGE 16001 16383");
    let report = crate::common::eventually("all is well", || {
        let (code, report) = examined(&place, &url, &[]);
        (code == 0).then_some(report)
    });
    let cluster = report["facts"]["Cluster"].as_str().unwrap();
    assert_eq!(cluster, "state ok, 1 primaries, 16384 slots served");
    assert_eq!(report["facts"]["role"], "master", "{report}");
    assert!(report["findings"].to_string().contains("have no replica"), "{report}");
}
