//! Finds the primary of a set by asking its sentinels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tenure_core::{Error, ErrorKind};
use tokio::time::{Instant, timeout};

use crate::error;
use crate::keys::Keys;
use crate::lines::{Lines, held, text};
use crate::place::{Node, Spot};

/// Once one sentinel has answered, the others have this long to agree or not.
const GRACE: Duration = Duration::from_millis(50);

/// The sentinels of one set.
pub(crate) struct Sentinels {
    lines: Arc<Lines>,
    nodes: Vec<Node>,
    name: String,
    keys: Keys,
    primary: Mutex<Option<Spot>>,
}

impl Sentinels {
    pub(crate) fn new(lines: Arc<Lines>, nodes: Vec<Node>, name: String, keys: Keys) -> Sentinels {
        Sentinels { lines, nodes, name, keys, primary: Mutex::default() }
    }

    /// The primary, as it was told last, or as it is told now.
    ///
    /// # Errors
    /// Why nobody tells.
    pub(crate) async fn primary(&self, within: Duration) -> Result<Spot, Error> {
        if let Some(spot) = held(&self.primary).clone() {
            return Ok(spot);
        }
        let node = self.ask(within).await?;
        let spot = self.keys.spot(node);
        *held(&self.primary) = Some(spot.clone());
        Ok(spot)
    }

    /// This server was of no use: ask again before the next call.
    pub(crate) fn distrust(&self, node: &Node) {
        let mut primary = held(&self.primary);
        if primary.as_ref().is_some_and(|spot| spot.node == *node) {
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
        let mut until = Instant::now() + within;
        while let Ok(Some(answer)) = tokio::time::timeout_at(until, answers.next()).await {
            match answer {
                Ok(node) => {
                    until = until.min(Instant::now() + GRACE);
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
            None => Err(trouble.unwrap_or_else(|| {
                error::silent(self.lines.address(), "tell its primary", within)
            })),
        }
    }

    async fn ask_one(&self, node: &Node, within: Duration) -> Result<Node, Error> {
        let address = format!("the sentinel {node}");
        let asked = timeout(within, async {
            let login = &self.lines.config.sentinel_login;
            let mut wire = self.lines.dial.open(node, &address, login, None).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("get-master-addr-by-name").arg(&self.name);
            let answer = wire.connection.send_packed_command(&question).await;
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
                format!("{address} watches no primary called {:?}; mend the URL", self.name),
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

/// What people have to mend counts for more than what may pass.
fn worse(before: Option<Error>, now: Error) -> Error {
    match before {
        Some(before) if !before.is_retryable() || now.is_retryable() => before,
        _ => now,
    }
}
