//! Which server and database, under which prefix, and how long to wait for them.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use tenure_core::{Error, ErrorKind, parse_duration};

use crate::error;
use crate::store::RedisStore;

/// How long a connection may take until it is of use.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a call may take before its outcome is unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a server settles: the ttl that most fleets have.
const SETTLE: Duration = Duration::from_secs(30);

/// How long a server that lost its memory grants nothing new (R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// This long, and never shorter than the ttl of whoever asks. Give it the largest ttl of all
    /// candidates on the server.
    For(Duration),
    /// Not at all: after a restart, a `FLUSHALL` or a failover a second leader may be elected
    /// while the first still trusts itself.
    Off,
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
    pub(crate) server: ConnectionInfo,
    pub(crate) prefix: String,
    pub(crate) settle: Settle,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

impl RedisConfig {
    /// The store that a URL names: `redis://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`.
    ///
    /// The options are `prefix=TEXT`, which stands before the name of each election, and
    /// `settle=DURATION` or `settle=off`.
    ///
    /// # Errors
    /// `Config` if this is no such URL; its secrets are not in the message. `Unsupported` for
    /// `rediss://`, Sentinel and Cluster, which this version does not speak.
    pub fn from_url(url: &str) -> Result<RedisConfig, Error> {
        check_scheme(url)?;
        let mut parsed = redis::parse_redis_url(url).ok_or_else(malformed)?;
        let options: Vec<(String, String)> =
            parsed.query_pairs().map(|(key, value)| (key.into(), value.into())).collect();
        parsed.set_query(None);
        if parsed.fragment().is_some() {
            return Err(Error::config(
                "the URL has a # in it; write %23 where it belongs to the password or the prefix",
            ));
        }
        let database = parsed.path().trim_start_matches('/');
        if !database.is_empty() && database.parse::<u32>().is_err() {
            return Err(Error::config(format!(
                "the database {database:?} is not a number; write redis://HOST:PORT/0"
            )));
        }
        // What the driver says of a URL may quote it.
        let server = parsed.as_str().into_connection_info().map_err(|_| malformed())?;
        let mut config = RedisConfig::new(server);
        for (key, value) in options {
            config = config.with_option(&key, &value)?;
        }
        Ok(config)
    }

    /// The server that the user's own client is set up for. The store opens connections of its
    /// own to it, so that a busy client delays no renewal.
    #[cfg(feature = "redis")]
    pub fn from_client(client: &redis::Client) -> RedisConfig {
        RedisConfig::new(client.get_connection_info().clone())
    }

    fn new(server: ConnectionInfo) -> RedisConfig {
        RedisConfig {
            // A renewal is small, and must not wait for more to be sent with it.
            server: server.set_tcp_settings(TcpSettings::default().set_nodelay(true)),
            prefix: String::new(),
            settle: Settle::For(SETTLE),
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
        }
    }

    fn with_option(self, key: &str, value: &str) -> Result<RedisConfig, Error> {
        match (key, value) {
            ("prefix", prefix) => Ok(self.with_prefix(prefix)),
            ("settle", "off") => Ok(self.with_settle(Settle::Off)),
            ("settle", value) => {
                let settle = parse_duration(value).map_err(|error| {
                    Error::config(format!("settle: {}; or write settle=off", error.message()))
                })?;
                Ok(self.with_settle(Settle::For(settle)))
            }
            (key, _) => Err(Error::config(format!(
                "the URL has the option {key:?}, and there are only prefix and settle"
            ))),
        }
    }

    /// What stands before the name of each election; nothing unless set. The key of a lease is
    /// the prefix and the name.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> RedisConfig {
        self.prefix = prefix.into();
        self
    }

    /// How long a server that lost its memory grants nothing new; 30 s unless set, and never
    /// shorter than the ttl of whoever asks.
    #[must_use]
    pub fn with_settle(mut self, settle: Settle) -> RedisConfig {
        self.settle = settle;
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
        let place = match self.server.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                if *port == 6379 { host } else { format!("{host}:{port}") }
            }
            other => other.to_string(),
        };
        let settings = self.server.redis_settings();
        let user = settings.username().map(|user| format!("{user}@")).unwrap_or_default();
        let prefix = match self.prefix.as_str() {
            "" => String::new(),
            prefix => format!("?prefix={prefix}"),
        };
        format!("redis://{user}{place}/{}{prefix}", settings.db())
    }

    /// A handle onto the store. Nothing is connected yet: the first call does that, and a server
    /// that is away is an unknown outcome like any other.
    ///
    /// # Errors
    /// `Unsupported` if the server is to be reached in a way that this build lacks.
    pub fn open(self) -> Result<RedisStore, Error> {
        RedisStore::open_with(self)
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("address", &self.address())
            .field("settle", &self.settle)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish()
    }
}

fn check_scheme(url: &str) -> Result<(), Error> {
    let Some((scheme, _)) = url.split_once("://") else {
        return Err(malformed());
    };
    let later = match scheme {
        "redis" => return Ok(()),
        "rediss" => "TLS; put a TLS tunnel in front of the server, or write redis://",
        "redis+sentinel" | "rediss+sentinel" => {
            "Sentinel; write redis:// with the address of the primary"
        }
        "redis+cluster" | "rediss+cluster" => "Cluster; use a server that is not part of one",
        _ => return Err(malformed()),
    };
    Err(error::new(ErrorKind::Unsupported, format!("this version does not speak {later}")))
}

fn malformed() -> Error {
    Error::config(
        "the URL is not of the form redis://USER:PASSWORD@HOST:PORT/DATABASE; escape odd \
         characters of the password with %",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_server_and_hides_the_password() {
        let config = |url: &str| RedisConfig::from_url(url).unwrap();
        assert_eq!(config("redis://h").address(), "redis://h/0");
        assert_eq!(config("redis://:p%40ss@h:7/3").address(), "redis://h:7/3");
        assert_eq!(config("redis://[::1]:7").address(), "redis://[::1]:7/0");
        let config = config("redis://u:geheim@h/?prefix=a%23b:&settle=1m30s");
        assert_eq!(config.prefix, "a#b:");
        assert_eq!(config.settle, Settle::For(Duration::from_secs(90)));
        assert_eq!(config.server.redis_settings().password(), Some("geheim"));
        assert!(!format!("{config:?}").contains("geheim"), "{config:?}");
    }

    #[test]
    fn a_url_that_would_surprise_is_refused_with_a_sentence() {
        for (url, word) in [
            ("h:6379", "redis://USER"),
            ("postgres://h", "redis://USER"),
            ("redis://u:geheim@h:port/", "redis://USER"),
            ("redis://u:geheim@h/one", "not a number"),
            ("redis://u:geheim@h/0#x", "%23"),
            ("redis://u:geheim@h/?settle=30", "settle"),
            ("redis://u:geheim@h/?ttl=30s", "only prefix and settle"),
            ("rediss://u:geheim@h", "TLS"),
            ("redis+sentinel://u:geheim@h/main", "Sentinel"),
            ("redis+cluster://u:geheim@h", "Cluster"),
        ] {
            let error = RedisConfig::from_url(url).unwrap_err();
            assert!(error.message().contains(word), "{url}: {error}");
            assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
        }
    }

    #[test]
    fn every_connection_sends_at_once() {
        let config = RedisConfig::from_url("redis://h").unwrap();
        assert!(config.server.tcp_settings().nodelay());
    }
}
