//! Redis: what it keeps over a restart, what it throws away, and who copies it.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::Report;
use super::finding::{Finding, Level};

const WITHIN: Duration = Duration::from_secs(5);

/// Looks at the server through a connection of its own. What can't be found out is a finding, too.
pub(super) async fn examine(url: &str, ttl: Duration, report: &mut Report) {
    if !url.starts_with("redis://") {
        let what = "the doctor looks at single servers without TLS only";
        report.find(
            Finding::new(Level::Advice, what)
                .because("persistence, eviction and replicas were not looked at")
                .so("ask it about each server by itself, with a redis:// URL, from its own host"),
        );
        return;
    }
    let (server, options) = url.split_once('?').unwrap_or((url, ""));
    let mut connection = match connect(server).await {
        Ok(connection) => connection,
        Err(error) => return report.find(unusable(&error)),
    };
    let info: Result<String, RedisError> = redis::cmd("INFO").query_async(&mut connection).await;
    let info = match info {
        Ok(info) => info,
        Err(error) => {
            report.find(
                Finding::new(Level::Advice, format!("INFO is refused: {error}"))
                    .because("tenure reads the run id with it, to notice a lost memory")
                    .so("give this user +info"),
            );
            return;
        }
    };
    let info = parse(&info);
    let get = |name: &str| info.get(name).map(String::as_str).unwrap_or_default();
    report.fact("Redis", get("redis_version"));
    report.fact("up for", format!("{} s", get("uptime_in_seconds")));
    role(&info, report);
    replicas(&info, options, report);
    persistence(&mut connection, &info, report).await;
    eviction(&mut connection, &info, ttl, report).await;
    if get("cluster_enabled") == "1" {
        report.find(
            Finding::new(Level::Advice, "this server is part of a Cluster")
                .because("a single server of it holds some of the elections only")
                .so("name the Cluster, with redis+cluster://"),
        );
    }
}

async fn connect(server: &str) -> Result<MultiplexedConnection, RedisError> {
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(WITHIN))
        .set_response_timeout(Some(WITHIN));
    Client::open(server)?.get_multiplexed_async_connection_with_config(&settings).await
}

fn unusable(error: &RedisError) -> Finding {
    Finding::new(Level::Safety, format!("the server can't be used: {error}"))
        .because("nobody can lead without it")
        .so("mend that first, then ask the doctor again")
}

fn role(info: &HashMap<String, String>, report: &mut Report) {
    let role = info.get("role").map(String::as_str).unwrap_or_default();
    report.fact("role", role);
    if role != "master" {
        report.find(
            Finding::new(Level::Safety, "this server is a replica")
                .because("it takes no writes, so nobody can lead here")
                .so("name the primary, or use redis+sentinel://"),
        );
    }
}

fn replicas(info: &HashMap<String, String>, options: &str, report: &mut Report) {
    let count: u32 = info.get("connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0);
    report.fact("replicas", count.to_string());
    let waits = options
        .split('&')
        .any(|option| option.strip_prefix("wait_replicas=").is_some_and(|count| count != "0"));
    if count > 0 && !waits {
        report.find(
            Finding::new(Level::Safety, "grants do not wait for the replicas")
                .because(
                    "after a failover the new server may not know the last leader, and grants \
                          the lease again while that one still trusts itself",
                )
                .so("add wait_replicas=N to the URL, keep settling on, and fence the writes"),
        );
    }
}

async fn persistence(
    connection: &mut MultiplexedConnection,
    info: &HashMap<String, String>,
    report: &mut Report,
) {
    let aof = info.get("aof_enabled").is_some_and(|is| is == "1");
    let fsync = config(connection, "appendfsync").await;
    report.fact(
        "persistence",
        match (aof, fsync.as_deref()) {
            (true, Some(fsync)) => format!("append-only file, fsync {fsync}"),
            (true, None) => "append-only file".to_owned(),
            (false, _) => "no append-only file".to_owned(),
        },
    );
    if !aof {
        report.find(
            Finding::new(Level::Advice, "nothing is kept over a restart but snapshots")
                .because(
                    "a leader loses its lease with each restart, and everybody waits for \
                          settling; terms never fall all the same",
                )
                .so("set appendonly yes if restarts should not end reigns"),
        );
    }
    let failing = info.get("rdb_last_bgsave_status").is_some_and(|is| is != "ok")
        || info.get("aof_last_write_status").is_some_and(|is| is != "ok");
    if failing {
        report.find(
            Finding::new(Level::Safety, "the server can't write to its disk")
                .because("it refuses writes then, and nobody can renew a lease")
                .so("look into its log, and make room"),
        );
    }
}

async fn eviction(
    connection: &mut MultiplexedConnection,
    info: &HashMap<String, String>,
    ttl: Duration,
    report: &mut Report,
) {
    let policy = info.get("maxmemory_policy").cloned();
    let policy = match policy {
        Some(policy) => Some(policy),
        None => config(connection, "maxmemory-policy").await,
    };
    let policy = policy.unwrap_or_default();
    let limit: u64 = info.get("maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    report.fact("eviction", format!("{policy}, limit {limit} bytes"));
    if policy != "noeviction" {
        let level = if limit > 0 { Level::Safety } else { Level::Advice };
        report.find(
            Finding::new(level, format!("keys may be thrown away ({policy})"))
                .because(format!(
                    "a lease that is evicted is granted to somebody else while its holder trusts \
                     itself, for up to {} s",
                    ttl.as_secs()
                ))
                .so("set maxmemory-policy noeviction, or give tenure a server of its own"),
        );
    }
}

/// A setting of the server; `None` if it is not told.
async fn config(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let told: Result<Vec<String>, RedisError> =
        redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await;
    told.ok()?.into_iter().nth(1)
}

/// `name:value` lines.
fn parse(info: &str) -> HashMap<String, String> {
    let pairs = info.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_read_line_by_line() {
        let info = parse("# Server\r\nredis_version:7.0.15\r\nrole:master\r\n\r\n");
        assert_eq!(info["redis_version"], "7.0.15");
        assert_eq!(info.len(), 2);
    }

    #[test]
    fn replicas_that_are_not_waited_for_are_found() {
        let info = HashMap::from([("connected_slaves".to_owned(), "2".to_owned())]);
        let mut report = Report { facts: Vec::new(), findings: Vec::new() };
        replicas(&info, "settle=off", &mut report);
        assert_eq!(report.findings.len(), 1);
        replicas(&info, "wait_replicas=1", &mut report);
        assert_eq!(report.findings.len(), 1, "no more");
    }
}
