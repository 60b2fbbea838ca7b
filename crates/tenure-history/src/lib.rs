//! What happened in an election, written down, and whether it was right.
//!
//! A watcher of candidates (a simulator, a drill, a test) records [`Event`]s on one common
//! axis of time, and [`History::check`] holds them against the invariants I1 to I7. The checker
//! stands outside: it believes nothing but the record. What a history does not show it cannot
//! judge: without [`Kind::Granted`] there is nothing to say on I3, and I5 shows itself only in
//! that all others hold while hints are lost and forged.
//!
//! # Examples
//! ```
//! use std::time::Duration;
//! use tenure_core::{Name, Term, Time};
//! use tenure_history::{Event, History, Kind};
//!
//! let at = |secs| Time::ZERO + Duration::from_secs(secs);
//! let election = Name::new("invoices")?;
//! let mut history = History::new();
//! for (candidate, secs, term) in [("web-1", 1, 1), ("web-2", 5, 2)] {
//!     let term = Term::new(term).expect("1 and 2 are terms");
//!     let kind = Kind::Lead { term, until: at(secs + 9) };
//!     history.record(Event::new(at(secs), &election, candidate, kind));
//! }
//! let violations = history.check().unwrap_err();
//! assert!(violations[0].to_string().starts_with("I1: "), "{}", violations[0]);
//! # Ok::<(), tenure_core::Error>(())
//! ```

mod check;

use std::fmt;
use std::time::Duration;

use tenure_core::{Name, Term, Time};

/// Something that happened to one candidate in one election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the axis that all events of the history share.
    pub at: Time,
    /// In which election.
    pub election: Name,
    /// To whom: one incarnation, as the store knows it.
    pub candidate: String,
    /// What.
    pub kind: Kind,
}

impl Event {
    /// An event.
    pub fn new(at: Time, election: &Name, candidate: impl Into<String>, kind: Kind) -> Event {
        Event { at, election: election.clone(), candidate: candidate.into(), kind }
    }
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The candidate was told that it leads.
    Lead {
        /// Under which term.
        term: Term,
        /// How long it trusts itself if nothing more comes.
        until: Time,
    },
    /// Its trust was extended by a renewal.
    Extend {
        /// How long it trusts itself now.
        until: Time,
    },
    /// It was told to stop.
    StepDown {
        /// Why, in words.
        reason: String,
        /// How long it may still finish what it began.
        until: Time,
        /// Whether it resigns: then it goes on renewing while it winds up. Any other step-down
        /// is final.
        resigning: bool,
    },
    /// The process died: nobody is left to trust anything.
    Killed,
    /// The candidate was seen to trust itself: `is_current()` said yes.
    Trusts {
        /// Under which term.
        term: Term,
    },
    /// A grant arrived.
    Granted {
        /// Which request it answers.
        request: Request,
        /// The term that was granted.
        term: Term,
        /// When the request was sent.
        sent_at: Time,
        /// The ttl that it asked for.
        ttl: Duration,
        /// The candidate's margin.
        margin: Duration,
    },
    /// An acquire or a renewal came to an unknown end.
    Unknown {
        /// When the request was sent.
        sent_at: Time,
        /// The ttl that it asked for.
        ttl: Duration,
        /// The candidate's margin.
        margin: Duration,
    },
    /// A release was *sent*; from here on somebody else may be granted the lease.
    Released {
        /// The term that was named, if one was.
        term: Option<Term>,
    },
    /// The store confirmed a release.
    ReleaseGranted {
        /// The term that was given up.
        term: Term,
        /// When the release was sent.
        sent_at: Time,
    },
    /// A fenced write was tried.
    WriteFenced {
        /// The term that it carried.
        term: Term,
        /// Whether the fence let it pass.
        accepted: bool,
    },
}

/// The two requests that extend a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An acquire.
    Acquire,
    /// A renew.
    Renew,
}

/// One broken invariant, in a sentence with the times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant: `I1` to `I7`, `lease` for a grant during another's lease, `fence` for a
    /// write that passed the fence behind a newer one.
    pub invariant: &'static str,
    /// In which election.
    pub election: Name,
    /// What happened.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.invariant, self.election, self.sentence)
    }
}

/// A record of events, of any number of elections and candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// An empty history.
    pub fn new() -> History {
        History::default()
    }

    /// Writes down one event. Events of different candidates may come out of order; events of
    /// the same instant count in the order in which they were recorded.
    pub fn record(&mut self, event: Event) {
        self.events.push(event);
    }

    /// What was recorded, in that order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Holds the history against the invariants.
    ///
    /// # Errors
    /// Every violation found, by election and then by invariant.
    pub fn check(&self) -> Result<(), Vec<Violation>> {
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.at);
        let mut elections: Vec<&Name> = events.iter().map(|event| &event.election).collect();
        elections.sort_unstable();
        elections.dedup();
        let violations: Vec<Violation> =
            elections.into_iter().flat_map(|election| check::election(election, &events)).collect();
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

impl FromIterator<Event> for History {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> History {
        History { events: events.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests;
