//! Private Redis servers, and what most tests do with them.

pub(crate) mod fleet;

use std::time::Duration;

use tenure_core::{CandidateId, Grant, Name, Op, Reply, Sight, StoreExt, Term};
use tenure_redis::{RedisConfig, RedisStore, Settle};
use tenure_testbed::ops;
pub(crate) use tenure_testbed::process::free_port;
pub(crate) use tenure_testbed::redis::{RedisServer as Server, command};
pub(crate) use tenure_testbed::{granted, now, real_wait as wait, refused, unknown};

/// Stores on a server.
pub(crate) trait Stores {
    fn config(&self) -> RedisConfig;

    /// A store that settles this long.
    fn store(&self, settle: Settle) -> RedisStore {
        self.config().with_settle(settle).open().unwrap()
    }

    /// A store that does not settle.
    fn settled(&self) -> RedisStore {
        self.store(Settle::Off)
    }
}

impl Stores for Server {
    fn config(&self) -> RedisConfig {
        RedisConfig::from_url(&self.url()).unwrap()
    }
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A candidate in one election, at any store: the tests have stores that see the same server in
/// different ways.
#[derive(Clone)]
pub(crate) struct Player {
    pub(crate) election: Name,
    pub(crate) candidate: CandidateId,
    pub(crate) ttl: Duration,
}

pub(crate) fn player(election: &str, label: &str, ttl: Duration) -> Player {
    let incarnation = u128::from(label.len() as u64) << 64 | 7;
    Player {
        election: Name::new(election).unwrap(),
        candidate: CandidateId::new(label, incarnation).unwrap(),
        ttl,
    }
}

impl Player {
    pub(crate) fn acquire_op(&self, seq: u64, above: Option<Term>) -> Op {
        let mut op = ops::acquire(self.election.as_str(), &self.candidate, seq, self.ttl);
        if let Op::Acquire { above: led, .. } = &mut op {
            *led = above;
        }
        op
    }

    pub(crate) async fn acquire(&self, store: &RedisStore, seq: u64) -> Reply {
        store.apply_one(&self.acquire_op(seq, None)).await
    }

    /// An acquire that must be granted.
    pub(crate) async fn takes(&self, store: &RedisStore, seq: u64) -> Grant {
        granted(self.acquire(store, seq).await)
    }

    pub(crate) async fn renew(&self, store: &RedisStore, term: Term) -> Reply {
        let renewal = ops::renew(self.election.as_str(), &self.candidate, term, self.ttl);
        store.apply_one(&renewal).await
    }

    pub(crate) async fn release(&self, store: &RedisStore, term: Option<Term>, seq: u64) -> Reply {
        let release = ops::release(self.election.as_str(), &self.candidate, term, seq);
        store.apply_one(&release).await
    }

    pub(crate) async fn sight(&self, store: &RedisStore) -> Sight {
        store.read(&self.election).await.unwrap()
    }
}
