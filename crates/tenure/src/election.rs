//! The handle to one election, and how it is set up.

use std::fmt;
use std::sync::Arc;

use tenure_core::{CandidateId, Error, ErrorKind, Name, Op, Reply, Secret, Store, Term, Timing};
use tokio::sync::oneshot;

use crate::builder::{ElectionBuilder, Source};
use crate::candidate::{Candidate, driver_gone};
use crate::command::Command;
use crate::runtime::Runtime;
use crate::sabotage::{Fault, Faults};
use crate::shared::Shared;
use crate::witness::Registration;
use crate::{Changes, Events, Leader, Tenure};

/// One candidate's part in one election. Cloning is cheap and gives another handle to the same.
///
/// Taking part goes on until [`stop`](Election::stop), or until the last handle and the last
/// [`Tenure`] are dropped, which withdraws without waiting. `stop().await` is the way out where
/// somebody may rely on an answer of [`is_leader`](Election::is_leader).
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure::{Election, MemoryStore};
///
/// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
/// let store = Arc::new(MemoryStore::new());
/// let election = Election::builder("nightly-report", store).start().await?;
/// let sent = election.run_if_leader(async { "the report" }).await;
/// assert_eq!(sent, Some("the report"));
/// election.stop().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Election {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) candidate: Candidate,
    pub(crate) witness: Option<Registration>,
}

impl Election {
    pub(crate) fn new(inner: Inner) -> Election {
        Election { inner: Arc::new(inner) }
    }

    /// Sets up an election on a store, for a process that takes part in one only. Those who take
    /// part in many share a [`Candidate`].
    pub fn builder(name: &str, store: Arc<dyn Store>) -> ElectionBuilder {
        ElectionBuilder::new(Source::Store { store, label: None }, name)
    }

    /// Sets up an election on the store that a URL names; see [`open`](crate::open) for what is
    /// known. Moving to another store means changing the URL.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// use tenure::Election;
    ///
    /// let election = Election::open("invoices", "postgres://db/shop").start().await?;
    /// # Ok(()) }
    /// ```
    pub fn open(name: &str, url: &str) -> ElectionBuilder {
        ElectionBuilder::new(Source::Url { url: Secret::new(url), label: None }, name)
    }

    /// May I start something? True while leading, false from the step-down on, by itself, even if
    /// everything else in the process hangs. One load, and one clock read only while leading:
    /// cheap enough for a tight loop.
    ///
    /// What you start on such an answer is not known here, so the reign is *relied upon* (I8):
    /// after an orderly end its lease is kept until you say [`done`](Election::done), at the latest
    /// until the drain is over. So what you start must end within the drain
    /// ([`Timing::drain`](crate::Timing)). Work that is registered, in [`lead`](Election::lead),
    /// [`run_if_leader`](Election::run_if_leader) or under a [`Tenure`], is waited for instead, and
    /// handed over as soon as it has ended. To show the answer only, use [`peek`](Election::peek).
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.inner.shared.vouch()
    }

    /// The term this instance leads now. As [`is_leader`](Election::is_leader), this answer is
    /// relied upon.
    pub fn term(&self) -> Option<Term> {
        self.inner.shared.term()
    }

    /// Says that all work of this term has ended that was started because
    /// [`is_leader`](Election::is_leader), [`term`](Election::term),
    /// [`standing`](Election::standing), a feed or `on_elected` said that this instance leads. If
    /// the term was stepped down from, its lease is given back now instead of at the end of the
    /// drain. While it is led, this counts for the answers so far; the next one is relied upon
    /// again. A term that is over is none of its business: nothing happens.
    ///
    /// # Errors
    /// `Crashed` if nobody acts for this candidate any more.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// let election = Election::builder("invoices", Arc::new(MemoryStore::new())).start().await?;
    /// if let Some(term) = election.term() {
    ///     // ... work as term `term`, and when it has ended:
    ///     election.done(term)?;
    /// }
    /// election.stop().await?; // does not wait for the drain
    /// # Ok(()) }
    /// ```
    pub fn done(&self, term: Term) -> Result<(), Error> {
        if self.inner.shared.done(term) {
            return Ok(());
        }
        self.inner.command(Command::Done { id: self.inner.id, term })
    }

    /// The election's name.
    pub fn name(&self) -> &Name {
        &self.inner.shared.election
    }

    /// This candidate.
    pub fn candidate(&self) -> &CandidateId {
        &self.inner.shared.candidate
    }

    /// Whether a witness that lives knows of this election: if this process is killed, its lease is
    /// given back at once. See [`WitnessConfig`](crate::WitnessConfig).
    pub fn is_witnessed(&self) -> bool {
        self.inner.witness.as_ref().is_some_and(Registration::is_known)
    }

    /// The durations of its lease.
    pub fn timing(&self) -> &Timing {
        &self.inner.shared.timing
    }

    /// Takes part from now on. Returns after the first attempt, so that a lone instance leads when
    /// this returns. Starting twice is starting once; starting after a stop works.
    ///
    /// A store that does not answer is no error: the election is a follower and keeps trying.
    ///
    /// # Cancel safety
    /// Cancel safe: the election takes part whether or not the future is awaited to its end.
    ///
    /// # Errors
    /// Whatever makes the store useless for good: a missing privilege, a corrupt file. The election
    /// is stopped then.
    pub async fn start(&self) -> Result<(), Error> {
        let (done, first) = oneshot::channel();
        self.inner.command(Command::Start { id: self.inner.id, done })?;
        let first = first.await.map_err(|_| driver_gone())?;
        if first.is_err() {
            let (done, _stopped) = oneshot::channel();
            self.inner.command(Command::Stop { id: self.inner.id, done })?;
        }
        first
    }

    /// Takes no part, but keeps track of who leads: each change is a
    /// [`LeaderChanged`](crate::Event::LeaderChanged). Returns after the first look. An election
    /// that takes part sees all of this anyway.
    ///
    /// # Cancel safety
    /// Cancel safe: the election is observed whether or not the future is awaited to its end.
    ///
    /// # Errors
    /// As for [`start`](Election::start).
    pub async fn observe(&self) -> Result<(), Error> {
        let (done, first) = oneshot::channel();
        self.inner.command(Command::Observe { id: self.inner.id, done })?;
        first.await.map_err(|_| driver_gone())?
    }

    /// Takes no further part: tells the work to stop, waits for it (at most the drain, then it is
    /// aborted), gives the lease back. Safe on a follower and when stopped already.
    ///
    /// If somebody relies on the reign (see [`is_leader`](Election::is_leader)), this returns when
    /// they are [`done`](Election::done), or when the drain is over.
    ///
    /// # Cancel safety
    /// Cancel safe: stopping goes on without the future.
    ///
    /// # Errors
    /// `Unavailable` if the work would not end or the store could not be told. The election is
    /// stopped all the same, and the lease runs out by itself.
    pub async fn stop(&self) -> Result<(), Error> {
        let (done, stopped) = oneshot::channel();
        self.inner.command(Command::Stop { id: self.inner.id, done })?;
        stopped.await.map_err(|_| driver_gone())?
    }

    /// Gives up the present reign, if this instance leads: as [`stop`](Election::stop), but then it
    /// steps back for one `renew_every` and campaigns again.
    ///
    /// # Cancel safety
    /// Cancel safe: resigning goes on without the future.
    ///
    /// # Errors
    /// As for [`stop`](Election::stop).
    pub async fn resign(&self) -> Result<(), Error> {
        let (done, resigned) = oneshot::channel();
        let id = self.inner.id;
        self.inner.command(Command::Resign { id, term: None, done: Some(done) })?;
        resigned.await.map_err(|_| driver_gone())?
    }

    /// Waits until this instance leads, and returns the handle of that reign. An election that was
    /// not started takes part for as long as somebody waits here or holds the handle. Each reign
    /// has one handle; a second caller waits for the next.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future withdraws, unless the election was started.
    ///
    /// # Errors
    /// `Stopped` if the election is stopped meanwhile, `Crashed` if nobody acts for this candidate
    /// any more.
    pub async fn campaign(&self) -> Result<Tenure, Error> {
        self.check_process()?;
        let stops = self.inner.shared.status.borrow().stops;
        self.campaign_since(stops).await
    }

    /// Campaigns unless the election was stopped since the count was `stops`.
    pub(crate) async fn campaign_since(&self, stops: u64) -> Result<Tenure, Error> {
        let status = &self.inner.shared.status;
        let mut taking_part = None;
        loop {
            let changed = status.changed();
            let reign = {
                let status = status.borrow();
                if status.stops != stops {
                    return Err(stopped_meanwhile());
                }
                if status.driver_gone {
                    return Err(driver_gone());
                }
                status.reign.clone()
            };
            if let Some(reign) = reign.filter(|reign| reign.claim()) {
                return Ok(Tenure::new(self.inner.clone(), reign));
            }
            if taking_part.is_none() {
                taking_part = Some(TakingPart::enter(&self.inner, stops)?);
            }
            changed.await;
        }
    }

    /// Asks the store who leads: one read. `None` if nobody does.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn current_leader(&self) -> Result<Option<Leader>, Error> {
        let op = Op::Read { election: self.name().clone() };
        match self.inner.candidate.apply(op, self.timing().call_timeout()).await? {
            Reply::Seen(sight) | Reply::Refused(sight) => Ok(sight.lease.map(Leader::from)),
            Reply::Unknown(error) => Err(error),
            Reply::Granted(_) => {
                Err(Error::new(ErrorKind::Corrupt, "the store granted a read; this is a bug in it"))
            }
        }
    }

    /// Who was last seen to lead, if not this instance; no call to the store. `remaining` is what
    /// is left now of what the store told last: 0 if that has run out since.
    pub fn last_seen_leader(&self) -> Option<Leader> {
        let shared = self.shared();
        self.check_process().ok()?;
        let (mut leader, seen_at) = shared.status.borrow().leader.clone()?;
        leader.remaining = leader.remaining.saturating_sub(shared.clock.now() - seen_at);
        Some(leader)
    }

    /// Everything that happens from now on, in order. A reign that it tells of is relied upon, as
    /// by [`is_leader`](Election::is_leader).
    pub fn events(&self) -> Events {
        Events::of(&self.inner.shared, true)
    }

    /// The same for showing it, and not for acting on it: see [`peek`](Election::peek).
    pub fn peek_events(&self) -> Events {
        Events::of(&self.inner.shared, false)
    }

    /// The term led, each time it changes. Lost and regained is never the same value. A reign that
    /// it tells of is relied upon, as by [`is_leader`](Election::is_leader).
    pub fn changes(&self) -> Changes {
        Changes::of(self.inner.shared.clone())
    }
}

impl Election {
    /// The store that it is held on.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.inner.candidate.store()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// The surroundings of its candidate, for parts of tenure in other crates.
    #[doc(hidden)]
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        self.inner.candidate.runtime()
    }

    /// What is wrong with it on purpose, for parts of tenure in other crates.
    #[doc(hidden)]
    pub fn faults(&self) -> Faults {
        self.inner.shared.faults
    }

    pub(crate) fn candidate_handle(&self) -> &Candidate {
        &self.inner.candidate
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", self.name())
            .field("candidate", self.candidate())
            .field("term", &self.inner.shared.peek_term())
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn command(&self, command: Command) -> Result<(), Error> {
        self.candidate.command(command)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            // A copy in a forked child. What it is a copy of goes on in the parent.
            return;
        }
        if self.shared.lead.is_relied_upon() && !self.shared.at_once {
            let (election, term) = (self.shared.election.as_str(), self.shared.peek_term());
            tracing::warn!(
                election,
                ?term,
                "the last handle was dropped in a reign that somebody relies on; its lease is kept \
                 until the drain is over, if this process lives so long: `stop().await` is the way \
                 out"
            );
        }
        let _driver_gone = self.command(Command::Remove { id: self.id });
        // Afterwards: an election that is built from now on comes after this one.
        self.candidate.free(&self.shared.election);
    }
}

/// Keeps an election taking part while somebody waits for it.
pub(crate) struct TakingPart<'a> {
    inner: &'a Inner,
    /// A stop puts everybody out who waits; who entered before it has nothing left to leave.
    pub(crate) stops: u64,
}

impl<'a> TakingPart<'a> {
    pub(crate) fn enter(inner: &'a Inner, stops: u64) -> Result<TakingPart<'a>, Error> {
        inner.command(Command::Enter { id: inner.id, stops })?;
        Ok(TakingPart { inner, stops })
    }
}

impl Drop for TakingPart<'_> {
    fn drop(&mut self) {
        if self.inner.shared.faults.has(Fault::ExitForgotten) {
            return;
        }
        let exit = Command::Exit { id: self.inner.id, stops: self.stops };
        let _driver_gone = self.inner.command(exit);
    }
}

fn stopped_meanwhile() -> Error {
    Error::new(ErrorKind::Stopped, "the election was stopped while waiting to lead")
}
