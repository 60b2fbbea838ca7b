//! How an instance comes to run the work for a key: it looks, campaigns, and claims as leader.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Error, ErrorKind, Hint, Hints, Ledger, LedgerExt as _, Name, OnceMark, OnceStep,
};

use super::{OnceClaim, OnceOptions, OnceRun};
use crate::sabotage::Fault;
use crate::{Election, Tenure};

/// How long to wait before the ledger is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long to leave a key alone that somebody's transaction is at.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Returns when nobody is to be waited for any longer.
async fn patience(election: &Election, wait: Option<Duration>) {
    let shared = election.shared();
    match wait {
        None => std::future::pending().await,
        Some(Duration::ZERO) => {}
        Some(wait) => return shared.clock.sleep_until(shared.clock.now() + wait).await,
    }
    // Until somebody else is seen to lead, or this instance is not elected at once.
    let began = shared.clock.now();
    let another_leads = shared
        .status
        .wait_for(|status| status.leader.as_ref().is_some_and(|(_, seen_at)| *seen_at >= began));
    tokio::select! {
        biased;
        _ = another_leads => {}
        () = shared.clock.sleep_until(began + shared.timing.renew_every) => {}
    }
}

/// One instance that wants to run the work for a key.
pub(super) struct Asking<'a> {
    pub(super) election: &'a Election,
    /// How often it had been stopped when this began.
    pub(super) stops: u64,
    pub(super) ledger: &'a dyn Ledger,
    pub(super) key: &'a str,
    pub(super) options: OnceOptions,
    pub(super) hints: Box<dyn Hints>,
}

impl Asking<'_> {
    pub(super) async fn claim(mut self) -> Result<OnceClaim, Error> {
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
        let run = self.election.candidate_handle().runtime().random();
        let tries = self.options.tries;
        let step = OnceStep::Claim { key: self.key.to_owned(), run, tries };
        let unchecked = self.election.shared().faults.has(Fault::OnceUnchecked);
        let mark = record(self.election, self.ledger, &tenure, &step).await;
        match mark {
            // K1: between the claim and the start. The process may have been paused in between.
            Ok(Some(OnceMark::Done { attempt })) if unchecked || tenure.is_leader() => {
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
            biased;
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

/// Carries out a step, again and again if need be, while trust lasts; `None` if it ended first.
pub(super) async fn record(
    election: &Election,
    ledger: &dyn Ledger,
    tenure: &Tenure,
    step: &OnceStep,
) -> Result<Option<OnceMark>, Error> {
    loop {
        let asked = ledger.once_step(election.name(), tenure.term(), step);
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
pub(super) async fn vacate(tenure: Tenure) {
    if let Err(error) = tenure.resign().await {
        tracing::warn!(%error, "the lease was not given back");
    }
}

/// The answer of the ledger, if it comes in time.
pub(super) async fn in_time<T>(
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
