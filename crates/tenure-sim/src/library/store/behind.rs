//! The store itself: one memory with a clock, and the judge beside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{CandidateId, Clock, MemoryStore, Name, StoreInfo, Term, Time};
use tenure_core::sync::lock;
use tenure_core::{BoxFuture, Expiry, Op, Reply, Store};
use tenure_testkit::ManualClock;

use crate::library::executor::Sim;
use crate::library::host::HostClock;
use crate::store::StoreFault;

/// The clock of the store. It may step.
#[derive(Clone)]
pub(crate) struct StoreClock {
    pub(crate) inner: ManualClock,
    /// By how many nanoseconds it was set ahead, or back.
    pub(crate) ahead_ns: Arc<AtomicI64>,
}

impl StoreClock {
    pub(crate) fn step(&self, by_ns: i64) {
        self.ahead_ns.fetch_add(by_ns, Ordering::Relaxed);
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Time {
        let ahead = self.ahead_ns.load(Ordering::Relaxed);
        Time::from_nanos(self.inner.now().as_nanos().saturating_add_signed(ahead))
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
    /// It may lose its memory: its terms follow its clock (R1), and it settles then (R2).
    pub(crate) forgetful: bool,
    pub(crate) settles_until: Mutex<Time>,
    pub(crate) fault: Option<StoreFault>,
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

    /// Forgets who leads and which terms there were, and grants nothing for so long.
    pub(crate) fn lose_memory(&self, settle: Duration) {
        self.memory.forget_leases();
        lock(&self.holders).clear();
        *lock(&self.settles_until) = self.clock.now() + settle;
    }

    /// How long nothing new is granted.
    fn settles(&self) -> Option<Duration> {
        let left = *lock(&self.settles_until) - self.clock.now();
        (self.forgetful && left > Duration::ZERO).then_some(left)
    }

    /// One op on a store that may have lost its memory.
    async fn apply_forgetful(&self, op: &Op) -> Reply {
        let settles = self.settles();
        let mut op = op.clone();
        let mut refuse = false;
        if let Op::Acquire { election, floor, .. } = &mut op {
            refuse = settles.is_some() && self.fault != Some(StoreFault::NeverSettles);
            let by_clock = Term::new(self.clock.now().as_nanos() / 1_000_000);
            if self.fault != Some(StoreFault::CountsAnew) {
                *floor = (*floor).max(by_clock);
            }
            if refuse {
                op = Op::Read { election: election.clone() };
            }
        }
        let mut reply = self.memory.apply(&[op]).await.pop().expect("an answer for each op");
        if let (true, Reply::Seen(sight)) = (refuse, &reply) {
            reply = Reply::Refused(sight.clone());
        }
        if let Reply::Refused(sight) | Reply::Seen(sight) = &mut reply {
            sight.settling = settles;
        }
        reply
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
            let mut replies = Vec::new();
            if self.forgetful {
                for op in ops {
                    replies.push(self.apply_forgetful(op).await);
                }
            } else {
                replies = self.memory.apply(ops).await;
            }
            for (op, reply) in ops.iter().zip(&mut replies) {
                self.judge(op, reply);
                self.stamp(reply);
            }
            replies
        })
    }

    fn info(&self) -> StoreInfo {
        let mut info = self.memory.info();
        info.expiry = self.expiry;
        info
    }

    tenure_core::forward!(memory: hints, faces);
}
