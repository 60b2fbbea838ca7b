//! The suites for messages and ledgers find what is wrong: stores that each break one rule fail the
//! case that is named for it, and the store that breaks nothing passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::MemoryStore;
use tenure_core::{
    Acknowledged, BoxFuture, Channels, Clock as _, DeadLetter, Error, Hints, JobProgress, Ledger,
    LedgerStep, Marked, Name, NoHints, OnceMark, OnceRecord, OnceStep, Op, Post, Posted, Reply,
    Steer, Store, Taken, Term, Tick, TickEnd, TickRecord, Time,
};
use tenure_testkit::ManualClock;
use tenure_testkit::conformance::Subject;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    AcknowledgesUnderAnyTerm,
    TakesUnderAnyTerm,
    AcknowledgesNothing,
    LosesAPost,
    ReversesBatches,
    ForgetsKeys,
    KeepsOneChannel,
    CountsNoDeliveries,
    NeverGivesUp,
    DiscardsWhatIsReplayed,
    HidesTheDead,
    ClaimsTwice,
    RecordsUnderAnyTerm,
    ForgetsEnds,
    EndsAnyAttempt,
    SkipsWhatIsThere,
    TakesOverUnasked,
    CallsARequestScheduled,
    TellsHistoryBackwards,
    ForgetsHowFarAJobIs,
    ForgetsSchedules,
    TellsTheFirstPageOnly,
    HintsAtNothing,
    RequestsWholeSeconds,
    RetriesNothing,
    PausesNothing,
    StaysAhead,
    RunsAKeyTwice,
    RunsAKeyAfterItsSuccess,
    ClaimsKeysUnderAnyTerm,
    CountsNoTries,
    LosesKeys,
}

const MESSAGES: &[(Break, &str)] = &[
    (Break::AcknowledgesUnderAnyTerm, "a former leader acknowledges nothing"),
    (Break::TakesUnderAnyTerm, "a former leader acknowledges nothing"),
    (Break::AcknowledgesNothing, "the head of a channel is handed out until it is acknowledged"),
    (Break::LosesAPost, "the head of a channel is handed out until it is acknowledged"),
    (Break::LosesAPost, "batches over channels in opposite order both end"),
    (Break::ReversesBatches, "a full batch is kept in order"),
    (Break::ForgetsKeys, "a key is kept once"),
    (Break::ForgetsKeys, "the same key from many senders is kept once"),
    (Break::KeepsOneChannel, "channels and elections do not mix"),
    (Break::CountsNoDeliveries, "each delivery is counted across leaders"),
    (Break::NeverGivesUp, "a message is dead after its tries and the next one follows"),
    (Break::DiscardsWhatIsReplayed, "a replayed letter comes last and counts anew"),
    (Break::HidesTheDead, "letters are listed oldest first up to a limit"),
];

const LEDGER: &[(Break, &str)] = &[
    (Break::ClaimsTwice, "a tick is claimed once"),
    (Break::ClaimsTwice, "a finished tick is never claimed again"),
    (Break::RecordsUnderAnyTerm, "a term that was followed is stale"),
    (Break::RecordsUnderAnyTerm, "a stale batch changes nothing at all"),
    (Break::ForgetsEnds, "an end is kept as it was told"),
    (Break::EndsAnyAttempt, "an end of another attempt is refused"),
    (Break::SkipsWhatIsThere, "a skip does not replace what is there"),
    (Break::TakesOverUnasked, "a former term s claim is not taken"),
    (Break::CallsARequestScheduled, "a request does not count as scheduled"),
    (Break::TellsHistoryBackwards, "history comes the latest first"),
    (Break::ForgetsHowFarAJobIs, "the latest is told for each job"),
    (Break::ForgetsSchedules, "a job is followed by its schedule"),
    (Break::TellsTheFirstPageOnly, "open ticks come page by page"),
    (Break::HintsAtNothing, "a request is hinted at"),
    (Break::RequestsWholeSeconds, "a request is never at a whole second"),
    (Break::RetriesNothing, "a failed run is open until the next attempt"),
    (Break::PausesNothing, "of a paused job only requests are claimed"),
    (Break::PausesNothing, "a pause outlives terms handles and crashes"),
    (Break::StaysAhead, "a clock that was ahead is forgotten"),
    (Break::RunsAKeyTwice, "a key has one run at a time"),
    (Break::RunsAKeyTwice, "many claims at once give one run"),
    (Break::RunsAKeyAfterItsSuccess, "a success is final"),
    (Break::ClaimsKeysUnderAnyTerm, "a term that is over changes no key"),
    (Break::CountsNoTries, "tries are counted whoever uses them"),
    (Break::LosesKeys, "no trim forgets a key and a key is no tick"),
];

#[tokio::test]
async fn a_store_that_breaks_nothing_passes() {
    let report = tenure_testkit::channels::run(&Stores::new(Break::Nothing)).await;
    report.assert_passed();
    let report = tenure_testkit::ledger::run(&Stores::new(Break::Nothing)).await;
    report.assert_passed();
}

#[tokio::test]
async fn every_broken_rule_of_messages_is_caught() {
    for (broken, case) in MESSAGES {
        let report = tenure_testkit::channels::run_matching(&Stores::new(*broken), case).await;
        assert_eq!(report.results().len(), 1, "{case}");
        assert_eq!(report.failed().count(), 1, "{broken:?} was not caught by {case:?}");
    }
}

#[tokio::test]
async fn every_broken_rule_of_the_ledger_is_caught() {
    for (broken, case) in LEDGER {
        let report = tenure_testkit::ledger::run_matching(&Stores::new(*broken), case).await;
        assert_eq!(report.results().len(), 1, "{case}");
        assert_eq!(report.failed().count(), 1, "{broken:?} was not caught by {case:?}");
    }
}

/// Stores by number, all broken alike.
struct Stores {
    clock: ManualClock,
    broken: Break,
    stores: Mutex<HashMap<u32, Arc<Broken>>>,
}

impl Stores {
    fn new(broken: Break) -> Stores {
        Stores { clock: ManualClock::new(), broken, stores: Mutex::default() }
    }
}

impl Subject for Stores {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        let mut stores = self.stores.lock().unwrap();
        let store = stores.entry(data).or_insert_with(|| {
            let inner = MemoryStore::with_clock(Arc::new(self.clock.clone()));
            Arc::new(Broken { inner, broken: self.broken, terms: Mutex::default() })
        });
        let store = store.clone();
        Box::pin(async move { Ok(store as Arc<dyn Store>) })
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(span) })
    }

    fn time_is_free(&self) -> bool {
        true
    }
}

/// A memory store behind a counter that breaks one rule.
struct Broken {
    inner: MemoryStore,
    broken: Break,
    /// The latest term of each election.
    terms: Mutex<HashMap<Name, Term>>,
}

impl Broken {
    /// The term that the call is taken to come from.
    fn term(&self, election: &Name, term: Term, unfenced: Break) -> Term {
        let latest = self.terms.lock().unwrap().get(election).copied();
        if self.broken == unfenced { latest.unwrap_or(term) } else { term }
    }

    fn channel<'a>(&self, channel: &'a str) -> &'a str {
        if self.broken == Break::KeepsOneChannel { "one" } else { channel }
    }
}

impl Store for Broken {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let replies = self.inner.apply(ops).await;
            for (op, reply) in ops.iter().zip(&replies) {
                if let Reply::Granted(grant) = reply {
                    self.terms.lock().unwrap().insert(op.election().clone(), grant.term);
                }
            }
            replies
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        match self.broken {
            Break::HintsAtNothing => Box::new(NoHints),
            _ => self.inner.hints(),
        }
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    tenure_core::forward!(inner: info, elections, witness, checkup, migrate);
}

impl Channels for Broken {
    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        let mut posts = posts.to_vec();
        for post in &mut posts {
            post.channel = self.channel(&post.channel).to_owned();
            if self.broken == Break::ForgetsKeys {
                post.key = format!("{}-{}", post.key, number());
            }
        }
        Box::pin(async move {
            if self.broken == Break::ReversesBatches {
                posts.reverse();
            }
            if self.broken == Break::LosesAPost && posts.len() > 1 {
                posts.remove(1);
                let mut posted = self.inner.post(election, &posts).await?;
                let id = posted[0].id;
                posted.insert(1, Posted { id, is_new: true });
                return Ok(posted);
            }
            self.inner.post(election, &posts).await
        })
    }

    fn take<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        tries: u32,
    ) -> BoxFuture<'a, Result<Taken, Error>> {
        let term = self.term(election, term, Break::TakesUnderAnyTerm);
        let tries = if self.broken == Break::NeverGivesUp { u32::MAX } else { tries };
        Box::pin(async move {
            let mut taken = self.inner.take(election, term, self.channel(channel), tries).await?;
            if let Taken::Message(delivery) = &mut taken
                && self.broken == Break::CountsNoDeliveries
            {
                delivery.count = 1;
            }
            Ok(taken)
        })
    }

    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>> {
        if self.broken == Break::AcknowledgesNothing {
            return Box::pin(async { Ok(Acknowledged::Done) });
        }
        let term = self.term(election, term, Break::AcknowledgesUnderAnyTerm);
        Box::pin(
            async move { self.inner.acknowledge(election, term, self.channel(channel), id).await },
        )
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        let limit = if self.broken == Break::HidesTheDead { limit.min(2) } else { limit };
        self.inner.dead_letters(election, channel, limit)
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        match self.broken {
            Break::DiscardsWhatIsReplayed => self.inner.discard(election, ids),
            _ => self.inner.replay(election, ids),
        }
    }

    tenure_core::forward!(inner: limits, notify, listen, backlog, discard);
}

/// A number that does not come twice.
fn number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Broken {
    /// A step as the broken ledger carries it out.
    fn bent(&self, step: &LedgerStep) -> LedgerStep {
        match (self.broken, step) {
            (Break::TakesOverUnasked, LedgerStep::Claim { tick, .. }) => {
                LedgerStep::Claim { tick: tick.clone(), again: true }
            }
            (Break::EndsAnyAttempt, LedgerStep::End { tick, end, .. }) => {
                LedgerStep::End { tick: tick.clone(), attempt: 1, end: *end }
            }
            (Break::RetriesNothing, LedgerStep::Retry { tick, attempt, .. }) => {
                let end = TickEnd::Failed(7);
                LedgerStep::End { tick: tick.clone(), attempt: *attempt, end }
            }
            (Break::ForgetsEnds, LedgerStep::End { tick, attempt, .. }) => {
                LedgerStep::Start { tick: tick.clone(), attempt: *attempt }
            }
            (_, step) => step.clone(),
        }
    }

    /// What the broken ledger says of it.
    fn said(&self, step: &LedgerStep, marked: Marked) -> Marked {
        match (self.broken, step, marked) {
            (Break::ClaimsTwice, LedgerStep::Claim { .. }, Marked::Refused) => {
                Marked::Done { attempt: 1 }
            }
            (Break::SkipsWhatIsThere, LedgerStep::Skip { .. }, Marked::Refused) => {
                Marked::Done { attempt: 0 }
            }
            (_, _, marked) => marked,
        }
    }
}

impl Ledger for Broken {
    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        let term = self.term(election, term, Break::RecordsUnderAnyTerm);
        Box::pin(async move {
            let bent: Vec<LedgerStep> = steps.iter().map(|step| self.bent(step)).collect();
            let marks = self.inner.record(election, term, &bent).await?;
            Ok(steps.iter().zip(marks).map(|(step, marked)| self.said(step, marked)).collect())
        })
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(async move {
            let mut tick = self.inner.request(election, job).await?;
            if self.broken == Break::RequestsWholeSeconds {
                tick.scheduled_unix_ms -= tick.scheduled_unix_ms % 1_000;
            }
            Ok(tick)
        })
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let steer = match (self.broken, steer) {
            (Break::PausesNothing, Steer::Pause) | (Break::StaysAhead, Steer::FromNow) => {
                Steer::Resume
            }
            (_, steer) => steer,
        };
        self.inner.steer(election, job, steer)
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        let after = after.filter(|_| self.broken != Break::TellsTheFirstPageOnly);
        self.inner.open(election, after)
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(async move {
            let mut latest = self.inner.latest(election).await?;
            match self.broken {
                Break::ForgetsHowFarAJobIs => latest.truncate(1),
                Break::ForgetsSchedules => {
                    latest.iter_mut().for_each(|progress| progress.schedule = None);
                }
                Break::CallsARequestScheduled => {
                    let all = self.inner.history(election, None, 1_000).await?;
                    let manual = all.into_iter().filter(|it| it.manual).map(|it| it.tick);
                    let progress = |tick: Tick| JobProgress::new(tick.job, tick.scheduled_unix_ms);
                    latest.extend(manual.map(progress));
                }
                _ => {}
            }
            Ok(latest)
        })
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move {
            let mut history = self.inner.history(election, job, limit).await?;
            if self.broken == Break::TellsHistoryBackwards {
                history.reverse();
            }
            Ok(history)
        })
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        let term = self.term(election, term, Break::ClaimsKeysUnderAnyTerm);
        Box::pin(async move {
            let step = match step {
                OnceStep::Claim { key, run, .. } if self.broken == Break::CountsNoTries => {
                    OnceStep::Claim { key: key.clone(), run: *run, tries: 99 }
                }
                step => step.clone(),
            };
            let mark = self.inner.once(election, term, &step).await?;
            Ok(match (self.broken, mark) {
                (Break::RunsAKeyTwice, OnceMark::Running)
                | (Break::RunsAKeyAfterItsSuccess, OnceMark::Already) => {
                    OnceMark::Done { attempt: 1 }
                }
                (_, mark) => mark,
            })
        })
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        let limit = if self.broken == Break::LosesKeys { limit.min(3) } else { limit };
        self.inner.once_history(election, limit)
    }

    tenure_core::forward!(inner: transactions, once_record);
}
