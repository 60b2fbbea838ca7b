//! Names, terms and ops in few words.

use std::time::Duration;

use tenure_core::{CandidateId, Name, Op, Term};

/// A name that is known to be a good one.
#[track_caller]
pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A term that is known to be a good one.
#[track_caller]
pub fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

/// A plain acquire.
pub fn acquire(election: &str, candidate: &CandidateId, seq: u64, ttl: Duration) -> Op {
    Op::Acquire {
        election: name(election),
        candidate: candidate.clone(),
        seq,
        above: None,
        floor: None,
        ttl,
        metadata: None,
    }
}

/// A renewal of this term.
pub fn renew(election: &str, candidate: &CandidateId, term: Term, ttl: Duration) -> Op {
    Op::Renew { election: name(election), candidate: candidate.clone(), term, ttl }
}

/// A release of this term, or of any if there is none.
pub fn release(election: &str, candidate: &CandidateId, term: Option<Term>, seq: u64) -> Op {
    Op::Release { election: name(election), candidate: candidate.clone(), term, seq }
}
