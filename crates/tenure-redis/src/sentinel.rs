//! Finds the primary of a set by asking its sentinels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind};
use tokio::time::{timeout, timeout_at};

use crate::deadline::now;
use crate::error;
use crate::keys::Keys;
use crate::pool::{Pool, text};
use crate::primary::{Node, Primary};

/// Once one sentinel has answered, the others have this long to agree or not.
const GRACE: Duration = Duration::from_millis(50);

/// The sentinels of one set.
pub(crate) struct Sentinels {
    pool: Arc<Pool>,
    nodes: Vec<Node>,
    name: String,
    keys: Keys,
    primary: Mutex<Option<Primary>>,
}

impl Sentinels {
    pub(crate) fn new(pool: Arc<Pool>, nodes: Vec<Node>, name: String, keys: Keys) -> Sentinels {
        Sentinels { pool, nodes, name, keys, primary: Mutex::default() }
    }

    /// The primary, as it was told last, or as it is told now.
    ///
    /// # Errors
    /// Why nobody tells.
    pub(crate) async fn primary(&self, within: Duration) -> Result<Primary, Error> {
        if let Some(primary) = lock(&self.primary).clone() {
            return Ok(primary);
        }
        let node = self.ask(within).await?;
        let primary = self.keys.primary(node);
        *lock(&self.primary) = Some(primary.clone());
        Ok(primary)
    }

    /// This server was of no use: ask again before the next call.
    pub(crate) fn distrust(&self, node: &Node) {
        let mut primary = lock(&self.primary);
        if primary.as_ref().is_some_and(|known| known.node == *node) {
            *primary = None;
        }
    }

    /// Asks all at once. One that is cut off may tell of an old primary, so what most of them say
    /// counts; and one that is dead must not cost the time of those that live.
    async fn ask(&self, within: Duration) -> Result<Node, Error> {
        let mut answers: FuturesUnordered<_> =
            self.nodes.iter().map(|node| self.ask_one(node, within)).collect();
        let mut votes: HashMap<Node, usize> = HashMap::new();
        let mut trouble = None;
        let mut until = now() + within;
        while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
            match answer {
                Ok(node) => {
                    until = until.min(now() + GRACE);
                    let count = votes.entry(node).or_default();
                    *count += 1;
                    if *count > self.nodes.len() / 2 {
                        break;
                    }
                }
                Err(error) => trouble = Some(worse(trouble, error)),
            }
        }
        let most = votes.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a)));
        match most {
            Some((node, _)) => Ok(node),
            None => Err(trouble
                .unwrap_or_else(|| error::silent(self.pool.address(), "tell its primary", within))),
        }
    }

    async fn ask_one(&self, node: &Node, within: Duration) -> Result<Node, Error> {
        let address = format!("the sentinel {node}");
        let asked = timeout(within, async {
            let login = &self.pool.config.sentinel_login;
            let mut conn = self.pool.connector.open(node, &address, login, None).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("get-master-addr-by-name").arg(&self.name);
            let answer = conn.connection.send_packed_command(&question).await;
            answer.map_err(|error| error::from_driver(&address, error))
        });
        let Ok(answer) = asked.await else {
            return Err(error::silent(&address, "answer", within));
        };
        match answer {
            Ok(Value::Array(words)) => {
                match words.iter().map(text).collect::<Vec<_>>().as_slice() {
                    [host, port] => {
                        let port = port.parse().map_err(|_| error::odd_answer())?;
                        Ok(Node { host: host.clone(), port })
                    }
                    _ => Err(error::odd_answer()),
                }
            }
            Ok(Value::Nil) => Err(error::new(
                ErrorKind::Config,
                format!("{address} watches no primary called {:?}; fix the URL", self.name),
            )),
            Ok(Value::ServerError(refusal)) => Err(not_a_sentinel(&address, &refusal)),
            Ok(_) => Err(error::odd_answer()),
            Err(error) => Err(error),
        }
    }
}

fn not_a_sentinel(address: &str, refusal: &redis::ServerError) -> Error {
    if refusal.details().is_some_and(|detail| detail.starts_with("unknown command")) {
        return error::new(
            ErrorKind::Config,
            format!(
                "{address} is not a sentinel; write redis:// for a server, or name the sentinels, \
                 usually on port 26379"
            ),
        );
    }
    let error = error::from_server(address, refusal);
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    let message = format!(
        "{}; a sentinel has a login of its own: sentinel_user and sentinel_password",
        error.message()
    );
    error::new(ErrorKind::Denied, message)
}

/// An error that people have to fix counts for more than one that may pass.
fn worse(before: Option<Error>, now: Error) -> Error {
    match before {
        Some(before) if !before.is_retryable() || now.is_retryable() => before,
        _ => now,
    }
}
