//! The connections to servers that calls are made on. Owns deadlines and reconnecting.
//!
//! Nothing queues while a server is away: each call connects by itself, in its own time, and a
//! connection that broke or hung is dropped for the next call to open another.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Pipeline, ProtocolVersion, RedisResult, Value};
use tenure_core::{Error, ErrorKind};
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::cluster;
use crate::config::{RedisConfig, Settle};
use crate::dial::{Dial, Pushes, Wire};
use crate::error;
use crate::patience::Patience;
use crate::place::{Node, Place, Spot};
use crate::script::{self, Call, Kind};

/// More connections than this are not kept at a time; older ones are let go. There is one for
/// each server and runtime.
const LINES_MAX: usize = 1_024;

/// How many connections that wait for replicas are kept for the next call.
const SPARE_MAX: usize = 8;

/// Open connections.
pub(crate) struct Lines {
    pub(crate) config: Arc<RedisConfig>,
    pub(crate) dial: Dial,
    address: String,
    /// One connection per runtime and server: its task lives there, and a blocked runtime of the
    /// user's must not hold up the renewals of the driver's (C3).
    lines: Mutex<HashMap<(Id, Node), Line>>,
    /// Those that nobody uses now and that calls have to themselves, because they wait for
    /// replicas (R3).
    spare: Mutex<HashMap<(Id, Node), Vec<Line>>>,
    /// Whoever connects to a server; others wait for the outcome, within their own time. Only those
    /// of the same runtime: one that is blocked meanwhile must hold up nobody else (C3).
    turns: Turns<(Id, Node)>,
    numbers: AtomicU64,
}

/// Whose turn it is, for each of several things.
pub(crate) struct Turns<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Turns<K> {
        Turns(Mutex::default())
    }
}

impl<K: Eq + Hash> Turns<K> {
    /// The turn of this one.
    pub(crate) fn of(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = held(&self.0);
        // Runtimes come and go: those that nobody waits for are let go.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(key).or_default().clone()
    }
}

/// An open connection to a server that was greeted.
#[derive(Clone)]
pub(crate) struct Line {
    number: u64,
    wire: Wire,
}

impl Lines {
    pub(crate) fn new(config: Arc<RedisConfig>) -> Lines {
        Lines {
            dial: Dial::new(&config),
            address: config.address(),
            config,
            lines: Mutex::default(),
            spare: Mutex::default(),
            turns: Turns::default(),
            numbers: AtomicU64::new(0),
        }
    }

    /// The store, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// One server of it, for messages.
    pub(crate) fn name_of(&self, node: &Node) -> String {
        match self.config.place {
            Place::Single(_) => self.address.clone(),
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
        self: &Arc<Lines>,
        spot: &Spot,
        calls: &[&Call],
        asking: bool,
        patience: Patience,
    ) -> Result<Vec<Value>, Error> {
        if self.config.wait_replicas > 0 && calls.iter().any(|call| call.grants()) {
            return self.call_and_wait(spot, calls, asking, patience).await;
        }
        let line = self.open(spot, patience).await?;
        let answer = exchange(&line, spot, calls, asking);
        let values = self.bounded(spot, &line, answer, patience.left()).await?;
        self.checked(&line, calls.len(), values)
    }

    /// The same on a connection that nobody else uses, because it is silent until the replicas
    /// have all of it (R3). What they do not have in time is not granted.
    async fn call_and_wait(
        &self,
        spot: &Spot,
        calls: &[&Call],
        asking: bool,
        patience: Patience,
    ) -> Result<Vec<Value>, Error> {
        let key = (Handle::current().id(), spot.node.clone());
        let spare = held(&self.spare).get_mut(&key).and_then(Vec::pop);
        let line = match spare {
            Some(line) => line,
            None => self.in_time(spot, self.connect(spot), patience.left()).await?,
        };
        let done = self.exchange_and_wait(spot, &line, calls, asking, patience).await;
        let mut spares = held(&self.spare);
        match &done {
            // The server was demoted: its name may lead to another one by now.
            Ok(values) if values.iter().any(is_from_a_replica) => drop(spares.remove(&key)),
            Ok(_) => {
                let kept = spares.entry(key).or_default();
                if kept.len() < SPARE_MAX {
                    kept.push(line);
                }
            }
            // What ended this one has ended the others, and each would cost a call to find out.
            Err(_) => drop(spares.remove(&key)),
        }
        done
    }

    async fn exchange_and_wait(
        &self,
        spot: &Spot,
        line: &Line,
        calls: &[&Call],
        asking: bool,
        patience: Patience,
    ) -> Result<Vec<Value>, Error> {
        let answer = exchange(line, spot, calls, asking);
        let values = self.bounded(spot, line, answer, patience.left()).await?;
        let mut values = self.checked(line, calls.len(), values)?;
        let is_grant = |index: usize, value: &Value| calls[index].grants() && is_granted(value);
        if !values.iter().enumerate().any(|(index, value)| is_grant(index, value)) {
            return Ok(values);
        }
        let wanted = self.config.wait_replicas;
        let limit = patience.left().min(self.config.call_timeout);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg((limit * 4 / 5).as_millis().max(1));
        let mut connection = line.wire.connection.clone();
        // The server ends the wait by itself; a little later it counts as silent.
        let answer = connection.send_packed_command(&wait);
        let have = match self.answered(spot, line, answer, limit).await? {
            Value::Int(have) => have,
            Value::ServerError(error) => {
                return Err(error::from_server(&self.name_of(&spot.node), &error));
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
        self: &Arc<Lines>,
        spot: &Spot,
        cursor: &str,
        pattern: &str,
        within: Duration,
    ) -> Result<(String, Vec<String>), Error> {
        let line = self.open(spot, Patience::each(within)).await?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
        let mut connection = line.wire.connection.clone();
        let answer = connection.send_packed_command(&scan);
        match self.bounded(spot, &line, answer, within).await? {
            Value::ServerError(error) => Err(error::from_server(&self.name_of(&spot.node), &error)),
            Value::Array(parts) => match parts.as_slice() {
                [next, Value::Array(keys)] => Ok((text(next), keys.iter().map(text).collect())),
                _ => Err(error::odd_answer()),
            },
            _ => Err(error::odd_answer()),
        }
    }

    /// Asks a server whether it can be used at all.
    ///
    /// # Errors
    /// Why it can't.
    pub(crate) async fn check(
        self: &Arc<Lines>,
        spot: &Spot,
        within: Duration,
    ) -> Result<(), Error> {
        let line = self.open(spot, Patience::each(within)).await?;
        let call = self.hello(spot);
        let calls = [&call];
        let answer = exchange(&line, spot, &calls, false);
        let answer = self.bounded(spot, &line, answer, within).await?;
        let answer = answer.first().ok_or_else(error::odd_answer)?;
        self.greeted(spot, answer)
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
        let address = self.name_of(&spot.node);
        let subscribed = timeout(within, async {
            let login = self.config.login.clone().set_protocol(ProtocolVersion::RESP3);
            let mut wire = self.dial.open(&spot.node, &address, &login, Some(pushes)).await?;
            let plain_only = usize::from(!spot.in_cluster);
            for command in &["SSUBSCRIBE", "SUBSCRIBE"][plain_only..] {
                let subscribe = redis::cmd(command).arg(&spot.channel).to_owned();
                match wire.connection.send_packed_command(&subscribe).await {
                    // A server before 7.0 has no sharded channels.
                    Err(error) if *command == "SSUBSCRIBE" && is_unknown_command(&error) => {}
                    Err(error) => return Err(error::from_driver(&address, error)),
                    Ok(Value::ServerError(error)) => {
                        return Err(error::from_server(&address, &error));
                    }
                    Ok(_) => break,
                }
            }
            Ok(wire)
        });
        match subscribed.await {
            Ok(wire) => wire,
            Err(_) => Err(error::silent(&address, "subscribe", within)),
        }
    }

    fn checked(&self, line: &Line, count: usize, values: Vec<Value>) -> Result<Vec<Value>, Error> {
        if values.len() != count {
            self.forget(line);
            return Err(error::odd_answer());
        }
        // The server was demoted: its name may lead to another one by now.
        if values.iter().any(is_from_a_replica) {
            self.forget(line);
        }
        Ok(values)
    }

    /// Waits for an answer in time, and lets go of a connection that did not give one.
    async fn bounded<T>(
        &self,
        spot: &Spot,
        line: &Line,
        answer: impl Future<Output = RedisResult<T>>,
        within: Duration,
    ) -> Result<T, Error> {
        self.answered(spot, line, answer, within.min(self.config.call_timeout)).await
    }

    async fn answered<T>(
        &self,
        spot: &Spot,
        line: &Line,
        answer: impl Future<Output = RedisResult<T>>,
        within: Duration,
    ) -> Result<T, Error> {
        match timeout(within, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.forget(line);
                Err(error::from_driver(&self.name_of(&spot.node), error))
            }
            Err(_) => {
                self.forget(line);
                Err(error::silent(&self.name_of(&spot.node), "answer", within))
            }
        }
    }

    /// The connection, within this time. One that takes longer is made all the same, in the time of
    /// its own step, and serves the next call.
    async fn open(self: &Arc<Lines>, spot: &Spot, patience: Patience) -> Result<Line, Error> {
        let runtime = Handle::current();
        if let Some(line) = held(&self.lines).get(&(runtime.id(), spot.node.clone())) {
            return Ok(line.clone());
        }
        let (lines, at, each) = (self.clone(), spot.clone(), patience.of_each());
        let task = runtime.spawn(async move { lines.in_time(&at, lines.line(&at), each).await });
        // It does not panic; its runtime may end.
        let ended = || Err(error::silent(&self.name_of(&spot.node), "take a connection", each));
        let line = async { task.await.unwrap_or_else(|_| ended()) };
        self.in_time(spot, line, patience.left()).await
    }

    async fn in_time(
        &self,
        spot: &Spot,
        line: impl Future<Output = Result<Line, Error>>,
        within: Duration,
    ) -> Result<Line, Error> {
        let within = within.min(self.config.connect_timeout);
        timeout(within, line).await.unwrap_or_else(|_| {
            Err(error::silent(&self.name_of(&spot.node), "take a connection", within))
        })
    }

    /// The open connection of this runtime, or a new one.
    async fn line(&self, spot: &Spot) -> Result<Line, Error> {
        let key = (Handle::current().id(), spot.node.clone());
        if let Some(line) = held(&self.lines).get(&key) {
            return Ok(line.clone());
        }
        let turn = self.turns.of(key.clone());
        let _turn = turn.lock().await;
        if let Some(line) = held(&self.lines).get(&key) {
            return Ok(line.clone());
        }
        let line = self.connect(spot).await?;
        let mut lines = held(&self.lines);
        if lines.len() >= LINES_MAX {
            lines.clear();
        }
        lines.insert(key, line.clone());
        Ok(line)
    }

    async fn connect(&self, spot: &Spot) -> Result<Line, Error> {
        let address = self.name_of(&spot.node);
        let login = &self.config.login;
        let mut wire = self.dial.open(&spot.node, &address, login, None).await?;
        let answer = wire
            .connection
            .send_packed_command(&self.hello(spot).in_full(spot))
            .await
            .map_err(|error| error::from_driver(&address, error))?;
        self.greeted(spot, &answer)?;
        Ok(Line { number: self.numbers.fetch_add(1, Ordering::Relaxed), wire })
    }

    fn hello(&self, spot: &Spot) -> Call {
        let settle = match self.config.settle {
            Settle::For(_) if !spot.marker.is_empty() => "on",
            _ => "off",
        };
        Call::new(Kind::Hello, Vec::new(), vec![settle.to_owned()])
    }

    /// What the server says of itself.
    fn greeted(&self, spot: &Spot, answer: &Value) -> Result<(), Error> {
        let address = &self.name_of(&spot.node);
        let words = match answer {
            // The slots have changed since they were asked for.
            moved if spot.in_cluster && cluster::redirect(moved).is_some() => {
                return Err(error::new(ErrorKind::Unavailable, error::in_flux(address)));
            }
            Value::ServerError(error) => return Err(error::from_server(address, error)),
            Value::Array(words) => words.iter().map(text).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let [mode, maxmemory, policy, role] = words.as_slice() else {
            return Err(error::odd_answer());
        };
        if mode == "cluster" && !spot.in_cluster {
            return Err(error::new(ErrorKind::Unsupported, error::in_cluster(address)));
        }
        if role == "slave" {
            return Err(error::new(ErrorKind::Unavailable, error::is_replica(address)));
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
    fn forget(&self, line: &Line) {
        held(&self.lines).retain(|_, other| other.number != line.number);
    }
}

/// Sends everything at once. What the server did not know by its hash was not done, and is sent
/// again in full.
async fn exchange(
    line: &Line,
    spot: &Spot,
    calls: &[&Call],
    asking: bool,
) -> RedisResult<Vec<Value>> {
    if asking {
        // The permission to ask holds for one command, so each has its own.
        let mut pipeline = Pipeline::with_capacity(calls.len() * 2);
        for call in calls {
            pipeline.add_command(redis::cmd("ASKING")).add_command(call.in_full(spot));
        }
        let values = send(line, &pipeline, calls.len() * 2).await?;
        return Ok(values.into_iter().skip(1).step_by(2).collect());
    }
    let mut values = send(line, &script::pipeline(calls, spot), calls.len()).await?;
    let unknown: Vec<usize> =
        (0..values.len()).filter(|index| script::is_unknown_script(&values[*index])).collect();
    if unknown.is_empty() || values.len() != calls.len() {
        return Ok(values);
    }
    let again: Vec<&Call> = unknown.iter().map(|index| calls[*index]).collect();
    let answers = send(line, &script::teaching_pipeline(&again, spot), again.len()).await?;
    for (index, answer) in unknown.into_iter().zip(answers) {
        values[index] = answer;
    }
    Ok(values)
}

async fn send(line: &Line, pipeline: &Pipeline, count: usize) -> RedisResult<Vec<Value>> {
    line.wire.connection.clone().send_packed_commands(pipeline, 0, count).await
}

fn is_granted(value: &Value) -> bool {
    let Value::Array(words) = value else { return false };
    words.first().is_some_and(|word| text(word) == "granted")
}

fn is_unknown_command(error: &redis::RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with("unknown command"))
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

/// What a mutex guards; a panic elsewhere has not harmed it.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
