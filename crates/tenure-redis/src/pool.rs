//! The connections to servers that calls are made on. Owns deadlines and reconnecting.
//!
//! Nothing queues while a server is away: each call connects by itself, in its own time, and a
//! connection that broke or hung is dropped for the next call to open another.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisResult, Value};
use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind};
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::cluster;
use crate::config::{RedisConfig, Settle};
use crate::connector::{Conn, Connector};
use crate::deadline::Deadline;
use crate::error;
use crate::primary::{Node, Primary, Servers};
use crate::script::{self, Call, Kind};

/// More connections than this are not kept at a time; older ones are let go. There is one for
/// each server and runtime.
const CONNS_MAX: usize = 1_024;

/// How many connections that wait for replicas are kept for the next call.
const SPARE_MAX: usize = 8;

/// Open connections.
pub(crate) struct Pool {
    pub(crate) config: Arc<RedisConfig>,
    pub(crate) connector: Connector,
    address: String,
    /// One connection per runtime and server: its task lives there, and a blocked runtime of the
    /// user's must not hold up the renewals of the driver's (C3).
    conns: Mutex<HashMap<(Id, Node), Conn>>,
    /// Those that nobody uses now and that calls have to themselves, because they wait for
    /// replicas (R3).
    spare: Mutex<HashMap<(Id, Node), Vec<Conn>>>,
    /// Held while somebody connects to a server; others wait for the outcome, within their own
    /// time. Only those of the same runtime: one that is blocked meanwhile must hold up nobody else
    /// (C3).
    connecting: KeyedLocks<(Id, Node)>,
    /// The run of the server that answered last: another one at its address may not know who
    /// leads (R2). A Cluster has many, and always settles.
    run: Mutex<String>,
}

/// A lock for each of several things.
pub(crate) struct KeyedLocks<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> KeyedLocks<K> {
        KeyedLocks(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// The lock of this one.
    pub(crate) fn of(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = lock(&self.0);
        // Runtimes come and go: those that nobody waits for are let go.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(key).or_default().clone()
    }
}

impl Pool {
    pub(crate) fn new(config: Arc<RedisConfig>) -> Pool {
        Pool {
            connector: Connector::new(&config),
            address: config.address(),
            config,
            conns: Mutex::default(),
            spare: Mutex::default(),
            connecting: KeyedLocks::default(),
            run: Mutex::default(),
        }
    }

    /// The store, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// One server of it, for messages.
    pub(crate) fn name_of(&self, node: &Node) -> String {
        match self.config.servers {
            Servers::Single(_) => self.address.clone(),
            _ => format!("{node} of {}", self.address),
        }
    }

    /// Makes all calls on one server in one round trip, each with its own answer, in order.
    ///
    /// With `asking`, another server sent us to this one, which is about to take over the slot.
    ///
    /// # Errors
    /// Whatever leaves all of them unknown.
    pub(crate) async fn call(
        self: &Arc<Pool>,
        primary: &Primary,
        calls: &[&Call],
        asking: bool,
        deadline: Deadline,
    ) -> Result<Vec<Value>, Error> {
        if self.config.wait_replicas > 0 && calls.iter().any(|call| call.grants()) {
            return self.call_and_wait(primary, calls, asking, deadline).await;
        }
        let conn = self.open(primary, deadline).await?;
        let answer = exchange(&conn, primary, calls, asking);
        let values = self.bounded(primary, &conn, answer, deadline.left()).await?;
        self.checked(&conn, calls.len(), values)
    }

    /// The same on a connection that nobody else uses, because it is silent until the replicas
    /// have all of it (R3). What they do not have in time is not granted.
    async fn call_and_wait(
        &self,
        primary: &Primary,
        calls: &[&Call],
        asking: bool,
        deadline: Deadline,
    ) -> Result<Vec<Value>, Error> {
        let key = (Handle::current().id(), primary.node.clone());
        let spare = lock(&self.spare).get_mut(&key).and_then(Vec::pop);
        let conn = match spare {
            Some(conn) => conn,
            None => self.in_time(primary, self.connect(primary), deadline.left()).await?,
        };
        let done = self.exchange_and_wait(primary, &conn, calls, asking, deadline).await;
        let mut spares = lock(&self.spare);
        match &done {
            // The server was demoted: its name may lead to another one by now.
            Ok(values) if values.iter().any(is_from_a_replica) => drop(spares.remove(&key)),
            Ok(_) => {
                let kept = spares.entry(key).or_default();
                if kept.len() < SPARE_MAX {
                    kept.push(conn);
                }
            }
            // What ended this one has ended the others, and each would cost a call to find out.
            Err(_) => drop(spares.remove(&key)),
        }
        done
    }

    async fn exchange_and_wait(
        &self,
        primary: &Primary,
        conn: &Conn,
        calls: &[&Call],
        asking: bool,
        deadline: Deadline,
    ) -> Result<Vec<Value>, Error> {
        let answer = exchange(conn, primary, calls, asking);
        let values = self.bounded(primary, conn, answer, deadline.left()).await?;
        let mut values = self.checked(conn, calls.len(), values)?;
        let is_grant = |index: usize, value: &Value| calls[index].grants() && is_granted(value);
        if !values.iter().enumerate().any(|(index, value)| is_grant(index, value)) {
            return Ok(values);
        }
        let wanted = self.config.wait_replicas;
        let limit = deadline.left().min(self.config.call_timeout);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg((limit * 4 / 5).as_millis().max(1));
        let mut connection = conn.connection.clone();
        // The server ends the wait by itself; a little later it counts as silent.
        let answer = connection.send_packed_command(&wait);
        let have = match self.answered(primary, conn, answer, limit).await? {
            Value::Int(have) => have,
            Value::ServerError(error) => {
                return Err(error::from_server(&self.name_of(&primary.node), &error));
            }
            _ => return Err(error::odd_answer()),
        };
        if have < i64::from(wanted) {
            let few = script::too_few_replicas(have, wanted);
            for (index, value) in values.iter_mut().enumerate() {
                if is_grant(index, value) {
                    *value = few.clone();
                }
            }
        }
        Ok(values)
    }

    /// One pass over the keys of a server that match, from a cursor on: the next cursor, and some
    /// keys.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub(crate) async fn scan(
        self: &Arc<Pool>,
        primary: &Primary,
        cursor: &str,
        pattern: &str,
        within: Duration,
    ) -> Result<(String, Vec<String>), Error> {
        let conn = self.open(primary, Deadline::each(within)).await?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
        let mut connection = conn.connection.clone();
        let answer = connection.send_packed_command(&scan);
        match self.bounded(primary, &conn, answer, within).await? {
            Value::ServerError(error) => {
                Err(error::from_server(&self.name_of(&primary.node), &error))
            }
            Value::Array(parts) => match parts.as_slice() {
                [next, Value::Array(keys)] => Ok((text(next), keys.iter().map(text).collect())),
                _ => Err(error::odd_answer()),
            },
            _ => Err(error::odd_answer()),
        }
    }

    /// Asks one of these servers: one that we are connected to, or else any, and keeps that
    /// connection. Nothing if there are none.
    pub(crate) async fn ask_any(
        self: &Arc<Pool>,
        primaries: &[Primary],
        question: &Cmd,
        within: Duration,
    ) -> Option<(Node, Result<Value, Error>)> {
        let runtime = Handle::current().id();
        let is_open =
            |primary: &&Primary| lock(&self.conns).contains_key(&(runtime, primary.node.clone()));
        // Each process has its own, or all would have the first one.
        let any = || primaries.get(std::process::id() as usize % primaries.len().max(1));
        let primary = primaries.iter().find(is_open).or_else(any)?;
        let asked = async {
            let conn = self.open(primary, Deadline::each(within)).await?;
            let mut connection = conn.connection.clone();
            let answer = connection.send_packed_command(question);
            self.bounded(primary, &conn, answer, within).await
        };
        Some((primary.node.clone(), asked.await))
    }

    /// Asks a server whether it can be used at all.
    ///
    /// # Errors
    /// Why it can't.
    pub(crate) async fn check(
        self: &Arc<Pool>,
        primary: &Primary,
        within: Duration,
    ) -> Result<(), Error> {
        let conn = self.open(primary, Deadline::each(within)).await?;
        let call = self.hello(primary);
        let calls = [&call];
        let answer = exchange(&conn, primary, &calls, false);
        let answer = self.bounded(primary, &conn, answer, within).await?;
        let answer = answer.first().ok_or_else(error::odd_answer)?;
        self.greeted(primary, answer)
    }

    fn checked(&self, conn: &Conn, count: usize, values: Vec<Value>) -> Result<Vec<Value>, Error> {
        if values.len() != count {
            self.forget(conn);
            return Err(error::odd_answer());
        }
        // The server was demoted: its name may lead to another one by now.
        if values.iter().any(is_from_a_replica) {
            self.forget(conn);
        }
        Ok(values)
    }

    /// Waits for an answer in time, and lets go of a connection that did not give one.
    async fn bounded<T>(
        &self,
        primary: &Primary,
        conn: &Conn,
        answer: impl Future<Output = RedisResult<T>>,
        within: Duration,
    ) -> Result<T, Error> {
        self.answered(primary, conn, answer, within.min(self.config.call_timeout)).await
    }

    async fn answered<T>(
        &self,
        primary: &Primary,
        conn: &Conn,
        answer: impl Future<Output = RedisResult<T>>,
        within: Duration,
    ) -> Result<T, Error> {
        match timeout(within, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.forget(conn);
                Err(error::from_driver(&self.name_of(&primary.node), error))
            }
            Err(_) => {
                self.forget(conn);
                Err(error::silent(&self.name_of(&primary.node), "answer", within))
            }
        }
    }

    /// The connection, within this time. One that takes longer is made all the same, in the time of
    /// its own step, and serves the next call.
    async fn open(self: &Arc<Pool>, primary: &Primary, deadline: Deadline) -> Result<Conn, Error> {
        let runtime = Handle::current();
        if let Some(conn) = lock(&self.conns).get(&(runtime.id(), primary.node.clone())) {
            return Ok(conn.clone());
        }
        let (pool, at, each) = (self.clone(), primary.clone(), deadline.per_step());
        let task = runtime.spawn(async move { pool.in_time(&at, pool.conn(&at), each).await });
        // It does not panic; its runtime may end.
        let ended = || Err(error::silent(&self.name_of(&primary.node), "take a connection", each));
        let conn = async { task.await.unwrap_or_else(|_| ended()) };
        self.in_time(primary, conn, deadline.left()).await
    }

    async fn in_time(
        &self,
        primary: &Primary,
        conn: impl Future<Output = Result<Conn, Error>>,
        within: Duration,
    ) -> Result<Conn, Error> {
        let within = within.min(self.config.connect_timeout);
        timeout(within, conn).await.unwrap_or_else(|_| {
            Err(error::silent(&self.name_of(&primary.node), "take a connection", within))
        })
    }

    /// The open connection of this runtime, or a new one.
    async fn conn(&self, primary: &Primary) -> Result<Conn, Error> {
        let key = (Handle::current().id(), primary.node.clone());
        if let Some(conn) = lock(&self.conns).get(&key) {
            return Ok(conn.clone());
        }
        let turn = self.connecting.of(key.clone());
        let _locked = turn.lock().await;
        if let Some(conn) = lock(&self.conns).get(&key) {
            return Ok(conn.clone());
        }
        let conn = self.connect(primary).await?;
        let mut conns = lock(&self.conns);
        if conns.len() >= CONNS_MAX {
            conns.clear();
        }
        conns.insert(key, conn.clone());
        Ok(conn)
    }

    async fn connect(&self, primary: &Primary) -> Result<Conn, Error> {
        let address = self.name_of(&primary.node);
        let login = &self.config.login;
        let mut conn = self.connector.open(&primary.node, &address, login, None).await?;
        let answer = conn
            .connection
            .send_packed_command(&self.hello(primary).in_full(primary))
            .await
            .map_err(|error| error::from_driver(&address, error))?;
        self.greeted(primary, &answer)?;
        Ok(conn)
    }

    fn hello(&self, primary: &Primary) -> Call {
        let settles = self.config.settle != Settle::Off && !primary.marker.is_empty();
        let settle = if settles { "on" } else { "off" };
        Call::new(Kind::Hello, Vec::new(), vec![settle.to_owned(), lock(&self.run).clone()])
    }

    /// What the server says of itself.
    fn greeted(&self, primary: &Primary, answer: &Value) -> Result<(), Error> {
        let address = &self.name_of(&primary.node);
        let words = match answer {
            // The slots have changed since they were asked for.
            moved if primary.in_cluster && cluster::redirect(moved).is_some() => {
                return Err(error::new(ErrorKind::Unavailable, error::in_flux(address)));
            }
            Value::ServerError(error) => return Err(error::from_server(address, error)),
            Value::Array(words) => words.iter().map(text).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let [mode, maxmemory, policy, role, run] = words.as_slice() else {
            return Err(error::odd_answer());
        };
        if mode == "cluster" && !primary.in_cluster {
            return Err(error::new(ErrorKind::Unsupported, error::in_cluster(address)));
        }
        if role == "slave" {
            return Err(error::new(ErrorKind::Unavailable, error::is_replica(address)));
        }
        if !primary.in_cluster {
            lock(&self.run).clone_from(run);
        }
        if !["", "0"].contains(&maxmemory.as_str()) && policy != "noeviction" {
            // Only notes that are evicted with their lease make a second leader (R6).
            tracing::warn!(
                %address, %policy,
                "the server may evict a lease when its memory is full, and a second leader may be \
                 elected then if its notes are evicted too (allkeys-*) or other clients use the \
                 key; set maxmemory-policy noeviction, or use a server of its own"
            );
        }
        Ok(())
    }

    /// Lets a connection go that is of no use any more, unless another has taken its place.
    fn forget(&self, conn: &Conn) {
        lock(&self.conns).retain(|_, other| other.number != conn.number);
    }
}

/// Sends everything at once. What the server did not know by its hash was not done, and is sent
/// again in full.
async fn exchange(
    conn: &Conn,
    primary: &Primary,
    calls: &[&Call],
    asking: bool,
) -> RedisResult<Vec<Value>> {
    if asking {
        // The permission to ask holds for one command, so each has its own.
        let mut pipeline = Pipeline::with_capacity(calls.len() * 2);
        for call in calls {
            pipeline.add_command(redis::cmd("ASKING")).add_command(call.in_full(primary));
        }
        let values = send(conn, &pipeline, calls.len() * 2).await?;
        return Ok(values.into_iter().skip(1).step_by(2).collect());
    }
    let mut values = send(conn, &script::pipeline(calls, primary), calls.len()).await?;
    let unknown: Vec<usize> =
        (0..values.len()).filter(|index| script::is_unknown_script(&values[*index])).collect();
    if unknown.is_empty() || values.len() != calls.len() {
        return Ok(values);
    }
    let again: Vec<&Call> = unknown.iter().map(|index| calls[*index]).collect();
    let answers = send(conn, &script::teaching_pipeline(&again, primary), again.len()).await?;
    for (index, answer) in unknown.into_iter().zip(answers) {
        values[index] = answer;
    }
    Ok(values)
}

async fn send(conn: &Conn, pipeline: &Pipeline, count: usize) -> RedisResult<Vec<Value>> {
    conn.connection.clone().send_packed_commands(pipeline, 0, count).await
}

fn is_granted(value: &Value) -> bool {
    let Value::Array(words) = value else { return false };
    words.first().is_some_and(|word| text(word) == "granted")
}

/// The server was demoted.
pub(crate) fn is_from_a_replica(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "READONLY")
}

/// A string of an answer; nothing for anything else.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}
