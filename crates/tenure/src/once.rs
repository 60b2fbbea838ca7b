//! Work that is done once for a key: one run at a time, across instances and restarts, until a
//! success is recorded.
//!
//! The key's record is in the store's ledger, claimed and ended under the term of the election. So
//! whoever runs the work leads, and whoever does not lead any more can neither claim nor end it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    CandidateId, Error, ErrorKind, Hint, Hints, Ledger, Name, OnceEnd, OnceMark, OnceRecord,
    OnceStep, Reason, Term, check_once_key,
};

use crate::{Election, Tenure};

/// How often the work for a key is tried, unless told otherwise.
const TRIES: u32 = 3;

/// How long to wait before the ledger is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long to leave a key alone that somebody's transaction is at.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

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
    /// Has `work` done once for a key: one run at a time, on whichever instance, until a success is
    /// recorded. Whoever comes later, after restarts too, gets [`OnceOutcome::Already`]. The others
    /// wait meanwhile.
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
    /// and the record of it leaves a run that is tried again. And no lease can stop a paused process
    /// from acting late. Work that must take effect exactly once records its success in the same
    /// transaction as its effect: on PostgreSQL with `SELECT tenure_once(election, term, key,
    /// attempt)` as its first statement; elsewhere fence it with the term.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives leadership up. The run counts as a try.
    ///
    /// # Errors
    /// `Config` for a key that is none; `Unsupported` for a store without a ledger; `Stopped` if the
    /// election is stopped meanwhile; whatever makes the ledger useless for good.
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

/// Returns when nobody is to be waited for any longer.
async fn patience(election: &Election, wait: Option<Duration>) {
    let shared = election.shared();
    match wait {
        None => std::future::pending().await,
        Some(Duration::ZERO) => {}
        Some(wait) => return shared.clock.sleep_until(shared.clock.now() + wait).await,
    }
    // Until somebody else is seen to lead, or this instance is not elected at once.
    let mut status = shared.status.subscribe();
    let began = shared.clock.now();
    let another_leads = status
        .wait_for(|status| status.leader.as_ref().is_some_and(|(_, seen_at)| *seen_at >= began));
    tokio::select! {
        _ = another_leads => {}
        () = shared.clock.sleep_until(began + shared.timing.renew_every) => {}
    }
}

/// One instance that wants to run the work for a key.
struct Asking<'a> {
    election: &'a Election,
    /// How often it had been stopped when this began.
    stops: u64,
    ledger: &'a dyn Ledger,
    key: &'a str,
    options: OnceOptions,
    hints: Box<dyn Hints>,
}

impl Asking<'_> {
    async fn claim(mut self) -> Result<OnceClaim, Error> {
        let election = self.election;
        let mut patience = std::pin::pin!(patience(election, self.options.wait));
        loop {
            let looked = tokio::select! {
                biased;
                looked = self.look() => looked?,
                () = &mut patience => return self.gives_up().await,
            };
            if let Some(claim) = looked {
                return Ok(claim);
            }
            let tenure = tokio::select! {
                biased;
                tenure = election.campaign_since(self.stops) => tenure?,
                () = &mut patience => return self.gives_up().await,
                looked = self.look_again() => match looked? {
                    Some(claim) => return Ok(claim),
                    None => continue,
                },
            };
            if let Some(claim) = self.claim_under(tenure).await? {
                return Ok(claim);
            }
        }
    }

    /// Waits no longer. Is it that somebody else leads, or that nobody answers?
    async fn gives_up(&mut self) -> Result<OnceClaim, Error> {
        self.election.current_leader().await.map(|_| OnceClaim::Elsewhere)
    }

    /// Claims the key as leader; `None` if that was to no avail, and all is to be asked anew.
    async fn claim_under(&mut self, tenure: Tenure) -> Result<Option<OnceClaim>, Error> {
        let run = uuid::Uuid::now_v7().as_u64_pair().1;
        let tries = self.options.tries;
        let step = OnceStep::Claim { key: self.key.to_owned(), run, tries };
        let mark = record(self.election, self.ledger, &tenure, &step).await;
        match mark {
            // K1: between the claim and the start. The process may have been paused in between.
            Ok(Some(OnceMark::Done { attempt })) if tenure.is_leader() => {
                let (election, key) = (self.election.clone(), Arc::from(self.key));
                let tenure = Arc::new(tenure);
                Ok(Some(OnceClaim::Mine(OnceRun { election, tenure, key, attempt, run })))
            }
            Ok(Some(OnceMark::Running)) => {
                // Of this very reign, by somebody who is gone: the next reign may try it.
                vacate(tenure).await;
                Ok(None)
            }
            Ok(_) => {
                let found = self.look().await;
                vacate(tenure).await;
                found
            }
            Err(error) => {
                vacate(tenure).await;
                Err(error)
            }
        }
    }

    /// Looks once there is reason to, or after a while.
    async fn look_again(&mut self) -> Result<Option<OnceClaim>, Error> {
        let shared = self.election.shared();
        let until = shared.clock.now() + shared.timing.renew_every;
        tokio::select! {
            () = hinted(&mut self.hints, &shared.election) => {}
            () = shared.clock.sleep_until(until) => {}
        }
        self.look().await
    }

    /// Whether there is nothing to run. What is recorded so needs no leader to be seen.
    async fn look(&mut self) -> Result<Option<OnceClaim>, Error> {
        let tries = self.options.tries;
        loop {
            let asked = self.ledger.once_record(self.election.name(), self.key);
            match in_time(self.election, asked).await {
                Ok(Some(record)) if record.is_done() => {
                    return Ok(Some(OnceClaim::Already(record)));
                }
                Ok(Some(record)) if record.is_spent(tries) => {
                    return Ok(Some(OnceClaim::Spent(record)));
                }
                Ok(_) => return Ok(None),
                Err(error) if error.is_retryable() && self.options.wait != Some(Duration::ZERO) => {
                    tracing::warn!(%error, "the ledger can't be read, trying again");
                    pause(self.election, ASK_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
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
    /// Cancel safe: a loss is told again to whoever asks later.
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

/// Carries out a step, again and again if need be, while trust lasts; `None` if it ended first.
async fn record(
    election: &Election,
    ledger: &dyn Ledger,
    tenure: &Tenure,
    step: &OnceStep,
) -> Result<Option<OnceMark>, Error> {
    loop {
        let asked = ledger.once(election.name(), tenure.term(), step);
        match in_time(election, asked).await {
            Ok(OnceMark::Busy) if tenure.is_current() => pause(election, BUSY_PAUSE).await,
            Ok(OnceMark::Busy) => return Ok(None),
            Err(error) if error.is_retryable() && tenure.is_current() => {
                tracing::warn!(%error, "the ledger can't be written, trying again");
                pause(election, ASK_AGAIN).await;
            }
            Err(error) if error.is_retryable() => return Ok(None),
            answer => return answer.map(Some),
        }
    }
}

/// Gives the lease back, and waits until that is done.
async fn vacate(tenure: Tenure) {
    if let Err(error) = tenure.resign().await {
        tracing::warn!(%error, "the lease was not given back");
    }
}

async fn told_to_end(tenure: &Tenure) {
    tenure.lost().await;
    tenure.ended().await;
}

/// The answer of the ledger, if it comes in time.
async fn in_time<T>(
    election: &Election,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let shared = election.shared();
    tokio::select! {
        biased;
        answer = answer => answer,
        () = shared.clock.sleep_until(shared.clock.now() + shared.timing.call_timeout()) => {
            Err(Error::new(ErrorKind::Unavailable, "the store does not answer; is it running?"))
        }
    }
}

async fn pause(election: &Election, span: Duration) {
    let clock = &election.shared().clock;
    clock.sleep_until(clock.now() + span).await;
}

/// Waits for a hint about an election.
async fn hinted(hints: &mut Box<dyn Hints>, election: &Name) {
    loop {
        match std::future::poll_fn(|cx| hints.poll_next(cx)).await {
            Some(Hint::Election(name)) if name != *election => {}
            Some(_) => return,
            None => std::future::pending().await,
        }
    }
}
