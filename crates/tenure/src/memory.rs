//! The store that lives in this process: leases in a map.
//!
//! It owns what the store contract asks for and nothing more. It never reads the wall clock,
//! never does I/O and never waits.

mod channels;
mod ledger;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{
    BoxFuture, CandidateId, Channels, Clock, Elections, Error, ErrorKind, Expiry, Forgotten, Grant,
    Hint, HintSender, Hints, Holder, Lease, Ledger, Metadata, Name, Op, RELEASE_MEMORY, Reply,
    Sight, Store, StoreInfo, Term, Time,
};

use self::ledger::Ledgers;
use crate::clock::BootClock;

/// A store in memory, for candidates that share one process: tests, examples, and programs that
/// want the same code on one instance as on fifty.
///
/// A clone is another handle onto the same leases.
///
/// # Guarantees
/// The whole store contract, as long as the process lives. Each election that was ever asked
/// for by name in an acquire or a release stays in memory, because its terms must go on rising.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure::MemoryStore;
/// use tenure_core::{CandidateId, Name, Op, Reply, StoreExt};
///
/// # #[tokio::main] async fn main() -> Result<(), tenure_core::Error> {
/// let store = MemoryStore::new();
/// let acquire = Op::Acquire {
///     election: Name::new("invoices")?,
///     candidate: CandidateId::new("web-1", 7)?,
///     seq: 1,
///     above: None,
///     floor: None,
///     ttl: Duration::from_secs(30),
///     metadata: None,
/// };
/// assert!(matches!(store.apply_one(&acquire).await, Reply::Granted(_)));
/// let sight = store.read(acquire.election()).await?;
/// assert_eq!(sight.lease.expect("web-1 holds it").holder.label(), "web-1");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    // A std mutex: it is held for the few instructions that an op takes and never across an
    // await, so an async one would only add a queue that nobody waits in.
    leases: Mutex<Leases>,
    hints: HintSender,
    // Locked after the leases, where both are.
    mail: Mutex<channels::Mail>,
    /// Locked after the leases, never before.
    ledgers: Mutex<Ledgers>,
}

impl MemoryStore {
    /// An empty store whose leases run out by the boot clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(Arc::new(BootClock))
    }

    /// An empty store whose leases run out by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore(Arc::new(Shared {
            clock,
            leases: Mutex::new(Leases::default()),
            hints: HintSender::new(),
            ledgers: Mutex::default(),
            mail: Mutex::default(),
        }))
    }

    /// The same store with another time of day, for a simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn with_wall(self, wall: Arc<dyn Fn() -> i64 + Send + Sync>) -> MemoryStore {
        self.ledgers(|ledgers| ledgers.wall = Some(wall));
        self
    }

    /// Forgets all leases, terms and releases, as a server may do that is restarted. Messages and
    /// ledgers stay.
    #[doc(hidden)]
    pub fn forget_leases(&self) {
        *lock(&self.0.leases) = Leases::default();
    }

    fn apply_now(&self, ops: &[Op]) -> Vec<Reply> {
        let mut changed = Vec::new();
        let replies = {
            let mut leases = lock(&self.0.leases);
            // One reading, made once we are alone: to others the batch happens at one instant.
            let now = self.0.clock.now();
            leases.trim(now);
            ops.iter().map(|op| leases.apply(now, op, &mut changed)).collect()
        };
        self.hint(&changed);
        replies
    }

    /// What the ledger holds.
    pub(crate) fn ledgers<T>(&self, act: impl FnOnce(&mut Ledgers) -> T) -> T {
        act(&mut lock(&self.0.ledgers))
    }

    /// What the ledger holds, if the lease is held under this term; it stays so meanwhile.
    pub(crate) fn under_term<T>(
        &self,
        election: &Name,
        term: Term,
        act: impl FnOnce(Option<&mut Ledgers>) -> T,
    ) -> T {
        let mut leases = lock(&self.0.leases);
        let now = self.0.clock.now();
        let lease = leases.elections.get_mut(election).and_then(|election| election.held(now));
        if lease.is_none_or(|lease| lease.term != term) {
            return act(None);
        }
        act(Some(&mut lock(&self.0.ledgers)))
    }

    pub(crate) fn hint(&self, changed: &[Name]) {
        let hints: Vec<Hint> = changed.iter().cloned().map(Hint::Election).collect();
        self.0.hints.send(&hints);
    }
}

impl Store for MemoryStore {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move { self.apply_now(ops) })
    }

    fn hints(&self) -> Box<dyn Hints> {
        Box::new(self.0.hints.listen())
    }

    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo::new("memory", "memory:");
        info.expiry = Expiry::HostClock;
        info.hints = true;
        info.ledger = true;
        info.batch_limit = 10_000;
        info.min_ttl = Duration::from_millis(10);
        info.channels = true;
        info.residual = vec![
            "only candidates of this process take part",
            "leases and terms end with the process; the next one starts at term 1 again",
        ];
        info
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    tenure_core::lacks!(witness, checkup, migrate);
}

impl Elections for MemoryStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        let leases = lock(&self.0.leases);
        let known = leases.elections.iter().filter(|(_, election)| !election.forgotten);
        let mut names: Vec<Name> = known.map(|(name, _)| name.clone()).collect();
        names.sort();
        Box::pin(std::future::ready(Ok(names)))
    }

    fn forget<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        let mut leases = lock(&self.0.leases);
        let now = self.0.clock.now();
        let forgotten = match leases.elections.get_mut(election) {
            None => Forgotten::NotKnown,
            Some(known) => match known.held(now).is_some() {
                true => Forgotten::Led,
                false if known.last_term.is_none() || known.forgotten => Forgotten::NotKnown,
                false => {
                    (known.lease, known.forgotten) = (None, true);
                    Forgotten::Done
                }
            },
        };
        drop(leases);
        if forgotten == Forgotten::Done {
            lock(&self.0.mail).forget(election);
        }
        Box::pin(std::future::ready(Ok(forgotten)))
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("elections", &lock(&self.0.leases).elections.len())
            .finish_non_exhaustive()
    }
}

/// All that the store knows.
#[derive(Default)]
struct Leases {
    elections: HashMap<Name, Election>,
    /// The releases in the order in which they came, to forget the oldest first.
    releases: VecDeque<(Time, Name, CandidateId)>,
}

#[derive(Default)]
struct Election {
    last_term: Option<Term>,
    /// The last lease that was not released; it may have run out.
    lease: Option<Held>,
    /// Which acquires a release has overtaken, per candidate (C2).
    released: HashMap<CandidateId, Released>,
    /// Only its last term counts, until somebody leads again.
    forgotten: bool,
}

struct Held {
    candidate: CandidateId,
    term: Term,
    /// The highest acquire that was granted this term.
    seq: u64,
    ttl: Duration,
    expires_at: Time,
    asked: bool,
    metadata: Option<Metadata>,
}

struct Released {
    seq: u64,
    at: Time,
}

/// What an acquire wants, apart from whose lease it is.
struct Wanted<'a> {
    candidate: &'a CandidateId,
    seq: u64,
    above: Option<Term>,
    floor: Option<Term>,
    ttl: Duration,
    metadata: &'a Option<Metadata>,
}

impl Leases {
    /// Carries out one op; the names of elections worth a hint go to `changed`.
    fn apply(&mut self, now: Time, op: &Op, changed: &mut Vec<Name>) -> Reply {
        match op {
            Op::Acquire { election, candidate, seq, above, floor, ttl, metadata } => {
                let (seq, above, floor, ttl) = (*seq, *above, *floor, *ttl);
                let wanted = Wanted { candidate, seq, above, floor, ttl, metadata };
                self.elections.entry(election.clone()).or_default().acquire(now, wanted)
            }
            Op::Renew { election, candidate, term, ttl } => {
                self.reply(now, election, |election| election.renew(now, candidate, *term, *ttl))
            }
            Op::Release { election: name, candidate, term, seq } => {
                let election = self.elections.entry(name.clone()).or_default();
                election.record_release(now, candidate, *seq);
                self.releases.push_back((now, name.clone(), candidate.clone()));
                let grant = election.release(now, candidate, *term, *seq);
                changed.extend(grant.as_ref().map(|_| name.clone()));
                grant.map_or_else(|| Reply::Refused(election.sight(now)), Reply::Granted)
            }
            Op::Read { election } => Reply::Seen(self.sight(now, election)),
            Op::Ask { election: name, term } => {
                let reply = self.reply(now, name, |election| election.ask(now, *term));
                changed.extend(matches!(reply, Reply::Granted(_)).then(|| name.clone()));
                reply
            }
        }
    }

    /// The grant of `decide`, or else a refusal with what stands there.
    fn reply(
        &mut self,
        now: Time,
        election: &Name,
        decide: impl FnOnce(&mut Election) -> Option<Grant>,
    ) -> Reply {
        match self.elections.get_mut(election).and_then(decide) {
            Some(grant) => Reply::Granted(grant),
            None => Reply::Refused(self.sight(now, election)),
        }
    }

    fn sight(&self, now: Time, election: &Name) -> Sight {
        self.elections.get(election).map(|election| election.sight(now)).unwrap_or_default()
    }

    /// Forgets releases that are older than any acquire that may still be on its way.
    fn trim(&mut self, now: Time) {
        while let Some((at, ..)) = self.releases.front()
            && now - *at > RELEASE_MEMORY
        {
            let Some((at, name, candidate)) = self.releases.pop_front() else { return };
            if let Some(election) = self.elections.get_mut(&name)
                && election.released.get(&candidate).is_some_and(|released| released.at == at)
            {
                election.released.remove(&candidate);
            }
        }
    }
}

impl Election {
    fn acquire(&mut self, now: Time, wanted: Wanted<'_>) -> Reply {
        let Wanted { candidate, seq, above, .. } = wanted;
        if self.released.get(candidate).is_some_and(|released| seq <= released.seq) {
            return Reply::Refused(self.sight(now));
        }
        match self.held(now) {
            Some(lease) if lease.candidate != *candidate => Reply::Refused(self.sight(now)),
            Some(lease) if above.is_none_or(|above| lease.term > above) => {
                // A lost reply is healed (C1). The metadata stays, it belongs to the term.
                lease.seq = lease.seq.max(seq);
                lease.ttl = wanted.ttl;
                lease.expires_at = now + wanted.ttl;
                Reply::Granted(Grant { asked: lease.asked, ..Grant::new(lease.term) })
            }
            held => {
                let ran_out = held.is_none();
                self.issue(now, wanted, ran_out)
            }
        }
    }

    /// Grants a new term: a change of hands, be it from a candidate to itself.
    fn issue(&mut self, now: Time, wanted: Wanted<'_>, ran_out: bool) -> Reply {
        let Some(term) = Term::successor(self.last_term.max(wanted.above), wanted.floor) else {
            return Reply::Unknown(
                Error::new(
                    ErrorKind::Unsupported,
                    "the terms of this election are used up; give it another name",
                )
                .in_store("memory")
                .during("acquire"),
            );
        };
        let former = self.lease.replace(Held {
            candidate: wanted.candidate.clone(),
            term,
            seq: wanted.seq,
            ttl: wanted.ttl,
            expires_at: now + wanted.ttl,
            asked: false,
            metadata: wanted.metadata.clone(),
        });
        (self.last_term, self.forgotten) = (Some(term), false);
        let expired = former.filter(|_| ran_out).map(|former| former.ttl);
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
        if lease.candidate != *candidate || lease.term != term {
            return None;
        }
        lease.ttl = ttl;
        lease.expires_at = now + ttl;
        Some(Grant { asked: lease.asked, ..Grant::new(term) })
    }

    fn record_release(&mut self, now: Time, candidate: &CandidateId, seq: u64) {
        let released = self.released.entry(candidate.clone()).or_insert(Released { seq, at: now });
        // A late release never takes back what a newer one has said.
        released.seq = released.seq.max(seq);
        released.at = now;
    }

    fn release(
        &mut self,
        now: Time,
        candidate: &CandidateId,
        term: Option<Term>,
        seq: u64,
    ) -> Option<Grant> {
        let lease = self.held(now)?;
        // By incarnation alone it means the acquires up to `seq`. A lease that a later acquire
        // got is not what the sender gave up: it may lead under it by now.
        let meant = term.map_or(lease.seq <= seq, |term| lease.term == term);
        if lease.candidate != *candidate || !meant {
            return None;
        }
        let term = lease.term;
        self.lease = None;
        Some(Grant::new(term))
    }

    fn ask(&mut self, now: Time, term: Option<Term>) -> Option<Grant> {
        let lease = self.held(now)?;
        if term.is_some_and(|term| term != lease.term) {
            return None;
        }
        lease.asked = true;
        Some(Grant::new(lease.term))
    }

    /// The lease, if it has not run out.
    fn held(&mut self, now: Time) -> Option<&mut Held> {
        self.lease.as_mut().filter(|lease| now < lease.expires_at)
    }

    fn sight(&self, now: Time) -> Sight {
        let lease = self.lease.as_ref().filter(|lease| now < lease.expires_at);
        Sight {
            lease: lease.map(|lease| Lease {
                holder: Holder::from(&lease.candidate),
                term: Some(lease.term),
                remaining: lease.expires_at - now,
                ttl: Some(lease.ttl),
                since_unix_ms: None,
                metadata: lease.metadata.clone(),
            }),
            last_term: self.last_term,
            ..Sight::default()
        }
    }
}
