//! The stores of the simulation: one memory behind them all, and a network to it for each host.

mod behind;
mod faces;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Clock, Error, ErrorKind, MemoryStore, Name, Term, Time};
use tenure_core::sync::lock;
use tenure_core::{BoxFuture, Channels, Ledger, LedgerStep, Marked, Op, Reply, Store};
use tenure_testkit::FaultStore;

pub(crate) use self::behind::{StoreClock, Watched};
use super::executor::Sim;

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
    /// The host stands still for so long when its next claim was granted and not yet answered.
    pub(crate) freeze_at_claim: Mutex<Duration>,
    /// The user's tables are beside the ledger.
    pub(crate) transactions: bool,
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

    /// A claim was granted, and its answer is on the way (K1).
    fn claimed(&self, claims: bool) {
        let span = if claims { std::mem::take(&mut *lock(&self.freeze_at_claim)) } else { return };
        if span > Duration::ZERO {
            self.sim.freeze(self.host, span);
        }
    }

    /// A transaction of the user's: its effect, and this step of the ledger, or neither.
    pub(crate) async fn in_transaction(
        &self,
        election: &Name,
        term: Term,
        step: LedgerStep,
        effect: impl FnOnce() + Send,
    ) -> Result<bool, Error> {
        let work = async {
            let marked = self.memory().record(election, term, &[step]).await?;
            let commits = matches!(marked.first(), Some(Marked::Done { .. }));
            if commits {
                effect();
            }
            Ok(commits)
        };
        self.carry(work).await
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
            if let Op::Renew { candidate, .. } | Op::Acquire { candidate, .. } = op {
                let (label, election) = (candidate.label(), election.as_str());
                let drives = |since| self.sim.drives_since(self.host, since);
                let (judge, now) = (self.sim.judge(), self.sim.now());
                judge.takes_or_keeps(now, label, election, self.renew_every, drives);
                if matches!(op, Op::Renew { .. }) {
                    judge.renews(now, label, election, self.renew_every, drives);
                }
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

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    tenure_core::forward!(behind: hints, info, elections, witness, checkup, migrate);
}
