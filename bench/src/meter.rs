//! What a server counts of the work that it is given.

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use crate::ground::{Engine, Ground};

/// Reads a server's own counters, and leaves itself out.
pub(crate) struct Meter {
    url: String,
    engine: Engine,
    /// How often it was read: each time costs the server something too.
    reads: Mutex<u64>,
}

/// What the server has counted since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) calls: u64,
    pub(crate) connections: u64,
}

impl Meter {
    pub(crate) fn new(ground: &Ground) -> Result<Meter> {
        Ok(Meter { url: ground.plain_url(), engine: ground.engine, reads: Mutex::new(0) })
    }

    /// What a call is on this server.
    pub(crate) fn unit(&self) -> &'static str {
        match self.engine {
            Engine::Redis => "commands per second",
            _ => "statements per second",
        }
    }

    /// The counters now, without what reading them added.
    pub(crate) async fn read(&self) -> Result<Reading> {
        match self.engine {
            Engine::Redis => self.read_redis().await,
            Engine::Postgres | Engine::Advisory => self.read_postgres().await,
            // There is no server that could count.
            Engine::Sqlite => Ok(Reading { calls: 0, connections: 0 }),
        }
    }

    /// Tenure sends one statement in one transaction, so transactions are counted. Backends hand
    /// their counts in when they are idle, a second later at most.
    async fn read_postgres(&self) -> Result<Reading> {
        let (client, connection) =
            tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await?;
        let reading = async {
            let row = client
                .query_one(
                    "SELECT (SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database),
                            (SELECT count(*) FROM pg_stat_activity
                             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())",
                    &[],
                )
                .await?;
            let mut reads = self.reads.lock().await;
            let own = *reads;
            *reads += 1;
            let (calls, connections): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let calls = u64::try_from(calls)?.saturating_sub(own);
            anyhow::Ok(Reading { calls, connections: u64::try_from(connections)? })
        };
        tokio::select! {
            reading = reading => reading,
            ended = connection => {
                ended?;
                anyhow::bail!("the connection ended early")
            }
        }
    }

    async fn read_redis(&self) -> Result<Reading> {
        let client = redis::Client::open(self.url.as_str())?;
        let mut connection: MultiplexedConnection =
            client.get_multiplexed_async_connection().await?;
        let info: String = redis::cmd("INFO").arg("all").query_async(&mut connection).await?;
        let field = |name: &str| -> Result<u64> {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            Ok(line.with_context(|| format!("INFO has no {name}"))?.trim().parse()?)
        };
        // Scripts call commands inside the server; a round trip is what a client sends.
        let sent: u64 = info.lines().filter_map(sent_by_clients).sum();
        Ok(Reading { calls: sent, connections: field("connected_clients")?.saturating_sub(1) })
    }
}

/// The calls in a line such as `cmdstat_evalsha:calls=12,usec=...`, if clients send that command.
fn sent_by_clients(line: &str) -> Option<u64> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let by_tenure = ["eval", "evalsha", "script", "publish", "subscribe", "ping", "hello", "auth"];
    let (family, _) = name.split_once('|').unwrap_or((name, ""));
    if !by_tenure.contains(&family) {
        return None;
    }
    rest.strip_prefix("calls=")?.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_clients_send_is_counted() {
        assert_eq!(sent_by_clients("cmdstat_evalsha:calls=12,usec=3,usec_per_call=0.25"), Some(12));
        assert_eq!(sent_by_clients("cmdstat_script|load:calls=2,usec=3"), Some(2));
        assert_eq!(sent_by_clients("cmdstat_set:calls=9,usec=3"), None);
        assert_eq!(sent_by_clients("uptime_in_seconds:9"), None);
    }
}
