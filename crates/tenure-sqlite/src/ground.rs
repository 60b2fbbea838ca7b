//! Drills on SQLite: processes on the same file, and the workload in another one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tenure_core::{BoxFuture, Clock, Error, ErrorKind, Name, Secret, Term, Time};
use tenure_drill::{
    BY_PROCESS, DrillError, Fault, Ground, GroundKind, Refusal, Row, Site, Workload,
};

use crate::config::SqliteConfig;
use crate::fence::{self, FenceError};

/// How to have drills on SQLite.
pub const GROUND: GroundKind = GroundKind {
    schemes: &["sqlite"],
    ground: |site| Ok(Box::new(SqliteGround::new(site)?)),
    workload: |site| Ok(Box::new(SqliteWorkload::open(site)?)),
};

/// Where the workload writes, inside the drill's own directory.
const DATA: &str = "data.db";

/// Longer than any write takes.
const IS_FREE_WITHIN: Duration = Duration::from_millis(200);

struct SqliteGround {
    url: Secret,
    election: Name,
    leases: PathBuf,
    data: PathBuf,
    /// There was no such file before the drill.
    is_new: bool,
}

impl SqliteGround {
    fn new(site: Site) -> Result<SqliteGround, DrillError> {
        let Site { url, election, directory, .. } = site;
        let leases = SqliteConfig::from_url(url.expose())?.path().to_owned();
        let is_new = matches!(leases.try_exists(), Ok(false));
        Ok(SqliteGround { url, election, leases, data: directory.join(DATA), is_new })
    }

    async fn remove(&self) -> Result<(), DrillError> {
        let store = SqliteConfig::from_url(self.url.expose())?.open()?;
        store.forget(&self.election).await?;
        if !self.is_new || !store.elections().await?.is_empty() {
            return Ok(());
        }
        // Nobody else has come to use it: it goes as it came, with all that SQLite and the store
        // have put beside it.
        let beside = |end: &str| {
            let mut path = self.leases.clone().into_os_string();
            path.push(end);
            PathBuf::from(path)
        };
        fs::remove_file(&self.leases)?;
        for end in ["-wal", "-shm", "-journal"] {
            let _there_may_be_none = fs::remove_file(beside(end));
        }
        let _there_may_be_none = fs::remove_dir_all(beside("-hints"));
        Ok(())
    }

    fn read(&self) -> Result<Vec<Row>, DrillError> {
        let number = |column: i64| u64::try_from(column).unwrap_or(0);
        let read = || -> rusqlite::Result<Vec<Row>> {
            let data = Connection::open(&self.data)?;
            let mut rows = data.prepare(
                "SELECT checked, at, term, counter, candidate FROM written ORDER BY rowid",
            )?;
            let rows = rows.query_map((), |row| {
                Ok(Row {
                    checked: Time::from_nanos(number(row.get(0)?)),
                    at: Time::from_nanos(number(row.get(1)?)),
                    term: number(row.get(2)?),
                    counter: number(row.get(3)?),
                    candidate: row.get(4)?,
                })
            })?;
            rows.collect()
        };
        Ok(read().map_err(|error| unusable(&error))?)
    }
}

impl Ground for SqliteGround {
    fn faults(&self) -> &'static [Fault] {
        BY_PROCESS
    }

    fn why_not(&self, fault: Fault) -> &'static str {
        match fault {
            Fault::Restart => "needs a server that can be restarted, and SQLite has none",
            _ => "needs a network between the candidates and the store, and SQLite has none",
        }
    }

    fn has_server(&self) -> bool {
        false
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), DrillError>> {
        Box::pin(async move { open(&self.data).map(drop) })
    }

    fn is_touched(&self) -> bool {
        self.is_new
    }

    fn url(&self) -> Secret {
        self.url.clone()
    }

    fn is_free(&self) -> bool {
        [&self.leases, &self.data].into_iter().all(|file| {
            let free = Connection::open(file).and_then(|file| {
                file.busy_timeout(IS_FREE_WITHIN)?;
                file.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
            });
            free.is_ok()
        })
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<Row>, DrillError>> {
        Box::pin(async move { self.read() })
    }

    fn clean_up<'a>(
        &'a self,
        _candidates: &'a BTreeSet<String>,
    ) -> BoxFuture<'a, Result<(), DrillError>> {
        Box::pin(self.remove())
    }

    fn leftovers(&self) -> String {
        "it is vacant and harms nobody".to_owned()
    }
}

struct SqliteWorkload {
    data: Connection,
    election: Name,
    clock: Arc<dyn Clock>,
}

impl SqliteWorkload {
    fn open(site: Site) -> Result<SqliteWorkload, DrillError> {
        let Site { election, directory, clock, .. } = site;
        Ok(SqliteWorkload { data: open(&directory.join(DATA))?, election, clock })
    }
}

impl Workload for SqliteWorkload {
    fn begin(&mut self, term: Term) -> Result<u64, Refusal> {
        fence::raise(&self.data, &self.election, term).map_err(refusal)?;
        let last = "SELECT coalesce(max(counter), 0) FROM written";
        let last: i64 = self.data.query_row(last, (), |row| row.get(0)).map_err(failed)?;
        Ok(u64::try_from(last).unwrap_or(0))
    }

    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal> {
        let turn = self.data.transaction_with_behavior(TransactionBehavior::Immediate);
        let turn = turn.map_err(failed)?;
        let at = self.clock.now();
        fence::check(&turn, &self.election, term).map_err(refusal)?;
        let column = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let values = (
            column(row.checked.as_nanos()),
            column(at.as_nanos()),
            column(term.get()),
            column(row.counter),
            row.candidate,
        );
        let write = "INSERT INTO written VALUES (?1, ?2, ?3, ?4, ?5)";
        turn.execute(write, values).map_err(failed)?;
        turn.commit().map_err(failed)?;
        Ok(at)
    }
}

/// The file need not survive a crash of the machine: it is gone with the drill.
fn open(data: &Path) -> Result<Connection, DrillError> {
    let opened = || -> rusqlite::Result<Connection> {
        let data = Connection::open(data)?;
        data.busy_timeout(Duration::from_secs(10))?;
        data.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
             CREATE TABLE IF NOT EXISTS written
                 (checked INTEGER, at INTEGER, term INTEGER, counter INTEGER, candidate TEXT)",
        )?;
        Ok(data)
    };
    let data = opened().map_err(|error| unusable(&error))?;
    fence::install(&data).map_err(|error| unusable(&error))?;
    Ok(data)
}

fn unusable(error: &dyn std::fmt::Display) -> Error {
    let message = format!("the file that the drill writes to can't be used: {error}");
    Error::new(ErrorKind::Unavailable, message)
}

fn refusal(error: FenceError) -> Refusal {
    match error {
        FenceError::Stale(stale) => Refusal::Stale(stale.to_string()),
        other => Refusal::Failed(other.to_string()),
    }
}

fn failed(error: rusqlite::Error) -> Refusal {
    Refusal::Failed(error.to_string())
}
