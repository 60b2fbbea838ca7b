//! An election that moves from one store to the next, and on: `tenure migrate --terms-above`.
#![cfg(all(feature = "postgres", feature = "redis", feature = "sqlite"))]

use serde_json::Value;

use crate::servers::{self, Postgres};
use crate::support::{Done, Place, finish};

fn tenure(place: &Place, url: &str, args: &[&str]) -> Done {
    finish(place.command(args).env("TENURE_STORE", url))
}

/// One reign: its term, as the command sees it.
fn reign(place: &Place, url: &str, election: &str) -> u64 {
    let args = ["run", election, "--once", "--", "sh", "-c", "echo term $TENURE_TERM"];
    let done = tenure(place, url, &args);
    assert_eq!(done.code, 0, "{url}: {done:?}");
    done.out.trim().strip_prefix("term ").unwrap().parse().unwrap()
}

/// The highest last term of a store, as the guide has it read.
fn highest(place: &Place, url: &str, election: &str) -> u64 {
    let done = tenure(place, url, &["status", "--json", election]);
    let status: Value = serde_json::from_str(&done.out).unwrap();
    status["last_term"].as_u64().unwrap_or_else(|| panic!("{url}: {done:?}"))
}

/// Issue 12, item 19: through all kinds of stores, one after the other, and terms rise.
#[needs(stores)]
#[test]
fn needs_stores_an_election_moves_through_all_stores_and_terms_rise() {
    let postgres = Postgres::connect();
    let (redis, place) = (servers::redis(), Place::new());
    let redis = format!("{}?settle=off", redis.url());
    let id = std::process::id();
    let schema = |number: u32| format!("moving_{id}_{number}");
    let at = |scheme: &str, number: u32| {
        let (_, rest) = postgres.url.split_once("://").unwrap();
        format!("{scheme}://{rest}?schema={}", schema(number))
    };
    let route = [
        place.url(),
        at("postgres", 1),
        redis.clone(),
        at("postgres", 1),
        at("postgres+advisory", 1),
        at("postgres+advisory", 2),
        at("postgres", 3),
        format!("sqlite:{}", place.path("second.db")),
        redis,
    ];
    let election = format!("moving {id}");
    let mut last = 0;
    for url in &route {
        let is_postgres = url.starts_with("postgres");
        if last > 0 {
            let above = last.to_string();
            let mut args = vec!["migrate", "--terms-above", &above];
            if !is_postgres {
                args.push(&election);
            }
            for _ in 0..2 {
                let done = tenure(&place, url, &args);
                assert_eq!(done.code, 0, "{done:?}");
                assert!(done.err.contains("above"), "{done:?}");
            }
        }
        for _ in 0..2 {
            let term = reign(&place, url, &election);
            assert!(term > last, "{url}: {term} after {last}");
            last = term;
        }
        assert_eq!(highest(&place, url, &election), last, "{url}");
    }
    for number in 1..=3 {
        postgres.run(&format!("DROP SCHEMA {} CASCADE", schema(number)));
    }
}

#[needs(postgres)]
#[test]
fn needs_postgres_terms_are_raised_by_what_print_prints() {
    let postgres = Postgres::connect();
    let (place, schema) = (Place::new(), format!("raised_{}", std::process::id()));
    let url = format!("{}?schema={schema}", postgres.url);
    let printed =
        tenure(&place, &url, &["migrate", "--print=sql", "--terms-above", "1794960000123"]);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    for _ in 0..2 {
        postgres.run(&printed.out);
    }
    assert!(reign(&place, &url, "e") > 1_794_960_000_123);
    let done = tenure(&place, &url, &["migrate", "--terms-above", "7", "--json"]);
    let object: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(object["terms_above"].as_u64(), Some(1_794_960_000_123), "it never falls");
    let done = tenure(&place, &url, &["migrate", "--terms-above", "7", "e"]);
    assert!(done.code == 2 && done.err.contains("leave the names out"), "{done:?}");
    postgres.run(&format!("DROP SCHEMA {schema} CASCADE"));
}

#[test]
fn terms_of_a_file_are_raised_by_name_while_nobody_leads() {
    let place = Place::new();
    let url = place.url();
    let done = tenure(&place, &url, &["migrate", "--terms-above", "41"]);
    assert!(done.code == 2 && done.err.contains("name the elections"), "{done:?}");
    for term in ["0", "-1", "x", "9007199254740992"] {
        let done = tenure(&place, &url, &["migrate", &format!("--terms-above={term}"), "e"]);
        assert!(done.code == 2 && done.err.contains("a term is a number"), "{done:?}");
    }
    let mut leader = place.spawn(&["campaign", "e", "--json", "--id", "first"]);
    leader.event("elected");
    let done = tenure(&place, &url, &["migrate", "--terms-above", "41", "e"]);
    assert!(done.code == 1 && done.err.contains("first"), "{done:?}");
    assert!(done.err.contains("stop all candidates first"), "{done:?}");
    leader.signal(rustix::process::Signal::TERM);
    assert_eq!(leader.code(), 0);
    let done = tenure(&place, &url, &["migrate", "--terms-above", "41", "e", "f"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!((reign(&place, &url, "e"), reign(&place, &url, "f")), (43, 43));
}
