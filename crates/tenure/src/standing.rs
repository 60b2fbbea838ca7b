//! Where this instance stands, for those who show or check it: no call to the store.

use std::time::Duration;

use tenure_core::{Error, Metadata, Op, Reply, Term, Time};

use crate::Election;
use crate::candidate::check_origin;
use crate::shared::Reign;

/// One reign of this instance, at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// The term that is led.
    pub term: Term,
    /// When the reign began, on the candidate's clock.
    pub since: Time,
    /// When trust ends if nothing is renewed, on the candidate's clock.
    pub trusted_until: Time,
    /// How long that is from now.
    pub remaining: Duration,
}

/// A reign that ought to have been stepped down from, and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overdue {
    /// Its term.
    pub term: Term,
    /// How long ago trust ended.
    pub by: Duration,
}

impl Election {
    /// The reign of this instance, if it leads: all parts of one and the same. As
    /// [`is_leader`](Election::is_leader), this answer is relied upon.
    pub fn standing(&self) -> Option<Standing> {
        let shared = self.shared();
        shared.reign_if(|| shared.vouch()).and_then(|reign| self.standing_of(&reign))
    }

    /// The same for showing it: to be read by people, counted or logged, and not acted upon. The
    /// reign is not relied upon for it, so a hand-over does not wait for those who asked.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// # let election = Election::builder("invoices", Arc::new(MemoryStore::new())).start().await?;
    /// if let Some(standing) = election.peek() {
    ///     println!("leading as term {}", standing.term);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn peek(&self) -> Option<Standing> {
        let shared = self.shared();
        shared.reign_if(|| shared.leads()).and_then(|reign| self.standing_of(&reign))
    }

    /// `None` if trust has ended since the question was asked: this process may have stood still.
    fn standing_of(&self, reign: &Reign) -> Option<Standing> {
        let trusted_until = reign.trust_until();
        let remaining = trusted_until - self.shared().clock.now();
        let standing = Standing { term: reign.term, since: reign.began, trusted_until, remaining };
        (!remaining.is_zero()).then_some(standing)
    }

    /// The term that was stepped down from and whose lease is still held: its work has not ended,
    /// or somebody who was told "you lead" has not said [`done`](Election::done).
    pub fn winding_up(&self) -> Option<Term> {
        self.check_process().ok()?;
        self.shared().status.borrow().ending.as_ref().map(|reign| reign.term)
    }

    /// Tells whether trust has ended and something goes on all the same: the driver has not stepped
    /// down, or the work has not ended. Such a process is not healthy; end it.
    pub fn overdue(&self) -> Option<Overdue> {
        let shared = self.shared();
        if !shared.is_here() {
            return None;
        }
        let now = shared.clock.now();
        let status = shared.status.borrow();
        let reign = status.reign.as_ref().or(status.ending.as_ref())?;
        let ended = reign.trust_ended();
        let goes_on = status.reign.is_some() || reign.has_work();
        (goes_on && now >= ended).then(|| Overdue { term: reign.term, by: now - ended })
    }

    /// Whether the store answered the last call; `None` before the first.
    pub fn store_answers(&self) -> Option<bool> {
        let shared = self.shared();
        if shared.is_here() { shared.status.borrow().store_answers } else { None }
    }

    /// Says whether this handle can be used in this process; see [`Candidate`](crate::Candidate) on
    /// forks.
    ///
    /// # Errors
    /// `Forked` in a child that was forked from the process in which the handle was made.
    pub fn check_process(&self) -> Result<(), Error> {
        check_origin(self.shared().origin)
    }

    /// What this instance publishes while it leads.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.shared().metadata.as_ref()
    }

    /// The present instant on the clock of this candidate, by which [`Standing`] and events are
    /// stamped.
    pub fn now(&self) -> Time {
        self.shared().clock.now()
    }

    /// Waits until the driver has taken a turn. One that does not within seconds hangs, and with it
    /// everything but trust, which ends by itself.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn driver_answers(&self) {
        if !self.shared().is_here() {
            // There is no driver in a forked child.
            return std::future::pending().await;
        }
        self.candidate_handle().synchronize().await;
    }

    /// Asks the leader to resign, this instance or another, if it leads under this term (or
    /// under any, if none is named). Tells the term that was asked, `None` if nobody leads under
    /// it. It learns so from its next renewal, or at once where the store hints.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped the leader may have been asked or not.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn ask_to_resign(&self, term: Option<Term>) -> Result<Option<Term>, Error> {
        let op = Op::Ask { election: self.name().clone(), term };
        let timeout = self.timing().call_timeout();
        match self.candidate_handle().apply(op, timeout).await? {
            Reply::Granted(grant) => Ok(Some(grant.term)),
            Reply::Refused(_) | Reply::Seen(_) => Ok(None),
            Reply::Unknown(error) => Err(error),
        }
    }
}
