//! Which servers and database, under which prefix, and how long to wait for them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, RedisConnectionInfo};
use tenure_core::{Error, Secret, Store, StoreConfig, StoreKind};
use tenure_tls::Tls;

use crate::primary::{Node, Servers};
use crate::store::{RedisStore, TTL_MIN};
use crate::url::{self, PORT, SENTINEL_PORT};

/// How long a connection may take until it is of use.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a call may take before its outcome is unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a server that may have lost its memory grants nothing new (R2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// As long as the ttl of the candidate that asks. This assumes that all candidates of one
    /// election have the same ttl, as they should.
    #[default]
    Ttl,
    /// This long, and never shorter than the ttl of the candidate that asks. If candidates of one
    /// election have different ttls, give all of them the largest.
    For(Duration),
    /// Not at all: after a restart, a `FLUSHALL` or a failover a second leader may be elected
    /// while the first still trusts itself.
    Off,
}

/// When a leader whose renewals fail steps down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailClosed {
    /// When its trust runs out: one failed renewal is tried again.
    #[default]
    TrustEnds,
    /// At the first renewal whose outcome is unknown.
    FirstFailure,
}

/// Where the store is and how it is reached.
///
/// # Examples
/// ```
/// use tenure_redis::RedisConfig;
///
/// let config = RedisConfig::from_url("redis://app:secret@cache:6380/2?prefix=shop:")?;
/// assert_eq!(config.address(), "redis://app@cache:6380/2?prefix=shop:");
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) servers: Servers,
    /// User, password and database of the servers.
    pub(crate) login: RedisConnectionInfo,
    /// User and password of the sentinels.
    pub(crate) sentinel_login: RedisConnectionInfo,
    pub(crate) tls: Option<Tls>,
    /// How the user's own client connects, if there is one.
    pub(crate) theirs: Option<ConnectionInfo>,
    pub(crate) prefix: String,
    pub(crate) settle: Settle,
    pub(crate) wait_replicas: u32,
    pub(crate) fail_closed: FailClosed,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    /// The URL that names this very store, if one does.
    pub(crate) url: Option<Secret>,
}

impl RedisConfig {
    /// The store that a URL names: `redis://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`,
    /// `redis+sentinel://HOST1,HOST2/MASTER/DATABASE` or `redis+cluster://HOST1,HOST2`; `rediss`
    /// instead of `redis` encrypts.
    ///
    /// The options are in the table of the crate's documentation. Files are read now.
    ///
    /// # Errors
    /// `Config` if this is no such URL, or a file can't be read; no secret is in the message.
    pub fn from_url(url: &str) -> Result<RedisConfig, Error> {
        Ok(RedisConfig { url: Some(Secret::new(url)), ..url::parse(url)? })
    }

    /// The server that the user's own client is set up for. The store opens connections of its
    /// own to it, so that a busy client delays no renewal.
    #[cfg(feature = "redis")]
    pub fn from_client(client: &redis::Client) -> RedisConfig {
        use redis::ConnectionAddr;
        use redis::io::tcp::TcpSettings;

        let info = client.get_connection_info();
        let node = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Node { host: host.clone(), port: *port }
            }
            other => Node { host: other.to_string(), port: PORT },
        };
        let login = info.redis_settings().clone();
        // A renewal is small, and must not wait for more to be sent with it.
        let theirs = info.clone().set_tcp_settings(TcpSettings::default().set_nodelay(true));
        RedisConfig { theirs: Some(theirs), ..RedisConfig::new(Servers::Single(node), login) }
    }

    pub(crate) fn new(servers: Servers, login: RedisConnectionInfo) -> RedisConfig {
        RedisConfig {
            servers,
            login,
            sentinel_login: RedisConnectionInfo::default(),
            tls: None,
            theirs: None,
            prefix: String::new(),
            settle: Settle::default(),
            wait_replicas: 0,
            fail_closed: FailClosed::default(),
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            url: None,
        }
    }

    /// What stands before the name of each election; nothing unless set. The key of a lease is
    /// the prefix and the name.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> RedisConfig {
        self.prefix = prefix.into();
        // Its keys are others now, and a witness would look for them in vain.
        self.url = None;
        self
    }

    /// How long a server that may have lost its memory grants nothing new; as long as the ttl of
    /// the candidate that asks unless set, and never shorter.
    #[must_use]
    pub fn with_settle(mut self, settle: Settle) -> RedisConfig {
        self.settle = settle;
        self
    }

    /// A grant or a renewal counts only once so many replicas have it; 0 unless set. Fewer, and
    /// its outcome is unknown.
    #[must_use]
    pub fn with_wait_replicas(mut self, count: u32) -> RedisConfig {
        self.wait_replicas = count;
        self
    }

    /// When a leader whose renewals fail steps down: when its trust ends, unless set.
    #[must_use]
    pub fn with_fail_closed(mut self, fail_closed: FailClosed) -> RedisConfig {
        self.fail_closed = fail_closed;
        self
    }

    /// How long a connection may take. 3 s unless set; a sixth of the ttl if that is shorter.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> RedisConfig {
        self.connect_timeout = timeout;
        self
    }

    /// How long a call may take; then its outcome is unknown. 3 s unless set; a sixth of the ttl
    /// if that is shorter.
    #[must_use]
    pub fn with_call_timeout(mut self, timeout: Duration) -> RedisConfig {
        self.call_timeout = timeout;
        self
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        let list = |nodes: &[Node], usual| {
            nodes.iter().map(|node| node.short(usual)).collect::<Vec<_>>().join(",")
        };
        let database = self.login.db();
        let (kind, hosts, path) = match &self.servers {
            Servers::Single(node) => ("", node.short(PORT), format!("/{database}")),
            Servers::Sentinel { sentinels, name } => {
                ("+sentinel", list(sentinels, SENTINEL_PORT), format!("/{name}/{database}"))
            }
            Servers::Cluster { seeds } => ("+cluster", list(seeds, PORT), String::new()),
        };
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let user = self.login.username().map(|user| format!("{user}@")).unwrap_or_default();
        let prefix = match self.prefix.as_str() {
            "" => String::new(),
            prefix => format!("?prefix={prefix}"),
        };
        format!("{scheme}{kind}://{user}{hosts}{path}{prefix}")
    }

    /// A handle onto the store. Nothing is connected yet: the first call does that, and a server
    /// that is away is an unknown outcome like any other.
    ///
    /// # Errors
    /// `Config` if no election can have this prefix on a Cluster.
    pub fn open(self) -> Result<RedisStore, Error> {
        RedisStore::open_with(self)
    }
}

/// The URLs of this store.
pub const REDIS: StoreKind = StoreKind {
    forms: &[
        "redis://",
        "rediss://",
        "redis+sentinel://",
        "rediss+sentinel://",
        "redis+cluster://",
        "rediss+cluster://",
    ],
    aliases: &[],
    default_url: None,
    parse,
};

fn parse(url: &Secret) -> Result<Arc<dyn StoreConfig>, Error> {
    Ok(Arc::new(RedisConfig::from_url(url.expose())?))
}

impl StoreConfig for RedisConfig {
    fn address(&self) -> String {
        self.address()
    }

    fn min_ttl(&self) -> Duration {
        TTL_MIN
    }

    /// What a server has is known when it was asked.
    fn is_missing(&self) -> bool {
        false
    }

    /// The store itself sees no deaths: a witness does (D1).
    fn childless(&self) -> Arc<dyn StoreConfig> {
        Arc::new(self.clone())
    }

    fn open(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(self.clone().open()?))
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("address", &self.address())
            .field("settle", &self.settle)
            .field("wait_replicas", &self.wait_replicas)
            .field("fail_closed", &self.fail_closed)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> RedisConfig {
        RedisConfig::from_url(url).unwrap()
    }

    #[test]
    fn a_url_names_the_server_and_hides_the_password() {
        for (url, address) in [
            ("redis://h", "redis://h/0"),
            ("redis://:p%40ss@h:7/3", "redis://h:7/3"),
            ("redis://[::1]:7", "redis://[::1]:7/0"),
            ("redis://[::1]", "redis://[::1]/0"),
            ("redis://u:p@h:6379/", "redis://u@h/0"),
            ("redis+sentinel://a,b:7/main/2", "redis+sentinel://a,b:7/main/2"),
            ("redis+sentinel://u:p@a:26379/main", "redis+sentinel://u@a/main/0"),
            ("redis+cluster://u:p@a,b:7?prefix=x:", "redis+cluster://u@a,b:7?prefix=x:"),
        ] {
            assert_eq!(config(url).address(), address);
        }
        let config = config("redis://u:geheim@h/?prefix=a%23b:&settle=1m30s&wait_replicas=2");
        assert_eq!(config.prefix, "a#b:");
        assert_eq!(config.settle, Settle::For(Duration::from_secs(90)));
        assert_eq!(config.wait_replicas, 2);
        assert_eq!(config.login.password(), Some("geheim"));
        assert!(!format!("{config:?}").contains("geheim"), "{config:?}");
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let url = "redis+sentinel://u:one@h/main?sentinel_user=s&sentinel_password=geheim";
        let config = config(url);
        assert_eq!(config.sentinel_login.username(), Some("s"));
        assert_eq!(config.sentinel_login.password(), Some("geheim"));
        assert_eq!(config.login.password(), Some("one"));
        assert!(!format!("{config:?} {}", config.address()).contains("geheim"));
    }

    #[test]
    fn a_url_that_would_surprise_is_refused_with_a_sentence() {
        for (url, word) in [
            ("h:6379", "redis://USER"),
            ("postgres://h", "redis://USER"),
            ("redis+proxy://u:geheim@h", "redis://USER"),
            ("redis://u:geheim@h:port/", "redis://USER"),
            ("redis://u:geheim@h:0/", "redis://USER"),
            ("redis://u:geheim@/0", "redis://USER"),
            ("redis://u:7/geheim@h/0", "escape"),
            ("redis://u:7?geheim@h/0", "escape"),
            ("redis://h:7/0?prefix=a&sentinel_password=x@geheim", "escape"),
            ("redis://u:geheim@h/one", "not a number"),
            ("redis://u:geheim@h/0#x", "%23"),
            ("redis://u:geheim@a,b/0", "redis+cluster://"),
            ("redis://u:geheim@h/?settle=30", "settle"),
            ("redis://u:geheim@h/?ttl=30s", "only prefix, settle"),
            ("redis://u:geheim@h/?wait_replicas=many", "wait_replicas=1"),
            ("redis://u:geheim@h/?fail_closed=yes", "first-failure"),
            ("redis://u:geheim@h/?sslrootcert=x.pem", "rediss://"),
            ("rediss://u:geheim@h/?sslrootcert=/nonexistent", "sslrootcert=/nonexistent"),
            ("rediss://u:geheim@h/?sslcert=/nonexistent", "give both"),
            ("redis+sentinel://u:geheim@h", "MASTER"),
            ("redis+sentinel://u:geheim@h/main/x", "not a number"),
            ("redis+cluster://u:geheim@h/3", "database 0"),
        ] {
            let error = RedisConfig::from_url(url).unwrap_err();
            assert!(error.message().contains(word), "{url}: {error}");
            assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
        }
    }
}
