//! The handle to the jobs of one election, and how it is set up.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tenure::runtime::Spawner;
use tenure::{Clock, Election, Error, ErrorKind, Store};
use tenure_core::{
    JobProgress, Ledger, LedgerExt as _, Steer, Tick, TickRecord, Time, Transactions,
    check_job_name,
};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::{CronEvent, Delivery, Job, SystemWall, WallClock};

/// All jobs, by name.
pub(crate) type Jobs = BTreeMap<String, Arc<Job>>;

/// Jobs that fire on the leader of an election, each tick once. Cloning is cheap.
///
/// # Guarantees
/// A tick is claimed in the store's ledger, unique on job and scheduled instant, under a term that
/// holds at that instant, before its work begins (K1). So it begins at most once, cluster-wide,
/// across failover and pauses, unless the job's [`Delivery`] asks for more.
///
/// # Non-guarantees
/// Between the last check and the work's own effect the process may be paused for long. Only a
/// fence stops what it does then: see [`Run::term`](crate::Run::term).
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure::{Election, MemoryStore};
/// use tenure_cron::{Cron, Job, Run, Schedule};
///
/// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
/// let store = Arc::new(MemoryStore::new());
/// let election = Election::builder("nightly", store).build()?;
/// let report = Job::new("report", Schedule::new("0 4 * * *", "UTC")?, |run: Run| async move {
///     println!("the report of {}, as term {}", run.scheduled_at(), run.term());
/// });
/// let cron = Cron::builder(&election).job(report).build()?;
/// # let stopper = election.clone();
/// # let stop = async { election.start().await?; stopper.stop().await };
/// # let (ran, _) = tokio::join!(cron.run(), stop);
/// # ran?;
/// // cron.run().await?; // until the election is stopped
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cron {
    core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) election: Election,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) jobs: watch::Sender<Arc<Jobs>>,
    /// The ledger has answered before, so it is there and was to be used.
    answered: AtomicBool,
    tell: Option<Tell>,
}

type Tell = Arc<dyn Fn(&CronEvent) + Send + Sync>;

impl Core {
    /// The ledger; there is one, it was checked.
    pub(crate) fn ledger(&self) -> Result<&dyn Ledger, Error> {
        self.election.check_process()?;
        let store = self.election.store();
        store.ledger().ok_or_else(|| no_ledger(&**store))
    }

    /// Where jobs run: on the runtime that polls this.
    pub(crate) fn tasks(&self) -> Result<Spawner, Error> {
        self.election.runtime().tasks().ok_or_else(|| {
            Error::config("jobs need a tokio runtime to run on; call `run` inside one")
        })
    }

    pub(crate) fn tell(&self, event: CronEvent) {
        tracing::debug!(election = %self.election.name(), ?event, "cron");
        let Some(tell) = &self.tell else { return };
        // A listener must not be able to end a tick, let alone the reign.
        if catch_unwind(AssertUnwindSafe(|| tell(&event))).is_err() {
            let election = self.election.name();
            tracing::error!(%election, event = event.name(), "on_event panicked; fix it");
        }
    }

    /// The ledger has answered.
    pub(crate) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Whether the ledger is asked again after this error, the first of its kind being at `since`.
    /// As the election does, what answered once is asked again whatever it says: it may be that a
    /// password was changed, and that this instance or another gets to know the new one. If that
    /// lasts for a ttl, the reign is left to others.
    pub(crate) fn asks_again(&self, error: &Error, since: &mut Option<Time>) -> bool {
        if error.is_retryable() {
            return true;
        }
        let own = matches!(error.kind(), ErrorKind::Forked | ErrorKind::Crashed);
        if own || !self.answered.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.clock.now();
        if now - *since.get_or_insert(now) >= self.election.timing().ttl {
            *since = None;
            // Asked for by the first poll. It goes on without its future.
            let resigning = std::pin::pin!(self.election.resign());
            let _goes_on = resigning.poll(&mut Context::from_waker(Waker::noop()));
        }
        true
    }

    pub(crate) fn grace_ms(&self, job: &Job) -> i64 {
        let grace = job.grace.unwrap_or(self.election.timing().ttl * 2);
        i64::try_from(grace.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Cron {
    /// Sets up jobs for an election, which this starts where it was not. The ledger is that of the
    /// election's store: no other knows its terms.
    pub fn builder(election: &Election) -> CronBuilder {
        CronBuilder {
            election: election.clone(),
            jobs: Vec::new(),
            clock: election.runtime().clock(),
            wall: Arc::new(SystemWall),
            tell: None,
        }
    }

    /// Takes part in the election, and fires the jobs each time this instance leads, until the
    /// election is stopped. Jobs run on the tokio runtime that this is polled on.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future drops the work that runs and resigns. The ledger keeps
    /// what was claimed, for the next leader to decide about.
    ///
    /// # Errors
    /// What makes the ledger useless from the beginning: missing tables, a missing privilege. Once
    /// it has answered, such errors are no end, as they are none for the election: it is asked
    /// again, and if that does not help for a ttl, the reign is handed over. `Crashed` if nobody
    /// acts for the election's candidate any more.
    pub async fn run(&self) -> Result<(), Error> {
        let core = &self.core;
        core.election.lead_each(|tenure| Engine::run(core.clone(), tenure)).await
    }

    /// Asks the leader, whichever instance that is, to run a job now.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may be asked for or not.
    ///
    /// # Errors
    /// Whatever kept the store from noting it.
    pub async fn trigger(&self, job: &str) -> Result<Tick, Error> {
        self.core.ledger()?.request_job(self.core.election.name(), job).await
    }

    /// Pauses or resumes a job, or has it count from now on, whichever instance leads. Tells
    /// whether the job is known: whether a leader has had it.
    ///
    /// Nothing of the schedule of a paused job begins any more when this has returned, retries
    /// included; what runs goes on, and what is asked for by [`trigger`](Cron::trigger) runs. What
    /// comes due in a pause is left out.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may be done or not. Doing it again is harmless.
    ///
    /// # Errors
    /// Whatever kept the store from noting it.
    pub async fn steer(&self, job: &str, steer: Steer) -> Result<bool, Error> {
        self.core.ledger()?.steer_job(self.core.election.name(), job, steer).await
    }

    /// How far each job has got that a leader has had, and whether it is paused.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn progress(&self) -> Result<Vec<JobProgress>, Error> {
        self.core.ledger()?.latest(self.core.election.name()).await
    }

    /// What happened to the ticks of a job, or of all, the latest scheduled first.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn history(&self, job: Option<&str>, limit: usize) -> Result<Vec<TickRecord>, Error> {
        self.core.ledger()?.history(self.core.election.name(), job, limit).await
    }

    /// Has other jobs from now on. What runs goes on; a job of the same name keeps what it has
    /// done, and is due by its new schedule from now on.
    ///
    /// # Errors
    /// As for [`CronBuilder::build`]; the jobs stay as they were then.
    pub fn replace(&self, jobs: Vec<Job>) -> Result<(), Error> {
        self.core.election.check_process()?;
        let jobs = checked(jobs, &**self.core.election.store())?;
        self.core.jobs.send_replace(Arc::new(jobs));
        Ok(())
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron")
            .field("election", self.core.election.name())
            .field("jobs", &self.core.jobs.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Sets up a [`Cron`].
#[must_use = "a builder does nothing until build()"]
pub struct CronBuilder {
    election: Election,
    jobs: Vec<Job>,
    clock: Arc<dyn Clock>,
    wall: Arc<dyn WallClock>,
    tell: Option<Tell>,
}

impl CronBuilder {
    /// Adds a job.
    pub fn job(mut self, job: Job) -> CronBuilder {
        self.jobs.push(job);
        self
    }

    /// Adds jobs.
    pub fn jobs(mut self, jobs: impl IntoIterator<Item = Job>) -> CronBuilder {
        self.jobs.extend(jobs);
        self
    }

    /// Called for each thing that happens to a tick here. It must not block. A panic is logged,
    /// and harms nothing else.
    pub fn on_event(mut self, tell: impl Fn(&CronEvent) + Send + Sync + 'static) -> CronBuilder {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// Another clock to wait by than the real one, for tests: the one of the candidate.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> CronBuilder {
        self.clock = clock;
        self
    }

    /// Another time of day than the machine's, for tests.
    pub fn wall(mut self, wall: Arc<dyn WallClock>) -> CronBuilder {
        self.wall = wall;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// `Config` for a name that is not one or comes twice, for more missed ticks than can be
    /// caught up with, and for a delivery that the store can't keep; `Unsupported` for a store
    /// without a ledger.
    pub fn build(self) -> Result<Cron, Error> {
        let store = &**self.election.store();
        if store.ledger().is_none() {
            return Err(no_ledger(store));
        }
        let jobs = checked(self.jobs, store)?;
        let core = Core {
            election: self.election,
            clock: self.clock,
            wall: self.wall,
            jobs: watch::Sender::new(Arc::new(jobs)),
            answered: AtomicBool::new(false),
            tell: self.tell,
        };
        Ok(Cron { core: Arc::new(core) })
    }
}

impl fmt::Debug for CronBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CronBuilder").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// The jobs by name, all of them sound.
fn checked(jobs: Vec<Job>, store: &dyn Store) -> Result<Jobs, Error> {
    let transactions = store.ledger().map_or(Transactions::None, Ledger::transactions);
    let mut all = Jobs::new();
    for job in jobs {
        check_job_name(&job.name)?;
        if job.delivery == Delivery::Transactional && transactions == Transactions::None {
            return Err(Error::config(format!(
                "the job {:?} is to be transactional, and the {} store has no transactions for \
                 that; use PostgreSQL or SQLite, or at-least-once",
                job.name,
                store.info().kind
            )));
        }
        if job.timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            let name = &job.name;
            return Err(Error::config(format!("the timeout of the job {name:?} is zero")));
        }
        let name = job.name.clone();
        let about = |error: Error| Error::config(format!("the job {name:?}: {}", error.message()));
        job.check().map_err(about)?;
        if all.insert(name.clone(), Arc::new(job)).is_some() {
            return Err(Error::config(format!(
                "there are two jobs of the name {name:?}; give one of them another"
            )));
        }
    }
    Ok(all)
}

fn no_ledger(store: &dyn Store) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the {} store keeps no ledger, which cron needs; use another", store.info().kind),
    )
}
