//! The file and its lock.
//!
//! A new file replaces the old one at each write. So the lock is on the directory, which stays.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tenure_core::{Error, ErrorKind};

use crate::error::{self, corrupt, unusable};
use crate::lease::Leases;

/// How long a call waits for its turn. A write takes some milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How often it looks.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct LeaseFile {
    path: PathBuf,
    directory: PathBuf,
}

impl LeaseFile {
    pub(crate) fn open(path: &Path) -> Result<LeaseFile, Error> {
        let directory = LeaseFile::directory_of(path).to_owned();
        if !directory.is_dir() {
            let directory = directory.display();
            return Err(error::new(
                ErrorKind::Config,
                format!("there is no directory {directory}; create it"),
            ));
        }
        Ok(LeaseFile { path: path.to_owned(), directory })
    }

    /// The directory that is locked while this file is read or written.
    pub(crate) fn directory_of(path: &Path) -> &Path {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until nobody else reads or writes.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, Error> {
        let directory = File::open(&self.directory).map_err(unusable(&self.directory))?;
        if lock_within(&directory, LOCK_WAIT).map_err(unusable(&self.directory))? {
            return Ok(Locked { file: self, directory });
        }
        let directory = self.directory.display();
        let message = format!("another process holds the lock on {directory}; is it stopped?");
        Err(error::new(ErrorKind::Unavailable, message))
    }
}

/// The file while it is ours. Dropping this gives the lock back.
pub(crate) struct Locked<'a> {
    file: &'a LeaseFile,
    directory: File,
}

impl Locked<'_> {
    pub(crate) fn read(&self) -> Result<Leases, Error> {
        let path = &self.file.path;
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| corrupt(path, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Leases::default()),
            Err(error) => Err(unusable(path)(error)),
        }
    }

    /// Replaces the file. It survives a power cut once this has returned.
    pub(crate) fn write(&self, leases: &Leases) -> Result<(), Error> {
        let path = &self.file.path;
        let text = serde_json::to_vec_pretty(leases).map_err(|error| corrupt(path, error))?;
        self.replace(&text).map_err(unusable(path))
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let path = &self.file.path;
        let mut name = OsString::from(path);
        name.push(".new");
        let new = PathBuf::from(name);
        // What a killed process left. `create_new` follows no link that somebody put there.
        let _there_may_be_none = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        // The owner may have chosen another mode.
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        self.directory.sync_all()
    }

    /// Removes the file if no election is in it.
    pub(crate) fn remove_if_empty(&self) -> Result<(), Error> {
        if self.read()?.names().next().is_none() && self.file.path.exists() {
            fs::remove_file(&self.file.path).map_err(unusable(&self.file.path))?;
        }
        Ok(())
    }
}

/// Locks `file`, or says after this long that another process has it.
pub(crate) fn lock_within(file: &File, wait: Duration) -> io::Result<bool> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if waited >= wait => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        waited += LOCK_PAUSE;
    }
}
