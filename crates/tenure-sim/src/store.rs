//! The store contract as a plain function on a state: no clock, no threads, no surprises.
//!
//! Simulator and model share it. It owns what a store owes (see `tenure_core::Store`) and
//! must never be cleverer than the contract, because real stores are not.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{CandidateId, Grant, Holder, Lease, Op, Outcome, Sight, Term, Time};

/// What a store does wrong on purpose, to see whether the checkers notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreFault {
    /// Nothing: the contract is kept.
    #[default]
    None,
    /// A renewal is granted to whoever holds the lease, whatever term it names (breaks I4).
    RenewIgnoresTerm,
    /// A release by incarnation alone vacates whatever the candidate holds, also what a later
    /// acquire got (breaks C2).
    ReleaseIgnoresSeq,
    /// An acquire that a release has overtaken is granted all the same (breaks C2).
    AcquireIgnoresRelease,
    /// A lease is granted to another although it has not run out.
    GrantsHeld,
    /// A released election starts at term 1 again (breaks I2).
    ForgetsTerms,
    /// Nothing is ever granted: safe, and of no use to anybody.
    GrantsNothing,
    /// A store that lost its memory grants at once, without settling (breaks R2).
    NeverSettles,
    /// A store that lost its memory counts terms from 1 again (breaks I2, R1).
    CountsAnew,
    /// A term is issued below the floor that was asked for (breaks C5).
    IgnoresFloor,
}

/// What the store keeps of one election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shelf {
    last_term: Option<Term>,
    lease: Option<Held>,
    released: BTreeMap<CandidateId, u64>,
    /// Terms follow the clock, a new one every so many nanoseconds (R1); 0 if they are counted.
    term_ns: u64,
    /// It lost its memory, and grants nothing new before this instant (R2).
    settles_until: Time,
}

/// The last lease that was not released; it may have run out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    candidate: CandidateId,
    term: Term,
    seq: u64,
    ttl: Duration,
    expires_at: Time,
    asked: bool,
}

impl Shelf {
    /// Carries out one op at the instant `now` of the store's clock.
    pub fn apply(&mut self, now: Time, op: &Op, fault: StoreFault) -> Outcome {
        let grant = match op {
            Op::Acquire { .. } if fault == StoreFault::GrantsNothing => None,
            Op::Acquire { .. } => self.acquire(now, op, fault),
            Op::Renew { candidate, term, ttl, .. } => {
                self.renew(now, candidate, *term, *ttl, fault)
            }
            Op::Release { candidate, term, seq, .. } => {
                self.release(now, candidate, *term, *seq, fault)
            }
            Op::Read { .. } => return Outcome::Seen(self.sight(now)),
            Op::Ask { term, .. } => self.ask(now, *term),
        };
        match grant {
            Some(grant) => Outcome::Granted(Grant { store_clock: Some(since(now)), ..grant }),
            None => Outcome::Refused(self.sight(now)),
        }
    }

    /// Who holds the lease at this instant, and under which term.
    pub fn holder(&self, now: Time) -> Option<(&CandidateId, Term)> {
        self.held(now).map(|held| (&held.candidate, held.term))
    }

    /// The highest term that was ever issued.
    pub fn last_term(&self) -> Option<Term> {
        self.last_term
    }

    /// A store that may lose its memory: its terms follow its clock, a new one every `term_ns`.
    pub fn forgetful(term_ns: u64) -> Shelf {
        Shelf { term_ns, ..Shelf::default() }
    }

    /// Forgets everything, and settles for this long (R2).
    pub fn lose_memory(&mut self, now: Time, settle: Duration) {
        let settles_until = now + settle;
        *self = Shelf { term_ns: self.term_ns, settles_until, ..Shelf::default() };
    }

    /// Frees the lease without anybody's wish, as a server does that ends a session (A2).
    pub fn lose_connection(&mut self) {
        self.lease = None;
    }

    fn acquire(&mut self, now: Time, op: &Op, fault: StoreFault) -> Option<Grant> {
        let Op::Acquire { candidate, seq, above, floor, ttl, .. } = op else { return None };
        let overtaken = self.released.get(candidate).is_some_and(|released| seq <= released);
        if overtaken && fault != StoreFault::AcquireIgnoresRelease {
            return None;
        }
        if now < self.settles_until && fault != StoreFault::NeverSettles {
            return None;
        }
        let mut ran_out = None;
        match &mut self.lease {
            Some(held) if now >= held.expires_at => ran_out = Some(held.ttl),
            Some(held)
                if held.candidate == *candidate && above.is_none_or(|above| held.term > above) =>
            {
                held.seq = held.seq.max(*seq);
                held.ttl = *ttl;
                held.expires_at = now + *ttl;
                return Some(Grant { asked: held.asked, ..Grant::new(held.term) });
            }
            Some(held) if held.candidate == *candidate => {}
            Some(_) if fault != StoreFault::GrantsHeld => return None,
            _ => {}
        }
        let term = self.next_term(now, *above, *floor, fault)?;
        self.last_term = Some(term);
        self.lease = Some(Held {
            candidate: candidate.clone(),
            term,
            seq: *seq,
            ttl: *ttl,
            expires_at: now + *ttl,
            asked: false,
        });
        Some(Grant { expired: ran_out, ..Grant::new(term) })
    }

    fn next_term(
        &self,
        now: Time,
        above: Option<Term>,
        floor: Option<Term>,
        fault: StoreFault,
    ) -> Option<Term> {
        let floor = floor.filter(|_| fault != StoreFault::IgnoresFloor);
        let follows_clock = self.term_ns > 0 && fault != StoreFault::CountsAnew;
        let by_clock =
            if follows_clock { Term::new(now.as_nanos() / self.term_ns + 1) } else { None };
        Term::successor(self.last_term.max(above), floor.max(by_clock))
    }

    fn renew(
        &mut self,
        now: Time,
        candidate: &CandidateId,
        term: Term,
        ttl: Duration,
        fault: StoreFault,
    ) -> Option<Grant> {
        let held = self.lease.as_mut().filter(|held| now < held.expires_at)?;
        let exact = held.candidate == *candidate && held.term == term;
        if !exact && fault != StoreFault::RenewIgnoresTerm {
            return None;
        }
        held.ttl = ttl;
        held.expires_at = now + ttl;
        Some(Grant { asked: held.asked, ..Grant::new(term) })
    }

    fn release(
        &mut self,
        now: Time,
        candidate: &CandidateId,
        term: Option<Term>,
        seq: u64,
        fault: StoreFault,
    ) -> Option<Grant> {
        let recorded = self.released.entry(candidate.clone()).or_insert(seq);
        *recorded = (*recorded).max(seq);
        let held = self.lease.as_ref().filter(|held| now < held.expires_at)?;
        // By incarnation alone it means the acquires up to `seq` (C2).
        let up_to_seq = held.seq <= seq || fault == StoreFault::ReleaseIgnoresSeq;
        let meant = term.map_or(up_to_seq, |term| term == held.term);
        if held.candidate != *candidate || !meant {
            return None;
        }
        let term = held.term;
        self.lease = None;
        if fault == StoreFault::ForgetsTerms {
            self.last_term = None;
        }
        Some(Grant::new(term))
    }

    fn ask(&mut self, now: Time, term: Option<Term>) -> Option<Grant> {
        let held = self.lease.as_mut().filter(|held| now < held.expires_at)?;
        if term.is_some_and(|term| term != held.term) {
            return None;
        }
        held.asked = true;
        Some(Grant::new(held.term))
    }

    fn held(&self, now: Time) -> Option<&Held> {
        self.lease.as_ref().filter(|held| now < held.expires_at)
    }

    fn sight(&self, now: Time) -> Sight {
        let lease = self.held(now).map(|held| Lease {
            holder: Holder::from(&held.candidate),
            term: Some(held.term),
            remaining: held.expires_at - now,
            ttl: Some(held.ttl),
            since_unix_ms: None,
            metadata: None,
        });
        let settling = (now < self.settles_until).then(|| self.settles_until - now);
        Sight { lease, last_term: self.last_term, settling, store_clock: Some(since(now)) }
    }
}

fn since(now: Time) -> Duration {
    now - Time::ZERO
}
