//! Servers for tests with real processes: the Postgres that `cargo xtask test` starts, and Redis
//! servers of a test's own.

use tenure_testbed::redis::RedisServer;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// The Postgres to test on, and a session with it.
pub(crate) struct Postgres {
    pub(crate) url: String,
    runtime: Runtime,
    client: Client,
}

impl Postgres {
    pub(crate) fn connect() -> Postgres {
        let url = tenure_testbed::postgres::server();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).unwrap();
        runtime.spawn(connection);
        Postgres { url, runtime, client }
    }

    pub(crate) fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }
}

/// A Redis server that keeps nothing and that a test may look into.
pub(crate) fn redis() -> RedisServer {
    RedisServer::start_with(&["--enable-debug-command", "yes"])
}
