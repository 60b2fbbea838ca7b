//! A connection for those who may only look: to a file of another user, or on a read-only mount.
//!
//! SQLite reads a write-ahead log together with its `-shm`. While somebody has the file open both
//! are there. Else they are not, and can't be created here. Then the file alone is complete, and is
//! read as a snapshot: without locks, and for one look.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use tenure_core::ErrorKind;

use crate::db::{Access, MIGRATIONS, Trouble, recognise};
use crate::fs::beside;

/// How often it is tried again while others come and go.
const TRIES: usize = 5;

/// Opens a file that exists, and changes nothing.
pub(crate) fn connect(real: &Path) -> Result<(Connection, Access), Trouble> {
    let mut last = None;
    for _ in 0..TRIES {
        match look(real, false) {
            Ok(conn) => return Ok((conn, Access::Read)),
            Err(Trouble::Sqlite(error)) => last = Some(error),
            Err(ours) => return Err(ours),
        }
        // With a log beside it, the file alone is not complete.
        if has_log(real) {
            continue;
        }
        match look(real, true) {
            Ok(conn) if !has_log(real) => return Ok((conn, Access::Snapshot)),
            Ok(_) => {}
            Err(Trouble::Sqlite(error)) => last = Some(error),
            Err(ours) => return Err(ours),
        }
    }
    Err(last.map_or_else(unreadable, Trouble::Sqlite))
}

fn look(real: &Path, is_snapshot: bool) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let mode = if is_snapshot { "immutable=1" } else { "mode=ro" };
    let conn = Connection::open_with_flags(format!("file:{}?{mode}", in_url(real)), flags)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    match recognise(&conn)? {
        version if version == MIGRATIONS.len() => Ok(conn),
        _ => Err(Trouble::Ours(
            ErrorKind::Unsupported,
            "was written by an older tenure, or by none yet; let this one open it for writing once"
                .to_owned(),
        )),
    }
}

fn has_log(real: &Path) -> bool {
    std::fs::metadata(beside(real, "-wal")).is_ok_and(|found| found.len() > 0)
}

fn unreadable() -> Trouble {
    let message = "is opened and closed by others all the time; try again".to_owned();
    Trouble::Ours(ErrorKind::Unavailable, message)
}

/// The path as a URL of SQLite has it.
fn in_url(path: &Path) -> String {
    let mut url = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                url.push(char::from(*byte));
            }
            other => url.push_str(&format!("%{other:02x}")),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_not_mistaken_for_options() {
        assert_eq!(in_url(Path::new("/a b/x?mode=rw#1%.db")), "/a%20b/x%3fmode%3drw%231%25.db");
    }
}
