//! Candidates and stores that are wrong on purpose, so that a drill can show that it would notice.
//!
//! Only with the feature `sabotage`, never in a build for users. `docs/proof-faults.md` says which
//! faults a drill has caught.

use std::sync::Arc;

use tenure::core::{BoxFuture, Grant, Op, Reply, Sabotage, Sight, Term};
use tenure::{ElectionBuilder, Fault, Store};

use crate::exit::Failure;

/// The variable that names the fault.
const VARIABLE: &str = "TENURE_SABOTAGE";

/// One way for a store to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreFault {
    /// A lease is granted to a second candidate.
    GrantsHeld,
    /// Terms start again with each grant.
    ForgetsTerms,
    /// Nobody ever leads.
    GrantsNothing,
}

/// The store as the candidate is to see it.
pub(super) fn store(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let fault = match std::env::var(VARIABLE).as_deref() {
        Ok("grants-held") => StoreFault::GrantsHeld,
        Ok("forgets-terms") => StoreFault::ForgetsTerms,
        Ok("grants-nothing") => StoreFault::GrantsNothing,
        _ => return store,
    };
    Arc::new(Wrong { store, fault })
}

/// The candidate as it is to be.
pub(super) fn candidate(builder: ElectionBuilder) -> Result<ElectionBuilder, Failure> {
    let fault = match std::env::var(VARIABLE).as_deref() {
        Ok("trust-from-reply") => return Ok(builder.fault(Fault::TrustFromReply)),
        Ok("release-before-drain") => return Ok(builder.fault(Fault::ReleaseBeforeDrain)),
        Ok("hint-believed") => Sabotage::HintBelieved,
        Ok("old-term-again") => Sabotage::OldTermAgain,
        Ok("late-grant-revives") => Sabotage::LateGrantRevives,
        Ok("grants-held" | "forgets-terms" | "grants-nothing") | Err(_) => return Ok(builder),
        Ok(other) => return Err(Failure::usage(format!("there is no sabotage {other:?}"))),
    };
    Ok(builder.sabotage(fault))
}

struct Wrong {
    store: Arc<dyn Store>,
    fault: StoreFault,
}

impl Wrong {
    fn falsify(&self, op: &Op, reply: Reply) -> Reply {
        match (self.fault, op, reply) {
            (StoreFault::GrantsNothing, Op::Acquire { .. }, _) => Reply::Refused(Sight::default()),
            (StoreFault::ForgetsTerms, Op::Acquire { .. }, Reply::Granted(grant)) => {
                Reply::Granted(Grant { term: Term::FIRST, ..grant })
            }
            (StoreFault::GrantsHeld, Op::Acquire { .. }, Reply::Refused(sight)) => {
                match sight.last_term.and_then(Term::next) {
                    Some(term) => Reply::Granted(Grant::new(term)),
                    None => Reply::Refused(sight),
                }
            }
            (_, _, reply) => reply,
        }
    }
}

impl Store for Wrong {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let replies = self.store.apply(ops).await;
            ops.iter().zip(replies).map(|(op, reply)| self.falsify(op, reply)).collect()
        })
    }

    tenure::core::forward!(store: hints, info, faces);
}
