//! The fence: what a stale leader can no longer do in the user's own file.

use rusqlite::Connection;
use tenure_sqlite::fence::{self, FenceError};

use crate::common::{name, term};

fn shop(path: &std::path::Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("CREATE TABLE IF NOT EXISTS shop (stock INTEGER)").unwrap();
    fence::install(&conn).unwrap();
    fence::install(&conn).unwrap();
    conn
}

fn stock(conn: &Connection) -> i64 {
    conn.query_row("SELECT stock FROM shop", (), |row| row.get(0)).unwrap()
}

/// Sells one as this term, given what was read before.
fn sell(conn: &mut Connection, number: u64, stock: i64) -> Result<(), FenceError> {
    let tx = conn.transaction().unwrap();
    fence::check(&tx, &name("shop"), term(number))?;
    tx.execute("UPDATE shop SET stock = ?1", [stock - 1]).unwrap();
    tx.commit().unwrap();
    Ok(())
}

#[track_caller]
fn is_stale(result: Result<(), FenceError>, mark: u64) {
    match result {
        Err(FenceError::Stale(stale)) => {
            assert_eq!(stale.mark, term(mark));
            assert!(stale.to_string().contains("is stale"), "{stale}");
        }
        other => panic!("not stale: {other:?}"),
    }
}

#[test]
fn a_stale_writer_is_refused_once_its_successor_has_raised_the_mark() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let (mut old, mut new) = (shop(&path), shop(&path));
    old.execute("INSERT INTO shop VALUES (5)", ()).unwrap();
    sell(&mut old, 42, 5).unwrap();
    fence::raise(&new, &name("shop"), term(43)).unwrap();
    fence::raise(&new, &name("shop"), term(43)).unwrap();
    is_stale(sell(&mut old, 42, 4), 43);
    is_stale(fence::raise(&old, &name("shop"), term(42)), 43);
    assert_eq!(stock(&old), 4, "the stale sale was rolled back");
    sell(&mut new, 43, 4).unwrap();
    assert_eq!(stock(&old), 3);
    // Other elections have marks of their own.
    fence::raise(&old, &name("another"), term(1)).unwrap();
}

#[test]
fn a_leader_that_reads_before_it_raises_loses_a_write_and_one_that_raises_first_does_not() {
    for raises_first in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        let (mut old, mut new) = (shop(&path), shop(&path));
        old.execute("INSERT INTO shop VALUES (5)", ()).unwrap();
        fence::raise(&old, &name("shop"), term(42)).unwrap();
        if raises_first {
            fence::raise(&new, &name("shop"), term(43)).unwrap();
        }
        let seen = stock(&new);
        let late = sell(&mut old, 42, 5);
        let sold = if raises_first {
            is_stale(late, 43);
            1
        } else {
            late.unwrap();
            2
        };
        sell(&mut new, 43, seen).unwrap();
        // Five less what was sold, unless a sale was lost.
        let lost = stock(&new) - (5 - sold);
        assert_eq!(lost, if raises_first { 0 } else { 1 });
    }
}

#[test]
fn a_mark_that_rises_while_a_transaction_runs_keeps_it_from_committing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let (mut old, new) = (shop(&path), shop(&path));
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute("INSERT INTO shop VALUES (5)", ()).unwrap();
    fence::raise(&old, &name("shop"), term(42)).unwrap();
    let tx = old.transaction().unwrap();
    fence::check(&tx, &name("shop"), term(42)).unwrap();
    fence::raise(&new, &name("shop"), term(43)).unwrap();
    tx.execute("UPDATE shop SET stock = 0", ()).unwrap_err();
    drop(tx);
    assert_eq!(stock(&new), 5);
}

#[test]
fn the_plain_statements_for_other_languages_do_the_same() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(fence::INSTALL_SQL).unwrap();
    for number in [42_i64, 42, 43] {
        conn.execute(fence::RAISE_SQL, ("shop", number)).unwrap();
    }
    let error = conn.execute(fence::RAISE_SQL, ("shop", 42)).unwrap_err();
    assert!(error.to_string().contains("tenure: stale term"), "{error}");
}

#[test]
fn a_file_without_the_fence_says_what_to_call() {
    let conn = Connection::open_in_memory().unwrap();
    let error = fence::raise(&conn, &name("shop"), term(1)).unwrap_err();
    assert!(error.to_string().contains("fence::install"), "{error}");
}
