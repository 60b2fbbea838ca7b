//! What a witness does for a dead process: it gives back what that process may still hold.
//!
//! It is called only when the process and all that worked for it is proven dead (D1). It says
//! nothing, and in any doubt it does nothing: then the lease runs out.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::{BootClock, CandidateId, Clock as _, Name};
use tenure_core::{Op, Reply, Secret, Store};

use crate::store::StoreChoice;

/// For how long a store is tried, from the proof and the linger on. After that the lease runs out.
const WITHIN: Duration = Duration::from_secs(2);

/// When a store that did not know the outcome is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What to give back, and how.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReleasePlan {
    pub(crate) leases: Vec<HeldLease>,
    /// How long to wait after the proof: for what the dead have sent to a server (D4).
    pub(crate) linger_ms: u64,
    /// Where the process was started, for URLs with relative paths of files.
    pub(crate) directory: Option<PathBuf>,
}

/// A lease that may have to be given back: in which store, of which election, held by whom.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldLease {
    pub(crate) store: String,
    pub(crate) election: String,
    pub(crate) candidate: String,
}

impl ReleasePlan {
    /// One lease, of this process.
    pub(crate) fn of(lease: HeldLease, linger: Duration) -> ReleasePlan {
        let linger_ms = u64::try_from(linger.as_millis()).unwrap_or(u64::MAX);
        // One that is no text can't be written down, and is not needed by most URLs.
        let directory = std::env::current_dir().ok().filter(|path| path.to_str().is_some());
        ReleasePlan { leases: vec![lease], linger_ms, directory }
    }

    /// As text, for another process.
    ///
    /// # Errors
    /// Never, in practice: all parts of it are text.
    pub(crate) fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The leases of each store.
    fn by_store(&self) -> Vec<(Secret, Vec<Op>)> {
        let mut stores: Vec<(Secret, Vec<Op>)> = Vec::new();
        for lease in &self.leases {
            let (Some(release), url) = (lease.release(), Secret::new(&lease.store)) else {
                continue;
            };
            match stores.iter_mut().find(|(known, _)| *known == url) {
                Some((_, releases)) => releases.push(release),
                None => stores.push((url, vec![release])),
            }
        }
        stores
    }
}

impl HeldLease {
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

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HeldLease { election, candidate, .. } = self;
        write!(f, "{election} of {candidate}")
    }
}

/// Gives back what a plan names. Returns when all of it is done, or its time is over.
pub(crate) fn give_back(text: &str) {
    let Ok(plan) = serde_json::from_str::<ReleasePlan>(text) else { return };
    if let Some(directory) = &plan.directory {
        // Most URLs can be opened anywhere.
        let _ = std::env::set_current_dir(directory);
    }
    let linger = Duration::from_millis(plan.linger_ms);
    let begin = BootClock::time() + linger;
    let (done, all_done) = mpsc::channel::<()>();
    for (url, releases) in plan.by_store() {
        let done = done.clone();
        // A thread for each store: to open one may block, and no other must wait for that.
        let started = thread::Builder::new().spawn(move || {
            give_back_in(&url, releases, begin);
            drop(done);
        });
        if started.is_err() {
            return;
        }
    }
    drop(done);
    // The end of this process ends those that are not done.
    let _ = all_done.recv_timeout(linger.saturating_add(WITHIN));
}

/// Tries until the outcome of each release is known.
fn give_back_in(url: &Secret, mut releases: Vec<Op>, begin: tenure::Time) {
    let Ok(choice) = StoreChoice::new(Some(url)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(BootClock.sleep_until(begin));
    loop {
        match choice.open() {
            Ok(opened) => {
                releases = runtime.block_on(unknown_of(&*opened.store, releases));
                if releases.is_empty() {
                    return;
                }
            }
            Err(error) if error.is_retryable() => {}
            Err(_) => return,
        }
        runtime.block_on(BootClock.sleep_until(BootClock::time() + AGAIN_AFTER));
    }
}

/// Sends the releases; those are left of which the outcome is unknown.
async fn unknown_of(store: &dyn Store, releases: Vec<Op>) -> Vec<Op> {
    let mut unknown = Vec::new();
    for batch in releases.chunks(store.info().batch_limit.max(1)) {
        let replies = store.apply(batch).await;
        let pairs = batch.iter().zip(replies);
        unknown.extend(
            pairs
                .filter(|(_, reply)| matches!(reply, Reply::Unknown(_)))
                .map(|(release, _)| release.clone()),
        );
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(store: &str, election: &str) -> HeldLease {
        let candidate = CandidateId::new("web#1", 0xabc).expect("a candidate").to_string();
        HeldLease { store: store.to_owned(), election: election.to_owned(), candidate }
    }

    #[test]
    fn a_release_names_the_incarnation_and_nothing_else() {
        let plan = ReleasePlan::of(lease("sqlite:/a b\n.db", "invoices"), Duration::from_secs(1));
        let text = plan.to_text().expect("text");
        let read: ReleasePlan = serde_json::from_str(&text).expect("a plan");
        assert_eq!((&read, read.linger_ms), (&plan, 1_000));
        match read.leases[0].release() {
            Some(Op::Release { candidate, term: None, seq: u64::MAX, .. }) => {
                assert_eq!(candidate.to_string(), plan.leases[0].candidate);
            }
            other => panic!("{other:?}"),
        }
        assert!(serde_json::from_str::<ReleasePlan>("[]").is_err());
    }

    #[test]
    fn what_can_not_be_read_is_left_out_and_the_rest_is_sorted_by_store() {
        let mut odd = lease("sqlite:/a", "x");
        odd.candidate = "nobody".to_owned();
        let leases = vec![lease("sqlite:/a", "x"), lease("sqlite:/b", "x"), odd];
        let leases = [leases, vec![lease("sqlite:/a", "y")]].concat();
        let stores = ReleasePlan { leases, ..ReleasePlan::default() }.by_store();
        let counts: Vec<(&str, usize)> =
            stores.iter().map(|(url, releases)| (url.expose(), releases.len())).collect();
        assert_eq!(counts, [("sqlite:/a", 2), ("sqlite:/b", 1)]);
    }

    #[test]
    fn a_plan_shows_no_secret() {
        let plan = ReleasePlan::of(lease("redis://:geheim@h", "x"), Duration::ZERO);
        assert!(!format!("{plan:?}").contains("geheim"), "{plan:?}");
    }
}
