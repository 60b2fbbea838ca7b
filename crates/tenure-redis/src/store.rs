//! The handle that users hold.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::{
    BoxFuture, Channels, Checkup, Elections, Error, Expiry, Hints, Ledger, Migrate, Name, Op,
    Reply, Secret, Store, StoreInfo, Witness,
};

use crate::channels::Takes;
use crate::config::{FailClosed, RedisConfig, Settle};
use crate::error;
use crate::hints::RedisHints;
use crate::keys::Keys;
use crate::lease;
use crate::primary::Servers;
use crate::router::{Router, Timeouts};
use crate::script::Call;
use crate::subscriber::Subscriber;

/// The shortest ttl that is taken.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(100);

/// How many ops one pipeline carries.
const BATCH_LIMIT: usize = 1_000;

/// A call is given at least this long, however short the ttl.
const CALL_MIN: Duration = Duration::from_millis(250);

/// So is a batch that several servers have a part of.
const TOGETHER_MIN: Duration = Duration::from_millis(100);

/// Leases in Redis (one server, a set under Sentinel, a Cluster), for all who can reach it.
///
/// A clone is another handle onto the same connections.
///
/// # Guarantees
/// The whole contract of [`Store`], as far as the server keeps its memory; the crate's
/// documentation has the table.
///
/// # Examples
/// ```no_run
/// use tenure_core::{Name, StoreExt};
/// use tenure_redis::RedisConfig;
///
/// # async fn example() -> Result<(), tenure_core::Error> {
/// let store = RedisConfig::from_url("redis://localhost/0")?.open()?;
/// store.check().await?;
/// let sight = store.read(&Name::new("invoices")?).await?;
/// println!("{:?}", sight.lease);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

struct Shared {
    config: Arc<RedisConfig>,
    keys: Keys,
    router: Arc<Router>,
    subscriber: Arc<Subscriber>,
    takes: Takes,
    /// The shortest ttl that anybody asked for: how long a driver waits for ops without one.
    shortest_ttl_ms: AtomicU64,
    /// Whether a ttl above the settling time was warned about.
    warned: AtomicBool,
}

impl RedisStore {
    pub(crate) fn open_with(config: RedisConfig) -> Result<RedisStore, Error> {
        let config = Arc::new(config);
        let keys = match config.servers {
            Servers::Cluster { .. } => Keys::in_cluster(&config.prefix)?,
            _ => Keys::new(&config.prefix).in_database(config.login.db()),
        };
        let router = Arc::new(Router::new(config.clone(), &keys));
        let subscriber = Arc::new(Subscriber::new(router.clone(), config.connect_timeout));
        Ok(RedisStore(Arc::new(Shared {
            config,
            keys,
            router,
            subscriber,
            takes: Takes::default(),
            shortest_ttl_ms: AtomicU64::new(u64::MAX),
            warned: AtomicBool::new(false),
        })))
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        self.0.router.address().to_owned()
    }

    /// Connects if need be, and looks whether the server can be used at all.
    ///
    /// # Cancel safety
    /// Cancel safe: no lease is changed.
    ///
    /// # Errors
    /// - `Unavailable`: nobody answers, or the server takes no writes now.
    /// - `Denied`: a wrong password, or a missing privilege.
    /// - `Config`: what listens there is not a Redis server.
    /// - `Unsupported`: a Cluster that was given as a single server, or a server without scripts.
    pub async fn check(&self) -> Result<(), Error> {
        let within = self.0.config.call_timeout.max(self.0.config.connect_timeout);
        self.0.router.check(within).await.map_err(|error| error.during("check"))
    }

    /// The names of all elections that a tenure candidate led here, in order; those that nobody
    /// has used for 30 days are forgotten. Looks at every key of the database, a thousand at a
    /// time, and needs `+scan`.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub async fn elections(&self) -> Result<Vec<Name>, Error> {
        let Shared { config, keys, router, .. } = &*self.0;
        let listed = |error: Error| error.during("list");
        // A key that moves in the server's table may be told twice.
        let mut names = BTreeSet::new();
        for primary in router.primaries(config.call_timeout).await.map_err(listed)? {
            let mut cursor = "0".to_owned();
            loop {
                let part =
                    router.scan(&primary, &cursor, keys.companions(), config.call_timeout).await;
                let (next, found) = part.map_err(listed)?;
                names.extend(found.iter().filter_map(|key| keys.election_of(key)));
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(names.into_iter().collect())
    }

    /// The names of all keys that an election has had here if these candidates took part in it, for
    /// those who want to delete them: what they note for the server as a whole is among them, and
    /// no key of messages or of a schedule. Asks nobody.
    ///
    /// # Errors
    /// `Config` if the election can't have this name here.
    pub fn key_names<'a>(
        &self,
        election: &Name,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<String>, Error> {
        let of = self.0.keys.of(election)?;
        let released = candidates.into_iter().map(|candidate| of.released_by(candidate));
        let mut names: Vec<String> = released.collect();
        names.extend([self.0.keys.marker(), of.kept(), of.lease, of.companion]);
        Ok(names)
    }

    /// How long a batch may take: the driver gives up on a renewal after a sixth of the ttl, and
    /// the one after it wants a connection that works. Where several servers have a part, those
    /// that answer have to be heard before the driver gives up on all.
    fn timeouts(&self, ops: &[Op]) -> Timeouts {
        let longest = self.0.config.call_timeout.max(self.0.config.connect_timeout);
        let shortest = &self.0.shortest_ttl_ms;
        let ttl = ops.iter().filter_map(lease::ttl).min();
        let known = match ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)) {
            Some(ttl) => {
                shortest.fetch_min(ttl, Ordering::Relaxed);
                ttl
            }
            None => shortest.load(Ordering::Relaxed),
        };
        Timeouts {
            within: ttl.map_or(longest, |ttl| (ttl / 6).max(CALL_MIN).min(longest)),
            together: (Duration::from_millis(known) / 10).max(TOGETHER_MIN).min(longest),
        }
    }

    /// Says once that this ttl is longer than others may wait after the server lost all it knew.
    fn warn_about_settling(&self, ops: &[Op]) {
        let Settle::For(settle) = self.0.config.settle else { return };
        let longest = ops.iter().filter_map(lease::ttl).max();
        let Some(ttl) = longest.filter(|ttl| *ttl > settle) else { return };
        if !self.0.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                address = self.0.router.address(),
                ?ttl,
                ?settle,
                "the ttl is longer than the server settles: if it loses all data, candidates with \
                 a shorter ttl may lead before this one stops to trust itself; give all candidates \
                 settle= with the largest ttl"
            );
        }
    }

    pub(crate) fn config(&self) -> &RedisConfig {
        &self.0.config
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn takes(&self) -> &Takes {
        &self.0.takes
    }

    pub(crate) fn subscriber(&self) -> &Arc<Subscriber> {
        &self.0.subscriber
    }

    /// Makes one call that is not about a lease.
    pub(crate) async fn call_one(&self, call: &Call) -> Result<redis::Value, Error> {
        let mut answers = self.0.router.call(&[call], self.timeouts(&[])).await;
        answers.pop().unwrap_or_else(|| Err(error::odd_answer()))
    }

    async fn answer(&self, ops: &[Op]) -> Vec<Reply> {
        let Shared { config, keys, router, .. } = &*self.0;
        let unknown =
            |op: &Op, error: Error| Reply::Unknown(error.in_store(error::STORE).during(op.verb()));
        let calls: Vec<Result<Call, Error>> =
            ops.iter().map(|op| lease::call(op, keys, config.settle)).collect();
        let sound: Vec<&Call> = calls.iter().filter_map(|call| call.as_ref().ok()).collect();
        let mut answers = router.call(&sound, self.timeouts(ops)).await.into_iter();
        let each = ops.iter().zip(&calls).map(|(op, call)| {
            let answer = match call {
                Err(error) => Err(error.clone()),
                Ok(_) => answers.next().unwrap_or_else(|| Err(error::odd_answer())),
            };
            let reply = answer.and_then(|answer| lease::reply(&answer, router.address()));
            reply.unwrap_or_else(|error| unknown(op, error))
        });
        each.collect()
    }
}

impl Store for RedisStore {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            if ops.len() > BATCH_LIMIT {
                let error = Error::batch_too_large(ops.len(), BATCH_LIMIT).in_store(error::STORE);
                let unknown = |op: &Op| Reply::Unknown(error.clone().during(op.verb()));
                return ops.iter().map(unknown).collect();
            }
            self.0.subscriber.names.remember(ops);
            self.warn_about_settling(ops);
            self.answer(ops).await
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        Box::new(RedisHints::new(self.0.subscriber.clone()))
    }

    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo::new("redis", self.address());
        info.expiry = Expiry::StoreClock;
        // Not because the server writes them down, but because they follow its clock (R1).
        info.durable_terms = true;
        info.terms_follow_clock = true;
        info.survives_restart = false;
        info.sees_death = false;
        info.witness = self.0.config.url.is_some();
        info.hints = true;
        info.ledger = true;
        info.batch_limit = BATCH_LIMIT;
        info.min_ttl = TTL_MIN;
        info.fencing =
            Some("a script that checks the term and runs your write: tenure_redis::fence");
        info.fail_closed = self.0.config.fail_closed == FailClosed::FirstFailure;
        info.channels = true;
        info.residual = RESIDUAL.to_vec();
        info
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    fn witness(&self) -> Option<&dyn Witness> {
        Some(self)
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        Some(self)
    }

    fn migrate(&self) -> Option<&dyn Migrate> {
        None
    }
}

impl Witness for RedisStore {
    fn url(&self) -> Option<Secret> {
        self.0.config.url.clone()
    }
}

/// What is not promised.
const RESIDUAL: [&str; 11] = [
    "what a leader had sent to a server is carried out there after its death (D4): where a witness \
     gives its lease back, the next leader may begin before that; a fence stops it, and --linger \
     makes it unlikely",
    "leases run out by the server's wall clock: if it is set forward by more than the margin, a \
     second leader may be elected while the first still trusts itself; a fence stops it",
    "terms stay above those that the server forgot as long as its clock is not set back behind \
     them; `term_floor` helps after that",
    "a server that restarts without its data, is flushed or fails over forgets leases; nothing \
     new is granted for the ttl of whoever asks, so candidates of one election with different ttls \
     need settle= with the largest, and settle=off gives that up",
    "an empty server that takes over the address of another while candidates trust themselves \
     settles only if one of those who knew the other comes first; make a standby a replica",
    "a failover loses the writes that the replica did not have yet, releases and fenced writes \
     among them; WAIT makes that rarer and is no consensus",
    "two primaries at once (a split brain) elect a leader each",
    "a Cluster slot that is given to another primary without its data is not noticed, and leases \
     in it are forgotten without settling",
    "a server that evicts keys of all kinds (allkeys-*) may evict a lease together with the notes \
     beside it, and a second leader may be elected; a lease that is deleted or evicted alone is \
     kept up to its noted end",
    "posted messages are only as safe as the server's memory: none is lost only with AOF and \
     without a failover",
    "clients that use plain SET, PEXPIRE and DEL have no term, give no hints and keep their own \
     faults; they know no noted end, so they take a lease whose key was deleted or evicted",
];

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("address", &self.address()).finish_non_exhaustive()
    }
}
