//! Where a case is played: a store, an election, the candidates, and what is expected of replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::{
    CandidateId, Error, Grant, Lease, Metadata, Name, Op, Reply, Sight, Store, StoreExt, StoreInfo,
    Term, Time,
};

use super::Subject;

/// How often a store is asked that does not know for a moment.
const TRIES: usize = 500;

/// Why a case ends before its last line.
#[derive(Debug)]
pub(crate) enum Stop {
    Skipped(String),
    Failed(String),
}

pub(crate) type Verdict = Result<(), Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// Fails the case with this sentence unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err($crate::conformance::arena::Stop::Failed(format!($($sentence)+)));
        }
    };
}
pub(crate) use ensure;

/// Ends the case as one that does not apply.
pub(crate) fn skip<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Skipped(why.into()))
}

/// What one case works with: data of its own, one handle onto it, one election.
pub(crate) struct Arena<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) election: Name,
    pub(crate) info: StoreInfo,
    data: u32,
    candidates: AtomicU64,
}

impl<'a> Arena<'a> {
    pub(crate) async fn new(
        subject: &'a dyn Subject,
        data: u32,
        case: &str,
    ) -> Result<Arena<'a>, Stop> {
        let store = subject.open(data).await?;
        let info = store.info();
        let election = Name::new(format!("{data}: {case}"))?;
        let candidates = AtomicU64::new(0);
        Ok(Arena { subject, store, election, info, data, candidates })
    }

    /// Another handle onto the same data.
    pub(crate) async fn another_handle(&self) -> Result<Arc<dyn Store>, Stop> {
        Ok(self.subject.open(self.data).await?)
    }

    /// A power cut, and a handle onto what is left. Skips if the subject knows no way.
    pub(crate) async fn crash(&self) -> Result<Arc<dyn Store>, Stop> {
        if !self.subject.crash(self.data).await {
            return skip("the subject has no way to crash the store");
        }
        self.another_handle().await
    }

    /// A candidate of its own for this case's election, with a long ttl.
    pub(crate) fn player(&self, label: &str) -> Result<Player, Stop> {
        let number = self.candidates.fetch_add(1, Ordering::Relaxed);
        let incarnation = u128::from(self.data) << 64 | u128::from(number + 1);
        Ok(Player {
            store: self.store.clone(),
            election: self.election.clone(),
            candidate: CandidateId::new(label, incarnation)?,
            ttl: self.long_ttl(),
            seq: AtomicU64::new(0),
        })
    }

    /// Another election of this case.
    pub(crate) fn other_election(&self, what: impl std::fmt::Display) -> Result<Name, Stop> {
        Ok(Name::new(format!("{} / {what}", self.data))?)
    }

    /// A ttl that does not run out while a case is played.
    pub(crate) fn long_ttl(&self) -> Duration {
        Duration::from_secs(120).max(2 * self.info.min_ttl)
    }

    /// A ttl to wait for.
    pub(crate) fn short_ttl(&self) -> Duration {
        Duration::from_millis(200).max(self.info.min_ttl)
    }

    /// Waits until a lease of this ttl has run out.
    pub(crate) async fn expire(&self, ttl: Duration) {
        self.subject.wait(ttl + self.subject.expiry_grace()).await;
    }

    /// Skips if more than `span` has passed since: then the case shows nothing.
    pub(crate) fn still_within(&self, since: Time, span: Duration) -> Verdict {
        if self.subject.now() - since < span {
            return Ok(());
        }
        skip("the machine was too slow to tell; run it alone")
    }

    /// What the store says of this case's election.
    pub(crate) async fn read(&self) -> Result<Sight, Stop> {
        Ok(self.store.read(&self.election).await?)
    }

    /// Fails unless everything but the passing of time is as it was.
    pub(crate) async fn is_unchanged(&self, before: &Sight, after_what: &str) -> Verdict {
        let after = self.read().await?;
        let still = |sight: &Sight| {
            let lease = sight.lease.clone();
            (lease.map(|lease| Lease { remaining: Duration::ZERO, ..lease }), sight.last_term)
        };
        let left = |sight: &Sight| sight.lease.as_ref().map(|lease| lease.remaining);
        ensure!(
            still(before) == still(&after) && left(&after) <= left(before),
            "{after_what} changed {before:?} to {after:?}"
        );
        Ok(())
    }
}

/// A candidate in one election, on one handle.
pub(crate) struct Player {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) election: Name,
    pub(crate) candidate: CandidateId,
    pub(crate) ttl: Duration,
    seq: AtomicU64,
}

/// What an acquire asks for beyond the ordinary.
#[derive(Default)]
pub(crate) struct Want {
    pub(crate) seq: Option<u64>,
    pub(crate) above: Option<Term>,
    pub(crate) floor: Option<Term>,
    pub(crate) metadata: Option<Metadata>,
}

impl Player {
    pub(crate) fn with_ttl(self, ttl: Duration) -> Player {
        Player { ttl, ..self }
    }

    pub(crate) fn on(self, store: &Arc<dyn Store>) -> Player {
        Player { store: store.clone(), ..self }
    }

    pub(crate) fn within(self, election: &Name) -> Player {
        Player { election: election.clone(), ..self }
    }

    /// The same candidate, elsewhere: in another election or on another handle.
    pub(crate) fn twin(&self) -> Player {
        Player {
            store: self.store.clone(),
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            ttl: self.ttl,
            seq: AtomicU64::new(self.seq.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn acquire_op(&self, want: Want) -> Op {
        let next = want.seq.unwrap_or_else(|| self.seq.load(Ordering::Relaxed) + 1);
        self.seq.fetch_max(next, Ordering::Relaxed);
        Op::Acquire {
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            seq: next,
            above: want.above,
            floor: want.floor,
            ttl: self.ttl,
            metadata: want.metadata,
        }
    }

    pub(crate) fn renew_op(&self, term: Term) -> Op {
        Op::Renew {
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            term,
            ttl: self.ttl,
        }
    }

    pub(crate) fn release_op(&self, term: Option<Term>, seq: Option<u64>) -> Op {
        Op::Release {
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            term,
            seq: seq.unwrap_or_else(|| self.seq.load(Ordering::Relaxed)),
        }
    }

    pub(crate) async fn acquire(&self, want: Want) -> Reply {
        self.store.apply_one(&self.acquire_op(want)).await
    }

    /// An ordinary acquire that must be granted. A store may not know for a moment, while it is
    /// done with something else in this election; it is asked again, as candidates do.
    pub(crate) async fn takes(&self) -> Result<Grant, Stop> {
        for _ in 1..TRIES {
            let reply = self.acquire(Want::default()).await;
            if !matches!(&reply, Reply::Unknown(error) if error.is_retryable()) {
                return granted("a vacant election", reply);
            }
        }
        granted("a vacant election", self.acquire(Want::default()).await)
    }

    pub(crate) async fn renew(&self, term: Term) -> Reply {
        self.store.apply_one(&self.renew_op(term)).await
    }

    pub(crate) async fn release(&self, term: Option<Term>) -> Reply {
        self.store.apply_one(&self.release_op(term, None)).await
    }

    pub(crate) async fn release_at(&self, term: Option<Term>, seq: u64) -> Reply {
        self.store.apply_one(&self.release_op(term, Some(seq))).await
    }

    /// Asks whoever holds the player's election to resign.
    pub(crate) async fn ask(&self, term: Option<Term>) -> Reply {
        self.store.apply_one(&Op::Ask { election: self.election.clone(), term }).await
    }
}

/// The grant that this reply must be.
pub(crate) fn granted(what: &str, reply: Reply) -> Result<Grant, Stop> {
    match reply {
        Reply::Granted(grant) => Ok(grant),
        other => Err(Stop::Failed(format!("{what} was not granted: {other:?}"))),
    }
}

/// The refusal that this reply must be.
pub(crate) fn refused(what: &str, reply: Reply) -> Result<Sight, Stop> {
    match reply {
        Reply::Refused(sight) => Ok(sight),
        other => Err(Stop::Failed(format!("{what} was not refused: {other:?}"))),
    }
}

/// A refusal that shows a vacant election.
pub(crate) fn refused_as_vacant(what: &str, reply: Reply) -> Result<Sight, Stop> {
    let sight = refused(what, reply)?;
    ensure!(sight.lease.is_none(), "{what} was refused, but as held: {sight:?}");
    Ok(sight)
}

/// A refusal that shows this player as the holder, under this term.
pub(crate) fn refused_for(
    what: &str,
    reply: Reply,
    holder: &Player,
    term: Term,
) -> Result<Lease, Stop> {
    is_held_by(refused(what, reply)?, holder, term)
}

/// The lease of this player, under this term, with time left.
pub(crate) fn is_held_by(sight: Sight, holder: &Player, term: Term) -> Result<Lease, Stop> {
    let Some(lease) = sight.lease else {
        return Err(Stop::Failed(format!("{} lost its lease of term {term}", holder.candidate)));
    };
    ensure!(
        lease.holder.is(&holder.candidate) && lease.term == Some(term),
        "{} ought to hold term {term}, but there is {lease:?}",
        holder.candidate
    );
    ensure!(lease.remaining > Duration::ZERO, "a held lease has nothing remaining: {lease:?}");
    ensure!(
        lease.ttl.is_none_or(|ttl| lease.remaining <= ttl),
        "more remains than the ttl: {lease:?}"
    );
    Ok(lease)
}

/// The term this far from another; a case that goes out of range is broken itself.
pub(crate) fn term_at(base: Term, plus: i64) -> Result<Term, Stop> {
    let term = base.get().checked_add_signed(plus).and_then(Term::new);
    term.ok_or_else(|| Stop::Failed(format!("there is no term {base} {plus:+}")))
}
