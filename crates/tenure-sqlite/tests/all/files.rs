//! The file: created right, refused with a sentence, replaced under a leader.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Op, Post, Reply, Store, StoreExt};
use tenure_sqlite::{Host, SqliteConfig, SqliteStore};

use crate::common::*;

const NOBODY: u32 = 65_534;

#[track_caller]
fn fails(opened: Result<SqliteStore, Error>, kind: ErrorKind, words: &str) {
    let error = opened.expect_err("it can't be opened");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.to_string().starts_with("sqlite: open: "), "{error}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Opens the path as a user without privileges: permissions mean nothing to root.
fn open_as_nobody(directory: &Path, path: &Path) -> String {
    let mut other = if rustix::process::geteuid().is_root() {
        // The binary may be where only root can reach it.
        let binary = directory.join("test-binary");
        fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
        let mut command = Command::new(binary);
        command.uid(NOBODY).gid(NOBODY);
        Other::from_command(command, "open", path)
    } else {
        Other::start("open", path)
    };
    other.hear()
}

/// A directory that belongs to the user of `open_as_nobody`.
fn directory_of_nobody() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    if rustix::process::geteuid().is_root() {
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    directory
}

fn give_to_nobody(path: &Path) {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// A copy made by another process: closing the file in this one would drop SQLite's locks.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

fn checkpoint(path: &Path) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[tokio::test]
async fn a_new_file_and_all_around_it_is_for_this_user_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/tenure.db");
    let store = SqliteStore::open(&path).unwrap();
    granted(Player::new(&store, "me", 1).acquire("e", 1).await);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&beside(&path, "-hints")), 0o700);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&beside(&path, suffix)), 0o600, "{suffix}");
    }
    assert_eq!(store.info().address, format!("sqlite:{}", path.display()));
}

#[test]
fn what_is_no_store_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("text"), "not a database, however long it may be ".repeat(100)).unwrap();
    fails(SqliteStore::open(at("text")), ErrorKind::Corrupt, "is not a SQLite database");
    fs::write(at("short"), "hello").unwrap();
    fails(SqliteStore::open(at("short")), ErrorKind::Corrupt, "is not a SQLite database");
    fails(SqliteStore::open(directory.path()), ErrorKind::Config, "is not a file");
    fails(SqliteStore::open("/"), ErrorKind::Config, "add the name of a file");
    fails(SqliteStore::open(at("text/x.db")), ErrorKind::Config, "can't create the directory");
    symlink(at("nowhere/x.db"), at("dangling")).unwrap();
    fails(SqliteStore::open(at("dangling")), ErrorKind::Config, "can't follow");

    let theirs = rusqlite::Connection::open(at("theirs")).unwrap();
    theirs.execute_batch("CREATE TABLE customers (name TEXT)").unwrap();
    fails(SqliteStore::open(at("theirs")), ErrorKind::Config, "of another program");
}

#[test]
fn a_database_of_a_newer_version_is_refused_with_both_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    drop(SqliteStore::open(&path).unwrap());
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    fails(SqliteStore::open(&path), ErrorKind::Unsupported, "schema 99, this one knows ");
}

#[tokio::test]
async fn a_corrupt_database_is_refused_when_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let ops: Vec<Op> = (0..500).map(|n| me.acquire_op(&format!("{n:0>200}"), 1)).collect();
    all_granted(store.apply(&ops).await);
    checkpoint(&path);
    drop((store, me));
    // The second half, where the leases are: nothing that opening the file has to read.
    let mut bytes = fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let ops: Vec<Op> = (0..500).map(|n| me.acquire_op(&format!("{n:0>200}"), 1)).collect();
    for reply in store.apply(&ops).await {
        let error = unknown(reply);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("move it and its"), "{error}");
    }
    assert!(finding(&store).await.starts_with("the file is damaged"));
}

/// The first sentence that a doctor has to say.
async fn finding(store: &SqliteStore) -> String {
    let report = store.checkup().unwrap().examine(Duration::from_secs(30)).await;
    report.findings.first().map(|finding| finding.what.clone()).unwrap_or_default()
}

/// To open a file took the longer the more was kept in it, because all of it was read.
#[tokio::test]
async fn opening_reads_no_more_than_it_needs_and_a_doctor_reads_it_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let post = |key: usize| Post {
        channel: "orders".to_owned(),
        payload: format!("\"{}\"", "x".repeat(9000)),
        key: key.to_string(),
    };
    let posts: Vec<Post> = (0..50).map(post).collect();
    store.channels().unwrap().post(&name("e"), &posts).await.unwrap();
    checkpoint(&path);
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    // The pages that a payload goes on in, and that no lease is on.
    bytes[half..half + 40_000].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    granted(Player::new(&store, "me", 1).acquire("e", 1).await);
    let found = finding(&store).await;
    assert!(found.starts_with("the file is damaged"), "{found}");
}

#[test]
fn files_and_directories_that_this_user_may_not_write_are_refused() {
    let directory = directory_of_nobody();
    let at = |name: &str| directory.path().join(name);
    for (name, mode) in [("read-only.db", 0o400), ("unreadable.db", 0o000)] {
        drop(SqliteStore::open(at(name)).unwrap());
        give_to_nobody(&at(name));
        give_to_nobody(&beside(&at(name), "-hints"));
        fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        let said = open_as_nobody(directory.path(), &at(name));
        assert!(said.starts_with("Denied sqlite: open: "), "{said}");
        assert!(said.contains("can't be read and written by this user"), "{said}");
    }
    fs::create_dir(at("closed")).unwrap();
    give_to_nobody(&at("closed"));
    fs::set_permissions(at("closed"), Permissions::from_mode(0o500)).unwrap();
    for path in ["closed/x.db", "closed/deeper/x.db"] {
        let said = open_as_nobody(directory.path(), &at(path));
        assert!(said.starts_with("Denied sqlite: open: can't create the directory"), "{said}");
    }
}

#[test]
fn a_file_system_that_other_hosts_may_share_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::detect().unwrap().with_file_system(0x6969);
    let opened = SqliteConfig::new(directory.path().join("new/x.db")).with_host(host).open();
    fails(opened, ErrorKind::Unsupported, "is on nfs (type 0x6969)");
    assert!(!directory.path().join("new").exists(), "nothing is left half done");
}

#[tokio::test]
async fn another_time_namespace_is_refused_when_opened_and_in_every_call() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let here = SqliteStore::open(&path).unwrap();
    granted(Player::new(&here, "me", 1).acquire("e", 1).await);
    let host = Host::detect().unwrap().with_time_namespace(77);
    let opened = SqliteConfig::new(&path).with_host(host.clone()).open();
    fails(opened, ErrorKind::Unsupported, "another time namespace");

    // One that came first keeps the file; the other finds out with its next call.
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute("UPDATE host SET time_ns = 77", ()).unwrap();
    let there = SqliteConfig::new(&path).with_host(host).open().unwrap();
    refused(Player::new(&there, "other", 2).acquire("e", 1).await);
    let error = unknown(Player::new(&here, "me", 1).acquire("e", 1).await);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(here.read(&name("e")).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn two_paths_to_one_file_share_its_leases_and_hints() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("x.db"), directory.path().join("link.db"));
    let one = SqliteStore::open(&path).unwrap();
    symlink(&path, &link).unwrap();
    let two = SqliteStore::open(&link).unwrap();
    let (a, b) = (Player::new(&one, "a", 1), Player::new(&two, "b", 2));
    let mut hints = two.hints();
    let grant = granted(a.acquire("e", 1).await);
    refused(b.acquire("e", 1).await);
    granted(a.release("e", grant.term, 1).await);
    next_hint(&mut hints).await;
    granted(b.acquire("e", 1).await);
}

#[tokio::test]
async fn a_leader_whose_file_was_deleted_is_not_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let a = Player::new(&store, "a", 1);
    let grant = granted(a.acquire("e", 1).await);
    fs::remove_file(&path).unwrap(); // the -wal and -shm stay, as `rm tenure.db` leaves them

    let b = Player::new(&SqliteStore::open(&path).unwrap(), "b", 2);
    granted(b.acquire("e", 1).await);
    let error = unknown(a.renew("e", grant.term).await);
    assert!(error.to_string().contains("was replaced or deleted"), "{error}");
    let sight = refused(a.renew("e", grant.term).await);
    assert_eq!(sight.lease.unwrap().holder.label(), "b");
}

#[tokio::test]
async fn a_leader_whose_file_was_replaced_by_an_old_copy_is_not_renewed_and_terms_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("x.db"), directory.path().join("old.db"));
    let store = SqliteStore::open(&path).unwrap();
    let a = Player::new(&store, "a", 1);
    let first = granted(a.acquire("e", 1).await);
    granted(a.release("e", first.term, 1).await);
    checkpoint(&path);
    copy(&path, &old);
    for seq in 2..5 {
        let grant = granted(store.apply_one(&a.acquire_op("e", seq)).await);
        assert_eq!(grant.term, term(seq));
        let (candidate, term) = (a.id.clone(), Some(grant.term));
        let release = Op::Release { election: name("e"), candidate, term, seq };
        granted(store.apply_one(&release).await);
    }
    let last = granted(store.apply_one(&a.acquire_op("e", 5)).await);
    checkpoint(&path);
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(beside(&path, suffix)).unwrap();
    }
    fs::rename(&old, &path).unwrap();

    unknown(a.renew("e", last.term).await);
    let sight = refused(a.renew("e", last.term).await);
    assert_eq!(sight.last_term, Some(term(1)), "the old copy knows no better");
    let mut again = a.acquire_op("e", 6);
    if let Op::Acquire { above, floor, .. } = &mut again {
        (*above, *floor) = (Some(last.term), last.term.next());
    }
    assert_eq!(granted(store.apply_one(&again).await).term, term(6), "the floor keeps them up");
}

#[tokio::test]
async fn a_lost_wal_is_noticed_before_two_writers_stop_seeing_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let a = Player::new(&store, "a", 1);
    let grant = granted(a.acquire("e", 1).await);
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(beside(&path, suffix)).unwrap();
    }
    unknown(a.renew("e", grant.term).await);
}

#[tokio::test]
async fn a_file_that_is_deleted_in_the_middle_of_a_renewal_grants_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let (armed, real) = (Arc::new(AtomicBool::new(false)), Host::detect().unwrap());
    let (trap, victim) = (armed.clone(), path.clone());
    // The clock is read inside the transaction: what happens there happens in its middle.
    let host = Host::detect().unwrap().with_clock(move || {
        if trap.swap(false, Ordering::SeqCst) {
            fs::remove_file(&victim).unwrap();
        }
        real.now_ns()
    });
    let store = SqliteConfig::new(&path).with_host(host).open().unwrap();
    let a = Player::new(&store, "a", 1);
    let grant = granted(a.acquire("e", 1).await);
    armed.store(true, Ordering::SeqCst);
    unknown(a.renew("e", grant.term).await);
}

#[tokio::test]
async fn reads_go_on_in_the_file_that_is_there_now() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    granted(Player::new(&store, "a", 1).acquire("e", 1).await);
    fs::remove_file(&path).unwrap();
    let reply = store.apply_one(&Op::Read { election: name("e") }).await;
    let Reply::Seen(sight) = reply else { panic!("{reply:?}") };
    assert!(sight.lease.is_none() && sight.last_term.is_none());
}

/// As a full disk ends every write, so that a leader steps down in time and says so.
#[needs(root)]
#[tokio::test]
async fn needs_root_a_full_disk_makes_outcomes_unknown_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mount = |command: &str, arguments: &[&str]| {
        Command::new(command).args(arguments).arg(directory.path()).status().unwrap().success()
    };
    assert!(mount("mount", &["-t", "tmpfs", "-o", "size=512k", "tmpfs"]));
    let store = SqliteStore::open(directory.path().join("x.db")).unwrap();
    let me = Player::new(&store, "me", 1);
    let grant = granted(me.acquire("e", 1).await);
    let filled = fs::write(directory.path().join("rest"), vec![1; 512 * 1024]);
    let mut last = me.renew("e", grant.term).await;
    for _ in 0..1000 {
        if matches!(last, Reply::Unknown(_)) {
            break;
        }
        last = me.renew("e", grant.term).await;
    }
    let freed = fs::remove_file(directory.path().join("rest"));
    let after = me.renew("e", grant.term).await;
    drop((store, me.store));
    mount("umount", &["-l"]);
    filled.unwrap_err();
    freed.unwrap();
    let error = unknown(last);
    assert!(error.is_retryable() && error.to_string().contains("the disk is full"), "{error}");
    granted(after);
}

#[needs(root)]
#[tokio::test]
async fn needs_root_a_real_time_namespace_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    granted(Player::new(&store, "me", 1).acquire("e", 1).await);
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", "100000", "--fork", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap());
    let said = Other::from_command(command, "open", &path).hear();
    assert!(said.starts_with("Unsupported") && said.contains("time namespace"), "{said}");
}

/// S5: what tenure removes it has made.
#[tokio::test]
async fn opening_removes_only_what_tenure_left_in_the_directory_of_hints() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    drop(SqliteStore::open(&path).unwrap());
    let hints = directory.path().join("x.db-hints");
    let (own, foreign) =
        (["any.7-0", "n00000000000000af.12-3"], ["invoices.csv", "any", "0af.1-1"]);
    for name in own {
        fs::write(hints.join(name), "").unwrap();
    }
    for name in foreign {
        fs::write(hints.join(name), "").unwrap();
    }
    // A name like ours, with something in it, or with somewhere to go.
    fs::write(hints.join("any.7-1"), "a letter").unwrap();
    symlink(hints.join("any"), hints.join("any.7-2")).unwrap();
    drop(SqliteStore::open(&path).unwrap());
    for name in own {
        assert!(!hints.join(name).exists(), "{name} is still there");
    }
    for name in foreign.into_iter().chain(["any.7-1", "any.7-2"]) {
        assert!(fs::symlink_metadata(hints.join(name)).is_ok(), "{name} is gone");
    }
}

/// S5: a directory of hints that leads elsewhere is refused, and nothing there is touched.
#[tokio::test]
async fn a_directory_of_hints_behind_a_link_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (directory.path().join("x.db"), directory.path().join("letters"));
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("any.7-0"), "").unwrap();
    fs::write(elsewhere.join("a letter"), "dear").unwrap();
    symlink(&elsewhere, directory.path().join("x.db-hints")).unwrap();
    let opened = SqliteStore::open(&path);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 2, "files are gone");
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.message().contains("symbolic link"), "{error}");
}
