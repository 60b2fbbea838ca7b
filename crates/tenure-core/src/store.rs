//! The contract between tenure and an engine that keeps leases.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::{
    Channels, Checkup, Elections, Error, Ledger, Migrate, Name, Op, Reply, Sight, Term, Witness,
};

/// A boxed future, as object-safe traits need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place that keeps leases: a database, a file, a map in memory.
///
/// # Contract
/// What implementors owe. `tenure-testkit` has a suite that checks it.
///
/// **apply** answers each op with exactly one reply, in the same order. Each op is atomic on its
/// own election; a batch as a whole need not be. Ops of one batch are about different elections.
/// A failure is `Unknown` for each op that it may have touched, so that a partial failure can't
/// be overlooked; there is no outer error.
///
/// - A lease is *held* from its grant until it is released, or until `ttl` has passed by the
///   store's own clock, read at the instant of the decision (after any waiting for locks). It is
///   never granted to another candidate before that. A lease that ran out is vacant for everyone,
///   its last holder too.
/// - `Acquire`, vacant: issue `max(last + 1, floor, above + 1)` durably, then grant. Held by the
///   same candidate under a term above `above`: make it last `ttl` from now and grant that term
///   again, with the metadata that it has and whether somebody asked. Held by it under a term not
///   above `above`: issue a new term and grant that; this is a change of hands like any other.
///   Held by another: refuse. `seq` not above the one that a release of the same candidate
///   recorded: refuse, whoever holds it; such records are kept at least [`RELEASE_MEMORY`], and a
///   late release never lowers one.
/// - `Renew`: only if candidate and term both match and the lease is held; makes it last `ttl`
///   from now, keeps everything else, and passes on whether somebody asked, each time until the
///   lease changes hands. Otherwise refuse.
/// - `Release`: records `seq` for this candidate. If the candidate holds the lease, and under this
///   term where one is named, vacates it and grants; where none is named, only if the lease was
///   granted to an acquire not above `seq`, so that a late release spares a newer reign. Otherwise
///   refuses. Terms stay.
/// - `Read`: answers `Seen` and changes nothing.
/// - `Ask`: if the lease is held, and under this term where one is named, notes the wish for the
///   holder's next renewal and grants; otherwise refuses. A change of hands forgets the wish.
/// - Terms are durable before they are granted, strictly increase for the life of the election,
///   and never pass [`Term::MAX`].
/// - After a release or an ask, the store hints to other candidates, after the change is durable.
///
/// A store takes names, identities and metadata as data, never as part of a command.
///
/// **The faces** (`channels` to `migrate`) are what a store can do beyond that; each is `None`
/// where it can't. A store that wraps another one passes on all of them, as [`forward!`] does.
///
/// [`forward!`]: crate::forward!
pub trait Store: Send + Sync + 'static {
    /// Carries out a batch of at most `info().batch_limit` ops, with one reply for each, in the
    /// same order.
    ///
    /// It is polled on the thread that renews the leases of all elections, so it must not block:
    /// what waits for a disk or a lock belongs on another thread.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped each op may have been done or not.
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>>;

    /// A new stream of hints about the elections that this store has been asked about.
    fn hints(&self) -> Box<dyn Hints>;

    /// What this store promises, in a form that programs can read.
    fn info(&self) -> StoreInfo;

    /// Messages to the leader, if this store can carry them.
    fn channels(&self) -> Option<&dyn Channels>;

    /// The cron ledger, if this store keeps one.
    fn ledger(&self) -> Option<&dyn Ledger>;

    /// The list of elections, if this store can tell it.
    fn elections(&self) -> Option<&dyn Elections>;

    /// How leases of the dead are given back, if this store allows that.
    fn witness(&self) -> Option<&dyn Witness>;

    /// What a doctor looks at, beyond [`info`](Store::info) and round trips.
    fn checkup(&self) -> Option<&dyn Checkup>;

    /// What sets this store up, if it needs that.
    fn migrate(&self) -> Option<&dyn Migrate>;
}

/// In a store that wraps another one: passes these methods of [`Store`] on to the store in a field.
/// `faces` are all of `channels` to `migrate`. The methods of [`Channels`] and [`Ledger`] are known
/// as well; `forward!(store() via carry: post, take)` calls what the method `store` returns, and
/// hands the future to the method `carry`.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tenure_core::{BoxFuture, Op, Reply, Store};
///
/// struct Counting {
///     store: Arc<dyn Store>,
///     calls: AtomicU64,
/// }
///
/// impl Store for Counting {
///     fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.store.apply(ops)
///     }
///
///     tenure_core::forward!(store: hints, info, faces);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($store:ident: $($method:ident),+) => {
        $($crate::forward!(@$method $store);)+
    };
    ($store:ident() via $carry:ident: $($method:ident),+) => {
        $($crate::forward!(@$method $store() via $carry);)+
    };
    (@faces $store:ident) => {
        $crate::forward!($store: channels, ledger, elections, witness, checkup, migrate);
    };
    (@apply $store:ident) => {
        fn apply<'a>(
            &'a self,
            ops: &'a [$crate::Op],
        ) -> $crate::BoxFuture<'a, ::std::vec::Vec<$crate::Reply>> {
            self.$store.apply(ops)
        }
    };
    (@hints $store:ident) => {
        fn hints(&self) -> ::std::boxed::Box<dyn $crate::Hints> {
            self.$store.hints()
        }
    };
    (@info $store:ident) => {
        fn info(&self) -> $crate::StoreInfo {
            self.$store.info()
        }
    };
    (@channels $store:ident) => {
        $crate::forward!(@face channels: Channels, $store);
    };
    (@ledger $store:ident) => {
        $crate::forward!(@face ledger: Ledger, $store);
    };
    (@elections $store:ident) => {
        $crate::forward!(@face elections: Elections, $store);
    };
    (@witness $store:ident) => {
        $crate::forward!(@face witness: Witness, $store);
    };
    (@checkup $store:ident) => {
        $crate::forward!(@face checkup: Checkup, $store);
    };
    (@migrate $store:ident) => {
        $crate::forward!(@face migrate: Migrate, $store);
    };
    (@limits $store:ident) => {
        fn limits(&self) -> $crate::Limits {
            self.$store.limits()
        }
    };
    (@notify $($to:tt)+) => {
        $crate::forward!(@call notify(
            election: &'a $crate::Name, channel: &'a str, payload: &'a str
        ) -> (), $($to)+);
    };
    (@post $($to:tt)+) => {
        $crate::forward!(@call post(
            election: &'a $crate::Name, posts: &'a [$crate::Post]
        ) -> ::std::vec::Vec<$crate::Posted>, $($to)+);
    };
    (@listen $($to:tt)+) => {
        $crate::forward!(@call listen(
            election: &'a $crate::Name, term: $crate::Term, channels: &'a [::std::string::String]
        ) -> ::std::boxed::Box<dyn $crate::Inbox>, $($to)+);
    };
    (@take $($to:tt)+) => {
        $crate::forward!(@call take(
            election: &'a $crate::Name, term: $crate::Term, channel: &'a str, tries: u32
        ) -> $crate::Taken, $($to)+);
    };
    (@acknowledge $($to:tt)+) => {
        $crate::forward!(@call acknowledge(
            election: &'a $crate::Name, term: $crate::Term, channel: &'a str, id: u64
        ) -> $crate::Acknowledged, $($to)+);
    };
    (@backlog $($to:tt)+) => {
        $crate::forward!(@call backlog(
            election: &'a $crate::Name
        ) -> ::std::vec::Vec<$crate::ChannelBacklog>, $($to)+);
    };
    (@dead_letters $($to:tt)+) => {
        $crate::forward!(@call dead_letters(
            election: &'a $crate::Name, channel: ::std::option::Option<&'a str>, limit: usize
        ) -> ::std::vec::Vec<$crate::DeadLetter>, $($to)+);
    };
    (@replay $($to:tt)+) => {
        $crate::forward!(@call replay(
            election: &'a $crate::Name, ids: &'a [u64]
        ) -> u64, $($to)+);
    };
    (@discard $($to:tt)+) => {
        $crate::forward!(@call discard(
            election: &'a $crate::Name, ids: &'a [u64]
        ) -> u64, $($to)+);
    };
    (@transactions $store:ident) => {
        fn transactions(&self) -> $crate::Transactions {
            self.$store.transactions()
        }
    };
    (@record $($to:tt)+) => {
        $crate::forward!(@call record(
            election: &'a $crate::Name, term: $crate::Term, steps: &'a [$crate::LedgerStep]
        ) -> ::std::vec::Vec<$crate::Marked>, $($to)+);
    };
    (@request $($to:tt)+) => {
        $crate::forward!(@call request(
            election: &'a $crate::Name, job: &'a str
        ) -> $crate::Tick, $($to)+);
    };
    (@steer $($to:tt)+) => {
        $crate::forward!(@call steer(
            election: &'a $crate::Name, job: &'a str, steer: $crate::Steer
        ) -> bool, $($to)+);
    };
    (@open $($to:tt)+) => {
        $crate::forward!(@call open(
            election: &'a $crate::Name, after: ::std::option::Option<&'a $crate::Tick>
        ) -> ::std::vec::Vec<$crate::TickRecord>, $($to)+);
    };
    (@latest $($to:tt)+) => {
        $crate::forward!(@call latest(
            election: &'a $crate::Name
        ) -> ::std::vec::Vec<$crate::JobProgress>, $($to)+);
    };
    (@history $($to:tt)+) => {
        $crate::forward!(@call history(
            election: &'a $crate::Name, job: ::std::option::Option<&'a str>, limit: usize
        ) -> ::std::vec::Vec<$crate::TickRecord>, $($to)+);
    };
    (@once $($to:tt)+) => {
        $crate::forward!(@call once(
            election: &'a $crate::Name, term: $crate::Term, step: &'a $crate::OnceStep
        ) -> $crate::OnceMark, $($to)+);
    };
    (@once_record $($to:tt)+) => {
        $crate::forward!(@call once_record(
            election: &'a $crate::Name, key: &'a str
        ) -> ::std::option::Option<$crate::OnceRecord>, $($to)+);
    };
    (@once_history $($to:tt)+) => {
        $crate::forward!(@call once_history(
            election: &'a $crate::Name, limit: usize
        ) -> ::std::vec::Vec<$crate::OnceRecord>, $($to)+);
    };
    (@call $method:ident($($arg:ident: $kind:ty),+) -> $answer:ty, $store:ident) => {
        fn $method<'a>(
            &'a self,
            $($arg: $kind),+
        ) -> $crate::BoxFuture<'a, ::std::result::Result<$answer, $crate::Error>> {
            self.$store.$method($($arg),+)
        }
    };
    (@call $method:ident($($arg:ident: $kind:ty),+) -> $answer:ty,
        $store:ident() via $carry:ident
    ) => {
        fn $method<'a>(
            &'a self,
            $($arg: $kind),+
        ) -> $crate::BoxFuture<'a, ::std::result::Result<$answer, $crate::Error>> {
            ::std::boxed::Box::pin(self.$carry(self.$store().$method($($arg),+)))
        }
    };
    (@face $method:ident: $face:ident, none) => {
        fn $method(&self) -> ::std::option::Option<&dyn $crate::$face> {
            ::std::option::Option::None
        }
    };
    (@face $method:ident: $face:ident, $store:ident) => {
        fn $method(&self) -> ::std::option::Option<&dyn $crate::$face> {
            self.$store.$method()
        }
    };
}

/// In a store: these of its faces, `channels` to `migrate`, are `None`.
///
/// ```
/// use tenure_core::{BoxFuture, Hints, NoHints, Op, Reply, Store, StoreInfo};
///
/// struct Nowhere;
///
/// impl Store for Nowhere {
///     fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
///         let replies = ops.iter().map(|_| Reply::Refused(Default::default())).collect();
///         Box::pin(std::future::ready(replies))
///     }
///
///     fn hints(&self) -> Box<dyn Hints> {
///         Box::new(NoHints)
///     }
///
///     fn info(&self) -> StoreInfo {
///         StoreInfo::new("nowhere", "")
///     }
///
///     tenure_core::lacks!(channels, ledger, elections, witness, checkup, migrate);
/// }
/// ```
#[macro_export]
macro_rules! lacks {
    ($($face:ident),+) => {
        $($crate::forward!(@$face none);)+
    };
}

/// How long a store remembers at least which acquires a release has overtaken.
pub const RELEASE_MEMORY: Duration = Duration::from_secs(600);

/// Something may have changed. Hints make things faster and are never believed (I5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// In this election.
    Election(Name),
    /// Anywhere: the store cannot tell, or has missed some.
    Any,
}

/// A stream of hints.
///
/// It reconnects by itself; losing hints, repeating them and inventing them are all allowed.
pub trait Hints: Send {
    /// The next hint, as in `Stream`; `None` ends the stream for good.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>>;
}

/// Hints of a store that has none: the stream is silent.
#[derive(Debug, Default)]
pub struct NoHints;

impl Hints for NoHints {
    fn poll_next(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        Poll::Ready(None)
    }
}

/// By which clock a lease runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// The clock of the host that all candidates share; it counts suspend and never steps.
    HostClock,
    /// The wall clock of the store's server, which can step (W1).
    StoreClock,
    /// With the connection: the server frees the lease when the session ends.
    Connection,
}

/// What a store promises. `tenure doctor` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The kind of store: `memory`, `sqlite`, `postgres`, ...
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub address: String,
    /// By which clock leases run out.
    pub expiry: Expiry,
    /// Whether terms survive a crash of the store.
    pub durable_terms: bool,
    /// Whether every term is at least the store's own clock in milliseconds of Unix time.
    pub terms_follow_clock: bool,
    /// Whether a leader keeps its lease over a restart of the store.
    pub survives_restart: bool,
    /// Whether a dead leader is succeeded at once, before its lease runs out.
    pub sees_death: bool,
    /// Whether a witness may give back the lease of a leader that is dead with all its work (D1).
    pub witness: bool,
    /// Whether released leases are hinted at.
    pub hints: bool,
    /// How many ops one call may carry.
    pub batch_limit: usize,
    /// The shortest ttl that the store can keep.
    pub min_ttl: Duration,
    /// How a user's writes are fenced here, in a few words.
    pub fencing: Option<&'static str>,
    /// Whether messages to the leader are carried.
    pub channels: bool,
    /// Whether a cron ledger is kept.
    pub ledger: bool,
    /// Whether leaders on this store step down at the first renewal whose outcome is unknown,
    /// instead of trying again while trust lasts, because its URL says so.
    pub fail_closed: bool,
    /// What is *not* promised, a sentence each.
    pub residual: Vec<&'static str>,
}

impl StoreInfo {
    /// A store of this kind at this address that promises as little as possible.
    pub fn new(kind: &'static str, address: impl Into<String>) -> StoreInfo {
        StoreInfo {
            kind,
            address: address.into(),
            expiry: Expiry::StoreClock,
            durable_terms: false,
            terms_follow_clock: false,
            survives_restart: false,
            sees_death: false,
            witness: false,
            hints: false,
            batch_limit: 1,
            min_ttl: Duration::from_secs(1),
            fencing: None,
            channels: false,
            ledger: false,
            fail_closed: false,
            residual: Vec::new(),
        }
    }
}

/// What users of a store enjoy on top of the contract.
pub trait StoreExt: Store {
    /// Carries out a single op.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped the op may have been done or not.
    fn apply_one<'a>(&'a self, op: &'a Op) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let mut replies = self.apply(std::slice::from_ref(op)).await;
            match (replies.pop(), replies.is_empty()) {
                (Some(reply), true) => reply,
                _ => Reply::Unknown(Error::new(
                    crate::ErrorKind::Corrupt,
                    "the store did not answer one op with one reply; report this as a bug",
                )),
            }
        })
    }

    /// Reads what the store says of an election.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    fn read<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Sight, Error>> {
        Box::pin(async move {
            match self.apply_one(&Op::Read { election: election.clone() }).await {
                Reply::Seen(sight) | Reply::Refused(sight) => Ok(sight),
                Reply::Unknown(error) => Err(error),
                Reply::Granted(_) => Err(Error::new(
                    crate::ErrorKind::Corrupt,
                    "the store granted a read; report this as a bug",
                )),
            }
        })
    }

    /// Asks the holder of an election to resign; tells under which term, or who stands in the way.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped the holder may have been asked or not.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    fn ask<'a>(
        &'a self,
        election: &'a Name,
        term: Option<Term>,
    ) -> BoxFuture<'a, Result<Result<Term, Sight>, Error>> {
        Box::pin(async move {
            match self.apply_one(&Op::Ask { election: election.clone(), term }).await {
                Reply::Granted(grant) => Ok(Ok(grant.term)),
                Reply::Refused(sight) | Reply::Seen(sight) => Ok(Err(sight)),
                Reply::Unknown(error) => Err(error),
            }
        })
    }
}

impl<S: Store + ?Sized> StoreExt for S {}
