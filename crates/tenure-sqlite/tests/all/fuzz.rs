//! URLs and stored rows of any content: taken, or refused with a sentence, never a panic, and
//! never a lease that somebody else holds.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bolero::{TypeGenerator, check};
use rusqlite::Connection;
use tenure_core::{CandidateId, ErrorKind, Name, Op, Reply, Store as _, StoreExt as _, Term};
use tenure_sqlite::{SqliteConfig, SqliteStore};

const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(60);

fn urls(time: Duration) {
    const PIECES: [&str; 14] = [
        "sqlite:",
        "//",
        "/",
        ":memory:",
        "~/",
        "?",
        "mode=ro",
        "\0",
        "a",
        ".db",
        " ",
        "é",
        "postgres:",
        "%2F",
    ];
    check!().with_test_time(time).with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
        let picked = picks.iter().map(|pick| PIECES[usize::from(*pick) % PIECES.len()]);
        for url in [picked.collect(), free.clone(), format!("sqlite:{free}")] {
            match SqliteConfig::from_url(&url) {
                Ok(config) => {
                    let path = config.path().to_str().unwrap();
                    assert!(url == "sqlite:" || url.ends_with(path), "{url:?} became {path:?}");
                    assert!(!path.contains(['\0', '?']), "{path:?}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Config, "{error}"),
            }
        }
    });
}

/// A row as a buggy or hostile program may have left it.
#[derive(Clone, Debug, TypeGenerator)]
struct Stored {
    term: i64,
    holder: Option<String>,
    expires_ns: i64,
    ttl_ns: i64,
    seq: i64,
    asked: i64,
    since_unix_ms: Option<i64>,
    metadata: Option<String>,
    witness: Option<(i64, i32, i64)>,
    boot: i64,
}

fn rows(time: Duration) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let name = Name::new("fuzzed").unwrap();
    let me = CandidateId::new("me", 1).unwrap();
    let file = Connection::open(&path).unwrap();
    file.execute_batch("PRAGMA synchronous = OFF").unwrap();
    // After a panic nobody uses them any more.
    let scene = AssertUnwindSafe((store, runtime, RefCell::new(file)));
    check!().with_test_time(time).with_type::<Stored>().for_each(|row| {
        let (store, runtime, file) = &*scene;
        let is_held = write(&mut file.borrow_mut(), &name, row);
        let sight = runtime.block_on(store.read(&name));
        let acquire = Op::Acquire {
            election: name.clone(),
            candidate: me.clone(),
            seq: 1,
            above: None,
            floor: None,
            ttl: Duration::from_secs(1),
            metadata: None,
        };
        let ask = Op::Ask { election: name.clone(), term: Term::new(7) };
        let replies = runtime.block_on(store.apply(&[ask, acquire]));
        assert_eq!(replies.len(), 2);
        if let (true, Ok(sight)) = (is_held, &sight) {
            assert!(sight.lease.is_some(), "{row:?}");
            assert!(!matches!(replies[1], Reply::Granted(_)), "{row:?}: {replies:?}");
        }
        if let Reply::Granted(grant) = &replies[1] {
            assert!(Term::new(row.term.unsigned_abs()).is_some_and(|last| grant.term > last));
        }
    });
}

/// Puts the row there, past the checks of the table, and tells whether a live process holds it.
fn write(file: &mut Connection, name: &Name, row: &Stored) -> bool {
    let tx = file.transaction().unwrap();
    tx.execute_batch(
        "PRAGMA ignore_check_constraints = ON; DELETE FROM lease; DELETE FROM witness",
    )
    .unwrap();
    if let Some((namespace, pid, start)) = row.witness {
        let columns = (1, namespace, pid, start);
        let insert = "INSERT INTO witness (id, pid_ns, pid, pid_start) VALUES (?1, ?2, ?3, ?4)";
        tx.execute(insert, columns).unwrap();
    }
    let insert = "INSERT INTO lease (election, term, holder, expires_ns, ttl_ns, seq, asked,
                                     since_unix_ms, metadata, witness, boot)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    tx.execute(
        insert,
        rusqlite::params![
            name.as_str(),
            row.term,
            row.holder,
            row.expires_ns,
            row.ttl_ns,
            row.seq,
            row.asked,
            row.since_unix_ms,
            row.metadata,
            row.witness.map(|_| 1),
            row.boot,
        ],
    )
    .unwrap();
    tx.commit().unwrap();
    // Without a witness nobody can be proven dead.
    // An odd number is a boot id of the kernel's own: then the machine was booted since.
    let is_containers = row.boot & 1 == 0;
    row.holder.is_some() && row.witness.is_none() && row.ttl_ns > 0 && is_containers
}

#[test]
fn urls_name_a_file_or_are_refused() {
    urls(SHORT);
}

#[test]
fn rows_of_any_content_are_survived() {
    rows(SHORT);
}

#[needs(long)]
#[test]
fn long_fuzz_of_urls_and_rows() {
    urls(LONG);
    rows(LONG);
}
