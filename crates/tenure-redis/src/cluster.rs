//! The slots of a Cluster: who has which, and what tenure keeps on each primary.
//!
//! A script can only use keys of servers that it runs on, so each primary has a marker of its own
//! (R2). It is in the lowest slot that the primary has, so that everybody who knows the slots
//! finds the same one. ADR 0010 tells what follows from that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ServerError, Value};
use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind};
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error;
use crate::hash_slot::{SLOTS, slot_of, tag_for};
use crate::keys::Keys;
use crate::pool::{KeyedLocks, Pool, text};
use crate::primary::{Node, Primary};

/// Who has which slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Map {
    /// Only those that have a marker.
    pub(crate) primaries: Vec<Primary>,
    /// First slot, last slot, and whose.
    ranges: Vec<(u16, u16, usize)>,
}

impl Map {
    /// One server that has all keys.
    pub(crate) fn of_one(primary: Primary) -> Map {
        Map { primaries: vec![primary], ranges: vec![(0, SLOTS - 1, 0)] }
    }

    /// The server of a key.
    pub(crate) fn primary_of(&self, key: &str) -> Option<&Primary> {
        let slot = slot_of(key);
        let range = self.ranges.iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
        range.map(|(_, _, index)| &self.primaries[*index])
    }

    /// The server of this address.
    pub(crate) fn primary_at(&self, node: &Node) -> Option<&Primary> {
        self.primaries.iter().find(|primary| primary.node == *node)
    }
}

/// A Cluster.
pub(crate) struct Cluster {
    pool: Arc<Pool>,
    seeds: Vec<Node>,
    keys: Keys,
    state: Mutex<State>,
    /// Held while somebody asks; others of the same runtime wait for the outcome, within their own
    /// time (C3).
    asking: KeyedLocks<Id>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    map: Option<Arc<Map>>,
    stale: bool,
}

/// What a server says instead of doing what was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is elsewhere for good, or the server's marker is.
    Moved,
    /// The slot is about to be there: ask there, this once.
    Ask(Node),
    /// Not now.
    Later,
}

impl Cluster {
    pub(crate) fn new(pool: Arc<Pool>, seeds: Vec<Node>, keys: Keys) -> Cluster {
        Cluster {
            pool,
            seeds,
            keys,
            state: Mutex::default(),
            asking: KeyedLocks::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Who has which slot; asks if nobody knows, or what is known was wrong.
    ///
    /// # Errors
    /// Why nobody tells.
    pub(crate) async fn map(&self, within: Duration) -> Result<Arc<Map>, Error> {
        if let Some(map) = self.known() {
            return Ok(map);
        }
        let asked = timeout(within, async {
            let lock = self.asking.of(Handle::current().id());
            let _locked = lock.lock().await;
            match self.known() {
                Some(map) => Ok(map),
                None => self.ask(within).await,
            }
        });
        let asked = asked
            .await
            .unwrap_or_else(|_| Err(error::silent(self.pool.address(), "tell its slots", within)));
        // An old map is better than none: its servers say so if it is wrong.
        asked.or_else(|error| lock(&self.state).map.clone().ok_or(error))
    }

    /// Whether anybody told the slots before.
    pub(crate) fn has_map(&self) -> bool {
        lock(&self.state).map.is_some()
    }

    /// Asks again, though nobody found what is known to be wrong: a server that was given another
    /// slot tells nobody. Others go by the old map meanwhile. Asks one server on a connection that
    /// is there, because everybody does this all the time; and all of them if that one is of no
    /// use.
    pub(crate) async fn refresh(&self, within: Duration) {
        let map = lock(&self.state).map.clone();
        let primaries = map.as_ref().map_or(&[][..], |map| &map.primaries);
        let told = match self.pool.ask_any(primaries, &question(), within).await {
            Some((node, Ok(answer))) => self.read(&node, answer),
            _ => Err(error::odd_answer()),
        };
        let told = match told {
            Ok(map) => Ok(self.learn(map)),
            Err(_) => self.ask(within).await,
        };
        if let Err(error) = told {
            tracing::debug!(address = self.pool.address(), %error, "nobody told the slots");
        }
    }

    /// What is known may be wrong by now.
    pub(crate) fn distrust(&self) {
        lock(&self.state).stale = true;
    }

    /// Tells when the map has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn known(&self) -> Option<Arc<Map>> {
        let state = lock(&self.state);
        state.map.clone().filter(|_| !state.stale)
    }

    /// Asks everybody, and takes the first answer.
    async fn ask(&self, within: Duration) -> Result<Arc<Map>, Error> {
        let mut nodes = self.seeds.clone();
        if let Some(map) = lock(&self.state).map.clone() {
            nodes.extend(map.primaries.iter().map(|primary| primary.node.clone()));
        }
        nodes.sort_unstable();
        nodes.dedup();
        let mut answers: FuturesUnordered<_> =
            nodes.iter().map(|node| self.ask_one(node, within)).collect();
        let mut trouble: Option<Error> = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(map) => return Ok(self.learn(map)),
                Err(error) if trouble.as_ref().is_none_or(Error::is_retryable) => {
                    trouble = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(trouble.unwrap_or_else(error::odd_answer))
    }

    fn learn(&self, map: Map) -> Arc<Map> {
        let mut state = lock(&self.state);
        state.stale = false;
        match &state.map {
            Some(known) if **known == map => known.clone(),
            _ => {
                let map = Arc::new(map);
                state.map = Some(map.clone());
                self.changes.send_modify(|count| *count += 1);
                map
            }
        }
    }

    async fn ask_one(&self, node: &Node, within: Duration) -> Result<Map, Error> {
        let address = self.pool.name_of(node);
        let asked = timeout(within, async {
            let login = &self.pool.config.login;
            let mut conn = self.pool.connector.open(node, &address, login, None).await?;
            let answer = conn.connection.send_packed_command(&question()).await;
            answer.map_err(|error| error::from_driver(&address, error))
        });
        let answer = asked.await.unwrap_or_else(|_| Err(error::silent(&address, "answer", within)));
        self.read(node, answer?)
    }

    /// What a server said of the slots.
    fn read(&self, node: &Node, answer: Value) -> Result<Map, Error> {
        let address = self.pool.name_of(node);
        match answer {
            Value::ServerError(error) => Err(refused(&address, &error)),
            answer => {
                let owned = owners(&answer, node).ok_or_else(error::odd_answer)?;
                if owned.is_empty() {
                    return Err(error::new(ErrorKind::Unavailable, error::in_flux(&address)));
                }
                Ok(self.drawn(owned))
            }
        }
    }

    fn drawn(&self, owned: BTreeMap<Node, Vec<(u16, u16)>>) -> Map {
        let mut map = Map { primaries: Vec::new(), ranges: Vec::new() };
        for (node, ranges) in owned {
            let Some(lowest) = ranges.iter().map(|(from, _)| *from).min() else { continue };
            let holds = |slot| ranges.iter().any(|(from, to)| (*from..=*to).contains(&slot));
            let Some(primary) = self.keys.primary_in_cluster(node, &tag_for(lowest), holds) else {
                continue;
            };
            let index = map.primaries.len();
            map.primaries.push(primary);
            map.ranges.extend(ranges.iter().map(|(from, to)| (*from, *to, index)));
        }
        map
    }
}

/// Which slots there are, and whose.
fn question() -> Cmd {
    redis::cmd("CLUSTER").arg("SLOTS").to_owned()
}

/// The slots of each primary, as `CLUSTER SLOTS` tells them.
fn owners(answer: &Value, asked: &Node) -> Option<BTreeMap<Node, Vec<(u16, u16)>>> {
    let Value::Array(rows) = answer else { return None };
    let mut owned: BTreeMap<Node, Vec<(u16, u16)>> = BTreeMap::new();
    for row in rows {
        let Value::Array(row) = row else { return None };
        let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = row.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match text(host) {
            // It does not know its own name: then it is the one that we know.
            host if host.is_empty() || host == "?" => asked.host.clone(),
            host => host,
        };
        let (from, to) = (u16::try_from(*from).ok()?, u16::try_from(*to).ok()?);
        if from > to || to >= SLOTS {
            return None;
        }
        let node = Node { host, port: u16::try_from(*port).ok()? };
        owned.entry(node).or_default().push((from, to));
    }
    Some(owned)
}

fn refused(address: &str, error: &ServerError) -> Error {
    let detail = error.details().unwrap_or_default();
    if detail.contains("cluster support disabled") {
        return error::new(
            ErrorKind::Config,
            format!("{address} is not part of a Cluster; write redis:// instead"),
        );
    }
    error::from_server(address, error)
}

/// Whether an answer sends us elsewhere. Then nothing was done.
pub(crate) fn redirect(value: &Value) -> Option<Redirect> {
    let Value::ServerError(error) = value else { return None };
    let detail = error.details().unwrap_or_default();
    match error.code() {
        "MOVED" => Some(Redirect::Moved),
        "ASK" => {
            let (host, port) = detail.split(' ').nth(1)?.rsplit_once(':')?;
            Some(Redirect::Ask(Node { host: host.to_owned(), port: port.parse().ok()? }))
        }
        "TRYAGAIN" | "CLUSTERDOWN" => Some(Redirect::Later),
        // The marker has moved away from under the script. Valkey begins it with a capital.
        "ERR" if detail.contains("ttempted to access a non local key") => Some(Redirect::Moved),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: i64, to: i64, host: &str, port: i64) -> Value {
        let node = |host: &str, port| {
            Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(port)])
        };
        let replica = node("replica", 9);
        Value::Array(vec![Value::Int(from), Value::Int(to), node(host, port), replica])
    }

    #[test]
    fn slots_belong_to_the_first_server_of_their_row() {
        let asked = Node { host: "seed".to_owned(), port: 1 };
        let rows = vec![row(0, 99, "a", 7), row(100, 199, "", 8), row(200, 16_383, "a", 7)];
        let owned = owners(&Value::Array(rows), &asked).unwrap();
        let a = Node { host: "a".to_owned(), port: 7 };
        let seed = Node { host: "seed".to_owned(), port: 8 };
        assert_eq!(owned[&a], [(0, 99), (200, 16_383)]);
        assert_eq!(owned[&seed], [(100, 199)], "without a name it is the one that we asked");
    }

    #[test]
    fn an_answer_that_tells_no_slots_is_refused() {
        let asked = Node { host: "seed".to_owned(), port: 1 };
        for rows in [vec![row(5, 2, "a", 7)], vec![row(0, 16_384, "a", 7)], vec![Value::Nil]] {
            assert_eq!(owners(&Value::Array(rows.clone()), &asked), None, "{rows:?}");
        }
    }
}
