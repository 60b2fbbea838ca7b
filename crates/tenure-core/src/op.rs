//! What a candidate asks of a store, and what the store answers.

use std::sync::Arc;
use std::time::Duration;

use crate::{CandidateId, Error, Holder, Name, Term};

/// What a leader publishes beside its lease: a JSON object of at most 4 KiB.
///
/// # Examples
/// ```
/// use tenure_core::Metadata;
///
/// let metadata = Metadata::new(r#"{"url": "http://10.0.0.7:8080"}"#)?;
/// assert!(metadata.as_str().contains("8080"));
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metadata(pub(crate) Arc<str>);

/// One request about one election. Each is atomic on its own; [`Store`](crate::Store) says what
/// a store owes for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Take the lease if it is vacant, or learn that it is held already.
    Acquire {
        /// Whose lease.
        election: Name,
        /// Who wants it.
        candidate: CandidateId,
        /// Counts the acquires of this candidate in this election, from 1. A release carries
        /// the number of the last one, and older ones that arrive later are refused (C2).
        seq: u64,
        /// The last term that this candidate led. If the lease is the candidate's own with a
        /// term above this one, the answer is that term again: a lost reply is healed. Otherwise
        /// a new term is issued: nobody leads the same term twice (C1).
        above: Option<Term>,
        /// A newly issued term is at least this one (C5).
        floor: Option<Term>,
        /// How long the lease lasts from the instant at which the store grants it.
        ttl: Duration,
        /// Published beside the lease for the length of the term.
        metadata: Option<Metadata>,
    },
    /// Make the lease last `ttl` from now, if it is exactly this candidate's and exactly of this
    /// term, and has not expired (I4).
    Renew {
        /// Whose lease.
        election: Name,
        /// Who holds it.
        candidate: CandidateId,
        /// The term it was granted with.
        term: Term,
        /// How long the lease lasts from the instant at which the store grants it.
        ttl: Duration,
    },
    /// Vacate the lease if it is this candidate's; keep the term. Record `seq` in any case.
    Release {
        /// Whose lease.
        election: Name,
        /// Who holds it, or may hold it.
        candidate: CandidateId,
        /// The term to give up; `None` if it is not known because the reply to the acquire was
        /// lost: then the incarnation alone names the lease (C2).
        term: Option<Term>,
        /// The number of the last acquire that this candidate sent.
        seq: u64,
    },
    /// Tell who holds the lease. Changes nothing.
    Read {
        /// Whose lease.
        election: Name,
    },
    /// Ask the holder to resign; it learns so from its next renewal.
    Ask {
        /// Whose lease.
        election: Name,
        /// Only if it is held under this term; `None`: whoever holds it.
        term: Option<Term>,
    },
}

impl Op {
    /// The election that this is about.
    pub fn election(&self) -> &Name {
        match self {
            Op::Acquire { election, .. }
            | Op::Renew { election, .. }
            | Op::Release { election, .. }
            | Op::Read { election }
            | Op::Ask { election, .. } => election,
        }
    }

    /// The verb, for messages and spans.
    pub fn verb(&self) -> &'static str {
        match self {
            Op::Acquire { .. } => "acquire",
            Op::Renew { .. } => "renew",
            Op::Release { .. } => "release",
            Op::Read { .. } => "read",
            Op::Ask { .. } => "ask",
        }
    }
}

/// The answer to one [`Op`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done as asked.
    Granted(Grant),
    /// Not done, and the lease was not changed; this is what stands there instead. (A refused
    /// release is remembered all the same.)
    Refused(Sight),
    /// The answer to a read.
    Seen(Sight),
    /// It may have been done or not (I7). The error says why nobody knows.
    Unknown(Error),
}

impl Reply {
    /// What the machine needs of a reply: the outcome, with the reason of an unknown one apart.
    pub fn into_outcome(self) -> (Outcome, Option<Error>) {
        match self {
            Reply::Granted(grant) => (Outcome::Granted(grant), None),
            Reply::Refused(sight) => (Outcome::Refused(sight), None),
            Reply::Seen(sight) => (Outcome::Seen(sight), None),
            Reply::Unknown(error) => (Outcome::Unknown, Some(error)),
        }
    }
}

/// A [`Reply`] without the words: what the [`Machine`](crate::Machine) decides on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done as asked.
    Granted(Grant),
    /// Not done; this is what stands there instead.
    Refused(Sight),
    /// The answer to a read.
    Seen(Sight),
    /// It may have been done or not (I7).
    Unknown,
}

/// What comes with a granted request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The term that was issued, renewed, released or asked about.
    pub term: Term,
    /// Somebody asked the holder to resign (only after a renew, or an acquire that was healed).
    pub asked: bool,
    /// Set when an acquire took over a lease that had run out rather than been released: the ttl
    /// of that lease. A store that knows that the former holder is dead leaves it out.
    pub expired: Option<Duration>,
    /// The store's own clock at this instant, if leases expire by one that can step (W2).
    pub store_clock: Option<Duration>,
}

impl Grant {
    /// A plain grant of this term.
    pub fn new(term: Term) -> Grant {
        Grant { term, asked: false, expired: None, store_clock: None }
    }
}

/// What a store has to say about an election at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sight {
    /// The lease, if somebody holds it; a lease that ran out is vacant for everyone.
    pub lease: Option<Lease>,
    /// The highest term ever issued, if any was.
    pub last_term: Option<Term>,
    /// How long the store grants nothing new, because it lost its memory and an old leader may
    /// still trust itself (R2).
    pub settling: Option<Duration>,
    /// The store's own clock at this instant, if leases expire by one that can step (W2).
    pub store_clock: Option<Duration>,
}

/// A lease that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who holds it.
    pub holder: Holder,
    /// Under which term; `None` for a foreign holder that knows no terms.
    pub term: Option<Term>,
    /// How long it lasts if it is not renewed, by the store's clock.
    pub remaining: Duration,
    /// The ttl that the holder chose; `None` if a foreign holder did not say.
    pub ttl: Option<Duration>,
    /// When the term began, in milliseconds of Unix time by the store's or the holder's wall
    /// clock. For display only.
    pub since_unix_ms: Option<u64>,
    /// What the holder published.
    pub metadata: Option<Metadata>,
}
