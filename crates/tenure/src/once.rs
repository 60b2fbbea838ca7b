//! Work that is done once for a key: one run at a time, across instances and restarts, until a
//! success is recorded.
//!
//! The key's record is in the store's ledger, claimed and ended under the term of the election. So
//! only a leader runs the work, and a former leader can neither claim nor end it.

mod asking;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    CandidateId, Error, ErrorKind, Name, OnceEnd, OnceMark, OnceRecord, OnceStep, Reason, Term,
    check_once_key,
};

use self::asking::{Asking, in_time, record, vacate};
use crate::sabotage::Fault;
use crate::{Election, Tenure};

/// How often the work for a key is tried, unless told otherwise.
const TRIES: u32 = 3;

/// How long to leave the next try to others, at first and at most.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How [`Election::once_with`] goes about it.
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct OnceOptions {
    tries: u32,
    wait: Option<Duration>,
}

impl Default for OnceOptions {
    fn default() -> OnceOptions {
        OnceOptions { tries: TRIES, wait: None }
    }
}

impl OnceOptions {
    /// Three tries, and as long a wait as it takes.
    pub fn new() -> OnceOptions {
        OnceOptions::default()
    }

    /// How often the work may be begun in all, on whichever instance, failed and dead runs counted
    /// [default: 3]. A key whose tries are used up can be tried again with more.
    pub fn tries(self, tries: u32) -> OnceOptions {
        OnceOptions { tries, ..self }
    }

    /// Does not wait while somebody else leads.
    pub fn no_wait(self) -> OnceOptions {
        self.wait(Duration::ZERO)
    }

    /// Waits so long at most while somebody else leads [default: as long as it takes].
    pub fn wait(self, wait: Duration) -> OnceOptions {
        OnceOptions { wait: Some(wait), ..self }
    }
}

/// What came of [`Election::once`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnceOutcome<T, E> {
    /// The work ran here, and its success is recorded. What it returned.
    Ran(T),
    /// A success is recorded already, by whichever instance. Nothing ran here that counts.
    Already,
    /// Somebody else leads, perhaps to run it, and was not waited for.
    Elsewhere,
    /// All tries are used up without success.
    Failed {
        /// How often it was tried, by all instances.
        attempts: u32,
        /// What the last try on this instance said, if there was one.
        error: Option<E>,
    },
}

/// What came of [`Election::claim_once`].
#[derive(Debug)]
#[non_exhaustive]
pub enum OnceClaim {
    /// It is this instance's to run.
    Mine(OnceRun),
    /// A success is recorded already.
    Already(OnceRecord),
    /// Somebody else leads, perhaps to run it, and was not waited for.
    Elsewhere,
    /// All tries are used up without success.
    Spent(OnceRecord),
}

/// One run of the work for a key, under one reign. Cloning is cheap.
///
/// Dropping the last clone without [`end`](OnceRun::end) gives leadership up. The ledger then has a
/// run that did not end, and somebody tries it again.
#[derive(Clone)]
pub struct OnceRun {
    election: Election,
    tenure: Arc<Tenure>,
    key: Arc<str>,
    attempt: u32,
    run: u64,
}

impl Election {
    /// Has `work` done once for a key: one run at a time, on whichever instance, until a success
    /// is recorded. Later callers, after restarts too, get [`OnceOutcome::Already`]. The
    /// others wait meanwhile.
    ///
    /// For work that ends: a migration, a backfill, the set-up of an installation. Work that stays
    /// is for [`lead`](Election::lead).
    ///
    /// # Guarantees
    /// A success is recorded only under the term that ran the work, and stays recorded for ever: no
    /// key is trimmed. A run that fails, or whose instance dies, is tried again by another, three
    /// times in all unless [`OnceOptions::tries`] says otherwise.
    ///
    /// # Non-guarantees
    /// This is at least once, not exactly once: an instance that dies between the end of the work
    /// and the record of it leaves a run that is tried again. And no lease can stop a paused
    /// process from acting late. Work that must take effect exactly once records its success in
    /// the same transaction as its effect: on PostgreSQL with `SELECT tenure_once(election, term,
    /// key, attempt)` as its first statement; elsewhere fence it with the term.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives leadership up. The run counts as a try.
    ///
    /// # Errors
    /// `Config` for a key that is none; `Unsupported` for a store without a ledger; `Stopped` if
    /// the election is stopped meanwhile; whatever makes the ledger useless for good.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore, OnceOutcome};
    /// # async fn migrate(_term: tenure::Term) -> Result<u32, std::io::Error> { Ok(7) }
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// # let election = Election::builder("schema", Arc::new(MemoryStore::new())).build()?;
    /// let first = election.once("v42", |run| async move { migrate(run.term()).await }).await?;
    /// assert!(matches!(first, OnceOutcome::Ran(7)));
    /// let again = election.once("v42", |run| async move { migrate(run.term()).await }).await?;
    /// assert!(matches!(again, OnceOutcome::Already));
    /// # Ok(()) }
    /// ```
    pub async fn once<T, E, F>(
        &self,
        key: &str,
        work: impl FnMut(OnceRun) -> F,
    ) -> Result<OnceOutcome<T, E>, Error>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.once_with(key, OnceOptions::new(), work).await
    }

    /// As [`once`](Election::once), with another number of tries or another patience.
    ///
    /// # Cancel safety
    /// As for [`once`](Election::once).
    ///
    /// # Errors
    /// As for [`once`](Election::once); and `Unavailable` if it is not to wait and the store does
    /// not answer.
    pub async fn once_with<T, E, F>(
        &self,
        key: &str,
        options: OnceOptions,
        mut work: impl FnMut(OnceRun) -> F,
    ) -> Result<OnceOutcome<T, E>, Error>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut backoff = BACKOFF_MIN;
        let mut error = None;
        // What work returned whose success may or may not be recorded.
        let mut unsure: Option<(u64, T)> = None;
        let stops = self.shared().status.borrow().stops;
        loop {
            let run = match self.claim_once_since(stops, key, options).await? {
                OnceClaim::Mine(run) => run,
                OnceClaim::Already(record) => {
                    let ours = unsure.filter(|(run, _)| *run == record.run);
                    return Ok(ours.map_or(OnceOutcome::Already, |(_, it)| OnceOutcome::Ran(it)));
                }
                OnceClaim::Elsewhere => return Ok(OnceOutcome::Elsewhere),
                OnceClaim::Spent(record) => {
                    return Ok(OnceOutcome::Failed { attempts: record.attempt, error });
                }
            };
            let (id, attempt) = (run.run, run.attempt);
            if self.shared().faults.has(Fault::OnceRecordsFirst)
                && let Some(ledger) = self.candidate_handle().store().ledger()
            {
                let step = OnceStep::End { key: key.to_owned(), attempt, end: OnceEnd::Ok };
                let _too_early = record(self, ledger, &run.tenure, &step).await?;
            }
            let ended = tokio::select! {
                biased;
                // Asked first, so that it listens before any code of the user's is called.
                () = told_to_end(&run.tenure) => None,
                ended = async { work(run.clone()).await } => Some(ended),
            };
            match ended {
                Some(Ok(value)) => {
                    if run.end(OnceEnd::Ok).await? {
                        return Ok(OnceOutcome::Ran(value));
                    }
                    unsure = Some((id, value));
                }
                Some(Err(why)) => {
                    run.end(OnceEnd::Failed(1)).await?;
                    error = Some(why);
                    if attempt >= options.tries || options.wait == Some(Duration::ZERO) {
                        return Ok(OnceOutcome::Failed { attempts: attempt, error });
                    }
                    // Another instance may try it meanwhile.
                    let clock = &self.shared().clock;
                    clock.sleep_until(clock.now() + backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
                None => drop(run.end(OnceEnd::Lost).await?),
            }
        }
    }

    /// Waits until the work for a key is this instance's to run, or need not run. For those who
    /// have to hold the handle themselves; [`once`](Election::once) does all of it.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws. If the key was just claimed, that counts as a try.
    ///
    /// # Errors
    /// As for [`once_with`](Election::once_with).
    pub async fn claim_once(&self, key: &str, options: OnceOptions) -> Result<OnceClaim, Error> {
        let stops = self.shared().status.borrow().stops;
        self.claim_once_since(stops, key, options).await
    }

    /// Claims it unless the election was stopped since the count was `stops`.
    async fn claim_once_since(
        &self,
        stops: u64,
        key: &str,
        options: OnceOptions,
    ) -> Result<OnceClaim, Error> {
        check_once_key(key)?;
        if options.tries == 0 {
            return Err(Error::config("no tries are none; allow 1 at least"));
        }
        let store = self.candidate_handle().store().clone();
        let ledger = store.ledger().ok_or_else(|| {
            let kind = store.info().kind;
            let message =
                format!("the {kind} store keeps no ledger, which once needs; use another");
            Error::new(ErrorKind::Unsupported, message)
        })?;
        let hints = store.hints();
        let asking = Asking { election: self, stops, ledger, key, options, hints };
        asking.claim().await
    }
}

impl OnceRun {
    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// 1 for the first try.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The term: the fencing token that goes with every write.
    pub fn term(&self) -> Term {
        self.tenure.term()
    }

    /// The election.
    pub fn election(&self) -> &Name {
        self.tenure.election()
    }

    /// This candidate.
    pub fn candidate(&self) -> &CandidateId {
        self.tenure.candidate()
    }

    /// May I still finish what I started? True until trust ends.
    pub fn is_current(&self) -> bool {
        self.tenure.is_current()
    }

    /// Waits until the work is told to stop, and tells why.
    ///
    /// # Cancel safety
    /// Cancel safe: a later call is told of the loss again.
    pub async fn lost(&self) -> Reason {
        self.tenure.lost().await
    }

    /// The reign under which it runs.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Records how the work ended, and gives leadership up. Returns whether the ledger knows; if
    /// not, the term was over, and somebody tries the work again.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped the end may be recorded or not.
    ///
    /// # Errors
    /// What makes the ledger useless for good.
    pub async fn end(self, end: OnceEnd) -> Result<bool, Error> {
        let OnceRun { election, tenure, key, attempt, run } = self;
        let store = election.candidate_handle().store().clone();
        let known = match store.ledger() {
            Some(ledger) => {
                let step = OnceStep::End { key: key.to_string(), attempt, end };
                match record(&election, ledger, &tenure, &step).await {
                    Ok(Some(OnceMark::Done { .. })) => Ok(true),
                    // A transaction of the work's own may have recorded it.
                    Ok(Some(OnceMark::Refused)) => {
                        let asked = ledger.once_record(election.name(), &key);
                        let found = in_time(&election, asked).await;
                        found.map(|found| found.is_some_and(|it| it.is_done() && it.run == run))
                    }
                    Ok(_) => Ok(false),
                    Err(error) => Err(error),
                }
            }
            None => Ok(false),
        };
        match Arc::try_unwrap(tenure) {
            Ok(tenure) => vacate(tenure).await,
            // Somebody works on. The lease is given back when they are done.
            Err(tenure) => drop(tenure),
        }
        known
    }
}

impl fmt::Debug for OnceRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceRun")
            .field("key", &self.key)
            .field("attempt", &self.attempt)
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}

async fn told_to_end(tenure: &Tenure) {
    tenure.lost().await;
    tenure.ended().await;
}
