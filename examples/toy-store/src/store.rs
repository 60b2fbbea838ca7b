//! The store: a lock, a file, and the decisions of `lease.rs` between reading and writing it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tenure::BootClock;
use tenure_core::{
    BoxFuture, Checkup, Clock, Elections, Error, ErrorKind, Expiry, Hints, Name, NoHints, Op,
    Reply, Store, StoreInfo,
};
use tokio::sync::oneshot;

use crate::error;
use crate::file::LeaseFile;
use crate::lease::Leases;

/// Where Linux says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What is not promised, a sentence each.
const RESIDUAL: &[&str] = &[
    "all candidates run on one host, as one user, on a local file system",
    "all of them see one clock: a time namespace of its own lets two lead",
    "after a reboot each lease lasts its whole ttl once more",
    "a file that is deleted, or restored from a copy, issues terms again",
    "a process that is stopped while it writes holds up all others until it goes on",
];

/// Leases in one file, which all candidates of a host share.
#[derive(Clone)]
pub struct ToyStore(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) file: LeaseFile,
    clock: Arc<dyn Clock>,
    boot: String,
}

impl ToyStore {
    /// The shortest ttl: a few times what a slow disk needs for a write.
    pub const TTL_MIN: Duration = Duration::from_millis(200);

    /// Opens the store in this file. The first write creates it; its directory must be there.
    ///
    /// # Errors
    /// `Config` if there is no such directory; `Unavailable` if this is not Linux.
    pub fn open(path: &Path) -> Result<ToyStore, Error> {
        let boot = fs::read_to_string(BOOT_ID).map_err(error::unusable(Path::new(BOOT_ID)))?;
        ToyStore::open_on(path, Arc::new(BootClock), boot.trim())
    }

    /// The same on another clock and in another boot, for tests.
    #[doc(hidden)]
    pub fn open_on(path: &Path, clock: Arc<dyn Clock>, boot: &str) -> Result<ToyStore, Error> {
        let file = LeaseFile::open(path)?;
        Ok(ToyStore(Arc::new(Shared { file, clock, boot: boot.to_owned() })))
    }

    /// Does `work` on a thread of its own, where it may wait for the lock and the disk.
    ///
    /// # Cancel safety
    /// Not cancel safe: the work goes on if the future is dropped.
    pub(crate) async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let shared = self.0.clone();
        let started = thread::Builder::new().name("toy-store".to_owned()).spawn(move || {
            let _if_anybody_waits = answer.send(work(&shared));
        });
        started.map_err(|source| {
            let message = "no thread can be started; raise the limit on processes";
            error::new(ErrorKind::Unavailable, message).caused_by(source)
        })?;
        answered.await.unwrap_or_else(|_| {
            let message = "the thread of a call has panicked; report this as a bug";
            Err(error::new(ErrorKind::Unavailable, message))
        })
    }
}

impl Shared {
    /// Carries out a batch: all of it is on the disk when this returns, or nobody knows.
    fn apply(&self, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        self.change(|leases, now| ops.iter().map(|op| leases.apply(now, op)).collect())
    }

    /// Removes an election, unless somebody holds its lease. Says whether it is gone.
    pub(crate) fn forget(&self, election: &Name) -> Result<bool, Error> {
        self.change(|leases, now| leases.forget(now, election))
    }

    /// Changes the leases while nobody else can, and writes them if they are not as before.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Leases, tenure_core::Time) -> T,
    ) -> Result<T, Error> {
        let locked = self.file.lock()?;
        let before = locked.read()?;
        // Read only now: waiting for the lock may have taken long.
        let now = self.clock.now();
        let mut leases = before.clone();
        leases.adopt(&self.boot, now);
        let outcome = change(&mut leases, now);
        if leases != before {
            locked.write(&leases)?;
        }
        Ok(outcome)
    }
}

impl Store for ToyStore {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let batch = ops.to_vec();
            match self.on_thread(move |shared| shared.apply(&batch)).await {
                Ok(replies) => replies,
                Err(error) => {
                    let unknown = |op: &Op| Reply::Unknown(error.clone().during(op.verb()));
                    ops.iter().map(unknown).collect()
                }
            }
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        Box::new(NoHints)
    }

    fn info(&self) -> StoreInfo {
        let address = format!("toy:{}", self.0.file.path().display());
        let mut info = StoreInfo::new(error::STORE, address);
        info.expiry = Expiry::HostClock;
        info.durable_terms = true;
        info.survives_restart = true;
        info.batch_limit = 1_000;
        info.min_ttl = ToyStore::TTL_MIN;
        info.residual = RESIDUAL.to_vec();
        info
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        Some(self)
    }

    tenure_core::lacks!(channels, ledger, witness, migrate);
}
