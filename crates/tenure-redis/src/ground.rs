//! Drills on Redis: keys under a prefix of the drill's own, deleted when it is over.
//!
//! The workload appends to a list by the fence script. The prefix has a marker of its own too, so
//! that a drill does not touch the one that elections in use settle by (R2); it settles for its
//! own ttl.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError};
use tenure_core::{BoxFuture, Clock, Error, ErrorKind, Name, Secret, Term, Time};
use tenure_drill::route::{Route, UrlStyle};
use tenure_drill::{
    BY_NETWORK, BY_PROCESS, DrillError, Fault, Ground, GroundKind, Refusal, Row, Site, Workload,
    WorkloadRuntime,
};

use crate::config::RedisConfig;
use crate::fence::{Fence, FenceError};
use crate::url::decoded;

/// How to have drills on a single Redis server.
pub const GROUND: GroundKind = GroundKind {
    schemes: &["redis", "rediss"],
    ground: |site| Ok(Box::new(RedisGround::new(site)?)),
    workload: |site| Ok(Box::new(RedisWorkload::new(site)?)),
};

const PORT: u16 = 6379;

/// How long a call of the drill itself may take.
const WITHIN: Duration = Duration::from_secs(5);

/// How many keys are deleted at once.
const DELETED_AT_ONCE: usize = 500;

struct RedisGround {
    election: Name,
    /// With the prefix in it.
    route: Route,
    client: Client,
    /// In every key of the drill, and in no other.
    mark: String,
    data: String,
}

impl RedisGround {
    fn new(site: Site) -> Result<RedisGround, DrillError> {
        let Site { url, election, ttl, .. } = site;
        let route = route(&url)?;
        let mark = format!("{election}:");
        let prefix = format!("{}{mark}", route.option("prefix").unwrap_or_default());
        let mut route = route.with_option("prefix", &prefix);
        if route.option("settle") != Some("off") {
            let millis = ttl.as_millis();
            route = route.with_option("settle", &format!("{millis}ms"));
        }
        let (client, data) = (client(&route)?, data_key(&decoded(&prefix)?));
        Ok(RedisGround { election, route, client, data, mark })
    }

    async fn read(&self) -> Result<Vec<Row>, DrillError> {
        let mut connection = connect(&self.client, WITHIN).await?;
        let lines: Vec<String> = redis::cmd("LRANGE")
            .arg(&self.data)
            .arg(0)
            .arg(-1)
            .query_async(&mut connection)
            .await
            .map_err(|error| unusable(&error))?;
        Ok(lines.iter().filter_map(|line| parsed(line)).collect())
    }

    /// Deletes the keys by their names. Looking for them would mean to look at every key of a
    /// database that may be large and busy.
    async fn remove(&self, candidates: &BTreeSet<String>) -> Result<(), DrillError> {
        let store = RedisConfig::from_url(self.route.url().expose())?.open()?;
        let candidates = candidates.iter().map(String::as_str);
        let mut keys = store.key_names(&self.election, candidates)?;
        keys.push(self.data.clone());
        let mut connection = connect(&self.client, WITHIN).await?;
        for keys in keys.chunks(DELETED_AT_ONCE) {
            let done: Result<(), RedisError> =
                redis::cmd("DEL").arg(keys).query_async(&mut connection).await;
            done.map_err(|error| unusable(&error))?;
        }
        Ok(())
    }
}

impl Ground for RedisGround {
    fn faults(&self) -> &'static [Fault] {
        if self.route().is_some() { BY_NETWORK } else { BY_PROCESS }
    }

    fn why_not(&self, _fault: Fault) -> &'static str {
        "needs a proxy between the candidates and the server, and the certificate of a rediss:// \
         server is checked for a name that the proxy does not have"
    }

    fn has_server(&self) -> bool {
        true
    }

    /// Keys come by themselves.
    fn prepare(&self) -> BoxFuture<'_, Result<(), DrillError>> {
        Box::pin(async move { connect(&self.client, WITHIN).await.map(drop) })
    }

    fn is_touched(&self) -> bool {
        false
    }

    /// Whatever its settings, it may acknowledge a write before the disk has it.
    fn may_forget(&self) -> bool {
        true
    }

    fn url(&self) -> Secret {
        self.route.url()
    }

    fn route(&self) -> Option<&Route> {
        let plain = self.route.scheme() == "redis" && self.route.hosts().is_some();
        plain.then_some(&self.route)
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<Row>, DrillError>> {
        Box::pin(self.read())
    }

    fn clean_up<'a>(
        &'a self,
        candidates: &'a BTreeSet<String>,
    ) -> BoxFuture<'a, Result<(), DrillError>> {
        Box::pin(self.remove(candidates))
    }

    fn leftovers(&self) -> String {
        format!("they are the keys with {} in them", self.mark)
    }
}

struct RedisWorkload {
    runtime: WorkloadRuntime,
    clock: Arc<dyn Clock>,
    client: Client,
    prefix: String,
    election: Name,
    data: String,
    /// How long one piece of work may take.
    limit: Duration,
    connection: Option<MultiplexedConnection>,
}

impl RedisWorkload {
    fn new(site: Site) -> Result<RedisWorkload, DrillError> {
        let route = route(&site.url)?;
        let prefix = decoded(route.option("prefix").unwrap_or_default())?;
        Ok(RedisWorkload {
            runtime: WorkloadRuntime::new()?,
            clock: site.clock,
            client: client(&route)?,
            election: site.election,
            data: data_key(&prefix),
            prefix,
            limit: site.ttl / 2,
            connection: None,
        })
    }

    /// Runs one command under the fence, on a new connection if the last has failed.
    fn run<T: redis::FromRedisValue>(&mut self, term: Term, write: &Cmd) -> Result<T, Refusal> {
        let fence = Fence::new(&self.prefix, &self.election, term)
            .map_err(|error| Refusal::Failed(error.to_string()))?;
        let (client, data, limit) = (&self.client, self.data.as_str(), self.limit);
        let kept = self.connection.take();
        let done = self.runtime.run(limit, async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => connect(client, limit)
                    .await
                    .map_err(|error| Refusal::Failed(error.to_string()))?,
            };
            let done = fence.run(&mut connection, write, &[data]).await;
            done.map(|done| (connection, done)).map_err(|error| match error {
                FenceError::Stale(stale) => Refusal::Stale(stale.to_string()),
                other => Refusal::Failed(other.to_string()),
            })
        });
        let (connection, done) = done?;
        self.connection = Some(connection);
        Ok(done)
    }
}

impl Workload for RedisWorkload {
    fn begin(&mut self, term: Term) -> Result<u64, Refusal> {
        let last = redis::cmd("LINDEX").arg(&self.data).arg(-1).to_owned();
        let last: Option<String> = self.run(term, &last)?;
        Ok(last.and_then(|line| parsed(&line)).map_or(0, |row| row.counter))
    }

    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal> {
        let at = self.clock.now();
        let Row { checked, counter, candidate, .. } = row;
        let line = format!("{} {} {term} {counter} {candidate}", checked.as_nanos(), at.as_nanos());
        let append = redis::cmd("RPUSH").arg(&self.data).arg(line).to_owned();
        self.run(term, &append).map(|_length: u64| at)
    }
}

/// Where the workload writes.
fn data_key(prefix: &str) -> String {
    format!("{prefix}written")
}

fn parsed(line: &str) -> Option<Row> {
    let mut words = line.splitn(5, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (checked, at) = (Time::from_nanos(number()?), Time::from_nanos(number()?));
    let (term, counter) = (number()?, number()?);
    Some(Row { checked, at, term, counter, candidate: words.next()?.to_owned() })
}

fn route(url: &Secret) -> Result<Route, DrillError> {
    let route = Route::new(url.expose(), PORT, UrlStyle::Plain);
    route.ok_or_else(|| DrillError::refused("the URL has no host"))
}

/// The server of the store, without what only the store understands.
fn client(route: &Route) -> Result<Client, DrillError> {
    let plain = route.clone().without_option("prefix").without_option("settle");
    let client = Client::open(plain.url().expose());
    client.map_err(|_| DrillError::refused("the redis:// URL can't be read"))
}

async fn connect(client: &Client, within: Duration) -> Result<MultiplexedConnection, DrillError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(within))
        .set_response_timeout(Some(within));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.map_err(|error| unusable(&error).into())
}

fn unusable(error: &RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the drill can't use the server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that nobody looks at.
    struct NoClock;

    impl Clock for NoClock {
        fn now(&self) -> Time {
            Time::ZERO
        }

        fn sleep_until(&self, _at: Time) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn ground(url: &str) -> RedisGround {
        RedisGround::new(Site {
            url: Secret::new(url),
            election: Name::new("tenure-drill-7").unwrap(),
            ttl: Duration::from_secs(1),
            directory: "/nowhere".into(),
            clock: Arc::new(NoClock),
        })
        .unwrap()
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = parsed("10 20 3 4 c1#a b").unwrap();
        let (checked, at) = (Time::from_nanos(10), Time::from_nanos(20));
        assert_eq!(row, Row { checked, at, term: 3, counter: 4, candidate: "c1#a b".to_owned() });
        assert_eq!(parsed("10 20 3 x c"), None);
        assert_eq!(parsed(""), None);
    }

    #[test]
    fn the_prefix_is_the_users_and_the_drills() {
        let url = ground("redis://h/2").url();
        assert_eq!(url.expose(), "redis://h/2?prefix=tenure-drill-7:&settle=1000ms");
        let url = ground("redis://h?settle=off&prefix=a%23:").url();
        assert_eq!(url.expose(), "redis://h?settle=off&prefix=a%23:tenure-drill-7:");
    }

    #[test]
    fn what_is_encrypted_is_not_sent_through_a_proxy() {
        let route = Route::new("rediss://h", PORT, UrlStyle::Plain).unwrap();
        let encrypted = RedisGround { route, ..ground("redis://h") };
        assert_eq!(encrypted.faults(), BY_PROCESS);
        assert_eq!(ground("redis://h").faults(), BY_NETWORK);
    }
}
