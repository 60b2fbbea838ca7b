//! The connection on which calls are made. Owns deadlines and reconnecting; decides nothing.
//!
//! Nothing queues while the server is away: each call connects by itself, in its own time, and a
//! connection that broke or hung is dropped for the next call to open another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, Value};
use tenure_core::{Error, ErrorKind};
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::config::{RedisConfig, Settle};
use crate::error;
use crate::keys::Keys;
use crate::script::{self, Call, Kind};

/// More runtimes than this do not use one store at a time; older connections are let go.
const RUNTIMES_MAX: usize = 8;

/// What calls are made on.
pub(crate) struct Link {
    config: Arc<RedisConfig>,
    client: Client,
    address: String,
    /// One connection per runtime: its task lives there, and a blocked runtime of the user's must
    /// not hold up the renewals of the driver's (C3).
    lines: Mutex<HashMap<Id, Line>>,
    /// Whoever connects; others wait for the outcome, within their own time.
    turn: tokio::sync::Mutex<()>,
    numbers: AtomicU64,
}

/// An open connection.
#[derive(Clone)]
struct Line {
    number: u64,
    connection: MultiplexedConnection,
}

impl Link {
    pub(crate) fn new(config: Arc<RedisConfig>) -> Result<Link, Error> {
        let address = config.address();
        let client = Client::open(config.server.clone())
            .map_err(|error| error::from_driver(&address, error))?;
        Ok(Link {
            config,
            client,
            address,
            lines: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            numbers: AtomicU64::new(0),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes all calls in one round trip, each with its own answer, in order.
    ///
    /// `within` bounds connecting and answering, each on its own.
    ///
    /// # Errors
    /// Whatever leaves all of them unknown.
    pub(crate) async fn call(
        &self,
        calls: &[&Call],
        within: Duration,
    ) -> Result<Vec<Value>, Error> {
        let line = self.open(within).await?;
        let values = self.bounded(&line, exchange(&line, calls), within).await?;
        if values.len() != calls.len() {
            self.forget(&line);
            return Err(error::odd_answer());
        }
        if values.iter().any(is_from_a_replica) {
            self.forget(&line);
        }
        Ok(values)
    }

    /// One pass over the keys that match, from a cursor on: the next cursor, and some keys.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub(crate) async fn scan(
        &self,
        cursor: &str,
        pattern: &str,
        within: Duration,
    ) -> Result<(String, Vec<String>), Error> {
        let line = self.open(within).await?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
        let mut connection = line.connection.clone();
        let answer = connection.send_packed_command(&scan);
        match self.bounded(&line, answer, within).await? {
            Value::ServerError(error) => Err(error::from_server(&self.address, &error)),
            Value::Array(parts) => match parts.as_slice() {
                [next, Value::Array(keys)] => Ok((text(next), keys.iter().map(text).collect())),
                _ => Err(error::odd_answer()),
            },
            _ => Err(error::odd_answer()),
        }
    }

    /// Waits for an answer in time, and lets go of a connection that did not give one.
    async fn bounded<T>(
        &self,
        line: &Line,
        answer: impl Future<Output = redis::RedisResult<T>>,
        within: Duration,
    ) -> Result<T, Error> {
        let within = within.min(self.config.call_timeout);
        match timeout(within, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.forget(line);
                Err(error::from_driver(&self.address, error))
            }
            Err(_) => {
                self.forget(line);
                Err(error::silent(&self.address, "answer", within))
            }
        }
    }

    /// Asks the server whether it can be used at all.
    ///
    /// # Errors
    /// Why it can't.
    pub(crate) async fn check(&self, within: Duration) -> Result<(), Error> {
        let answers = self.call(&[&self.hello()], within).await?;
        answers.first().map_or_else(|| Err(error::odd_answer()), |answer| self.greeted(answer))
    }

    /// The connection, within this time.
    async fn open(&self, within: Duration) -> Result<Line, Error> {
        if Handle::try_current().is_err() {
            return Err(error::new(
                ErrorKind::Config,
                "the Redis store needs a tokio runtime; call it from within one",
            ));
        }
        let within = within.min(self.config.connect_timeout);
        timeout(within, self.line())
            .await
            .unwrap_or_else(|_| Err(error::silent(&self.address, "take a connection", within)))
    }

    /// The open connection of this runtime, or a new one.
    async fn line(&self) -> Result<Line, Error> {
        let runtime = Handle::current().id();
        if let Some(line) = held(&self.lines).get(&runtime) {
            return Ok(line.clone());
        }
        let _turn = self.turn.lock().await;
        if let Some(line) = held(&self.lines).get(&runtime) {
            return Ok(line.clone());
        }
        let connection = self.connect().await?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let line = Line { number, connection };
        let mut lines = held(&self.lines);
        if lines.len() >= RUNTIMES_MAX {
            lines.clear();
        }
        lines.insert(runtime, line.clone());
        Ok(line)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        // Deadlines are ours: the driver's own would leave the connection in use.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| error::from_driver(&self.address, error))?;
        let call = self.hello();
        let answer = connection
            .send_packed_command(&call.in_full())
            .await
            .map_err(|error| error::from_driver(&self.address, error))?;
        self.greeted(&answer)?;
        Ok(connection)
    }

    fn hello(&self) -> Call {
        let settle = match self.config.settle {
            Settle::For(_) => "on",
            Settle::Off => "off",
        };
        let marker = Keys::new(&self.config.prefix).marker();
        Call { kind: Kind::Hello, keys: vec![marker], args: vec![settle.to_owned()] }
    }

    /// What the server says of itself.
    fn greeted(&self, answer: &Value) -> Result<(), Error> {
        let words = match answer {
            Value::ServerError(error) => return Err(error::from_server(&self.address, error)),
            Value::Array(words) => words.iter().map(text).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let [mode, maxmemory, policy] = words.as_slice() else {
            return Err(error::odd_answer());
        };
        if mode == "cluster" {
            return Err(error::new(ErrorKind::Unsupported, error::in_cluster(&self.address)));
        }
        let address = &self.address;
        if !["", "0"].contains(&maxmemory.as_str()) && policy != "noeviction" {
            tracing::warn!(
                %address, %policy,
                "the server may evict a lease when its memory is full, and a second leader may be \
                 elected then; set maxmemory-policy noeviction, or use a server of its own"
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
async fn exchange(line: &Line, calls: &[&Call]) -> redis::RedisResult<Vec<Value>> {
    let mut connection = line.connection.clone();
    let mut values = send(&mut connection, &script::pipeline(calls), calls.len()).await?;
    let unknown: Vec<usize> =
        (0..values.len()).filter(|index| script::is_unknown_script(&values[*index])).collect();
    if unknown.is_empty() || values.len() != calls.len() {
        return Ok(values);
    }
    let again: Vec<&Call> = unknown.iter().map(|index| calls[*index]).collect();
    let pipeline = script::teaching_pipeline(&again);
    let answers = send(&mut connection, &pipeline, again.len()).await?;
    for (index, answer) in unknown.into_iter().zip(answers) {
        values[index] = answer;
    }
    Ok(values)
}

async fn send(
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
    count: usize,
) -> redis::RedisResult<Vec<Value>> {
    connection.send_packed_commands(pipeline, 0, count).await
}

/// The server was demoted: its name may lead to another one by now.
fn is_from_a_replica(value: &Value) -> bool {
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
