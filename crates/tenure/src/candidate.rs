//! One process incarnation on one store, and the thread that acts for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{CandidateId, Clock, Error, ErrorKind, Name, Op, Reply, Store, StoreInfo};
use tenure_fork::Origin;
use tokio::sync::{mpsc, oneshot};
use tracing::Dispatch;

use crate::announcer::Announcer;
use crate::builder::{ElectionBuilder, Source};
use crate::clock::AnyClock;
use crate::command::{Command, Commands, Names};
use crate::driver::Driver;
use crate::runtime::{Part, Runtime, Threads};
use crate::sabotage::{Fault, Faults};
use crate::telemetry::Telemetry;

/// One process incarnation that takes part in elections on one store.
///
/// It owns the driver: one thread that carries all its elections and batches what they have to say
/// to the store into few calls. Cloning gives another handle to the same candidate.
///
/// # Forks
/// A candidate belongs to the process that built it. In a forked child its elections lead nothing:
/// all answers are false or `None`, `lost()` resolves at once, every other call is an error of the
/// kind [`Forked`](ErrorKind::Forked), and dropping a handle does nothing. Build a new candidate
/// there, on a store that is opened there. Children made by raw `clone` or `fork` system calls, by
/// `_Fork()` or by `vfork()` are not noticed.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure::{Candidate, MemoryStore};
///
/// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
/// let candidate = Candidate::builder(Arc::new(MemoryStore::new())).label("web-1").build()?;
/// let invoices = candidate.election("invoices").start().await?;
/// let reports = candidate.election("reports").start().await?;
/// assert!(invoices.is_leader() && reports.is_leader());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Candidate {
    inner: Arc<Inner>,
}

struct Inner {
    id: CandidateId,
    origin: Origin,
    info: StoreInfo,
    store: Arc<dyn Store>,
    clock: AnyClock,
    runtime: Arc<dyn Runtime>,
    commands: Commands,
    names: Names,
    next_slot: AtomicU64,
}

impl Candidate {
    /// A candidate on this store.
    pub fn builder(store: Arc<dyn Store>) -> CandidateBuilder {
        CandidateBuilder { store, label: None, clock: AnyClock::Boot, runtime: Arc::new(Threads) }
    }

    /// Takes part in the election of this name: set it up, then `start` it.
    pub fn election(&self, name: &str) -> ElectionBuilder {
        ElectionBuilder::new(Source::Candidate(self.clone()), name)
    }

    /// Who this is.
    pub fn id(&self) -> &CandidateId {
        &self.inner.id
    }

    /// What its store promises.
    pub fn store_info(&self) -> &StoreInfo {
        &self.inner.info
    }

    /// Waits until the driver has taken its turn, for tests that drive the clock by hand.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[doc(hidden)]
    pub async fn synchronize(&self) {
        let (done, taken) = oneshot::channel();
        if self.command(Command::Sync { done }).is_ok() {
            let _gone = taken.await;
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub(crate) fn clock(&self) -> &AnyClock {
        &self.inner.clock
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.inner.runtime
    }

    pub(crate) fn faults(&self) -> Faults {
        Faults::of(&*self.inner.runtime)
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.inner.commands
    }

    pub(crate) fn next_slot(&self) -> u64 {
        self.inner.next_slot.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn origin(&self) -> Origin {
        self.inner.origin
    }

    /// Reserves a name: one candidate enters each election once (A3).
    pub(crate) fn reserve(&self, name: &Name) -> Result<(), Error> {
        check_origin(self.inner.origin)?;
        let mut names = lock(&self.inner.names);
        if names.insert(name.clone()) {
            return Ok(());
        }
        Err(Error::config(format!(
            "this candidate takes part in {name:?} already; clone that handle, or build another \
             candidate"
        )))
    }

    /// The handles of this name are gone: another election of it may be built. It begins when the
    /// driver has ended the one before.
    pub(crate) fn free(&self, name: &Name) {
        if self.faults().has(Fault::NameStaysTaken) {
            return;
        }
        lock(&self.inner.names).remove(name);
    }

    pub(crate) fn command(&self, command: Command) -> Result<(), Error> {
        check_origin(self.inner.origin)?;
        self.inner.commands.send(command).map_err(|_| driver_gone())
    }

    /// Has the driver carry out one op, apart from any election.
    pub(crate) async fn apply(&self, op: Op, timeout: Duration) -> Result<Reply, Error> {
        let (done, reply) = oneshot::channel();
        self.command(Command::Apply { op, timeout, done })?;
        reply.await.map_err(|_| driver_gone())
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.origin.is_here() {
            let _driver_gone = self.commands.send(Command::Retire);
        } else {
            // A sender that is dropped may wake the driver, by locks that a lost thread may hold.
            std::mem::forget(self.commands.clone());
        }
    }
}

/// Sets up a [`Candidate`].
#[must_use = "a builder does nothing until build()"]
pub struct CandidateBuilder {
    store: Arc<dyn Store>,
    label: Option<String>,
    clock: AnyClock,
    runtime: Arc<dyn Runtime>,
}

impl CandidateBuilder {
    /// The readable part of its identity; `host:pid` if not given.
    pub fn label(mut self, label: impl Into<String>) -> CandidateBuilder {
        self.label = Some(label.into());
        self
    }

    /// Another clock than the real one, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> CandidateBuilder {
        self.clock = AnyClock::Other(clock);
        self
    }

    /// Other surroundings than threads and the clock of this host, for a simulator.
    #[doc(hidden)]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> CandidateBuilder {
        self.clock = AnyClock::Other(runtime.clock());
        self.runtime = runtime;
        self
    }

    /// Makes the candidate and starts its threads: the driver's, which runs no code of yours, and
    /// those that wake your tasks and call your subscriber and recorder. They end when the last
    /// handle to the candidate and its elections is gone and what they held is given back.
    ///
    /// # Errors
    /// `Config` for a bad label, `Unavailable` if the thread can't be started.
    pub fn build(self) -> Result<Candidate, Error> {
        let label = self.label.clone().unwrap_or_else(default_label);
        let id = CandidateId::new(&label, self.runtime.incarnation())?;
        let origin = self.runtime.origin()?;
        let info = self.store.info();
        let (commands, receiver) = mpsc::unbounded_channel();
        let names = Names::default();
        let queue = (commands.clone(), receiver);
        start_driver(&self.runtime, self.store.clone(), self.clock.clone(), queue)?;
        let next_slot = AtomicU64::new(0);
        let CandidateBuilder { store, clock, runtime, .. } = self;
        let inner = Inner { id, origin, info, store, clock, runtime, commands, names, next_slot };
        Ok(Candidate { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for CandidateBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CandidateBuilder").field("label", &self.label).finish_non_exhaustive()
    }
}

fn default_label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().filter(|letter| !letter.is_control()).take(40).collect();
    format!("{host}:{}", std::process::id())
}

fn start_driver(
    runtime: &Arc<dyn Runtime>,
    store: Arc<dyn Store>,
    clock: AnyClock,
    commands: (Commands, mpsc::UnboundedReceiver<Command>),
) -> Result<(), Error> {
    let announcer = Announcer::start(clock.clone(), runtime)?;
    let telemetry = Telemetry::start(&**runtime)?;
    let (rng, faults) = (fastrand::Rng::with_seed(runtime.random()), Faults::of(&**runtime));
    // What the store logs here goes the same way as what the driver does (L2).
    let log = Dispatch::new(telemetry.subscriber());
    let driver = Part::new("tenure-driver", async move {
        // Made here: a store's hints may need the runtime that they are polled on.
        let driver = Driver::new(store, clock, commands, announcer, telemetry, rng);
        driver.with(faults).run().await;
    });
    runtime.start(Part { log: Some(log), ..driver })
}

/// This process, for a handle that is made in it.
pub(crate) fn origin() -> Result<Origin, Error> {
    Origin::here().map_err(|error| {
        Error::new(ErrorKind::Unavailable, "forks can't be watched for").caused_by(error)
    })
}

/// Refuses to use a handle in a forked child. Asked before any lock is taken: a thread that does
/// not exist there may hold it.
pub(crate) fn check_origin(origin: Origin) -> Result<(), Error> {
    if origin.is_here() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Forked,
        "this handle was made before a fork and belongs to the parent process; open the store and \
         build a new candidate in the child",
    ))
}

pub(crate) fn driver_gone() -> Error {
    Error::new(
        ErrorKind::Crashed,
        "the candidate's driver has ended; build a new candidate, and report this as a bug",
    )
}
