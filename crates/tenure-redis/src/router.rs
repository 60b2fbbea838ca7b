//! Which server a call goes to, and what to do when it is not there any more.
//!
//! Decides nothing about leases. Nothing that was done is done again unless the server says that
//! it did not do it; and if it were, each script may run twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{ProtocolVersion, Value};
use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::cluster::{self, Cluster, Map, Redirect};
use crate::config::RedisConfig;
use crate::connector::{Conn, OnPush};
use crate::deadline::{Deadline, now, pause};
use crate::error;
use crate::keys::Keys;
use crate::pool::{Pool, is_from_a_replica};
use crate::primary::{Node, Primary, Servers};
use crate::script::Call;
use crate::sentinel::Sentinels;

/// How often a call is sent on to another server of a Cluster.
const HOPS_MAX: usize = 8;

/// How long to wait before a Cluster in the middle of a change is asked again.
const LATER: Duration = Duration::from_millis(25);

/// What calls are made on.
pub(crate) struct Router {
    pool: Arc<Pool>,
    topology: Topology,
}

/// Where leases are.
enum Topology {
    One(Primary),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Each step of a call: finding the server, connecting, answering.
    pub(crate) within: Duration,
    /// All steps, where several servers have a part of the calls.
    pub(crate) together: Duration,
}

impl Timeouts {
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
    primary: Primary,
    calls: Vec<Pending>,
}

impl Router {
    pub(crate) fn new(config: Arc<RedisConfig>, keys: &Keys) -> Router {
        let servers = config.servers.clone();
        let pool = Arc::new(Pool::new(config));
        let topology = match servers {
            Servers::Single(node) => Topology::One(keys.primary(node)),
            Servers::Sentinel { sentinels, name } => {
                let keys = keys.clone();
                Topology::Sentinels(Sentinels::new(pool.clone(), sentinels, name, keys))
            }
            Servers::Cluster { seeds } => {
                Topology::Cluster(Cluster::new(pool.clone(), seeds, keys.clone()))
            }
        };
        Router { pool, topology }
    }

    /// The store, for messages.
    pub(crate) fn address(&self) -> &str {
        self.pool.address()
    }

    /// Makes all calls, those of one server in one round trip. Each has its own answer, in order.
    ///
    /// `timeouts` bounds finding the server, connecting and answering, each on its own; and all of
    /// it if several servers have a part, so that those that answer do not wait long for one that
    /// hangs.
    pub(crate) async fn call(&self, calls: &[&Call], timeouts: Timeouts) -> Vec<Answer> {
        let Timeouts { within, together } = timeouts;
        let mut answers: Vec<Option<Answer>> = calls.iter().map(|_| None).collect();
        let mut pending: Vec<Pending> =
            (0..calls.len()).map(|index| Pending { index, ask: None }).collect();
        let began = now();
        let until = began + within;
        let mut deadline = Deadline::each(within);
        for hop in 0..=HOPS_MAX {
            let batches = match self.batches(calls, &pending, timeouts).await {
                Ok(batches) => batches,
                Err(error) => {
                    for Pending { index, .. } in pending.drain(..) {
                        answers[index] = Some(Err(error.clone()));
                    }
                    break;
                }
            };
            if batches.len() > 1 {
                deadline = deadline.until(began + together);
            }
            let sent = batches.iter().map(|batch| self.send(calls, batch, deadline));
            let done = join_all(sent).await;
            pending.clear();
            let mut wait = false;
            for (batch, values) in batches.into_iter().zip(done) {
                let last = hop == HOPS_MAX || now() >= until;
                for (call, value) in batch.calls.into_iter().zip(values) {
                    match self.sent_on(&value, &batch.primary.node).filter(|_| !last) {
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
        let primaries = self.primaries(within).await?;
        let checks = primaries.iter().map(|primary| async {
            let checked = self.pool.check(primary, within).await;
            checked.inspect_err(|_| self.distrust(&primary.node))
        });
        join_all(checks).await.into_iter().collect()
    }

    /// One pass over the keys of a server that match: the next cursor, and some keys.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub(crate) async fn scan(
        &self,
        primary: &Primary,
        cursor: &str,
        pattern: &str,
        within: Duration,
    ) -> Result<(String, Vec<String>), Error> {
        let part = self.pool.scan(primary, cursor, pattern, within).await;
        part.inspect_err(|_| self.distrust(&primary.node))
    }

    /// All servers that have leases.
    ///
    /// # Errors
    /// Why nobody knows them.
    pub(crate) async fn primaries(&self, within: Duration) -> Result<Vec<Primary>, Error> {
        Ok(self.map(within).await?.primaries.clone())
    }

    /// Which server has which keys.
    ///
    /// # Errors
    /// Why nobody knows.
    pub(crate) async fn map(&self, within: Duration) -> Result<Arc<Map>, Error> {
        current_runtime()?;
        let primary = match &self.topology {
            Topology::One(primary) => primary.clone(),
            Topology::Sentinels(sentinels) => sentinels.primary(within).await?,
            Topology::Cluster(cluster) => return cluster.map(within).await,
        };
        Ok(Arc::new(Map::of_one(primary)))
    }

    /// Tells when other servers may have leases than before.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<u64>> {
        match &self.topology {
            Topology::Cluster(cluster) => Some(cluster.changes()),
            _ => None,
        }
    }

    /// Looks whether other servers have leases by now.
    pub(crate) async fn refresh(&self, within: Duration) {
        if let Topology::Cluster(cluster) = &self.topology {
            cluster.refresh(within).await;
        }
    }

    /// A connection of its own on which a server pushes what it is asked for.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn connect_for_pushes(
        &self,
        primary: &Primary,
        on_push: OnPush,
    ) -> Result<Conn, Error> {
        let (node, pool) = (&primary.node, &self.pool);
        let login = pool.config.login.clone().set_protocol(ProtocolVersion::RESP3);
        pool.connector.open(node, &pool.name_of(node), &login, Some(on_push)).await
    }

    /// One server, for messages.
    pub(crate) fn name_of(&self, primary: &Primary) -> String {
        self.pool.name_of(&primary.node)
    }

    /// Who is to do what.
    async fn batches(
        &self,
        calls: &[&Call],
        pending: &[Pending],
        timeouts: Timeouts,
    ) -> Result<Vec<Batch>, Error> {
        current_runtime()?;
        let all = |primary| Ok(vec![Batch { primary, calls: pending.to_vec() }]);
        let cluster = match &self.topology {
            Topology::One(primary) => return all(primary.clone()),
            Topology::Sentinels(sentinels) => {
                return all(sentinels.primary(timeouts.within).await?);
            }
            Topology::Cluster(cluster) => cluster,
        };
        let limit = if cluster.has_map() { timeouts.finding() } else { timeouts.within };
        let map = cluster.map(limit).await?;
        let mut batches: Vec<Batch> = Vec::new();
        for call in pending {
            // One that has no slot yet is not on the map.
            let asked = call.ask.clone().map(|node| match map.primary_at(&node) {
                Some(primary) => primary.clone(),
                None => Keys::primary_without_slots(node),
            });
            let key = calls[call.index].keys.first().map_or("", String::as_str);
            let Some(primary) = asked.or_else(|| map.primary_of(key).cloned()) else {
                cluster.distrust();
                return Err(error::new(ErrorKind::Unavailable, error::in_flux(self.address())));
            };
            // Those that ask and those that do not are apart.
            let same =
                |batch: &&mut Batch| batch.primary == primary && batch.calls[0].ask == call.ask;
            match batches.iter_mut().find(same) {
                Some(batch) => batch.calls.push(call.clone()),
                None => batches.push(Batch { primary, calls: vec![call.clone()] }),
            }
        }
        Ok(batches)
    }

    /// Has one server do its part.
    async fn send(&self, calls: &[&Call], batch: &Batch, deadline: Deadline) -> Vec<Answer> {
        let primary = &batch.primary;
        let part: Vec<&Call> = batch.calls.iter().map(|call| calls[call.index]).collect();
        let asking = batch.calls.iter().any(|call| call.ask.is_some());
        let done = self.pool.call(primary, &part, asking, deadline).await;
        match done {
            Ok(values) => {
                if values.iter().any(|v| is_from_a_replica(v) || cluster::redirect(v).is_some()) {
                    self.distrust(&primary.node);
                }
                values.into_iter().map(Ok).collect()
            }
            Err(error) => {
                self.distrust(&primary.node);
                batch.calls.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    /// Whether an answer of a Cluster sends us elsewhere.
    fn sent_on(&self, answer: &Answer, by: &Node) -> Option<Redirect> {
        let Topology::Cluster(_) = self.topology else { return None };
        match answer.as_ref().ok().and_then(cluster::redirect)? {
            // Servers that do not know the names of others tell their ports.
            Redirect::Ask(Node { host, port }) if host.is_empty() => {
                Some(Redirect::Ask(Node { host: by.host.clone(), port }))
            }
            redirect => Some(redirect),
        }
    }

    /// A Cluster that could not decide in time who has a slot has done nothing.
    fn settled(&self, value: Value) -> Answer {
        match (&self.topology, cluster::redirect(&value)) {
            (Topology::Cluster(_), Some(_)) => {
                Err(error::new(ErrorKind::Unavailable, error::in_flux(self.address())))
            }
            _ => Ok(value),
        }
    }

    /// A server was of no use: look for a better one before the next call.
    pub(crate) fn distrust(&self, node: &Node) {
        match &self.topology {
            Topology::One(_) => {}
            Topology::Sentinels(sentinels) => sentinels.distrust(node),
            Topology::Cluster(cluster) => cluster.distrust(),
        }
    }
}

/// The runtime that we are called on.
///
/// # Errors
/// `Config` if there is none.
pub(crate) fn current_runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(20);

    /// A Cluster of one server that has all slots, and how many connections it took.
    fn cluster() -> (Node, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let taken = count.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                taken.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || answer(stream.unwrap(), port));
            }
        });
        (Node { host: "127.0.0.1".to_owned(), port }, count)
    }

    fn answer(mut stream: std::net::TcpStream, port: u16) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let number = |reader: &mut BufReader<_>| {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            line.trim_end().get(1..)?.parse::<usize>().ok()
        };
        loop {
            let mut words = Vec::new();
            for _ in 0..number(&mut reader)? {
                let mut word = vec![0; number(&mut reader)? + 2];
                reader.read_exact(&mut word).ok()?;
                words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
            }
            let slots = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
            let answer = match words[0].as_str() {
                "CLUSTER" => slots,
                "EVAL" | "EVALSHA" => {
                    "*5\r\n$7\r\ncluster\r\n+\r\n+\r\n+master\r\n+1\r\n".to_owned()
                }
                _ => "+OK\r\n".to_owned(),
            };
            stream.write_all(answer.as_bytes()).ok()?;
        }
    }

    /// Every candidate does this every 15 s: with a thousand of them, new connections would be a
    /// load of their own.
    #[tokio::test]
    async fn looking_at_the_slots_again_opens_no_more_connections() {
        let (node, count) = cluster();
        let config = RedisConfig::from_url(&format!("redis+cluster://{node}")).unwrap();
        let router = Router::new(Arc::new(config), &Keys::in_cluster("").unwrap());
        router.check(WITHIN).await.unwrap();
        let before = count.load(Ordering::SeqCst);
        for _ in 0..5 {
            router.refresh(WITHIN).await;
        }
        assert_eq!(count.load(Ordering::SeqCst), before);
    }

    /// Nobody who only listens needs more than one.
    #[tokio::test]
    async fn looking_at_the_slots_again_keeps_one_connection() {
        let (node, count) = cluster();
        let config = RedisConfig::from_url(&format!("redis+cluster://{node}")).unwrap();
        let router = Router::new(Arc::new(config), &Keys::in_cluster("").unwrap());
        router.map(WITHIN).await.unwrap();
        for _ in 0..5 {
            router.refresh(WITHIN).await;
        }
        assert!(count.load(Ordering::SeqCst) <= 2, "{count:?}");
    }
}
