//! What a doctor looks at: what the servers keep over a restart, what they throw away, and who
//! copies them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::{Value, cmd};
use tenure_core::{BoxFuture, Checkup, CheckupReport as Report, Error, Finding, Level};

use crate::config::RedisConfig;
use crate::session::{Deployment, Session};
use crate::store::RedisStore;

/// How many slots a Cluster has; each must be somebody's.
const SLOTS: &str = "16384";

type Info = HashMap<String, String>;

impl Checkup for RedisStore {
    fn examine(&self, ttl: Duration) -> BoxFuture<'_, Report> {
        Box::pin(async move {
            let mut report = Report::new();
            examine(self.config(), ttl, &mut report).await;
            report
        })
    }
}

/// Looks at the servers through sessions of its own.
async fn examine(config: &RedisConfig, ttl: Duration, report: &mut Report) {
    match config.deployment() {
        Deployment::Single(host, port) => single(config, &host, port, ttl, report).await,
        Deployment::Sentinel { sentinels, name } => {
            if let Some((host, port)) = sentinel(config, &sentinels, &name, report).await {
                single(config, &host, port, ttl, report).await;
            }
        }
        Deployment::Cluster(seeds) => cluster(config, &seeds, ttl, report).await,
    }
}

async fn single(config: &RedisConfig, host: &str, port: u16, ttl: Duration, report: &mut Report) {
    let Some(info) = server(config, host, port, ttl, report).await else { return };
    let in_cluster = info.get("cluster_enabled").is_some_and(|is| is == "1");
    if in_cluster && !config.address().contains("+cluster://") {
        report.find(
            Finding::new(Level::Advice, "this server is part of a Cluster")
                .because("a single server of it holds some of the elections only")
                .so("name the Cluster, with redis+cluster://"),
        );
    }
}

/// Looks at one server that grants leases.
async fn server(
    config: &RedisConfig,
    host: &str,
    port: u16,
    ttl: Duration,
    report: &mut Report,
) -> Option<Info> {
    let session = match config.connect(host, port).await {
        Ok(session) => session,
        Err(error) => {
            report.find(unusable(&error));
            return None;
        }
    };
    let info = match session.ask::<String>(&cmd("INFO")).await {
        Ok(info) => parse(&info),
        Err(error) => {
            report.find(
                Finding::new(Level::Advice, format!("INFO is refused: {error}"))
                    .because("tenure reads the run id with it, to notice a lost memory")
                    .so("give this user +info"),
            );
            return None;
        }
    };
    let get = |name: &str| info.get(name).map(String::as_str).unwrap_or_default();
    // Valkey also tells the version of Redis that it takes the place of.
    match get("valkey_version") {
        "" => report.fact("Redis", get("redis_version")),
        version => report.fact("Valkey", version),
    }
    report.fact("up for", format!("{} s", get("uptime_in_seconds")));
    role(&info, report);
    replicas(&info, config.wait_replicas(), report);
    persistence(&session, &info, report).await;
    eviction(&session, &info, ttl, report).await;
    Some(info)
}

/// Asks each sentinel; tells the primary that most of them name.
async fn sentinel(
    config: &RedisConfig,
    sentinels: &[(String, u16)],
    name: &str,
    report: &mut Report,
) -> Option<(String, u16)> {
    let mut told: Vec<(String, u16)> = Vec::new();
    let (mut silent, mut trouble): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (host, port) in sentinels {
        let asked = async {
            let session = config.connect_to_sentinel(host, *port).await?;
            let mut primary = cmd("SENTINEL");
            primary.arg("get-master-addr-by-name").arg(name);
            let primary: Option<(String, u16)> = session.ask(&primary).await?;
            let mut quorum = cmd("SENTINEL");
            quorum.arg("CKQUORUM").arg(name);
            let quorum = session.ask::<String>(&quorum).await;
            Ok::<_, Error>((primary, quorum))
        };
        match asked.await {
            Ok((None, _)) => trouble.push(format!("{host}:{port} watches no {name:?}")),
            Ok((Some(primary), quorum)) => {
                told.push(primary);
                trouble.extend(quorum.err().map(|error| error.to_string()));
            }
            Err(error) => silent.push(error.to_string()),
        }
    }
    let primaries: BTreeSet<&(String, u16)> = told.iter().collect();
    report.fact("sentinels", format!("{} of {} answer", told.len(), sentinels.len()));
    judge_sentinels(sentinels.len(), told.len(), primaries.len(), report);
    if !silent.is_empty() || !trouble.is_empty() {
        silent.extend(trouble);
        report.find(
            Finding::new(Level::Advice, format!("not all is well: {}", silent.join("; ")))
                .because("without most of the sentinels nobody is made primary when one dies")
                .so("repair those sentinels; SENTINEL CKQUORUM tells more"),
        );
    }
    let count = |primary: &(String, u16)| told.iter().filter(|other| *other == primary).count();
    let primary = primaries.into_iter().max_by_key(|primary| count(primary)).cloned();
    if let Some((host, port)) = &primary {
        report.fact("primary", format!("{host}:{port}"));
    }
    primary
}

fn judge_sentinels(all: usize, answer: usize, primaries: usize, report: &mut Report) {
    if answer * 2 <= all {
        report.find(
            Finding::new(Level::Safety, format!("only {answer} of {all} sentinels answer"))
                .because("nobody tells for sure who is primary, and none is made when it dies")
                .so("start the others, or fix the URL"),
        );
    }
    if primaries > 1 {
        report.find(
            Finding::new(Level::Safety, "the sentinels name different primaries")
                .because("two servers may grant the same lease")
                .so("wait for the failover to end, or repair the sentinels that were cut off"),
        );
    }
    if all < 3 {
        report.find(
            Finding::new(Level::Advice, format!("there are only {all} sentinels in the URL"))
                .because("one that is away takes the others with it")
                .so("run three or more, on machines of their own, and name them all"),
        );
    }
}

/// Asks the first member that answers about the Cluster, and then looks at each primary.
async fn cluster(
    config: &RedisConfig,
    seeds: &[(String, u16)],
    ttl: Duration,
    report: &mut Report,
) {
    let mut last = None;
    for (host, port) in seeds {
        let asked = async {
            let session = config.connect(host, *port).await?;
            let info: String = session.ask(cmd("CLUSTER").arg("INFO")).await?;
            let slots: Value = session.ask(cmd("CLUSTER").arg("SLOTS")).await?;
            Ok::<_, Error>((parse(&info), owners(&slots, host)))
        };
        match asked.await {
            Ok((info, owners)) => {
                judge_cluster(&info, &owners, report);
                return primaries(config, owners, ttl, report).await;
            }
            Err(error) => last = Some(error),
        }
    }
    if let Some(error) = last {
        report.find(unusable(&error));
    }
}

fn judge_cluster(info: &Info, owners: &[Owner], report: &mut Report) {
    let get = |name: &str| info.get(name).map(String::as_str).unwrap_or_default();
    let (state, slots) = (get("cluster_state"), get("cluster_slots_ok"));
    let count = owners.len();
    report.fact("Cluster", format!("state {state}, {count} primaries, {slots} slots served"));
    if state != "ok" || slots != SLOTS {
        report.find(
            Finding::new(
                Level::Safety,
                format!("the Cluster is in state {state}, with {slots} of {SLOTS} slots served"),
            )
            .because("elections in the other slots can't be led by anybody")
            .so("see `redis-cli --cluster check`, and give each slot to a server that is up"),
        );
    }
    let alone: Vec<String> =
        owners.iter().filter(|owner| owner.replicas == 0).map(Owner::address).collect();
    if !alone.is_empty() {
        report.find(
            Finding::new(Level::Advice, format!("{} have no replica", alone.join(", ")))
                .because("when one of them dies, nobody can lead the elections in its slots")
                .so("add a replica for each, and wait_replicas=1 to the URL"),
        );
    }
}

/// Facts of the first one, and findings of all, each with where it was found.
async fn primaries(config: &RedisConfig, owners: Vec<Owner>, ttl: Duration, report: &mut Report) {
    for (number, owner) in owners.iter().enumerate() {
        let mut own = Report::new();
        server(config, &owner.host, owner.port, ttl, &mut own).await;
        if number == 0 {
            report.facts.append(&mut own.facts);
        }
        for finding in own.findings {
            report.find(finding.at(&owner.address()));
        }
    }
}

/// A primary of a Cluster.
struct Owner {
    host: String,
    port: u16,
    replicas: usize,
}

impl Owner {
    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Who has slots, as `CLUSTER SLOTS` tells it; `asked` is who told.
fn owners(slots: &Value, asked: &str) -> Vec<Owner> {
    let mut owners: Vec<Owner> = Vec::new();
    let Value::Array(rows) = slots else { return owners };
    for row in rows {
        let Value::Array(row) = row else { continue };
        let [_, _, Value::Array(primary), replicas @ ..] = row.as_slice() else { continue };
        let [host, Value::Int(port), ..] = primary.as_slice() else { continue };
        let host: String = redis::from_redis_value_ref(host).unwrap_or_default();
        // It does not know its own name: then it is the one that was asked.
        let host = if host.is_empty() || host == "?" { asked.to_owned() } else { host };
        let port = u16::try_from(*port).unwrap_or_default();
        if !owners.iter().any(|owner| (&owner.host, owner.port) == (&host, port)) {
            owners.push(Owner { host, port, replicas: replicas.len() });
        }
    }
    owners
}

fn unusable(error: &Error) -> Finding {
    Finding::unusable("the server", error)
}

fn role(info: &Info, report: &mut Report) {
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

fn replicas(info: &Info, wait_replicas: u32, report: &mut Report) {
    let count: u32 = info.get("connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0);
    report.fact("replicas", count.to_string());
    if count > 0 && wait_replicas == 0 {
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

async fn persistence(session: &Session, info: &Info, report: &mut Report) {
    let aof = info.get("aof_enabled").is_some_and(|is| is == "1");
    let fsync = config(session, "appendfsync").await;
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

async fn eviction(session: &Session, info: &Info, ttl: Duration, report: &mut Report) {
    let policy = info.get("maxmemory_policy").cloned();
    let policy = match policy {
        Some(policy) => Some(policy),
        None => config(session, "maxmemory-policy").await,
    };
    let policy = policy.unwrap_or_default();
    let limit: u64 = info.get("maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    report.fact("eviction", format!("{policy}, limit {limit} bytes"));
    if policy != "noeviction" {
        // Others spare keys that do not expire, and so the notes with the end of each lease.
        let takes_notes = policy.starts_with("allkeys");
        let level = if limit > 0 && takes_notes { Level::Safety } else { Level::Advice };
        let seconds = ttl.as_secs();
        let because = match takes_notes {
            true => format!(
                "a lease that is evicted with its notes is granted to somebody else while its \
                 holder trusts itself, for up to {seconds} s"
            ),
            false => format!(
                "clients that use the plain key take a lease that is evicted while its holder \
                 trusts itself, for up to {seconds} s; tenure itself keeps to the noted end"
            ),
        };
        report.find(
            Finding::new(level, format!("keys may be thrown away ({policy})"))
                .because(because)
                .so("set maxmemory-policy noeviction, or give tenure a server of its own"),
        );
    }
}

/// A setting of the server; `None` if it is not told.
async fn config(session: &Session, name: &str) -> Option<String> {
    let told: Result<Vec<String>, Error> = session.ask(cmd("CONFIG").arg("GET").arg(name)).await;
    told.ok()?.into_iter().nth(1)
}

/// `name:value` lines.
fn parse(info: &str) -> Info {
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
        let mut report = Report::new();
        replicas(&info, 0, &mut report);
        assert_eq!(report.findings.len(), 1);
        replicas(&info, 1, &mut report);
        assert_eq!(report.findings.len(), 1, "no more");
    }

    #[test]
    fn each_primary_of_a_cluster_is_found_once_with_its_replicas() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: &str, port| Value::Array(vec![text(host), Value::Int(port)]);
        let row = |from, nodes: Vec<Value>| {
            let mut row = vec![Value::Int(from), Value::Int(from + 9)];
            row.extend(nodes);
            Value::Array(row)
        };
        let slots = Value::Array(vec![
            row(0, vec![node("a", 1), node("b", 2)]),
            row(10, vec![node("", 3)]),
            row(20, vec![node("a", 1), node("b", 2)]),
        ]);
        let owners = owners(&slots, "me");
        let shown: Vec<(String, usize)> =
            owners.iter().map(|owner| (owner.address(), owner.replicas)).collect();
        assert_eq!(shown, [("a:1".to_owned(), 1), ("me:3".to_owned(), 0)]);
        let mut report = Report::new();
        let info = parse("cluster_state:fail\r\ncluster_slots_ok:16383\r\n");
        judge_cluster(&info, &owners, &mut report);
        let levels: Vec<Level> = report.findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Safety, Level::Advice]);
    }

    #[test]
    fn most_sentinels_must_answer_and_agree() {
        let levels = |all, answer, primaries| {
            let mut report = Report::new();
            judge_sentinels(all, answer, primaries, &mut report);
            report.findings.iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(3, 3, 1), []);
        assert_eq!(levels(3, 2, 1), []);
        assert_eq!(levels(3, 1, 1), [Level::Safety]);
        assert_eq!(levels(3, 3, 2), [Level::Safety]);
        assert_eq!(levels(1, 1, 1), [Level::Advice]);
    }
}
