//! What the last guardian of a dead tenure does: it gives the lease back.

use std::fmt;
use std::time::Duration;

use tenure::{CandidateId, Name};
use tenure_core::{Op, Reply, Secret, StoreExt as _};

use crate::store::StoreChoice;

/// How often a store that can't be written is tried again. After that the lease runs out.
const TRIES: u32 = 5;

/// How long one try may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The lease to give back: in which store, of which election, held by which candidate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldLease {
    pub(crate) store: String,
    pub(crate) election: String,
    pub(crate) candidate: String,
}

impl fmt::Display for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldLease { store, election, candidate } = self;
        write!(f, "{}", serde_json::json!([store, election, candidate]))
    }
}

impl HeldLease {
    fn parse(text: &str) -> Option<HeldLease> {
        let [store, election, candidate] = serde_json::from_str(text).ok()?;
        Some(HeldLease { store, election, candidate })
    }

    /// Releases whatever this incarnation holds, and refuses its late acquires (D3).
    fn release(&self) -> Option<Op> {
        let (label, incarnation) = self.candidate.rsplit_once('#')?;
        let incarnation = u128::from_str_radix(incarnation, 16).ok()?;
        Some(Op::Release {
            election: Name::new(self.election.as_str()).ok()?,
            candidate: CandidateId::new(label, incarnation).ok()?,
            term: None,
            seq: u64::MAX,
        })
    }
}

/// Gives the lease back. It is called when the candidate and all its work is proven dead, and says
/// nothing: if it fails, the lease runs out.
pub(crate) fn give_back(text: &str) {
    let Some(lease) = HeldLease::parse(text) else { return };
    let Some(release) = lease.release() else { return };
    let Ok(choice) = StoreChoice::new(Some(&Secret::new(&lease.store))) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    for _ in 0..TRIES {
        let Ok(opened) = choice.open() else { continue };
        let answer = runtime.block_on(async {
            tokio::time::timeout(ANSWER_WITHIN, opened.store.apply_one(&release)).await
        });
        if !matches!(answer, Err(_) | Ok(Reply::Unknown(_))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_note_names_the_incarnation_and_nothing_else() {
        let candidate = CandidateId::new("web#1", 0xabc).expect("a candidate");
        let lease = HeldLease {
            store: "sqlite:/a b\n.db".to_owned(),
            election: "invoices".to_owned(),
            candidate: candidate.to_string(),
        };
        let parsed = HeldLease::parse(&lease.to_string()).expect("a lease");
        assert_eq!(parsed, lease);
        match parsed.release() {
            Some(Op::Release { candidate: named, term: None, seq: u64::MAX, .. }) => {
                assert_eq!(named, candidate);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(HeldLease::parse("[]"), None);
    }
}
