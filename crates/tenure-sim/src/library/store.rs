//! The stores of the simulation: one memory behind them all, and a network to it for each host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{CandidateId, Clock, Error, ErrorKind, MemoryStore, Name, StoreInfo, Term, Time};
use tenure_core::sync::lock;
use tenure_core::{
    Acknowledged, BoxFuture, ChannelBacklog, Channels, Checkup, DeadLetter, Elections, Expiry,
    Hints, Inbox, JobProgress, Ledger, LedgerStep, Limits, Marked, Migrate, OnceMark, OnceRecord,
    OnceStep, Op, Post, Posted, Reply, Steer, Store, Taken, Tick, TickRecord, Transactions,
    Witness,
};
use tenure_testkit::{FaultStore, ManualClock};

use super::executor::Sim;
use super::host::HostClock;

/// The clock of the store: it may step, within what the margin of a lease pays for.
#[derive(Clone)]
pub(crate) struct StoreClock {
    pub(crate) inner: ManualClock,
    pub(crate) ahead: Arc<Mutex<Duration>>,
}

impl Clock for StoreClock {
    fn now(&self) -> Time {
        self.inner.now() + *lock(&self.ahead)
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        self.inner.sleep_until(at)
    }
}

/// The store as it is, with the judge beside it.
pub(crate) struct Watched {
    pub(crate) sim: Sim,
    pub(crate) memory: MemoryStore,
    pub(crate) clock: StoreClock,
    pub(crate) expiry: Expiry,
    /// The clocks of the processes, by their labels.
    pub(crate) hosts: Mutex<Vec<(String, HostClock)>>,
    /// Who was granted each election last.
    pub(crate) holders: Mutex<BTreeMap<Name, (CandidateId, Term)>>,
}

impl Watched {
    /// Tells the judge what the answer means.
    fn judge(&self, op: &Op, reply: &Reply) {
        if let (Op::Acquire { election, candidate, .. }, Reply::Granted(grant)) = (op, reply) {
            let holder = (candidate.clone(), grant.term);
            lock(&self.holders).insert(election.clone(), holder);
        }
        let (Op::Release { election, candidate, .. }, Reply::Granted(grant)) = (op, reply) else {
            return;
        };
        let (judge, now) = (self.sim.judge(), self.sim.now());
        let (label, election, term) = (candidate.label(), election.as_str(), grant.term.get());
        self.sim.note(|| format!("{label} gives {election} back, term {term}"));
        judge.released(now, label, election, term);
        let hosts = lock(&self.hosts);
        let clock = hosts.iter().find(|(known, _)| known == label).map(|(_, clock)| clock.peek());
        drop(hosts);
        if let Some(id) = clock.and_then(|now| judge.relies(label, election, term, now)) {
            let what = format!("{label} gives {election} back, and #{id} relies on term {term}");
            judge.broken(now, "I8", what);
        }
    }

    /// A store whose clock can step says what time it has (W2).
    fn stamp(&self, reply: &mut Reply) {
        if self.expiry != Expiry::StoreClock {
            return;
        }
        let now = Some(self.clock.now() - Time::ZERO);
        match reply {
            Reply::Granted(grant) => grant.store_clock = now,
            Reply::Refused(sight) | Reply::Seen(sight) => sight.store_clock = now,
            Reply::Unknown(_) => {}
        }
    }
}

impl Store for Watched {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let mut replies = self.memory.apply(ops).await;
            for (op, reply) in ops.iter().zip(&mut replies) {
                self.judge(op, reply);
                self.stamp(reply);
            }
            replies
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        self.memory.hints()
    }

    fn info(&self) -> StoreInfo {
        let mut info = self.memory.info();
        info.expiry = self.expiry;
        info
    }

    fn channels(&self) -> Option<&dyn Channels> {
        self.memory.channels()
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.memory.ledger()
    }

    fn elections(&self) -> Option<&dyn Elections> {
        self.memory.elections()
    }

    fn witness(&self) -> Option<&dyn Witness> {
        None
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        None
    }

    fn migrate(&self) -> Option<&dyn Migrate> {
        None
    }
}

/// How the way from one host to the store is at present.
#[derive(Clone, Copy)]
pub(crate) struct Weather {
    /// The usual time for one way, at most.
    pub(crate) way: Duration,
    /// One call of so many takes up to `longest`; 0 for none.
    pub(crate) slow_one_in: u32,
    pub(crate) longest: Duration,
    /// One call of so many to a face fails, before or after it was done; 0 for none.
    pub(crate) fails_one_in: u32,
    /// Nothing gets through before this.
    pub(crate) cut_until: Time,
}

/// The store as one host sees it.
pub(crate) struct Link {
    pub(crate) sim: Sim,
    pub(crate) host: usize,
    pub(crate) behind: Arc<FaultStore<Watched>>,
    pub(crate) renew_every: Duration,
    pub(crate) weather: Mutex<Weather>,
    /// The next call blocks the thread that makes it for so long.
    pub(crate) block_next: Mutex<Duration>,
}

impl Link {
    /// One way over the network; waits out a cut.
    async fn way(&self) {
        let weather = *lock(&self.weather);
        let now = self.sim.now();
        let span = self.sim.draw(|rng| {
            let slow = weather.slow_one_in > 0 && rng.u32(..weather.slow_one_in) == 0;
            let most = if slow { weather.longest } else { weather.way };
            Duration::from_nanos(rng.u64(..=u64::try_from(most.as_nanos()).unwrap_or(0)))
        });
        let at = (now + span).max(weather.cut_until);
        self.sim.truth().sleep_until(at).await;
    }

    fn fails(&self) -> bool {
        let one_in = lock(&self.weather).fails_one_in;
        one_in > 0 && self.sim.draw(|rng| rng.u32(..one_in)) == 0
    }

    /// Carries a call of a face there and back, unless it is lost on the way.
    async fn carry<T>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        self.way().await;
        if self.fails() {
            return Err(lost());
        }
        let answer = work.await;
        self.way().await;
        if self.fails() { Err(lost()) } else { answer }
    }

    fn memory(&self) -> &MemoryStore {
        &self.behind.inner().memory
    }

    /// Grants that arrive in time count, by a clock that is up to 2 % off.
    fn note_leases(&self, sent_at: Time, ops: &[Op], replies: &[Reply]) {
        if self.sim.now() - sent_at > self.renew_every / 3 {
            return;
        }
        for (op, reply) in ops.iter().zip(replies) {
            if let (
                Op::Acquire { candidate, ttl, .. } | Op::Renew { candidate, ttl, .. },
                Reply::Granted(_),
            ) = (op, reply)
            {
                let (label, election) = (candidate.label(), op.election().as_str());
                self.sim.judge().has_until(label, election, sent_at + *ttl * 49 / 50);
            }
        }
    }

    /// What leaves, as the judge sees it.
    fn judge(&self, ops: &[Op]) {
        for (index, op) in ops.iter().enumerate() {
            let election = op.election();
            if ops[..index].iter().any(|other| other.election() == election) {
                let what = format!("a call has two ops of {election}");
                self.sim.judge().broken(self.sim.now(), "contract", what);
            }
            if let Op::Renew { candidate, .. } = op {
                let (label, election) = (candidate.label(), election.as_str());
                let drives = |since| self.sim.drives_since(self.host, since);
                let (judge, now) = (self.sim.judge(), self.sim.now());
                judge.renews(now, label, election, self.renew_every, drives);
            }
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "lost on the way (a fault of the simulation)")
}

impl Store for Link {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        self.judge(ops);
        let sent_at = self.sim.now();
        let blocks = std::mem::take(&mut *lock(&self.block_next));
        Box::pin(async move {
            if blocks > Duration::ZERO {
                self.sim.block(blocks);
            }
            self.way().await;
            let replies = self.behind.apply(ops).await;
            self.way().await;
            self.note_leases(sent_at, ops, &replies);
            replies
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        self.behind.hints()
    }

    fn info(&self) -> StoreInfo {
        self.behind.info()
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn elections(&self) -> Option<&dyn Elections> {
        self.behind.elections()
    }

    fn witness(&self) -> Option<&dyn Witness> {
        None
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        None
    }

    fn migrate(&self) -> Option<&dyn Migrate> {
        None
    }
}

impl Channels for Link {
    fn limits(&self) -> Limits {
        self.memory().limits()
    }

    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.carry(self.memory().notify(election, channel, payload)))
    }

    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        Box::pin(self.carry(self.memory().post(election, posts)))
    }

    fn listen<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        Box::pin(self.carry(self.memory().listen(election, term, channels)))
    }

    fn take<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        tries: u32,
    ) -> BoxFuture<'a, Result<Taken, Error>> {
        Box::pin(self.carry(self.memory().take(election, term, channel, tries)))
    }

    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>> {
        Box::pin(self.carry(self.memory().acknowledge(election, term, channel, id)))
    }

    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>> {
        Box::pin(self.carry(self.memory().backlog(election)))
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        Box::pin(self.carry(self.memory().dead_letters(election, channel, limit)))
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.carry(self.memory().replay(election, ids)))
    }

    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.carry(self.memory().discard(election, ids)))
    }
}

impl Ledger for Link {
    fn transactions(&self) -> Transactions {
        Transactions::None
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        Box::pin(self.carry(self.memory().record(election, term, steps)))
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(self.carry(self.memory().request(election, job)))
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.carry(self.memory().steer(election, job, steer)))
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(self.carry(self.memory().open(election, after)))
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(self.carry(self.memory().latest(election)))
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(self.carry(self.memory().history(election, job, limit)))
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        Box::pin(self.carry(self.memory().once(election, term, step)))
    }

    fn once_record<'a>(
        &'a self,
        election: &'a Name,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>> {
        Box::pin(self.carry(self.memory().once_record(election, key)))
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        Box::pin(self.carry(self.memory().once_history(election, limit)))
    }
}
