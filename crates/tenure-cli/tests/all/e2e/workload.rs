//! The work that the leader does: fenced writes into a file of its own, as fast as they go.
//!
//! The writer is this very test binary, started again by `tenure run`.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use rustix::event::{Timespec, poll};
use tenure_core::{Name, Term, Time};
use tenure_sqlite::fence::{self, FenceError};

use super::fleet::Role;
use crate::common::now;

const DATA: &str = "E2E_DATA";

/// The role of a candidate that writes into this file while it leads.
pub(crate) fn role(data: &Path) -> Role {
    let own = std::env::current_exe().unwrap();
    // The test harness chats on stdout, which is for the events.
    let script = r#"exec "$0" --exact e2e::workload::writes_while_it_is_allowed_to >/dev/null"#;
    let command = ["sh", "-c", script, own.to_str().unwrap()];
    Role::Run {
        command: command.map(str::to_owned).to_vec(),
        envs: vec![(DATA.to_owned(), data.to_str().unwrap().to_owned())],
    }
}

/// The workload; without its variable, a test that does nothing.
#[test]
fn writes_while_it_is_allowed_to() {
    let Ok(data) = std::env::var(DATA) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let election = Name::new(variable("TENURE_ELECTION")).unwrap();
    let term = Term::new(variable("TENURE_TERM").parse().unwrap()).unwrap();
    let candidate = variable("TENURE_CANDIDATE");
    let mut data = open(Path::new(&data));
    fence::raise(&data, &election, term).unwrap();
    while write(&mut data, &election, term, &candidate).is_ok() {
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
    }
}

pub(crate) fn open(data: &Path) -> Connection {
    let data = Connection::open(data).unwrap();
    data.busy_timeout(Duration::from_secs(10)).unwrap();
    data.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
         CREATE TABLE IF NOT EXISTS writes (at INTEGER, term INTEGER, candidate TEXT)",
    )
    .unwrap();
    fence::install(&data).unwrap();
    data
}

/// One fenced write, with the instant at which it was this writer's turn.
pub(crate) fn write(
    data: &mut Connection,
    election: &Name,
    term: Term,
    candidate: &str,
) -> Result<Time, FenceError> {
    let turn = data.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let at = now();
    fence::check(&turn, election, term)?;
    let row = (at.as_nanos() as i64, term.get() as i64, candidate);
    turn.execute("INSERT INTO writes VALUES (?1, ?2, ?3)", row).unwrap();
    turn.commit().unwrap();
    Ok(at)
}

/// A write that passed.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) at: Time,
    pub(crate) term: u64,
    pub(crate) candidate: String,
}

/// Every write that passed, in the order in which they did.
pub(crate) fn written(data: &Connection) -> Vec<Written> {
    let mut rows = data.prepare("SELECT at, term, candidate FROM writes ORDER BY rowid").unwrap();
    let rows = rows.query_map([], |row| {
        Ok(Written {
            at: Time::from_nanos(row.get::<_, i64>(0)? as u64),
            term: row.get::<_, i64>(1)? as u64,
            candidate: row.get(2)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Whether the leader of this term has written.
pub(crate) fn has_written(data: &Connection, term: u64) -> bool {
    let found = "SELECT EXISTS (SELECT 1 FROM writes WHERE term = ?1)";
    data.query_row(found, [term as i64], |row| row.get(0)).unwrap()
}
