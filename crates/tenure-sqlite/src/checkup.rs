//! What a doctor looks at: the file, where it lies, and how it is kept.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tenure_core::{BoxFuture, Checkup, CheckupReport, Error, ErrorKind, Finding, Level};

use crate::error;
use crate::store::SqliteStore;

/// Below this the next write may fail.
const SPACE_MIN_BYTES: u64 = 64 * 1024 * 1024;

impl Checkup for SqliteStore {
    fn examine(&self, _ttl: Duration) -> BoxFuture<'_, CheckupReport> {
        Box::pin(async move {
            let mut report = CheckupReport::new();
            if let Err(error) = examine(self, &mut report) {
                report.find(Finding::unusable("the store", error));
            }
            report
        })
    }
}

/// Looks at the file through a connection of its own, which only reads.
fn examine(store: &SqliteStore, report: &mut CheckupReport) -> Result<(), Error> {
    let path = store.path();
    let file = fs::metadata(path).map_err(unreadable)?;
    report.fact("file", format!("{} bytes, mode {:04o}", file.len(), file.mode() & 0o7777));
    if file.mode() & 0o077 != 0 {
        report.find(
            Finding::new(Level::Safety, format!("others may open {}", path.display()))
                .because("a program that writes to the file can make anybody lead, or nobody")
                .so("chmod it to 0600 and its directory to 0700"),
        );
    }
    report.fact("file system", store.file_system()?);
    let directory = path.parent().unwrap_or(path);
    if fs::metadata(directory).map_err(unreadable)?.mode() & 0o022 != 0 {
        report.find(
            Finding::new(Level::Safety, format!("others may write to {}", directory.display()))
                .because("a file that is replaced there starts its terms anew")
                .so("chmod the directory to 0700, or keep the file in one of its own"),
        );
    }
    if !store.sees_boot_id_of_kernel() {
        report.find(
            Finding::new(
                Level::Advice,
                "the boot id here is not the kernel's own, but a container's",
            )
            .because(
                "leases that others wrote can't be told from those of before a reboot, so they \
                     are watched for their whole ttl before they are taken over",
            )
            .so("run all candidates in one container or all on the host, or use a server"),
        );
    }
    let space = rustix::fs::statvfs(directory).map_err(unreadable)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    report.fact("free space", format!("{} MiB", free / 1024 / 1024));
    if free < SPACE_MIN_BYTES {
        report.find(
            Finding::new(Level::Advice, "the file system is nearly full")
                .because("a renewal that can't be written fails, and the leader steps down")
                .so("make room, or move the file"),
        );
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = connection.map_err(unreadable)?;
    let journal: String =
        connection.query_row("PRAGMA journal_mode", (), |row| row.get(0)).map_err(unreadable)?;
    report.fact("SQLite", format!("{}, journal mode {journal}", rusqlite::version()));
    if journal != "wal" {
        report.find(
            Finding::new(Level::Advice, format!("the journal mode is {journal}, not wal"))
                .because("readers hold up renewals")
                .so("let tenure open the file for writing once; it sets the mode"),
        );
    }
    check_pages(&connection, report)
}

/// Reads the whole file. Nobody else does: it takes the longer the more is kept there.
fn check_pages(connection: &Connection, report: &mut CheckupReport) -> Result<(), Error> {
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(unreadable)?;
    if verdict != "ok" {
        report.find(
            Finding::new(Level::Safety, format!("the file is damaged: {verdict}"))
                .because("what can't be read is not known: a term could be issued twice")
                .so("stop all candidates, move the file, its -wal and its -shm away, and start \
                     again with a term floor above the old terms"),
        );
    }
    Ok(())
}

fn unreadable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("the file can't be read: {source}");
    error::new(ErrorKind::Unavailable, message).caused_by(source)
}
