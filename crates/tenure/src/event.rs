//! What there is to tell about an election.

use std::time::Duration;

use tenure_core::{Error, Holder, Lease, Metadata, Reason, Term};

/// Who leads, as the store told it at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Its identity; [`Holder::label`] is the part to show to people.
    pub holder: Holder,
    /// Its term; `None` for a foreign holder that knows no terms.
    pub term: Option<Term>,
    /// How long its lease lasts if it is not renewed.
    pub remaining: Duration,
    /// How long it lasts after each renewal, where the store knows that.
    pub ttl: Option<Duration>,
    /// When its term began, in milliseconds of Unix time. For display only.
    pub since_unix_ms: Option<u64>,
    /// What it published.
    pub metadata: Option<Metadata>,
}

impl From<Lease> for Leader {
    fn from(lease: Lease) -> Leader {
        Leader {
            holder: lease.holder,
            term: lease.term,
            remaining: lease.remaining,
            ttl: lease.ttl,
            since_unix_ms: lease.since_unix_ms,
            metadata: lease.metadata,
        }
    }
}

/// Something that happened to this candidate in this election, in the order in which it did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It takes part from now on.
    Campaigning,
    /// It leads.
    Elected {
        /// The term.
        term: Term,
    },
    /// It was granted a term and could not listen for messages, so it gives the lease back without
    /// having led (M1).
    ListenFailed {
        /// The term that it did not lead.
        term: Term,
        /// What kept it from listening.
        error: Error,
    },
    /// A renewal's outcome is unknown; it is tried again while trust lasts.
    RenewalFailed {
        /// The term.
        term: Term,
        /// Why nobody knows.
        error: Error,
    },
    /// It leads no more, and its work is told to stop.
    Draining {
        /// The term.
        term: Term,
        /// Why.
        reason: Reason,
        /// How long the work has.
        left: Duration,
    },
    /// Its work has ended, or its trust has. From here on somebody else may lead.
    SteppedDown {
        /// The term.
        term: Term,
        /// Why.
        reason: Reason,
    },
    /// Somebody else is seen to lead, or nobody.
    LeaderChanged {
        /// Who.
        leader: Option<Leader>,
    },
    /// The store does not answer any more.
    StoreLost {
        /// What it says instead.
        error: Error,
    },
    /// The store answers again.
    StoreBack,
    /// The store grants nothing new for now, because it lost its memory.
    Settling {
        /// How much longer.
        left: Duration,
    },
    /// The store's clock jumped against the local one.
    StoreClockStepped {
        /// By how much.
        by: Duration,
        /// Whether it jumped ahead, which makes leases shorter than they should be.
        ahead: bool,
    },
    /// Another live process uses the same label.
    DuplicateLabel {
        /// Who it is.
        holder: Holder,
    },
    /// The store granted a term that it must have issued before; it was not led.
    TermFell {
        /// What was granted.
        granted: Term,
        /// The least that would have been right.
        least: Term,
    },
    /// This feed was not read in time: so many events are missing here.
    Missed {
        /// How many.
        count: u64,
    },
}

impl Event {
    /// The event's name, as it stands in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Campaigning => "campaigning",
            Event::Elected { .. } => "elected",
            Event::ListenFailed { .. } => "listen_failed",
            Event::RenewalFailed { .. } => "renewal_failed",
            Event::Draining { .. } => "draining",
            Event::SteppedDown { .. } => "stepped_down",
            Event::LeaderChanged { .. } => "leader_changed",
            Event::StoreLost { .. } => "store_lost",
            Event::StoreBack => "store_back",
            Event::Settling { .. } => "settling",
            Event::StoreClockStepped { .. } => "store_clock_stepped",
            Event::DuplicateLabel { .. } => "duplicate_label",
            Event::TermFell { .. } => "term_fell",
            Event::Missed { .. } => "missed",
        }
    }
}
