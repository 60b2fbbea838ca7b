//! Sessions of the caller's own with the servers of the store, for those who examine them.

use redis::{Cmd, FromRedisValue};
use tenure_core::Error;
use tokio::time::timeout;

use crate::config::RedisConfig;
use crate::connector::{Conn, Connector};
use crate::error;
use crate::primary::{Node, Servers};

/// What a URL names: hosts with their ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One server.
    Single(String, u16),
    /// The primary of this name, as these sentinels tell it.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<(String, u16)>,
        /// What they call the primary.
        name: String,
    },
    /// The Cluster that these belong to.
    Cluster(Vec<(String, u16)>),
}

/// A session with one server or sentinel.
pub(crate) struct Session {
    conn: Conn,
    address: String,
    limit: std::time::Duration,
}

impl RedisConfig {
    /// What the URL names.
    pub(crate) fn deployment(&self) -> Deployment {
        let pair = |node: &Node| (node.host.clone(), node.port);
        match &self.servers {
            Servers::Single(node) => Deployment::Single(node.host.clone(), node.port),
            Servers::Sentinel { sentinels, name } => Deployment::Sentinel {
                sentinels: sentinels.iter().map(pair).collect(),
                name: name.clone(),
            },
            Servers::Cluster { seeds } => Deployment::Cluster(seeds.iter().map(pair).collect()),
        }
    }

    /// How many replicas must have a grant before it counts.
    pub(crate) fn wait_replicas(&self) -> u32 {
        self.wait_replicas
    }

    /// A session of your own with this server: the same login and TLS as the store has.
    ///
    /// # Cancel safety
    /// Cancel safe: a session that is not ready is closed.
    ///
    /// # Errors
    /// Whatever kept it from being made, in a sentence that says what to do.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<Session, Error> {
        self.session(host, port, &self.login, "").await
    }

    /// The same with a sentinel, which has a login of its own.
    ///
    /// # Cancel safety
    /// Cancel safe: a session that is not ready is closed.
    ///
    /// # Errors
    /// Whatever kept it from being made, in a sentence that says what to do.
    pub(crate) async fn connect_to_sentinel(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Session, Error> {
        self.session(host, port, &self.sentinel_login, "the sentinel ").await
    }

    async fn session(
        &self,
        host: &str,
        port: u16,
        login: &redis::RedisConnectionInfo,
        kind: &str,
    ) -> Result<Session, Error> {
        let node = Node { host: host.to_owned(), port };
        let address = format!("{kind}{node}");
        let connector = Connector::new(self);
        let limit = self.connect_timeout;
        match timeout(limit, connector.open(&node, &address, login, None)).await {
            Ok(conn) => Ok(Session { conn: conn?, address, limit: self.call_timeout }),
            Err(_) => Err(error::silent(&address, "answer", limit)),
        }
    }
}

impl Session {
    /// Asks one thing.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the command may have been carried out or not.
    ///
    /// # Errors
    /// What the server said instead, or that it said nothing in time.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let mut connection = self.conn.connection.clone();
        let answer = timeout(self.limit, command.query_async(&mut connection)).await;
        let answer = answer.map_err(|_| error::silent(&self.address, "answer", self.limit))?;
        answer.map_err(|error| error::from_driver(&self.address, error))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("address", &self.address).finish_non_exhaustive()
    }
}
