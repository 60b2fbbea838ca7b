//! What one session holds, as far as this process knows, and what to make of an op.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::{Name, Op, RELEASE_MEMORY, Term};
use tokio::time::Instant;

use super::key;

/// How many records of releases are kept before old ones are looked for.
const RELEASES_TRIM: usize = 1_024;

/// One election lock that a session holds.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) name: Name,
    pub(super) term: Term,
    /// The acquire that it was last granted to (C2).
    pub(super) seq: u64,
    pub(super) ttl: Duration,
    pub(super) asked: bool,
    /// When it is over unless renewed. Counted from the *answer* to the last renewal, so never
    /// before `ttl` has passed at the server.
    pub(super) until: Instant,
}

impl Lease {
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

/// What an op comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing is held yet: try.
    Try,
    /// It is held: see that it still is.
    Beat,
    /// It is held under a term that was led: see that it still is, and issue another (C1).
    Anew,
    /// Give it back.
    Unlock,
    /// No.
    Refuse,
    /// Another name has the same lock (A3).
    Clash,
}

/// What to do about an op of this session's candidate, given what is held of its election.
pub(super) fn plan(op: &Op, held: Option<&Lease>, overtaken: bool, now: Instant) -> Plan {
    if held.is_some_and(|lease| lease.name != *op.election()) {
        return Plan::Clash;
    }
    let held = held.filter(|lease| !lease.is_over(now));
    match (op, held) {
        (Op::Acquire { .. }, _) if overtaken => Plan::Refuse,
        (Op::Acquire { above, .. }, Some(lease)) => {
            if above.is_none_or(|above| lease.term > above) { Plan::Beat } else { Plan::Anew }
        }
        (Op::Acquire { .. }, None) => Plan::Try,
        (Op::Renew { term, .. }, Some(lease)) if *term == lease.term => Plan::Beat,
        (Op::Release { term: Some(term), .. }, Some(lease)) if *term == lease.term => Plan::Unlock,
        (Op::Release { term: None, seq, .. }, Some(lease)) if lease.seq <= *seq => Plan::Unlock,
        _ => Plan::Refuse,
    }
}

/// The number of an op's acquire, or 0.
pub(super) fn seq(op: &Op) -> u64 {
    match op {
        Op::Acquire { seq, .. } | Op::Release { seq, .. } => *seq,
        _ => 0,
    }
}

/// The ttl that an op asks for.
pub(super) fn ttl(op: &Op) -> Option<Duration> {
    match op {
        Op::Acquire { ttl, .. } | Op::Renew { ttl, .. } => Some(*ttl),
        _ => None,
    }
}

/// What an acquire publishes.
pub(super) fn metadata(op: &Op) -> Option<&str> {
    match op {
        Op::Acquire { metadata, .. } => metadata.as_ref().map(|metadata| metadata.as_str()),
        _ => None,
    }
}

/// The least term that an acquire may be granted.
pub(super) fn least(op: &Op) -> Option<Term> {
    match op {
        Op::Acquire { above, floor, .. } => above.and_then(Term::next).max(*floor),
        _ => None,
    }
}

/// The lock of an op's election.
pub(super) fn key(op: &Op) -> i64 {
    key::key(op.election())
}

/// Which acquires a release has overtaken (C2). A candidate is one process, so its memory will do.
#[derive(Default)]
pub(super) struct Releases(HashMap<Name, (u64, Instant)>);

impl Releases {
    pub(super) fn note(&mut self, election: &Name, seq: u64, now: Instant) {
        if self.0.len() >= RELEASES_TRIM {
            self.0.retain(|_, (_, at)| now.duration_since(*at) < RELEASE_MEMORY * 2);
        }
        let (known, at) = self.0.entry(election.clone()).or_insert((seq, now));
        (*known, *at) = ((*known).max(seq), now);
    }

    pub(super) fn overtook(&self, op: &Op) -> bool {
        let Op::Acquire { election, seq, .. } = op else { return false };
        self.0.get(election).is_some_and(|(known, _)| seq <= known)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::CandidateId;

    use super::*;

    fn held(term: u64, seq: u64, now: Instant) -> Lease {
        let ttl = Duration::from_secs(3);
        let (name, term) = (Name::new("e").unwrap(), Term::new(term).unwrap());
        Lease { name, term, seq, ttl, asked: false, until: now + ttl }
    }

    fn acquire(above: Option<u64>, seq: u64) -> Op {
        Op::Acquire {
            election: Name::new("e").unwrap(),
            candidate: CandidateId::new("a", 1).unwrap(),
            seq,
            above: above.and_then(Term::new),
            floor: None,
            ttl: Duration::from_secs(3),
            metadata: None,
        }
    }

    fn release(term: Option<u64>, seq: u64) -> Op {
        let (election, candidate) = (Name::new("e").unwrap(), CandidateId::new("a", 1).unwrap());
        Op::Release { election, candidate, term: term.and_then(Term::new), seq }
    }

    #[test]
    fn no_lock_is_tried_for_while_it_is_held() {
        let now = crate::clock::now();
        let lease = held(7, 2, now);
        assert_eq!(plan(&acquire(None, 3), None, false, now), Plan::Try);
        assert_eq!(plan(&acquire(None, 3), Some(&lease), false, now), Plan::Beat);
        assert_eq!(plan(&acquire(Some(6), 3), Some(&lease), false, now), Plan::Beat);
        assert_eq!(plan(&acquire(Some(7), 3), Some(&lease), false, now), Plan::Anew);
        assert_eq!(plan(&acquire(None, 3), Some(&lease), true, now), Plan::Refuse);
        let other = Lease { name: Name::new("other").unwrap(), ..lease };
        assert_eq!(plan(&acquire(None, 3), Some(&other), false, now), Plan::Clash);
    }

    #[test]
    fn what_is_over_is_neither_renewed_nor_released() {
        let now = crate::clock::now();
        let lease = held(7, 2, now);
        let late = now + Duration::from_secs(3);
        for op in [release(Some(7), 2), release(None, 2)] {
            assert_eq!(plan(&op, Some(&lease), false, now), Plan::Unlock);
            assert_eq!(plan(&op, Some(&lease), false, late), Plan::Refuse);
        }
        assert_eq!(plan(&release(Some(6), 2), Some(&lease), false, now), Plan::Refuse);
        assert_eq!(plan(&release(None, 1), Some(&lease), false, now), Plan::Refuse);
    }

    #[test]
    fn a_late_release_never_lowers_what_is_remembered() {
        let (now, mut releases) = (crate::clock::now(), Releases::default());
        let name = Name::new("e").unwrap();
        releases.note(&name, 5, now);
        releases.note(&name, 2, now);
        assert!(releases.overtook(&acquire(None, 5)) && !releases.overtook(&acquire(None, 6)));
    }
}
