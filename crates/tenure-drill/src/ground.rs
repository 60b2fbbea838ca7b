//! What a drill needs to know of a store; each kind of store has its own answer.
//!
//! To have drills on another store, implement [`Ground`] and [`Workload`] for it, in its own crate,
//! and name them in a [`GroundKind`].

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Name, Secret, Term, Time};

use crate::error::DrillError;
use crate::plan::Fault;
use crate::route::Route;

/// How to have drills on one kind of store. Each store crate has one.
#[derive(Clone, Copy, Debug)]
pub struct GroundKind {
    /// The schemes of the URLs that it is for.
    pub schemes: &'static [&'static str],
    /// The side of the drill. Nothing is changed in the store yet.
    pub ground: fn(Site) -> Result<Box<dyn Ground>, DrillError>,
    /// The side of a candidate.
    pub workload: fn(Site) -> Result<Box<dyn Workload>, DrillError>,
}

/// The kind of ground for the store that this URL names.
///
/// # Errors
/// A sentence if there is none among these.
pub fn find_ground<'a>(
    grounds: &'a [GroundKind],
    url: &Secret,
) -> Result<&'a GroundKind, DrillError> {
    let scheme = url.expose().split(':').next().unwrap_or_default();
    let kind = grounds.iter().find(|kind| kind.schemes.contains(&scheme));
    kind.ok_or_else(|| {
        DrillError::refused(format!(
            "there is no drill for {scheme} yet; point --store at a single server of it, if it has \
             one"
        ))
    })
}

/// Where a drill takes place.
#[derive(Clone)]
pub struct Site {
    /// The store. For a workload this is the URL that its candidate was given.
    pub url: Secret,
    /// The election that the drill has named for itself.
    pub election: Name,
    /// How long a lease lasts in it.
    pub ttl: Duration,
    /// A directory of the drill's own, which all its processes share.
    pub directory: PathBuf,
    /// The clock that all of them share.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site { url, election, ttl, directory, .. } = self;
        let mut site = f.debug_struct("Site");
        site.field("url", url).field("election", election).field("ttl", ttl);
        site.field("directory", directory).finish_non_exhaustive()
    }
}

/// A write of the workload that passed the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When the writer last asked whether it may, and was told yes.
    pub checked: Time,
    /// When it was its turn to write.
    pub at: Time,
    /// The term that it wrote under.
    pub term: u64,
    /// One more than the writer knew to be there.
    pub counter: u64,
    /// Who wrote it.
    pub candidate: String,
}

/// The side of the drill itself.
pub trait Ground {
    /// The faults that this store can have by itself: [`BY_NETWORK`] or [`BY_PROCESS`], say.
    fn faults(&self) -> &'static [Fault];

    /// Why it can't have one of the others: half a sentence that follows the fault's name.
    fn why_not(&self, fault: Fault) -> &'static str;

    /// Whether there is a server that a command could restart.
    fn has_server(&self) -> bool;

    /// Makes what the drill needs in the store, under names of its own.
    ///
    /// # Cancel safety
    /// Not cancel safe: what was made so far is left to [`clean_up`](Ground::clean_up).
    fn prepare(&self) -> BoxFuture<'_, Result<(), DrillError>>;

    /// Whether there may be something of the drill's in the store, though `prepare` failed.
    fn is_touched(&self) -> bool;

    /// Whether a restart of the store may lose writes that it has acknowledged.
    fn may_forget(&self) -> bool {
        false
    }

    /// The store with the drill's own names in it, straight to the server.
    fn url(&self) -> Secret;

    /// The route to the store, if it is one that a proxy can be put into.
    fn route(&self) -> Option<&Route> {
        None
    }

    /// Whether others could write now. A process that is stopped in the middle of a write holds up
    /// everybody on some stores, which is a documented limit and not what a drill is to show.
    fn is_free(&self) -> bool {
        true
    }

    /// All that the workload wrote, in the order in which it did.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    fn rows(&self) -> BoxFuture<'_, Result<Vec<Row>, DrillError>>;

    /// Removes what the drill and these candidates left in the store; they are given as they told
    /// of themselves. Refused while one of them leads: the drill tries again until the lease is
    /// over.
    ///
    /// # Cancel safety
    /// Not cancel safe: some of it may be gone.
    fn clean_up<'a>(
        &'a self,
        candidates: &'a BTreeSet<String>,
    ) -> BoxFuture<'a, Result<(), DrillError>>;

    /// What is left behind if that fails, for people who have to remove it by hand.
    fn leftovers(&self) -> String;
}

/// The faults of a store that is reached by a network.
pub const BY_NETWORK: &[Fault] = &[
    Fault::Kill,
    Fault::Die,
    Fault::Freeze,
    Fault::Resign,
    Fault::Cut,
    Fault::Hole,
    Fault::Reset,
    Fault::Delay,
];

/// The faults of processes alone.
pub const BY_PROCESS: &[Fault] = &[Fault::Kill, Fault::Die, Fault::Freeze, Fault::Resign];

/// Why a write was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The fence knows that the term is over; it says why.
    Stale(String),
    /// Something else, in words. Nobody knows whether it was done.
    Failed(String),
}

/// The side of a candidate: fenced writes, each from a thread that may block.
pub trait Workload: Send {
    /// Has the fence know this term, then reads the last counter.
    ///
    /// # Errors
    /// What kept it from doing so.
    fn begin(&mut self, term: Term) -> Result<u64, Refusal>;

    /// Appends a row under the fence. Tells when it was its turn.
    ///
    /// # Errors
    /// What kept it from doing so.
    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal>;
}

/// Leaves the store as it was found. The last leader's lease may have to run out first.
pub(crate) async fn clean_up(
    ground: &dyn Ground,
    candidates: &BTreeSet<String>,
    clock: &dyn Clock,
    ttl: Duration,
) -> Result<(), DrillError> {
    let end = clock.now() + ttl + Duration::from_secs(2);
    loop {
        match ground.clean_up(candidates).await {
            Err(_) if clock.now() < end => {
                clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
            }
            done => return done,
        }
    }
}
