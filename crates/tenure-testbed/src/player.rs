//! A candidate whose ops a test sends by itself.

use std::time::Duration;

use tenure_core::{CandidateId, Op, Reply, Store, StoreExt as _, Term};

use crate::ops;
use crate::replies::granted;
use crate::wait::real_wait;

/// One candidate at one store.
#[derive(Clone)]
pub struct Player<S> {
    /// Where its ops go.
    pub store: S,
    /// Who it is.
    pub id: CandidateId,
    /// How long its leases last.
    pub ttl: Duration,
}

impl<S: Store + Clone> Player<S> {
    /// A candidate with leases of 30 s. `number` tells it from others of the same label.
    pub fn new(store: &S, label: &str, number: u128) -> Player<S> {
        let id = CandidateId::new(label, number).unwrap();
        Player { store: store.clone(), id, ttl: Duration::from_secs(30) }
    }

    /// The same with other leases.
    pub fn with_ttl(self, ttl: Duration) -> Player<S> {
        Player { ttl, ..self }
    }

    /// Its acquire of this number.
    pub fn acquire_op(&self, election: &str, seq: u64) -> Op {
        ops::acquire(election, &self.id, seq, self.ttl)
    }

    /// Its renewal of this term.
    pub fn renew_op(&self, election: &str, term: Term) -> Op {
        ops::renew(election, &self.id, term, self.ttl)
    }

    /// Acquires.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may have been done.
    pub async fn acquire(&self, election: &str, seq: u64) -> Reply {
        self.store.apply_one(&self.acquire_op(election, seq)).await
    }

    /// Asks until it is told: a server lets go of the locks of a failed transaction a moment after
    /// it has told of the failure.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may have been done.
    pub async fn takes(&self, election: &str, seq: u64) -> Term {
        for _ in 0..200 {
            let reply = self.acquire(election, seq).await;
            if !matches!(&reply, Reply::Unknown(error) if error.is_retryable()) {
                return granted(reply).term;
            }
            real_wait(Duration::from_millis(50)).await;
        }
        granted(self.acquire(election, seq).await).term
    }

    /// Renews this term.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may have been done.
    pub async fn renew(&self, election: &str, term: Term) -> Reply {
        self.store.apply_one(&self.renew_op(election, term)).await
    }

    /// Gives this term back, and all acquires up to this number.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may have been done.
    pub async fn release(&self, election: &str, term: Term, seq: u64) -> Reply {
        self.store.apply_one(&ops::release(election, &self.id, Some(term), seq)).await
    }
}
