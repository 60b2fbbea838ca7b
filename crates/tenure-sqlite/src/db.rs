//! One open connection to the store's file: how it is opened, checked, and found to be stale.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tenure_core::{Error, ErrorKind};

use crate::config::SqliteConfig;
use crate::error;
use crate::fs::{Gate, Identity, Place};
use crate::host::Host;
use crate::read_only;

/// `tnur`, so that `file` and we can tell this database from others.
const APPLICATION_ID: i32 = 0x746e_7572;

/// Each migration takes the schema from its index to the next number.
pub(crate) const MIGRATIONS: [&str; 3] = [
    include_str!("../migrations/0001_init.sql"),
    include_str!("../migrations/0002_messages.sql"),
    include_str!("../migrations/0003_ledger.sql"),
];

/// How long opening waits for others that are opening or writing.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Room for the pages of some ten thousand leases.
const CACHE_KIB: i64 = 8_000;

/// How often a file that is replaced while it is being opened is opened again.
const OPEN_TRIES: usize = 3;

/// A connection, and what it is a connection to.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) conn: Connection,
    pub(crate) place: Place,
    access: Access,
    busy_timeout: Duration,
}

/// What may be done with the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anything. These are the files that are open.
    Write(Identity),
    /// It may be read, and its `-wal` with it.
    Read,
    /// It may be read as it is now: nobody has it open.
    Snapshot,
}

impl Db {
    /// Opens the file as it is to be used. Waits `wait` for others that open it.
    pub(crate) fn open_with(
        config: &SqliteConfig,
        host: &Host,
        wait: Duration,
        busy_timeout: Duration,
    ) -> Result<Db, Error> {
        if !config.read_only {
            return Db::open(&config.path, host, wait, busy_timeout);
        }
        let place = Place::find(&config.path, host)?;
        let (conn, access) = read_only::connect(&place.real)
            .map_err(|trouble| trouble.into_error(&place.real, wait))?;
        check_host(&conn, host, &place.real)?;
        Ok(Db { conn, place, access, busy_timeout })
    }

    /// Opens the file, and creates or upgrades what is in it. Waits `wait` for others that open
    /// it, and in later calls `busy_timeout` for others that write.
    ///
    /// It does not look at the whole file: that takes the longer the more messages and ticks are
    /// kept, and damage shows when a page is read. `tenure doctor` looks.
    pub(crate) fn open(
        path: &Path,
        host: &Host,
        wait: Duration,
        busy_timeout: Duration,
    ) -> Result<Db, Error> {
        for _ in 0..OPEN_TRIES {
            let (place, gate) = Place::prepare(path, host, wait)?;
            let mut conn = connect(&place.real, host, wait)
                .map_err(|trouble| trouble.into_error(&place.real, wait))?;
            drop::<Gate>(gate);
            let broken = |error| error::from_sqlite(&place.real, error);
            set_patience(&mut conn, busy_timeout).map_err(broken)?;
            check_host(&conn, host, &place.real)?;
            // SQLite knows whether the file was moved since it opened it; we note the rest.
            if let Some(identity) = place.identity()
                && !has_moved(&conn).map_err(broken)?
            {
                let access = Access::Write(identity);
                return Ok(Db { conn, place, access, busy_timeout });
            }
        }
        Err(error::moved(path))
    }

    /// Whether the path no longer leads to the files that are open here (S4).
    pub(crate) fn is_moved(&self) -> bool {
        match &self.access {
            Access::Write(identity) => self.place.identity().as_ref() != Some(identity),
            // Nothing is decided here that others rely on.
            Access::Read | Access::Snapshot => false,
        }
    }

    /// Whether the next look needs another connection: this one sees no later writes.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.access == Access::Snapshot
    }

    /// Closes without touching the files, because they may be somebody else's by now.
    pub(crate) fn abandon(self) {
        let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        if let Err(error) = self.conn.set_db_config(config, true) {
            tracing::debug!(%error, "could not keep the close from writing");
        }
    }

    /// A transaction that only reads: it takes no lock that anybody waits for.
    pub(crate) fn look(&mut self) -> Result<Transaction<'_>, Error> {
        let real = &self.place.real;
        self.conn
            .transaction_with_behavior(TransactionBehavior::Deferred)
            .map_err(|error| error::from_sqlite(real, error))
    }

    /// A transaction that has SQLite's write lock from its beginning.
    pub(crate) fn change(&mut self) -> Result<Transaction<'_>, Error> {
        let (real, waited) = (&self.place.real, self.busy_timeout);
        if !matches!(self.access, Access::Write(_)) {
            return Err(error::read_only(real));
        }
        self.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|error| {
            if error::is_busy(&error) {
                return error::busy(real, waited.as_millis()).caused_by(error);
            }
            error::from_sqlite(real, error)
        })
    }
}

/// The boot and the time namespace that the times in the file belong to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Ours, or one that can't be told from a container's: each lease says which (S2).
    Open,
    /// A container's, and ours is the kernel's own: the file should say so.
    Adoptable,
    /// An earlier boot: every lease of it is over.
    Over,
}

/// Compares the file's boot with ours.
///
/// A differing time namespace under the same boot has another idea of the same clock (S1): no
/// time in the file can be believed, so nothing may be decided here.
pub(crate) fn era(conn: &Connection, host: &Host, real: &Path) -> Result<Era, Error> {
    let broken = |error| error::from_sqlite(real, error);
    let found = conn
        .prepare_cached(include_str!("sql/read_host.sql"))
        .and_then(|mut read| {
            read.query_row((), |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?, row.get::<_, i64>(2)?))
            })
        })
        .map_err(broken)?;
    match found {
        (boot_id, is_kernels, _) if *boot_id != *host.boot_id => {
            Ok(match (is_kernels, host.boot_is_kernels) {
                (true, true) => Era::Over,
                (false, true) => Era::Adoptable,
                (_, false) => Era::Open,
            })
        }
        (_, _, time_ns) if time_ns != time_column(host) => Err(error::new(
            ErrorKind::Unsupported,
            format!(
                "{} is used from another time namespace (time:[{time_ns}], here time:[{}]), \
                 whose clock can't be compared with ours; run all candidates in the same one, \
                 or give each namespace its own file",
                real.display(),
                host.time_ns
            ),
        )),
        _ => Ok(Era::Open),
    }
}

/// Makes the file's boot ours if it was another one, and ends every lease of before a reboot. Terms
/// stay, and so do the leases of containers: whether they are over, only time tells (S2).
pub(crate) fn enter(conn: &Connection, host: &Host, era: &Era) -> rusqlite::Result<()> {
    match era {
        Era::Open => return Ok(()),
        Era::Adoptable => {}
        Era::Over => {
            conn.execute(include_str!("sql/end_all.sql"), [host.boot().column()])?;
            conn.execute(include_str!("sql/trim_witnesses.sql"), [0])?;
            conn.execute("DELETE FROM released WHERE at_ns > ?1", [host.now_ns()])?;
            conn.execute("DELETE FROM notice", ())?;
        }
    }
    write_host(conn, host)
}

fn write_host(conn: &Connection, host: &Host) -> rusqlite::Result<()> {
    let values = (&*host.boot_id, host.boot_is_kernels, time_column(host));
    conn.execute(include_str!("sql/write_host.sql"), values).map(drop)
}

/// Why a connection could not be made: in SQLite's words, or in ours.
pub(crate) enum Trouble {
    Sqlite(rusqlite::Error),
    Ours(ErrorKind, String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sqlite(error)
    }
}

impl Trouble {
    fn into_error(self, real: &Path, waited: Duration) -> Error {
        match self {
            Trouble::Sqlite(error) if error::is_busy(&error) => {
                error::busy(real, waited.as_millis()).caused_by(error)
            }
            Trouble::Sqlite(error) => error::from_sqlite(real, error),
            Trouble::Ours(kind, message) => {
                error::new(kind, format!("{} {message}", real.display()))
            }
        }
    }
}

/// Opens a file that exists and brings it up to date. Only with the gate held.
fn connect(real: &Path, host: &Host, wait: Duration) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(real, flags)?;
    set_patience(&mut conn, wait)?;
    conn.set_prepared_statement_cache_capacity(32);
    if conn.is_readonly("main")? {
        let message = "is read-only; make it writable for this user".to_owned();
        return Err(Trouble::Ours(ErrorKind::Denied, message));
    }
    let version = recognise(&conn)?;
    // FULL: a term that was granted is still known after a power loss (S1).
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "trusted_schema", false)?;
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let message = format!(
            "can't be switched to WAL (it stays in mode {mode}), which needs shared memory; \
             choose another path"
        );
        return Err(Trouble::Ours(ErrorKind::Unsupported, message));
    }
    if version < MIGRATIONS.len() {
        migrate(&mut conn, host)?;
    }
    Ok(conn)
}

/// The version of the schema, if the file is ours or empty.
pub(crate) fn recognise(conn: &Connection) -> Result<usize, Trouble> {
    let application: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    let known = MIGRATIONS.len();
    match usize::try_from(version) {
        Ok(0) if application == 0 && objects == 0 => Ok(0),
        Ok(version) if application == APPLICATION_ID && version <= known => Ok(version),
        _ if application == APPLICATION_ID => Err(Trouble::Ours(
            ErrorKind::Unsupported,
            format!(
                "was written by a newer tenure (schema {version}, this one knows {known}); \
                 upgrade tenure, or choose another path"
            ),
        )),
        _ => Err(Trouble::Ours(
            ErrorKind::Config,
            "is the database of another program; leases live in a file of their own, so choose \
             another path"
                .to_owned(),
        )),
    }
}

fn migrate(conn: &mut Connection, host: &Host) -> Result<(), Trouble> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = recognise(&tx)?;
    for step in &MIGRATIONS[version..] {
        tx.execute_batch(step)?;
    }
    if version == 0 {
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        write_host(&tx, host)?;
    }
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    tx.pragma_update(None, "user_version", known)?;
    tx.commit()?;
    Ok(())
}

fn check_host(conn: &Connection, host: &Host, real: &Path) -> Result<(), Error> {
    era(conn, host, real).map(|_| ())
}

fn has_moved(conn: &Connection) -> rusqlite::Result<bool> {
    let mut moved = 0;
    conn.file_control(None::<&str>, rusqlite::FileControl::HasMoved(&mut moved))?;
    Ok(moved != 0)
}

/// Waits for other writers in small steps, and never longer than this altogether. SQLite's own
/// handler sleeps up to 100 ms at a time, which is too coarse for a hand-over.
fn set_patience(conn: &mut Connection, limit: Duration) -> rusqlite::Result<()> {
    let mut waited = Duration::ZERO;
    conn.busy_handler(Some(move |tries: i32| {
        if tries == 0 {
            waited = Duration::ZERO;
        }
        let nap = Duration::from_micros(200) * (1 << tries.clamp(0, 5));
        if waited + nap > limit {
            return false;
        }
        thread::sleep(nap);
        waited += nap;
        true
    }))
}

/// Inodes of namespaces have 32 bits; a column has 63.
fn time_column(host: &Host) -> i64 {
    i64::try_from(host.time_ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Db, Error> {
        Db::open(path, &Host::detect()?, OPEN_TIMEOUT, Duration::from_millis(5))
    }

    #[test]
    fn terms_survive_a_power_loss_by_full_sync_of_a_write_ahead_log() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let db = open(&directory.path().join("x.db")).unwrap();
            let text = |pragma: &str| -> rusqlite::types::Value {
                db.conn.pragma_query_value(None, pragma, |row| row.get(0)).unwrap()
            };
            assert_eq!(text("synchronous"), 2.into());
            assert_eq!(text("journal_mode"), "wal".to_owned().into());
            assert_eq!(text("application_id"), i64::from(APPLICATION_ID).into());
        }
    }

    #[test]
    fn a_stuck_writer_is_named_and_waited_for_no_longer_than_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let (mut one, mut two) = (open(&path).unwrap(), open(&path).unwrap());
        let stuck = one.change().unwrap();
        let error = two.change().unwrap_err();
        assert!(error.is_retryable(), "{error}");
        let me = format!("process {} (", std::process::id());
        assert!(error.message().contains(&me) && error.message().contains("5 ms"), "{error}");
        two.look().unwrap();
        drop(stuck);
        two.change().unwrap();
    }

    #[test]
    fn a_missing_or_replaced_companion_is_noticed_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let db = open(&path).unwrap();
        assert!(!db.is_moved());
        std::fs::remove_file(crate::fs::beside(&path, "-shm")).unwrap();
        assert!(db.is_moved());
        db.abandon();
    }
}
