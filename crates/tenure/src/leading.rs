//! Work that is run while this instance leads: it is told to stop, waited for, and dropped in time.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::Arc;

use tenure_core::{Error, ErrorKind};

use crate::candidate::driver_gone;
use crate::command::Command;
use crate::election::{Inner, TakingPart};
use crate::pulse::Pulse;
use crate::sabotage::Fault;
use crate::shared::{Phase, Reign};
use crate::{Election, Tenure};

impl Election {
    /// Runs `work` when this instance leads, for work that ends: a migration, a report. On loss the
    /// work is told through its tenure's [`lost`](Tenure::lost); if it has not ended when its time
    /// is over it is dropped, and begins again in the next reign. Returns what the work returns if
    /// it ends while its lease may be trusted, also while it winds up; and `None` once the election
    /// is stopped. Work that stays is for [`lead_each`](Election::lead_each).
    ///
    /// A panic of the work gives up leadership and goes on to the caller.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future drops the work and resigns.
    ///
    /// # Errors
    /// `Crashed` if nobody acts for this candidate any more.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore};
    /// # async fn migrate(_term: tenure::Term) -> u32 { 7 }
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// # let election = Election::builder("migration", Arc::new(MemoryStore::new())).build()?;
    /// let moved = election.lead(|tenure| async move { migrate(tenure.term()).await }).await?;
    /// assert_eq!(moved, Some(7));
    /// # Ok(()) }
    /// ```
    pub async fn lead<T, F>(
        &self,
        mut work: impl FnMut(Arc<Tenure>) -> F,
    ) -> Result<Option<T>, Error>
    where
        F: Future<Output = T>,
    {
        let taking_part = self.take_part()?;
        while let Some(ended) = self.one_reign(&taking_part, &mut work).await? {
            // What ended while trust lasted counts, also if it was winding up.
            if let Ended { value: Some(value), in_time: true } = ended {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Runs `work` each time this instance leads, for work that stays: that drains a queue or fires
    /// jobs until it is told to stop. As [`lead`](Election::lead), but work that ends with `Ok`
    /// leaves its reign, is handed over, and begins again in the next. Returns once the election is
    /// stopped, or with the error of the work.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future drops the work and resigns.
    ///
    /// # Errors
    /// That of the work, which gives up leadership; `Crashed` if nobody acts for this candidate any
    /// more.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// # let election = Election::builder("queue", Arc::new(MemoryStore::new())).build()?;
    /// let stop = election.clone();
    /// let draining = election.lead_each(|tenure| {
    ///     let stop = stop.clone();
    ///     async move {
    ///         // ... take one piece of work after the other until `tenure.lost()` resolves
    ///         # tokio::spawn(async move { stop.stop().await });
    ///         tenure.lost().await;
    ///         Ok::<(), tenure::Error>(())
    ///     }
    /// });
    /// draining.await?;
    /// # Ok(()) }
    /// ```
    pub async fn lead_each<E, F>(&self, mut work: impl FnMut(Arc<Tenure>) -> F) -> Result<(), E>
    where
        F: Future<Output = Result<(), E>>,
        E: From<Error>,
    {
        let taking_part = self.take_part()?;
        while let Some(ended) = self.one_reign(&taking_part, &mut work).await? {
            if let Some(Err(error)) = ended.value {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes leases depend on the returned future being polled, for as long as it exists: for those
    /// who act on [`is_leader`](Election::is_leader) and do so on one thread or event loop. A lease
    /// is then not kept alive while that one is blocked, as it is not for work that waits in
    /// [`Tenure::lost`], and none is taken again until it answers. It is asked when a lease is
    /// taken or renewed: one that was blocked before may still be given a lease, once, and loses
    /// it.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the dependence.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// let election = Election::builder("invoices", Arc::new(MemoryStore::new())).start().await?;
    /// let vouching = tokio::spawn(election.vouch());
    /// // From here on, whatever blocks this runtime for long loses the leadership.
    /// # vouching.abort();
    /// # election.stop().await
    /// # }
    /// ```
    pub fn vouch(&self) -> impl Future<Output = Infallible> + Send + use<> {
        // Now, and not when it is polled first: who never polls it is blocked.
        let shared = &self.inner.shared;
        let bell = shared.is_here().then(|| shared.vouching.listen());
        async move {
            match bell {
                Some(bell) => bell.answer().await,
                None => pending().await,
            }
        }
    }

    /// Takes part from here on, until the election is stopped.
    fn take_part(&self) -> Result<TakingPart<'_>, Error> {
        self.check_process()?;
        let stops = self.inner.shared.status.borrow().stops;
        TakingPart::enter(&self.inner, stops)
    }

    /// Waits for the next reign and runs the work in it; `None` once the election is stopped.
    async fn one_reign<T, F>(
        &self,
        taking_part: &TakingPart<'_>,
        work: &mut impl FnMut(Arc<Tenure>) -> F,
    ) -> Result<Option<Ended<T>>, Error>
    where
        F: Future<Output = T>,
    {
        let tenure = match self.campaign_since(taking_part.stops).await {
            Ok(tenure) => Arc::new(tenure),
            Err(error) if error.kind() == ErrorKind::Stopped => return Ok(None),
            Err(error) => return Err(error),
        };
        // The bell rings before user code is called: work that blocks at once is noticed.
        let faults = self.inner.shared.faults;
        let bell = (!faults.has(Fault::BellTooLate)).then(|| tenure.bell());
        let working = work(tenure.clone());
        let bell = bell.unwrap_or_else(|| tenure.bell());
        let value = tokio::select! {
            biased;
            () = told_to_end(&tenure, &bell) => None,
            value = working => Some(value),
        };
        let in_time =
            tenure.is_current() && (tenure.is_leader() || !faults.has(Fault::WindingUpForgotten));
        let ended = Ended { in_time, value };
        drop(bell);
        let vacated = tenure.ask_to_resign();
        drop(tenure);
        let vacated = match vacated {
            Ok(vacated) => vacated.await.unwrap_or_else(|_| Err(driver_gone())),
            Err(error) => Err(error),
        };
        if let Err(error) = vacated {
            // What was done is done. The next campaign tells if nobody acts any more.
            tracing::warn!(%error, "the lease was not given back");
        }
        Ok(Some(ended))
    }

    /// Runs `work` if this instance leads, else returns `None` at once. The work is dropped, and
    /// `None` returned, when trust ends before it does. Renewals depend on this future being
    /// polled: a lease is not kept alive for work that can't be told.
    ///
    /// # Cancel safety
    /// As cancel safe as the work.
    pub async fn run_if_leader<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let shared = &self.inner.shared;
        let reign = shared.reign_if(|| shared.leads()).filter(|reign| reign.enter())?;
        let working = Working { inner: &self.inner, reign };
        let pulse = self.inner.shared.pulses.listen();
        tokio::select! {
            biased;
            _ = working.reign.phase.wait_for(|phase| matches!(phase, Phase::Over(_))) => None,
            never = pulse.answer() => match never {},
            value = work => working.is_current().then_some(value),
        }
    }
}

/// How the work of one reign ended.
struct Ended<T> {
    /// What it returned; `None` if it was dropped.
    value: Option<T>,
    /// Its lease could still be trusted then.
    in_time: bool,
}

/// Work under a reign without its handle: waited for before the lease is given back.
struct Working<'a> {
    inner: &'a Inner,
    reign: Arc<Reign>,
}

impl Working<'_> {
    fn is_current(&self) -> bool {
        self.inner.shared.clock.now() < self.inner.shared.trust_until(&self.reign)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if self.reign.exit() {
            let ended = Command::WorkEnded { id: self.inner.id, term: self.reign.term };
            let _driver_gone = self.inner.command(ended);
        }
    }
}

async fn told_to_end(tenure: &Tenure, bell: &Pulse) {
    tenure.lost_by(bell).await;
    // While it winds up it still answers: it must be heard that it can be told.
    tokio::select! {
        biased;
        never = bell.answer() => match never {},
        _ = tenure.ended() => {}
    }
}
