//! What a drill needs to know of a store; each kind of store has its own answer.
//!
//! To have drills on another store: implement [`Ground`] and [`Workload`] for it, and name them in
//! [`ground`] and [`workload`].

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Name, Term, Time};
use tenure_core::{BoxFuture, Secret};

use super::plan::Fault;
#[cfg(feature = "postgres")]
use super::postgres;
#[cfg(feature = "redis")]
use super::redis;
use super::route::Route;
#[cfg(feature = "sqlite")]
use super::sqlite;
use crate::exit::Failure;
use crate::store::{Opened, StoreChoice};

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
    /// The faults that this store can have, without the wish for more.
    fn faults(&self) -> &'static [Fault];

    /// Why it can't have one of the others: half a sentence that follows the fault's name.
    fn why_not(&self, fault: Fault) -> &'static str;

    /// Makes what the drill needs in the store, under names of its own.
    fn prepare(&self) -> Doing<'_, ()>;

    /// Whether there may be something of the drill's in the store, though `prepare` failed.
    fn is_touched(&self) -> bool;

    /// Whether a restart of the store may lose writes that it has acknowledged.
    fn may_forget(&self) -> bool {
        false
    }

    /// The store with the drill's own names in it, straight to the server.
    fn url(&self) -> Secret;

    /// The way to the store, if it is one that a proxy can be put into.
    fn route(&self) -> Option<&Route>;

    /// Whether others could write now. A process that is stopped in the middle of a write holds up
    /// everybody on some stores, which is a documented limit and not what a drill is to show.
    fn is_free(&self) -> bool;

    /// All that the workload wrote, in the order in which it did.
    fn rows(&self) -> Doing<'_, Vec<Row>>;

    /// Removes what the drill and these candidates left in the store. Refused while somebody leads.
    fn clean_up<'a>(&'a self, left: &'a Left<'a>) -> Doing<'a, ()>;

    /// What is left behind if that fails, for people who have to remove it by hand.
    fn leavings(&self) -> String;
}

/// Who was in the store.
#[cfg_attr(
    not(all(feature = "sqlite", feature = "redis")),
    allow(dead_code, reason = "each store asks for a part of it")
)]
pub(crate) struct Left<'a> {
    pub(crate) opened: &'a Opened,
    pub(crate) election: &'a Name,
    /// Every process that told of itself.
    pub(crate) candidates: BTreeSet<String>,
}

/// Something that takes its time.
pub(crate) type Doing<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// The faults of a store that is reached by a network.
pub(crate) const BY_NETWORK: &[Fault] = &[
    Fault::Kill,
    Fault::Freeze,
    Fault::Resign,
    Fault::Cut,
    Fault::Hole,
    Fault::Reset,
    Fault::Delay,
];

/// The faults of processes alone.
pub(crate) const BY_PROCESS: &[Fault] = &[Fault::Kill, Fault::Freeze, Fault::Resign];

/// Why a write was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The fence knows that the term is over; it says why.
    Stale(String),
    /// Something else, in words. Nobody knows whether it was done.
    Failed(String),
}

/// The side of a candidate: fenced writes.
pub(crate) trait Workload: Send {
    /// Has the fence know this term, then reads the last counter.
    fn begin(&mut self, term: Term) -> Result<u64, Refusal>;

    /// Appends a row under the fence.
    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal>;
}

/// The ground for a drill on this store; `place` is a directory of the drill's own. Nothing is
/// changed in the store yet.
pub(crate) fn ground(
    choice: &StoreChoice,
    place: &Path,
    election: &Name,
    ttl: Duration,
) -> Result<Box<dyn Ground>, Failure> {
    let _ = (place, election, ttl);
    match choice.scheme() {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Box::new(sqlite::SqliteGround::new(choice, place)?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" | "postgres+advisory" | "postgresql+advisory" => {
            Ok(Box::new(postgres::PostgresGround::new(choice.url.expose(), election)?))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" => {
            Ok(Box::new(redis::RedisGround::new(choice.url.expose(), election, ttl)?))
        }
        other => Err(no_drill(other)),
    }
}

/// The workload of a candidate on the store that this URL names.
pub(crate) fn workload(
    url: &str,
    place: &Path,
    election: &Name,
    ttl: Duration,
) -> Result<Box<dyn Workload>, Failure> {
    let _ = (place, election, ttl);
    match scheme(url) {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Box::new(sqlite::SqliteWorkload::open(place, election)?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" | "postgres+advisory" | "postgresql+advisory" => {
            Ok(Box::new(postgres::PostgresWorkload::new(url, election, ttl)?))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(Box::new(redis::RedisWorkload::new(url, election, ttl)?)),
        other => Err(no_drill(other)),
    }
}

/// A runtime for the thread that writes, which may be dropped anywhere.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) struct OwnRuntime(Option<tokio::runtime::Runtime>);

#[cfg(any(feature = "postgres", feature = "redis"))]
impl OwnRuntime {
    pub(crate) fn new() -> Result<OwnRuntime, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(OwnRuntime(Some(runtime)))
    }

    /// Does a piece of work, if it can be done in time.
    pub(crate) fn run<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let late = || Err(Refusal::Failed("it took too long".to_owned()));
        match &self.0 {
            Some(runtime) => runtime.block_on(async {
                tokio::time::timeout(limit, work).await.unwrap_or_else(|_| late())
            }),
            None => late(),
        }
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // Waiting for it is not allowed inside of another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

fn no_drill(scheme: &str) -> Failure {
    Failure::usage(format!(
        "there is no drill for {scheme} yet; point --store at a single server of it, if it has one"
    ))
}

/// Leaves the store as it was found. The last leader's lease may have to run out first.
pub(crate) async fn clean_up(
    ground: &dyn Ground,
    left: &Left<'_>,
    ttl: Duration,
) -> Result<(), Failure> {
    let end = BootClock::time() + ttl + Duration::from_secs(2);
    loop {
        match ground.clean_up(left).await {
            Err(_) if BootClock::time() < end => {
                let again = BootClock::time() + Duration::from_millis(100);
                BootClock.sleep_until(again).await;
            }
            done => return done,
        }
    }
}
