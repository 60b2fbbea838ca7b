//! Which server a call goes to, and what to do when it is not there any more.
//!
//! Decides nothing about leases. Nothing that was done is done again unless the server says that
//! it did not do it; and if it were, each script may run twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::cluster::{self, Cluster, Redirect};
use crate::config::RedisConfig;
use crate::dial::{Pushes, Wire};
use crate::error;
use crate::keys::Keys;
use crate::lines::{Lines, is_from_a_replica};
use crate::patience::Patience;
use crate::place::{Node, Place, Spot};
use crate::script::Call;
use crate::sentinel::Sentinels;

/// How often a call is sent on to another server of a Cluster.
const HOPS_MAX: usize = 8;

/// How long to wait before a Cluster in the middle of a change is asked again.
const LATER: Duration = Duration::from_millis(25);

/// What calls are made on.
pub(crate) struct Link {
    lines: Arc<Lines>,
    servers: Servers,
}

/// Where leases are.
enum Servers {
    One(Spot),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Each step of a call: finding the server, connecting, answering.
    pub(crate) within: Duration,
    /// All steps, where several servers have a part of the calls.
    pub(crate) together: Duration,
}

impl Limits {
    /// For finding the servers of a Cluster again: the rest is for those that were found.
    fn finding(self) -> Duration {
        self.within.min(self.together / 2)
    }
}

/// The answer to one call.
pub(crate) type Answer = Result<Value, Error>;

/// A call that has yet to be answered, and where it was sent last.
#[derive(Clone)]
struct Pending {
    index: usize,
    ask: Option<Node>,
}

/// The calls that go to one server.
struct Batch {
    spot: Spot,
    calls: Vec<Pending>,
}

impl Link {
    pub(crate) fn new(config: Arc<RedisConfig>, keys: &Keys) -> Link {
        let place = config.place.clone();
        let lines = Arc::new(Lines::new(config));
        let servers = match place {
            Place::Single(node) => Servers::One(keys.spot(node)),
            Place::Sentinel { sentinels, name } => {
                let keys = keys.clone();
                Servers::Sentinels(Sentinels::new(lines.clone(), sentinels, name, keys))
            }
            Place::Cluster { seeds } => {
                Servers::Cluster(Cluster::new(lines.clone(), seeds, keys.clone()))
            }
        };
        Link { lines, servers }
    }

    /// The store, for messages.
    pub(crate) fn address(&self) -> &str {
        self.lines.address()
    }

    /// Makes all calls, those of one server in one round trip. Each has its own answer, in order.
    ///
    /// `limits` bounds finding the server, connecting and answering, each on its own; and all of it
    /// if several servers have a part, so that those that answer do not wait long for one that
    /// hangs.
    pub(crate) async fn call(&self, calls: &[&Call], limits: Limits) -> Vec<Answer> {
        let Limits { within, together } = limits;
        let mut answers: Vec<Option<Answer>> = calls.iter().map(|_| None).collect();
        let mut pending: Vec<Pending> =
            (0..calls.len()).map(|index| Pending { index, ask: None }).collect();
        let began = Instant::now();
        let until = began + within;
        let mut patience = Patience::each(within);
        for hop in 0..=HOPS_MAX {
            let batches = match self.batches(calls, &pending, limits).await {
                Ok(batches) => batches,
                Err(error) => {
                    for Pending { index, .. } in pending.drain(..) {
                        answers[index] = Some(Err(error.clone()));
                    }
                    break;
                }
            };
            if batches.len() > 1 {
                patience = patience.until(began + together);
            }
            let sent = batches.iter().map(|batch| self.send(calls, batch, patience));
            let done = join_all(sent).await;
            pending.clear();
            let mut wait = false;
            for (batch, values) in batches.into_iter().zip(done) {
                let last = hop == HOPS_MAX || Instant::now() >= until;
                for (call, value) in batch.calls.into_iter().zip(values) {
                    match self.sent_on(&value).filter(|_| !last) {
                        None => answers[call.index] = Some(value.and_then(|v| self.settled(v))),
                        Some(redirect) => {
                            wait |= redirect == Redirect::Later;
                            let ask = match redirect {
                                Redirect::Ask(node) => Some(node),
                                _ => None,
                            };
                            pending.push(Pending { index: call.index, ask });
                        }
                    }
                }
            }
            if pending.is_empty() {
                break;
            }
            if wait {
                pause(LATER).await;
            }
        }
        let missing = || Err(error::odd_answer());
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// Asks every server whether it can be used at all.
    ///
    /// # Errors
    /// Why one of them can't.
    pub(crate) async fn check(&self, within: Duration) -> Result<(), Error> {
        let spots = self.spots(within).await?;
        let checks = spots.iter().map(|spot| async {
            let checked = self.lines.check(spot, within).await;
            checked.inspect_err(|_| self.distrust(&spot.node))
        });
        join_all(checks).await.into_iter().collect()
    }

    /// One pass over the keys of a server that match: the next cursor, and some keys.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub(crate) async fn scan(
        &self,
        spot: &Spot,
        cursor: &str,
        pattern: &str,
        within: Duration,
    ) -> Result<(String, Vec<String>), Error> {
        let part = self.lines.scan(spot, cursor, pattern, within).await;
        part.inspect_err(|_| self.distrust(&spot.node))
    }

    /// All servers that have leases.
    ///
    /// # Errors
    /// Why nobody knows them.
    pub(crate) async fn spots(&self, within: Duration) -> Result<Vec<Spot>, Error> {
        needs_runtime()?;
        match &self.servers {
            Servers::One(spot) => Ok(vec![spot.clone()]),
            Servers::Sentinels(sentinels) => Ok(vec![sentinels.primary(within).await?]),
            Servers::Cluster(cluster) => Ok(cluster.map(within).await?.spots.clone()),
        }
    }

    /// The server that has this key.
    ///
    /// # Errors
    /// Why nobody knows it.
    pub(crate) async fn spot_of(&self, key: &str, within: Duration) -> Result<Spot, Error> {
        needs_runtime()?;
        let found = match &self.servers {
            Servers::One(spot) => Some(spot.clone()),
            Servers::Sentinels(sentinels) => Some(sentinels.primary(within).await?),
            Servers::Cluster(cluster) => cluster.map(within).await?.spot_of(key).cloned(),
        };
        found.ok_or_else(|| error::new(ErrorKind::Unavailable, error::in_flux(self.address())))
    }

    /// Tells when other servers may have leases than before.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<u64>> {
        match &self.servers {
            Servers::Cluster(cluster) => Some(cluster.changes()),
            _ => None,
        }
    }

    /// Looks whether other servers have leases by now.
    pub(crate) async fn refresh(&self, within: Duration) {
        if let Servers::Cluster(cluster) = &self.servers {
            cluster.refresh(within).await;
        }
    }

    /// A connection on which a server pushes what is told on its channel.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn subscribe(
        &self,
        spot: &Spot,
        pushes: Pushes,
        within: Duration,
    ) -> Result<Wire, Error> {
        let wire = self.lines.subscribe(spot, pushes, within).await;
        wire.inspect_err(|_| self.distrust(&spot.node))
    }

    /// Who is to do what.
    async fn batches(
        &self,
        calls: &[&Call],
        pending: &[Pending],
        limits: Limits,
    ) -> Result<Vec<Batch>, Error> {
        needs_runtime()?;
        let Servers::Cluster(cluster) = &self.servers else {
            let spot = self.spots(limits.within).await?.pop().ok_or_else(error::odd_answer)?;
            return Ok(vec![Batch { spot, calls: pending.to_vec() }]);
        };
        let limit = if cluster.has_map() { limits.finding() } else { limits.within };
        let map = cluster.map(limit).await?;
        let mut batches: Vec<Batch> = Vec::new();
        for call in pending {
            // One that has no slot yet is not on the map.
            let asked = call.ask.clone().map(|node| match map.spot_at(&node) {
                Some(spot) => spot.clone(),
                None => Keys::spot_without_slots(node),
            });
            let key = calls[call.index].keys.first().map_or("", String::as_str);
            let Some(spot) = asked.or_else(|| map.spot_of(key).cloned()) else {
                cluster.distrust();
                return Err(error::new(ErrorKind::Unavailable, error::in_flux(self.address())));
            };
            // Those that ask and those that do not are apart.
            let same = |batch: &&mut Batch| batch.spot == spot && batch.calls[0].ask == call.ask;
            match batches.iter_mut().find(same) {
                Some(batch) => batch.calls.push(call.clone()),
                None => batches.push(Batch { spot, calls: vec![call.clone()] }),
            }
        }
        Ok(batches)
    }

    /// Has one server do its part.
    async fn send(&self, calls: &[&Call], batch: &Batch, patience: Patience) -> Vec<Answer> {
        let spot = &batch.spot;
        let part: Vec<&Call> = batch.calls.iter().map(|call| calls[call.index]).collect();
        let asking = batch.calls.iter().any(|call| call.ask.is_some());
        let done = self.lines.call(spot, &part, asking, patience).await;
        match done {
            Ok(values) => {
                if values.iter().any(|v| is_from_a_replica(v) || cluster::redirect(v).is_some()) {
                    self.distrust(&spot.node);
                }
                values.into_iter().map(Ok).collect()
            }
            Err(error) => {
                self.distrust(&spot.node);
                batch.calls.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    /// Whether an answer of a Cluster sends us elsewhere.
    fn sent_on(&self, answer: &Answer) -> Option<Redirect> {
        let Servers::Cluster(_) = self.servers else { return None };
        answer.as_ref().ok().and_then(cluster::redirect)
    }

    /// A Cluster that could not decide in time who has a slot has done nothing.
    fn settled(&self, value: Value) -> Answer {
        match (&self.servers, cluster::redirect(&value)) {
            (Servers::Cluster(_), Some(_)) => {
                Err(error::new(ErrorKind::Unavailable, error::in_flux(self.address())))
            }
            _ => Ok(value),
        }
    }

    /// A server was of no use: look for a better one before the next call.
    fn distrust(&self, node: &Node) {
        match &self.servers {
            Servers::One(_) => {}
            Servers::Sentinels(sentinels) => sentinels.distrust(node),
            Servers::Cluster(cluster) => cluster.distrust(),
        }
    }
}

fn needs_runtime() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| {
        error::new(
            ErrorKind::Config,
            "the Redis store needs a tokio runtime; call it from within one",
        )
    })
}

/// Ends when other servers may have leases than before; never where that can't be.
pub(crate) async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Lets a little time pass.
pub(crate) async fn pause(span: Duration) {
    let _elapsed = timeout(span, std::future::pending::<()>()).await;
}
