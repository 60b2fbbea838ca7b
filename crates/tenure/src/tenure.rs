//! The handle held while leading.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{CandidateId, Error, Name, Reason, Term, Time};
use tokio::sync::oneshot;

use crate::candidate::driver_gone;
use crate::command::Command;
use crate::election::Inner;
use crate::pulse::Pulse;
use crate::sabotage::Fault;
use crate::shared::{Phase, Reign};

/// One reign: the right to do the work, under one term, until it is lost.
///
/// There is one for each reign. Dropping it says that the work has ended: this candidate resigns,
/// best effort, without blocking. As long as it exists the lease is not released; so hold it for
/// exactly as long as the work runs.
///
/// # Guarantees
/// [`is_current`](Tenure::is_current) is false from the instant at which somebody else could be
/// granted the lease, less the margin, even if everything else in the process hangs (I3).
///
/// # Examples
/// ```
/// # use std::sync::Arc;
/// # use tenure::{Election, MemoryStore};
/// # async fn work() {}
/// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
/// # let election = Election::builder("invoices", Arc::new(MemoryStore::new())).build()?;
/// let tenure = election.campaign().await?;
/// println!("leading as term {}", tenure.term());
/// tokio::select! {
///     () = work() => {}
///     reason = tenure.lost() => println!("lost: {}", reason.as_str()),
/// }
/// tenure.resign().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a tenure resigns"]
pub struct Tenure {
    election: Arc<Inner>,
    reign: Arc<Reign>,
}

impl Tenure {
    pub(crate) fn new(election: Arc<Inner>, reign: Arc<Reign>) -> Tenure {
        Tenure { election, reign }
    }

    /// The term: the fencing token that goes with every write.
    pub fn term(&self) -> Term {
        self.reign.term
    }

    /// The election.
    pub fn election(&self) -> &Name {
        &self.election.shared.election
    }

    /// This candidate.
    pub fn candidate(&self) -> &CandidateId {
        &self.election.shared.candidate
    }

    /// May I still finish what I started? True until trust ends. One load and one clock read.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.election.shared.clock.now() < self.trusted_until()
    }

    /// May I start something? False from the step-down on.
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.reign.is_open() && self.election.shared.leads()
    }

    /// How long trust lasts if nothing is renewed.
    pub fn remaining(&self) -> Duration {
        self.trusted_until() - self.election.shared.clock.now()
    }

    /// The instant at which trust ends if nothing is renewed, on the candidate's clock.
    #[inline]
    pub fn trusted_until(&self) -> Time {
        self.election.shared.trust_until(&self.reign)
    }

    /// Waits until the instant at which trust ends is another than `known`, and tells it. For those
    /// who pass the deadline on, to another process for example.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn deadline_moved(&self, known: Time) -> Time {
        if !self.election.shared.is_here() {
            return if known == Time::ZERO { pending().await } else { Time::ZERO };
        }
        self.reign.deadline.wait_for(|deadline| *deadline != known).await
    }

    /// Waits until the work is told to stop, and tells why. While somebody waits here, renewals
    /// depend on this future being polled: a lease is not kept alive for work that can't be told.
    ///
    /// # Cancel safety
    /// Cancel safe: a later call is told of the loss again.
    pub async fn lost(&self) -> Reason {
        if !self.election.shared.is_here() {
            return Reason::NotRenewed;
        }
        let bell = self.bell();
        self.lost_by(&bell).await
    }

    /// Waits until trust has ended or the time for winding up is over: work is to be ended now.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> Reason {
        if !self.election.shared.is_here() {
            return Reason::NotRenewed;
        }
        self.reign.phase.wait_for(|phase| matches!(phase, Phase::Over(_))).await.reason()
    }

    /// Says that the work has ended, gives the lease back, and waits until that is done. The
    /// election steps back for one `renew_every`, then campaigns again if it was started.
    ///
    /// # Cancel safety
    /// Cancel safe: resigning goes on without the future.
    ///
    /// # Errors
    /// `Unavailable` if the store could not be told; the lease then runs out by itself.
    pub async fn resign(self) -> Result<(), Error> {
        let vacated = self.ask_to_resign()?;
        drop(self);
        vacated.await.map_err(|_| driver_gone())?
    }

    pub(crate) fn ask_to_resign(&self) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let (done, vacated) = oneshot::channel();
        let term = Some(self.term());
        let id = self.election.id;
        self.election.command(Command::Resign { id, term, done: Some(done) })?;
        Ok(vacated)
    }

    /// The bell of somebody who will wait for the loss. Made before user code is called, so that
    /// code which blocks from its first poll on is noticed (L2).
    pub(crate) fn bell(&self) -> Arc<Pulse> {
        self.election.shared.pulses.listen()
    }

    /// As [`lost`](Tenure::lost), answering a bell that was made before.
    pub(crate) async fn lost_by(&self, bell: &Pulse) -> Reason {
        tokio::select! {
            biased;
            never = bell.answer() => match never {},
            phase = self.reign.phase.wait_for(|phase| *phase != Phase::Leading) => phase.reason(),
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if self.election.shared.faults.has(Fault::DropTellsNobody) {
            return;
        }
        // In a forked child this is a copy, and `command` refuses.
        self.reign.exit();
        let ended = Command::TenureEnded { id: self.election.id, term: self.reign.term };
        let _driver_gone = self.election.command(ended);
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("election", self.election())
            .field("term", &self.term())
            .field("is_current", &self.is_current())
            .finish_non_exhaustive()
    }
}
