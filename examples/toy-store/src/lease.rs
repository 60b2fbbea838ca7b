//! What is in the file, and what each op does to it. No clock and no file is used here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{
    CandidateId, ErrorKind, Grant, Holder, Lease, Metadata, Name, Op, RELEASE_MEMORY, Reply, Sight,
    Term, Time,
};

use crate::error;

/// All that the file holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Leases {
    /// The boot whose clock all times here are from.
    boot: String,
    elections: BTreeMap<String, Election>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Election {
    last_term: Option<StoredTerm>,
    /// The last lease that was not released; it may have run out.
    lease: Option<Held>,
    /// Which acquires of a candidate a release has overtaken (C2).
    released: BTreeMap<String, Released>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    candidate: String,
    term: StoredTerm,
    /// The highest acquire that was granted this term.
    seq: u64,
    ttl: Duration,
    expires_ns: u64,
    asked: bool,
    metadata: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Released {
    seq: u64,
    at_ns: u64,
}

/// A term as a number of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
struct StoredTerm(Term);

/// What an acquire asks for.
struct Wanted<'a> {
    candidate: &'a CandidateId,
    seq: u64,
    above: Option<Term>,
    floor: Option<Term>,
    ttl: Duration,
    metadata: Option<&'a Metadata>,
}

impl Leases {
    /// Makes the times of another boot ours. They mean nothing on this clock, and nobody knows
    /// how much of a lease is left: it lasts its whole ttl once more (O1).
    pub(crate) fn adopt(&mut self, boot: &str, now: Time) {
        if self.boot == boot {
            return;
        }
        self.boot = boot.to_owned();
        for election in self.elections.values_mut() {
            if let Some(lease) = &mut election.lease {
                lease.expires_ns = (now + lease.ttl).as_nanos();
            }
            election.released.values_mut().for_each(|released| released.at_ns = now.as_nanos());
        }
    }

    /// The names of all elections, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.elections.keys().map(String::as_str)
    }

    /// Removes an election, unless somebody holds its lease. Says whether it is gone.
    pub(crate) fn forget(&mut self, now: Time, election: &Name) -> bool {
        let election = election.as_str();
        let is_held = |election: &mut Election| election.held(now).is_some();
        if self.elections.get_mut(election).is_some_and(is_held) {
            return false;
        }
        self.elections.remove(election);
        true
    }

    /// Carries out one op.
    pub(crate) fn apply(&mut self, now: Time, op: &Op) -> Reply {
        let name = op.election().as_str();
        let mut election = self.elections.remove(name).unwrap_or_default();
        let reply = election.apply(now, op);
        // One that was only asked about is still empty, and stays unknown.
        if election != Election::default() {
            self.elections.insert(name.to_owned(), election);
        }
        reply
    }
}

impl Election {
    fn apply(&mut self, now: Time, op: &Op) -> Reply {
        let granted = match op {
            Op::Acquire { candidate, seq, above, floor, ttl, metadata, .. } => {
                let (seq, above, floor, ttl) = (*seq, *above, *floor, *ttl);
                let metadata = metadata.as_ref();
                return self.acquire(now, &Wanted { candidate, seq, above, floor, ttl, metadata });
            }
            Op::Renew { candidate, term, ttl, .. } => self.renew(now, candidate, *term, *ttl),
            Op::Release { candidate, term, seq, .. } => {
                self.record_release(now, candidate, *seq);
                self.release(now, candidate, *term, *seq)
            }
            Op::Ask { term, .. } => self.ask(now, *term),
            Op::Read { .. } => return Reply::Seen(self.sight(now)),
        };
        granted.map_or_else(|| Reply::Refused(self.sight(now)), Reply::Granted)
    }

    fn acquire(&mut self, now: Time, wanted: &Wanted<'_>) -> Reply {
        let candidate = wanted.candidate.as_str();
        if self.released.get(candidate).is_some_and(|released| wanted.seq <= released.seq) {
            return Reply::Refused(self.sight(now));
        }
        match self.held(now) {
            Some(lease) if lease.candidate != candidate => Reply::Refused(self.sight(now)),
            Some(lease) if wanted.above.is_none_or(|above| lease.term.0 > above) => {
                // A lost reply is healed (C1). The metadata stays: it belongs to the term.
                lease.seq = lease.seq.max(wanted.seq);
                lease.extend(now, wanted.ttl);
                Reply::Granted(Grant { asked: lease.asked, ..Grant::new(lease.term.0) })
            }
            held => {
                let was_held = held.is_some();
                self.issue(now, wanted, was_held)
            }
        }
    }

    /// Grants a new term: a change of hands, even from a candidate to itself.
    fn issue(&mut self, now: Time, wanted: &Wanted<'_>, was_held: bool) -> Reply {
        let last = self.last_term.map(|term| term.0);
        let Some(term) = Term::successor(last.max(wanted.above), wanted.floor) else {
            let message = "the terms of this election are used up; give it another name";
            let error = error::new(ErrorKind::Unsupported, message);
            return Reply::Unknown(error.during("acquire"));
        };
        let former = self.lease.replace(Held {
            candidate: wanted.candidate.to_string(),
            term: StoredTerm(term),
            seq: wanted.seq,
            ttl: wanted.ttl,
            expires_ns: (now + wanted.ttl).as_nanos(),
            asked: false,
            metadata: wanted.metadata.map(|metadata| metadata.as_str().to_owned()),
        });
        self.last_term = Some(StoredTerm(term));
        let expired = former.filter(|_| !was_held).map(|former| former.ttl);
        Reply::Granted(Grant { expired, ..Grant::new(term) })
    }

    fn renew(
        &mut self,
        now: Time,
        candidate: &CandidateId,
        term: Term,
        ttl: Duration,
    ) -> Option<Grant> {
        let lease = self.held(now)?;
        if lease.candidate != candidate.as_str() || lease.term.0 != term {
            return None;
        }
        lease.extend(now, ttl);
        Some(Grant { asked: lease.asked, ..Grant::new(term) })
    }

    /// Notes which acquires are over, and forgets what was noted long ago.
    fn record_release(&mut self, now: Time, candidate: &CandidateId, seq: u64) {
        self.released
            .retain(|_, released| now - Time::from_nanos(released.at_ns) <= RELEASE_MEMORY);
        let at_ns = now.as_nanos();
        let released =
            self.released.entry(candidate.to_string()).or_insert(Released { seq, at_ns });
        // A late release never takes back what a newer one has said.
        released.seq = released.seq.max(seq);
        released.at_ns = at_ns;
    }

    fn release(
        &mut self,
        now: Time,
        candidate: &CandidateId,
        term: Option<Term>,
        seq: u64,
    ) -> Option<Grant> {
        let lease = self.held(now)?;
        // Without a term it means the acquires up to `seq`, and spares a newer reign.
        let is_meant = term.map_or(lease.seq <= seq, |term| lease.term.0 == term);
        if lease.candidate != candidate.as_str() || !is_meant {
            return None;
        }
        self.lease.take().map(|lease| Grant::new(lease.term.0))
    }

    fn ask(&mut self, now: Time, term: Option<Term>) -> Option<Grant> {
        let lease = self.held(now)?;
        if term.is_some_and(|term| term != lease.term.0) {
            return None;
        }
        lease.asked = true;
        Some(Grant::new(lease.term.0))
    }

    /// The lease, if it has not run out.
    fn held(&mut self, now: Time) -> Option<&mut Held> {
        self.lease.as_mut().filter(|lease| now < lease.expires_at())
    }

    fn sight(&self, now: Time) -> Sight {
        let lease = self.lease.as_ref().filter(|lease| now < lease.expires_at());
        Sight {
            lease: lease.map(|lease| Lease {
                holder: Holder::new(lease.candidate.as_str()),
                term: Some(lease.term.0),
                remaining: lease.expires_at() - now,
                ttl: Some(lease.ttl),
                since_unix_ms: None,
                metadata: lease.metadata.as_deref().and_then(|text| Metadata::new(text).ok()),
            }),
            last_term: self.last_term.map(|term| term.0),
            ..Sight::default()
        }
    }
}

impl Held {
    fn extend(&mut self, now: Time, ttl: Duration) {
        self.ttl = ttl;
        self.expires_ns = (now + ttl).as_nanos();
    }

    fn expires_at(&self) -> Time {
        Time::from_nanos(self.expires_ns)
    }
}

impl TryFrom<u64> for StoredTerm {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<StoredTerm, &'static str> {
        Term::new(number).map(StoredTerm).ok_or("a term is out of range")
    }
}

impl From<StoredTerm> for u64 {
    fn from(term: StoredTerm) -> u64 {
        term.0.get()
    }
}
