//! The handle that users hold.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    BoxFuture, Channels, Checkup, Elections, Error, Expiry, Forgotten, Hints, Ledger, Migrate,
    Name, Op, Reply, Store, StoreInfo, Witness,
};

use crate::config::SqliteConfig;
use crate::db::{Db, OPEN_TIMEOUT};
use crate::error;
use crate::fs;
use crate::hints::Hub;
use crate::host::Host;
use crate::mail::Mail;
use crate::worker::{Jobs, answered, thread_ended};

/// How many ops one transaction carries.
const BATCH_LIMIT: usize = 10_000;

/// Leases in one SQLite file, for all processes of this host.
///
/// A clone is another handle onto the same connection, thread and witnesses. SQLite runs on a
/// thread of the store's own, which ends with the last handle.
///
/// # Guarantees
/// The whole contract of [`Store`]; the crate's documentation has the table.
///
/// # Examples
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("tenure.db");
/// use tenure_core::{Name, StoreExt};
/// use tenure_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn example(path: std::path::PathBuf) -> Result<(), tenure_core::Error> {
/// let store = SqliteStore::open(path)?;
/// let sight = store.read(&Name::new("invoices")?).await?;
/// assert!(sight.lease.is_none(), "nobody leads yet");
/// # Ok(())
/// # }
/// # example(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Shared>);

struct Shared {
    path: PathBuf,
    childless: bool,
    jobs: Jobs,
    hub: Arc<Hub>,
    mail: Arc<Mail>,
}

impl SqliteStore {
    /// The shortest ttl that makes sense: a write takes a few milliseconds, now and then many.
    pub const TTL_MIN: Duration = Duration::from_millis(50);

    /// Opens the store in this file, creating it (mode 0600) and its directory (0700) where
    /// needed. Any number of processes may do so at once.
    ///
    /// Blocks for some milliseconds, or for some seconds while others open or write the same file.
    ///
    /// # Errors
    /// - `Config`: the path is a directory, or the database of another program.
    /// - `Denied`: the file or its directory can't be written.
    /// - `Corrupt`: the file is not a database, or a damaged one.
    /// - `Unsupported`: it was written by a newer tenure, is on a file system that other hosts
    ///   may share, or is used from another time namespace.
    /// - `Unavailable`: another process is stuck while opening it, or the disk is full.
    pub fn open(path: impl Into<PathBuf>) -> Result<SqliteStore, Error> {
        SqliteConfig::new(path).open()
    }

    pub(crate) fn open_with(mut config: SqliteConfig) -> Result<SqliteStore, Error> {
        let opened = |error: Error| error.in_store(error::STORE).during("open");
        // Fixed now: the working directory may change before the file is opened again.
        config.path = std::path::absolute(&config.path)
            .map_err(|error| opened(error::from_io("there is no file", &config.path, error)))?;
        let host = match config.host.clone() {
            Some(host) => host,
            None => Host::detect().map_err(opened)?,
        };
        let db = Db::open_with(&config, &host, OPEN_TIMEOUT, config.busy_timeout);
        let db = db.map_err(opened)?;
        if !config.read_only {
            fs::sweep(&db.place.hints);
        }
        let (path, childless) = (config.path.clone(), config.childless);
        let hub = Arc::new(Hub::new(host.clone(), db.place.hints.clone()));
        let mail = Arc::new(Mail::new(config.clone(), host.clone()));
        let jobs = Jobs::start(config, host, db, hub.clone()).map_err(opened)?;
        Ok(SqliteStore(Arc::new(Shared { path, childless, jobs, hub, mail })))
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    pub(crate) fn mail(&self) -> &Arc<Mail> {
        &self.0.mail
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.0.jobs
    }

    /// What people call the file system that the file is on, such as `ext4`.
    ///
    /// # Errors
    /// `Denied` if the directory can't be looked at.
    pub fn file_system(&self) -> Result<String, Error> {
        let path = self.path();
        crate::fs::file_system(path.parent().unwrap_or(path))
    }

    /// Whether this process sees the boot id of the kernel itself, and not one that was made up for
    /// its container. Without it no reboot is recognised, and leases that others wrote are watched
    /// for their whole ttl before they are taken over.
    pub fn sees_boot_id_of_kernel(&self) -> bool {
        self.0.hub.host.boot_is_kernels
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The names of all elections that somebody ever led here, in order.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the file from being read.
    pub async fn elections(&self) -> Result<Vec<Name>, Error> {
        answered(self.0.jobs.list(), "list").await
    }

    /// Forgets an election that nobody leads, or whose leader is proven dead: see
    /// [`Elections::forget`].
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may be forgotten or not.
    ///
    /// # Errors
    /// Whatever kept the file from being written.
    pub async fn forget(&self, election: &Name) -> Result<Forgotten, Error> {
        answered(self.0.jobs.forget(election.clone()), "forget").await
    }
}

impl Store for SqliteStore {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            if ops.is_empty() {
                return Vec::new();
            }
            let answer = if ops.len() > BATCH_LIMIT {
                Err(Error::batch_too_large(ops.len(), BATCH_LIMIT).in_store(error::STORE))
            } else {
                self.0.jobs.apply(ops.to_vec())
            };
            let replies = match answer {
                Ok(answer) => answer.await.ok_or_else(thread_ended),
                Err(error) => Err(error),
            };
            replies.unwrap_or_else(|error| {
                ops.iter().map(|op| Reply::Unknown(error.clone().during(op.verb()))).collect()
            })
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        self.0.hub.listen()
    }

    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo::new("sqlite", format!("sqlite:{}", self.0.path.display()));
        info.expiry = Expiry::HostClock;
        info.durable_terms = true;
        info.survives_restart = true;
        info.sees_death = self.0.childless;
        info.witness = self.url().is_some();
        info.hints = true;
        info.channels = true;
        info.ledger = true;
        info.batch_limit = BATCH_LIMIT;
        info.min_ttl = SqliteStore::TTL_MIN;
        info.fencing = Some("a high-water mark in your own SQLite file: tenure_sqlite::fence");
        info.residual = RESIDUAL.to_vec();
        info
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    fn witness(&self) -> Option<&dyn Witness> {
        Some(self)
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        Some(self)
    }

    fn migrate(&self) -> Option<&dyn Migrate> {
        None
    }
}

/// What is not promised.
const RESIDUAL: [&str; 7] = [
    "only processes of this host take part; network file systems are refused",
    "a pause of the hypervisor, the restore of a snapshot and CRIU stop the clock unseen: a \
     leader may act late, and only a fence stops it",
    "a leader in another pid namespace (a container) is never known to be dead, so its lease has \
     to run out",
    "of a leader under a boot id that a container made up nothing is known but its lease, which is \
     watched until it has not changed for its whole ttl",
    "a process that is stopped in the middle of a write holds up all others until it goes on or \
     is killed; leaders step down in time",
    "replacing or deleting the file under a leader forgets its lease: somebody else may lead \
     until it notices, at its next renewal",
    "a process that was declared childless and has children all the same may be succeeded while \
     they still work",
];

impl Drop for Shared {
    fn drop(&mut self) {
        self.hub.close();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}
