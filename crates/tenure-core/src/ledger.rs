//! The cron ledger: the contract for stores that keep one.

use crate::{BoxFuture, Error, Name, Term};

/// One tick of one job: what the ledger is unique on (K1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tick {
    /// The job's name.
    pub job: String,
    /// The instant it was scheduled for, in milliseconds of Unix time.
    pub scheduled_unix_ms: i64,
}

/// How a tick ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TickEnd {
    /// It did what it should.
    Ok,
    /// It ended with this code.
    Failed(i32),
    /// It took too long and was ended.
    TimedOut,
    /// Its leader lost the election before it was done.
    Lost,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// It is ours to run, for the n-th time.
    Ours {
        /// 1 for the first try.
        attempt: u32,
    },
    /// Somebody claimed it before.
    Taken,
    /// The term that the claim named no longer holds.
    Stale,
}

/// Keeps which ticks were claimed, started and finished.
///
/// # Contract
/// A tick is claimed at most once per attempt, under a term that holds at that instant; a stale
/// term changes nothing.
///
/// # Cancel safety
/// Not cancel safe: if a future is dropped it may have been done or not. Claiming again tells.
pub trait Ledger: Send + Sync {
    /// Claims a tick for the leader of this term; with `reclaim`, also one that a former term
    /// left unfinished.
    fn claim<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        tick: &'a Tick,
        reclaim: bool,
    ) -> BoxFuture<'a, Result<Claim, Error>>;

    /// Records that the claimed tick has started; `false` if the term is stale.
    fn started<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        tick: &'a Tick,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// Records how the tick ended; `false` if the claim is no longer this term's.
    fn finished<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        tick: &'a Tick,
        end: TickEnd,
    ) -> BoxFuture<'a, Result<bool, Error>>;
}
