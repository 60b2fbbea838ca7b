//! What a drill needs to know of a store; each kind of store has its own answer.
//!
//! To have drills on another store: implement [`Ground`] and [`Workload`] for it, and name them in
//! [`ground`] and [`workload`].

use std::path::Path;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Name, Term, Time};
use tenure_core::BoxFuture;

use super::plan::Fault;
#[cfg(feature = "sqlite")]
use super::sqlite;
use crate::exit::Failure;
use crate::store::Opened;

/// A write of the workload that passed the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// When the writer last asked whether it may, and was told yes.
    pub(crate) checked: Time,
    /// When it was its turn to write.
    pub(crate) at: Time,
    pub(crate) term: u64,
    /// One more than the writer knew to be there.
    pub(crate) counter: u64,
    pub(crate) candidate: String,
}

/// The side of the drill itself.
pub(crate) trait Ground {
    /// The faults that this store can have.
    fn faults(&self) -> &'static [Fault];

    /// Why it can't have one of the others: half a sentence that follows the fault's name.
    fn why_not(&self, fault: Fault) -> &'static str;

    /// Whether others could write now. A process that is stopped in the middle of a write holds up
    /// everybody on some stores, which is a documented limit and not what a drill is to show.
    fn is_free(&self) -> bool;

    /// All that the workload wrote, in the order in which it did.
    fn rows(&self) -> Result<Vec<Row>, Failure>;

    /// Removes what the drill left in the store. Refused while somebody leads.
    fn clean_up<'a>(&'a self, opened: &'a Opened, election: &'a Name) -> Cleaned<'a>;
}

/// When the cleaning is done.
pub(crate) type Cleaned<'a> = BoxFuture<'a, Result<(), tenure::Error>>;

/// Why a write was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The fence knows a newer term.
    Stale { mark: Term },
    /// Something else, in words.
    Failed(String),
}

/// The side of a candidate: fenced writes.
pub(crate) trait Workload: Send {
    /// Raises the mark to this term, then reads the last counter.
    fn begin(&mut self, term: Term) -> Result<u64, Refusal>;

    /// Appends a row under the fence.
    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal>;
}

/// The ground for a drill on this store; `place` is a directory of the drill's own.
pub(crate) fn ground(opened: &Opened, place: &Path) -> Result<Box<dyn Ground>, Failure> {
    #[cfg(feature = "sqlite")]
    if let Some(store) = opened.sqlite() {
        return Ok(Box::new(sqlite::SqliteGround::new(store.path(), place)?));
    }
    let _ = (opened, place);
    Err(Failure::usage("there is no drill for this store yet"))
}

/// The workload of a candidate on this store.
pub(crate) fn workload(
    opened: &Opened,
    place: &Path,
    election: &Name,
) -> Result<Box<dyn Workload>, Failure> {
    #[cfg(feature = "sqlite")]
    if opened.sqlite().is_some() {
        return Ok(Box::new(sqlite::SqliteWorkload::open(place, election)?));
    }
    let _ = (opened, place, election);
    Err(Failure::usage("there is no drill for this store yet"))
}

/// Leaves the store as it was found. The last leader's lease may have to run out first.
pub(crate) async fn clean_up(
    ground: &dyn Ground,
    opened: &Opened,
    election: &Name,
    ttl: Duration,
) -> Result<(), tenure::Error> {
    let end = BootClock::time() + ttl + Duration::from_secs(2);
    loop {
        match ground.clean_up(opened, election).await {
            Err(_) if BootClock::time() < end => {
                let again = BootClock::time() + Duration::from_millis(100);
                BootClock.sleep_until(again).await;
            }
            done => return done,
        }
    }
}
