//! The faces of the store beside leases, over the same network.

use tenure::{Error, Name, Term};
use tenure_core::{
    BoxFuture, Channels, Ledger, LedgerStep, Limits, Marked, OnceMark, OnceStep, Transactions,
};

use super::Link;

impl Channels for Link {
    fn limits(&self) -> Limits {
        self.memory().limits()
    }

    tenure_core::forward!(memory() via carry: notify, post, listen, take, acknowledge, backlog);
    tenure_core::forward!(memory() via carry: dead_letters, replay, discard);
}

impl Ledger for Link {
    fn transactions(&self) -> Transactions {
        if self.transactions { Transactions::Same } else { Transactions::None }
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        let claims = steps.iter().any(|step| matches!(step, LedgerStep::Claim { .. }));
        Box::pin(self.carry(async move {
            let marked = self.memory().record(election, term, steps).await;
            self.claimed(claims);
            marked
        }))
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        let claims = matches!(step, OnceStep::Claim { .. });
        Box::pin(self.carry(async move {
            let marked = self.memory().once(election, term, step).await;
            self.claimed(claims);
            marked
        }))
    }

    tenure_core::forward!(memory() via carry: request, steer, open, latest, history);
    tenure_core::forward!(memory() via carry: once_record, once_history);
}
