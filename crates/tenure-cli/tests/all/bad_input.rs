//! Help, usage and bad input: said the same way every time, with the right code.

use std::fs;

use crate::support::{Place, finish};

#[test]
fn help_and_usage_errors_read_as_they_should() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd").env("COLUMNS", "100");
}

fn assert_refused(place: &Place, url: &str, says: &str) {
    for args in [
        &["status", "job"][..],
        &["resign", "job"],
        &["watch", "job"],
        &["campaign", "job"],
        &["run", "job", "--", "echo", "never"],
    ] {
        let done = finish(place.command(args).env("TENURE_STORE", url));
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
        assert!(!done.out.contains("never"));
        assert!(done.err.lines().count() <= 2, "one or two sentences: {done:?}");
    }
}

#[test]
fn files_that_are_no_store_are_refused() {
    let place = Place::new();
    let text = place.path("text.db");
    fs::write(&text, "this is not a database, and long enough to be looked at\n".repeat(20))
        .unwrap();
    assert_refused(&place, &format!("sqlite:{text}"), "is not a SQLite database");

    let dir = place.path("dir.db");
    fs::create_dir(&dir).unwrap();
    assert_refused(&place, &format!("sqlite:{dir}"), "is not a file");

    let foreign = place.path("foreign.db");
    let other = rusqlite::Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE users (id INTEGER)").unwrap();
    assert_refused(&place, &format!("sqlite:{foreign}"), "the database of another program");

    assert_eq!(place.run(&["run", "job", "--", "true"]).code, 0);
    let newer = place.path("tenure.db");
    let store = rusqlite::Connection::open(&newer).unwrap();
    store.pragma_update(None, "user_version", 99).unwrap();
    assert_refused(&place, &place.url(), "was written by a newer tenure");
}

#[test]
fn a_damaged_store_is_refused() {
    let place = Place::new();
    assert_eq!(place.run(&["run", "job", "--", "true"]).code, 0);
    let path = place.path("tenure.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    store.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let (from, to) = (4096, bytes.len());
    bytes[from..to].fill(0xab);
    fs::write(&path, bytes).unwrap();
    assert_refused(&place, &place.url(), "does not hold what tenure wrote");
}

#[test]
fn a_network_file_system_is_refused() {
    let place = Place::new();
    // Not a network, but as foreign as one: nobody knows who shares it. Only those who would
    // create the file look at where it would be.
    for args in [&["watch", "job"][..], &["campaign", "job"], &["run", "job", "--", "true"]] {
        let done = finish(place.command(args).env("TENURE_STORE", "sqlite:/proc/tenure.db"));
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains("several hosts may share"), "{args:?}: {done:?}");
    }
}

#[test]
fn nothing_is_left_half_done() {
    let place = Place::new();
    for args in [
        &["run", "job", "--ttl", "3s", "--renew-every", "2s", "--", "true"][..],
        &["run", "", "--", "true"],
        &["run", "job", "--metadata", "[]", "--", "true"],
        &["run", "job", "--ttl", "1ms", "--", "true"],
        &["run", "job", "--ttl", "40ms", "--", "true"],
        &["campaign", "job", "--ttl", "40ms"],
        &["campaign", "job", "--id", ""],
        &["run", "job", "true"],
    ] {
        let done = place.run(args);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
    }
    let store = place.path("tenure.db");
    let is_new = |path: &str| !std::path::Path::new(path).exists();
    assert!(is_new(&store), "nothing was created");
}

/// A store that needs no migration is not created for being asked about one.
#[test]
fn migrating_a_missing_file_leaves_no_file_behind() {
    let place = Place::new();
    let file = place.path("new.db");
    let url = format!("sqlite:{file}");
    for args in [&["migrate"][..], &["migrate", "--print"]] {
        let done = finish(place.command(args).env("TENURE_STORE", &url));
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.err.contains("needs no migration"), "{done:?}");
        assert!(!fs::exists(&file).unwrap(), "{args:?}");
    }
}
