//! What the tests of the advisory store share: a database of their own, and ops in few words.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::{Op, Reply, Sight, StoreExt, Term};
use tenure_postgres::{AdvisoryConfig, AdvisoryStore};

use crate::common::{PATIENCE, Session, granted, name};

/// The url of the advisory store in the place that a `postgres://` URL names.
pub(crate) fn advisory_url(url: &str) -> String {
    url.replacen("postgres://", "postgres+advisory://", 1)
}

pub(crate) fn store_at(url: &str) -> AdvisoryStore {
    let config = AdvisoryConfig::from_url(&advisory_url(url)).unwrap();
    config.with_call_timeout(PATIENCE).with_connect_timeout(PATIENCE).open()
}

/// A database of its own: advisory locks are the same numbers for everybody in one.
pub(crate) struct Database {
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn new(server: &str) -> Database {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("advisory_{}_{number}", std::process::id());
        Session::open(server).await.run(&format!("CREATE DATABASE {name}")).await;
        let (place, _) = server.rsplit_once('/').unwrap();
        Database { url: format!("{place}/{name}") }
    }

    pub(crate) fn store(&self) -> AdvisoryStore {
        store_at(&self.url)
    }

    pub(crate) async fn session(&self) -> Session {
        Session::open(&self.url).await
    }

    /// How many sessions there are beside the one that asks.
    pub(crate) async fn sessions(&self, condition: &str) -> i64 {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid() AND ({condition})"
        );
        self.session().await.number(&sql).await
    }
}

/// One candidate at one store, whose acquires are numbered by themselves.
#[derive(Clone)]
pub(crate) struct Player {
    inner: tenure_testbed::Player<AdvisoryStore>,
    seq: Arc<AtomicU64>,
}

impl Deref for Player {
    type Target = tenure_testbed::Player<AdvisoryStore>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Player {
    pub(crate) fn new(store: &AdvisoryStore, label: &str) -> Player {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number =
            u128::from(std::process::id()) << 64 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let inner = tenure_testbed::Player::new(store, label, number);
        Player { inner, seq: Arc::default() }
    }

    pub(crate) fn with_ttl(self, ttl: Duration) -> Player {
        Player { inner: self.inner.with_ttl(ttl), ..self }
    }

    fn next(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn acquire_op(&self, election: &str) -> Op {
        self.inner.acquire_op(election, self.next())
    }

    pub(crate) async fn acquire(&self, election: &str) -> Reply {
        self.inner.acquire(election, self.next()).await
    }

    pub(crate) async fn takes(&self, election: &str) -> Term {
        granted(self.acquire(election).await).term
    }

    pub(crate) async fn release(&self, election: &str, term: Term) -> Reply {
        self.inner.release(election, term, self.seq.load(Ordering::Relaxed)).await
    }

    pub(crate) async fn sees(&self, election: &str) -> Sight {
        self.store.read(&name(election)).await.unwrap()
    }
}
