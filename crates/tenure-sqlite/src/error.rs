//! Turns everything that can go wrong into one sentence that says what to do.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};
use tenure_core::{Error, ErrorKind};

/// The name of this store in errors.
pub(crate) const STORE: &str = "sqlite";

/// The byte of the `-shm` file that a writer holds in WAL mode (`UNIX_SHM_BASE` in SQLite).
const WRITE_BYTE: &str = "120";

/// An error of this store.
pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).in_store(STORE)
}

/// What SQLite says, in our words.
pub(crate) fn from_sqlite(path: &Path, error: rusqlite::Error) -> Error {
    let (file, path) = (path, path.display());
    let code = error.sqlite_error().copied();
    let extended = code.map_or(0, |code| code.extended_code);
    let (kind, message) = match code.map(|code| code.code) {
        Some(ErrorCode::DiskFull) => (
            ErrorKind::Unavailable,
            format!("the disk is full and {path} can't be written; free some space"),
        ),
        Some(ErrorCode::SystemIoFailure) if extended == ffi::SQLITE_IOERR_SHMSIZE => (
            ErrorKind::Unavailable,
            format!("the disk is full and {path}-shm can't grow; free some space"),
        ),
        Some(ErrorCode::SystemIoFailure) => (
            ErrorKind::Unavailable,
            format!("{path} can't be read or written; look for disk errors in the system's log"),
        ),
        Some(ErrorCode::ReadOnly) if extended == ffi::SQLITE_READONLY_DBMOVED => {
            return moved(file).caused_by(error);
        }
        Some(ErrorCode::ReadOnly) => (
            ErrorKind::Denied,
            format!("{path} or its directory is read-only; make both writable for this user"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            ErrorKind::Denied,
            format!("{path} can't be opened; make it and its directory writable for this user"),
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            format!("{path} is being written by another process; try again"),
        ),
        Some(ErrorCode::NotADatabase) => (
            ErrorKind::Corrupt,
            format!("{path} is not a SQLite database; choose another path or move it away"),
        ),
        Some(ErrorCode::OutOfMemory) => {
            (ErrorKind::Unavailable, "there is not enough memory; free some".to_owned())
        }
        _ => (
            ErrorKind::Corrupt,
            format!(
                "{path} does not hold what tenure wrote; stop all candidates, move it and its \
                 -wal and -shm away, and start again with a term floor above the old terms"
            ),
        ),
    };
    new(kind, message).caused_by(error)
}

/// What SQLite says about a file of the user's.
#[cfg(feature = "rusqlite")]
pub(crate) fn from_user_file(path: Option<&str>, error: rusqlite::Error) -> Error {
    let path = path.filter(|path| !path.is_empty()).unwrap_or("the database");
    let (kind, advice) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "roll back and try again")
        }
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, "roll back, and look at the disk")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            (ErrorKind::Denied, "open it for writing")
        }
        _ => (ErrorKind::Corrupt, "was fence::install called on it?"),
    };
    new(kind, format!("the mark in {path} can't be used: {error}; {advice}")).caused_by(error)
}

/// Whether SQLite gave up waiting for another writer.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Another process did not finish its write in time: says which, where that can be told.
pub(crate) fn busy(real: &Path, waited_ms: u128) -> Error {
    let who = writer(real).unwrap_or_else(|| "another process".to_owned());
    new(
        ErrorKind::Unavailable,
        format!(
            "{who} has been writing to {} for more than {waited_ms} ms; if it is stopped or \
             stuck, end it",
            real.display()
        ),
    )
}

/// The file may be read at best.
pub(crate) fn read_only(real: &Path) -> Error {
    let real = real.display();
    let message = format!(
        "{real} can't be read and written by this user; change its mode or choose another path"
    );
    new(ErrorKind::Denied, message)
}

/// The file is no longer the one that was opened (S4).
pub(crate) fn moved(path: &Path) -> Error {
    new(
        ErrorKind::Unavailable,
        format!(
            "{} (or its -wal or -shm) was replaced or deleted while in use; the next call opens \
             what is there now; stop all candidates before you restore a copy",
            path.display()
        ),
    )
}

/// A rule of the file system got in the way while the files were prepared.
pub(crate) fn from_io(what: &str, path: &Path, error: io::Error) -> Error {
    use io::ErrorKind as Io;
    let path = path.display();
    let (kind, advice) = match error.kind() {
        Io::PermissionDenied => (ErrorKind::Denied, "make it accessible for this user"),
        Io::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "its file system is read-only; choose another path")
        }
        Io::StorageFull | Io::QuotaExceeded => (ErrorKind::Unavailable, "free some space"),
        Io::NotADirectory
        | Io::NotFound
        | Io::AlreadyExists
        | Io::InvalidFilename
        | Io::InvalidInput => (ErrorKind::Config, "choose another path"),
        _ => (ErrorKind::Unavailable, "see the cause"),
    };
    new(kind, format!("{what} {path}: {error}; {advice}")).caused_by(error)
}

/// Who holds SQLite's write lock, from `/proc/locks`. Opening the `-shm` file to ask the kernel
/// would drop our own process's locks on it when it is closed.
fn writer(real: &Path) -> Option<String> {
    let mut shm = real.as_os_str().to_owned();
    shm.push("-shm");
    let inode = fs::metadata(&shm).ok()?.ino();
    let pid = lock_holder(&fs::read_to_string("/proc/locks").ok()?, inode)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    })
}

fn lock_holder(locks: &str, inode: u64) -> Option<u32> {
    // 1: POSIX  ADVISORY  WRITE 4711 08:01:131 120 120
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, file, from, ..] = fields[..] else {
            return None;
        };
        let same = file.rsplit(':').next()?.parse() == Ok(inode);
        (same && from == WRITE_BYTE).then(|| pid.parse().ok()).flatten().filter(|pid| *pid > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_is_found_by_inode_and_byte() {
        let locks = "1: POSIX  ADVISORY  READ 11 08:01:131 124 124\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:131 0 EOF\n\
                     3: -> POSIX  ADVISORY  WRITE 13 08:01:131 120 120\n\
                     4: POSIX  ADVISORY  WRITE 14 08:01:999 120 120\n\
                     5: POSIX  ADVISORY  WRITE 15 08:01:131 120 120\n";
        assert_eq!(lock_holder(locks, 131), Some(15));
        assert_eq!(lock_holder(locks, 7), None);
    }

    #[test]
    fn each_kind_of_trouble_has_its_sentence() {
        let of = |code| {
            let error = ffi::Error::new(code);
            from_sqlite(Path::new("/x.db"), rusqlite::Error::SqliteFailure(error, None))
        };
        for (code, kind, word) in [
            (ffi::SQLITE_FULL, ErrorKind::Unavailable, "full"),
            (ffi::SQLITE_IOERR_SHMSIZE, ErrorKind::Unavailable, "full"),
            (ffi::SQLITE_IOERR, ErrorKind::Unavailable, "disk errors"),
            (ffi::SQLITE_READONLY, ErrorKind::Denied, "read-only"),
            (ffi::SQLITE_READONLY_DBMOVED, ErrorKind::Unavailable, "replaced"),
            (ffi::SQLITE_CANTOPEN, ErrorKind::Denied, "writable"),
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable, "another process"),
            (ffi::SQLITE_NOTADB, ErrorKind::Corrupt, "not a SQLite database"),
            (ffi::SQLITE_CORRUPT, ErrorKind::Corrupt, "move it"),
        ] {
            let error = of(code);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains(word), "{error}");
            assert_eq!(error.store(), Some("sqlite"));
        }
    }
}
