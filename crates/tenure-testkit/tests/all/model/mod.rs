//! The store contract in as few lines as it takes, and every way we could think of to break it.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::*;
use tenure_testkit::ManualClock;
use tenure_testkit::conformance::Subject;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    Nothing,
    GrantsWhatIsHeld,
    NamesNoHolder,
    IssuesANewTermInsteadOfHealing,
    HealsATermThatIsNotAbove,
    HealsWithoutExtending,
    ForgetsAbove,
    IgnoresTheFloor,
    FloorLowersTheTerm,
    FloorChangesAHeldTerm,
    RefusedAcquireBurnsATerm,
    ComparesLabelsOnly,
    RenewsAnyTerm,
    RenewsForAnyone,
    RenewsWhatHasExpired,
    RenewalLosesMetadata,
    RenewalDoesNotExtend,
    RestartsTermsAtARelease,
    ReleasesAnyTerm,
    ReleasesForAnyone,
    NeedsATermToRelease,
    LateReleaseVacatesANewerAcquire,
    IgnoresSeq,
    ForgetsSeqAtAChangeOfHands,
    ForgetsSeqOfARefusedRelease,
    LateReleaseLowersSeq,
    ForgetsSeqAfterAMinute,
    SharesSeqAmongElections,
    ExpiresByTheCallersTtl,
    ExpiresEarly,
    NeverExpires,
    LastHolderGetsItsTermBack,
    HidesExpiry,
    SpeaksOfExpiryAfterARelease,
    LosesTheAsk,
    TellsOfTheAskOnce,
    KeepsTheAskForTheSuccessor,
    AsksUnderAnyTerm,
    AskExtends,
    ReadsAsRefused,
    ReadExtends,
    ForgetsTheLastTerm,
    RemainingStandsStill,
    TermsDieWithTheStore,
    LeasesDieWithTheStore,
    PassesTheLastTerm,
    AnswersInReverse,
    AnswersOneTooFew,
    UndoesABatchWithARefusal,
    FoldsCase,
    TrimsNames,
    CutsNames,
    DropsMetadata,
    KeepsMetadataForTheSuccessor,
    NeverHints,
    EndsItsHints,
    ChecksFirstAndWritesLater,
    StaysBusyAfterADroppedCall,
    WritesHalfBeforeItWaits,
    Panics,
    ForgetsTermsToo,
    ForgetsWhatIsLed,
}

#[derive(Default)]
struct Data {
    elections: BTreeMap<String, Election>,
    seqs: HashMap<(String, String), (u64, Time)>,
    wakers: Vec<(Arc<AtomicBool>, Waker)>,
    streams: Vec<Arc<AtomicBool>>,
    busy: bool,
}

#[derive(Clone, Default)]
struct Election {
    last: Option<Term>,
    held: Option<Held>,
    released: Option<Held>,
    /// The last term when it was forgotten.
    forgotten: Option<Option<Term>>,
}

impl Election {
    fn is_known(&self) -> bool {
        self.last.is_some() && self.forgotten != Some(self.last)
    }
}

#[derive(Clone)]
struct Held {
    holder: String,
    term: Term,
    seq: u64,
    ttl: Duration,
    granted_at: Time,
    asked: bool,
    metadata: Option<Metadata>,
}

pub(crate) struct Model {
    clock: ManualClock,
    broken: Break,
    data: Arc<Mutex<Data>>,
}

impl Model {
    fn is(&self, broken: Break) -> bool {
        self.broken == broken
    }

    fn key(&self, name: &Name) -> String {
        match self.broken {
            Break::FoldsCase => name.as_str().to_lowercase(),
            Break::TrimsNames => name.as_str().trim().to_owned(),
            Break::CutsNames => name.as_str().chars().take(64).collect(),
            _ => name.as_str().to_owned(),
        }
    }

    fn held(&self, election: &Election, caller_ttl: Option<Duration>) -> Option<Held> {
        let held = election.held.clone()?;
        let ttl = match self.broken {
            Break::ExpiresByTheCallersTtl => caller_ttl.unwrap_or(held.ttl),
            Break::ExpiresEarly => held.ttl * 9 / 10,
            Break::NeverExpires => Duration::MAX,
            _ => held.ttl,
        };
        (self.clock.now() < held.granted_at + ttl).then_some(held)
    }

    fn sight(&self, election: &Election) -> Sight {
        let now = self.clock.now();
        let lease = self.held(election, None).map(|held| Lease {
            holder: Holder::new(if self.is(Break::NamesNoHolder) { "" } else { &*held.holder }),
            term: Some(held.term),
            remaining: match self.broken {
                Break::RemainingStandsStill => held.ttl,
                _ => held.granted_at + held.ttl - now,
            },
            ttl: Some(held.ttl),
            since_unix_ms: None,
            metadata: held.metadata,
        });
        let hide = self.is(Break::ForgetsTheLastTerm) && lease.is_none();
        Sight { lease, last_term: election.last.filter(|_| !hide), ..Sight::default() }
    }

    fn same(&self, holder: &str, candidate: &CandidateId) -> bool {
        match self.broken {
            Break::ComparesLabelsOnly => Holder::new(holder).label() == candidate.label(),
            _ => holder == candidate.as_str(),
        }
    }

    fn seq_key(&self, election: &Name, candidate: &CandidateId) -> (String, String) {
        let shared = self.is(Break::SharesSeqAmongElections);
        let election = if shared { String::new() } else { self.key(election) };
        (election, candidate.as_str().to_owned())
    }

    fn acquire(&self, data: &mut Data, op: &Op) -> Reply {
        let Op::Acquire { election: name, candidate, seq, above, floor, ttl, metadata } = op else {
            unreachable!()
        };
        let now = self.clock.now();
        let memory = match self.broken {
            Break::ForgetsSeqAfterAMinute => Duration::from_secs(60),
            _ => RELEASE_MEMORY,
        };
        let recorded = data.seqs.get(&self.seq_key(name, candidate));
        let overtaken = recorded.is_some_and(|(last, at)| seq <= last && now - *at <= memory);
        let election = data.elections.entry(self.key(name)).or_default();
        if overtaken && !self.is(Break::IgnoresSeq) {
            return Reply::Refused(self.sight(election));
        }
        let held = self.held(election, Some(*ttl));
        if let Some(held) = &held {
            let own = self.same(&held.holder, candidate);
            if !own && !self.is(Break::GrantsWhatIsHeld) {
                if self.is(Break::RefusedAcquireBurnsATerm) {
                    election.last = election.last.and_then(Term::next);
                }
                return Reply::Refused(self.sight(election));
            }
            let heals = above.is_none_or(|above| held.term > above)
                || self.is(Break::HealsATermThatIsNotAbove);
            let anew = self.is(Break::IssuesANewTermInsteadOfHealing)
                || self.is(Break::FloorChangesAHeldTerm) && *floor > Some(held.term);
            if own && heals && !anew {
                let lease = election.held.as_mut().unwrap();
                lease.seq = lease.seq.max(*seq);
                if !self.is(Break::HealsWithoutExtending) {
                    (lease.ttl, lease.granted_at) = (*ttl, now);
                }
                return Reply::Granted(Grant { asked: lease.asked, ..Grant::new(lease.term) });
            }
        }
        let ran_out = held.is_none().then(|| election.held.clone()).flatten();
        let Some(term) = self.next_term(election, candidate, *above, *floor) else {
            return Reply::Refused(self.sight(election));
        };
        let former = election.held.clone().or(election.released.clone());
        let asked = self.is(Break::KeepsTheAskForTheSuccessor)
            && former.as_ref().is_some_and(|held| held.asked);
        let inherited = former.as_ref().and_then(|held| held.metadata.clone());
        let metadata = match self.broken {
            Break::DropsMetadata => None,
            Break::KeepsMetadataForTheSuccessor => metadata.clone().or(inherited),
            _ => metadata.clone(),
        };
        if self.is(Break::ForgetsSeqAtAChangeOfHands) {
            data.seqs.clear();
        }
        election.last = Some(term);
        let holder = candidate.as_str().to_owned();
        let (ttl, seq) = (*ttl, *seq);
        election.held = Some(Held { holder, term, seq, ttl, granted_at: now, asked, metadata });
        let mut expired = ran_out.map(|held| held.ttl);
        match self.broken {
            Break::HidesExpiry => expired = None,
            Break::SpeaksOfExpiryAfterARelease => expired = former.map(|held| held.ttl),
            _ => {}
        }
        Reply::Granted(Grant { expired, ..Grant::new(term) })
    }

    fn next_term(
        &self,
        election: &Election,
        candidate: &CandidateId,
        above: Option<Term>,
        floor: Option<Term>,
    ) -> Option<Term> {
        let last = election.last;
        match (self.broken, &election.held) {
            (Break::LastHolderGetsItsTermBack, Some(held))
                if self.same(&held.holder, candidate) =>
            {
                above.is_none_or(|above| held.term > above).then_some(held.term)
            }
            (Break::IgnoresTheFloor, _) => Term::successor(last.max(above), None),
            (Break::FloorLowersTheTerm, _) if floor.is_some() => floor,
            (Break::ForgetsAbove, _) => Term::successor(last, floor),
            (Break::PassesTheLastTerm, _) => {
                Term::successor(last.max(above), floor).or(Some(Term::FIRST))
            }
            _ => Term::successor(last.max(above), floor),
        }
    }

    fn renew(&self, data: &mut Data, op: &Op) -> Reply {
        let Op::Renew { election: name, candidate, term, ttl } = op else { unreachable!() };
        let election = data.elections.entry(self.key(name)).or_default();
        let mut held = self.held(election, None);
        if self.is(Break::RenewsWhatHasExpired) {
            held = election.held.clone();
        }
        let matches = held.filter(|held| {
            (self.same(&held.holder, candidate) || self.is(Break::RenewsForAnyone))
                && (held.term == *term || self.is(Break::RenewsAnyTerm))
        });
        let Some(mut held) = matches else { return Reply::Refused(self.sight(election)) };
        if !self.is(Break::RenewalDoesNotExtend) {
            (held.ttl, held.granted_at) = (*ttl, self.clock.now());
        }
        if self.is(Break::RenewalLosesMetadata) {
            held.metadata = None;
        }
        let asked = held.asked && !self.is(Break::LosesTheAsk);
        held.asked &= !self.is(Break::TellsOfTheAskOnce);
        let term = held.term;
        election.held = Some(held);
        Reply::Granted(Grant { asked, ..Grant::new(term) })
    }

    fn release(&self, data: &mut Data, op: &Op) -> Reply {
        let Op::Release { election: name, candidate, term, seq } = op else { unreachable!() };
        let key = self.seq_key(name, candidate);
        let election = data.elections.entry(self.key(name)).or_default();
        let meant = self.held(election, None).filter(|held| {
            let named = match term {
                Some(term) => held.term == *term || self.is(Break::ReleasesAnyTerm),
                None if self.is(Break::NeedsATermToRelease) => false,
                None => held.seq <= *seq || self.is(Break::LateReleaseVacatesANewerAcquire),
            };
            named && (self.same(&held.holder, candidate) || self.is(Break::ReleasesForAnyone))
        });
        if meant.is_some() || !self.is(Break::ForgetsSeqOfARefusedRelease) {
            let recorded = data.seqs.entry(key).or_insert((0, Time::ZERO));
            recorded.1 = self.clock.now();
            recorded.0 = match self.broken {
                Break::LateReleaseLowersSeq => *seq,
                _ => recorded.0.max(*seq),
            };
        }
        let Some(held) = meant else { return Reply::Refused(self.sight(election)) };
        election.released = election.held.take();
        if self.is(Break::RestartsTermsAtARelease) {
            election.last = None;
        }
        self.hint(data);
        Reply::Granted(Grant::new(held.term))
    }

    fn ask(&self, data: &mut Data, op: &Op) -> Reply {
        let Op::Ask { election: name, term } = op else { unreachable!() };
        let election = data.elections.entry(self.key(name)).or_default();
        let any = self.is(Break::AsksUnderAnyTerm);
        let named = |held: &Held| any || term.is_none_or(|term| term == held.term);
        let Some(held) = self.held(election, None).filter(named) else {
            return Reply::Refused(self.sight(election));
        };
        let lease = election.held.as_mut().unwrap();
        lease.asked = true;
        if self.is(Break::AskExtends) {
            lease.ttl *= 2;
        }
        self.hint(data);
        Reply::Granted(Grant::new(held.term))
    }

    fn hint(&self, data: &mut Data) {
        if self.is(Break::NeverHints) {
            return;
        }
        for stream in &data.streams {
            stream.store(true, Ordering::SeqCst);
        }
        for (_, waker) in data.wakers.drain(..) {
            waker.wake();
        }
    }

    fn apply_one(&self, data: &mut Data, op: &Op) -> Reply {
        match op {
            Op::Acquire { .. } => self.acquire(data, op),
            Op::Renew { .. } => self.renew(data, op),
            Op::Release { .. } => self.release(data, op),
            Op::Ask { .. } => self.ask(data, op),
            Op::Read { election } => {
                let key = self.key(election);
                if self.is(Break::Panics) {
                    panic!("the read panics");
                }
                if self.is(Break::ReadExtends)
                    && let Some(held) =
                        data.elections.get_mut(&key).and_then(|election| election.held.as_mut())
                {
                    held.ttl += Duration::from_secs(1);
                }
                let sight = data.elections.get(&key).map(|e| self.sight(e)).unwrap_or_default();
                if self.is(Break::ReadsAsRefused) {
                    Reply::Refused(sight)
                } else {
                    Reply::Seen(sight)
                }
            }
        }
    }

    async fn apply_all(&self, ops: &[Op]) -> Vec<Reply> {
        if self.is(Break::ChecksFirstAndWritesLater) {
            return self.check_then_write(ops).await;
        }
        if self.is(Break::StaysBusyAfterADroppedCall) {
            if std::mem::replace(&mut self.data.lock().unwrap().busy, true) {
                let error = Error::new(ErrorKind::Unavailable, "busy");
                return ops.iter().map(|_| Reply::Unknown(error.clone())).collect();
            }
            give_way().await;
            self.data.lock().unwrap().busy = false;
        }
        if self.is(Break::WritesHalfBeforeItWaits) {
            for op in ops {
                if let Op::Acquire { election, candidate, .. } = op {
                    self.write_half(election, candidate);
                }
            }
        }
        give_way().await;
        let mut data = self.data.lock().unwrap();
        let before = data.elections.clone();
        let mut replies: Vec<Reply> = ops.iter().map(|op| self.apply_one(&mut data, op)).collect();
        let refused = replies.iter().any(|reply| matches!(reply, Reply::Refused(_)));
        if self.is(Break::UndoesABatchWithARefusal) && refused {
            data.elections = before;
        }
        match self.broken {
            Break::AnswersInReverse => replies.reverse(),
            Break::AnswersOneTooFew if ops.len() > 1 => drop(replies.pop()),
            _ => {}
        }
        replies
    }

    async fn check_then_write(&self, ops: &[Op]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for op in ops {
            let key = self.key(op.election());
            let before = self.data.lock().unwrap().elections.get(&key).cloned();
            give_way().await;
            let mut data = self.data.lock().unwrap();
            if let (Some(before), Op::Acquire { .. }) = (before, op) {
                data.elections.insert(key, before);
            } else if matches!(op, Op::Acquire { .. }) {
                data.elections.remove(&key);
            }
            replies.push(self.apply_one(&mut data, op));
        }
        replies
    }

    /// The lease first, and the rest of it after the wait.
    fn write_half(&self, election: &Name, candidate: &CandidateId) {
        let mut data = self.data.lock().unwrap();
        let election = data.elections.entry(self.key(election)).or_default();
        if election.held.is_none() {
            let holder = candidate.as_str().to_owned();
            let (ttl, granted_at) = (Duration::from_secs(9), self.clock.now());
            let (asked, metadata) = (false, None);
            let (term, seq) = (Term::FIRST, 0);
            election.held = Some(Held { holder, term, seq, ttl, granted_at, asked, metadata });
        }
    }
}

/// Lets other calls run in between.
async fn give_way() {
    let mut gave = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Store for Model {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(self.apply_all(ops))
    }

    fn hints(&self) -> Box<dyn Hints> {
        if self.is(Break::EndsItsHints) {
            return Box::new(NoHints);
        }
        let flag = Arc::new(AtomicBool::new(false));
        self.data.lock().unwrap().streams.push(flag.clone());
        Box::new(ModelHints { data: self.data.clone(), flag })
    }

    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo::new("model", "");
        info.hints = true;
        info.durable_terms = true;
        info.survives_restart = true;
        info.batch_limit = 1_000;
        info.min_ttl = Duration::from_millis(10);
        info
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    tenure_core::lacks!(channels, ledger, witness, checkup, migrate);
}

impl Elections for Model {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        let data = self.data.lock().unwrap();
        let known = data.elections.iter().filter(|(_, election)| election.is_known());
        let names = known.map(|(name, _)| Name::new(name.as_str())).collect();
        Box::pin(std::future::ready(names))
    }

    fn forget<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        let mut data = self.data.lock().unwrap();
        let known = data.elections.get_mut(&self.key(election)).filter(|it| it.is_known());
        let done = match known {
            None => Forgotten::NotKnown,
            Some(it) if self.held(it, None).is_some() && !self.is(Break::ForgetsWhatIsLed) => {
                Forgotten::Led
            }
            Some(it) => {
                if self.is(Break::ForgetsTermsToo) {
                    it.last = None;
                }
                it.forgotten = Some(it.last);
                Forgotten::Done
            }
        };
        Box::pin(std::future::ready(Ok(done)))
    }
}

struct ModelHints {
    data: Arc<Mutex<Data>>,
    flag: Arc<AtomicBool>,
}

impl Hints for ModelHints {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        if self.flag.swap(false, Ordering::SeqCst) {
            return Poll::Ready(Some(Hint::Any));
        }
        self.data.lock().unwrap().wakers.push((self.flag.clone(), cx.waker().clone()));
        Poll::Pending
    }
}

/// The model as a subject of the suite.
pub(crate) struct ModelSubject {
    pub(crate) broken: Break,
    clock: ManualClock,
    data: Mutex<HashMap<u32, Arc<Mutex<Data>>>>,
}

impl ModelSubject {
    pub(crate) fn new(broken: Break) -> ModelSubject {
        ModelSubject { broken, clock: ManualClock::new(), data: Mutex::default() }
    }
}

impl Subject for ModelSubject {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        let data = self.data.lock().unwrap().entry(data).or_default().clone();
        let store = Model { clock: self.clock.clone(), broken: self.broken, data };
        Box::pin(async move { Ok(Arc::new(store) as Arc<dyn Store>) })
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(span);
        Box::pin(async {})
    }

    fn time_is_free(&self) -> bool {
        true
    }

    fn crash(&self, data: u32) -> BoxFuture<'_, bool> {
        let data = self.data.lock().unwrap().entry(data).or_default().clone();
        let mut data = data.lock().unwrap();
        data.streams.clear();
        match self.broken {
            Break::TermsDieWithTheStore => data.elections.clear(),
            Break::LeasesDieWithTheStore => {
                data.elections.values_mut().for_each(|election| election.held = None);
            }
            _ => {}
        }
        Box::pin(async { true })
    }
}
