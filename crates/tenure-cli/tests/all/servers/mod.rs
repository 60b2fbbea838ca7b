//! Servers for tests with real processes: the Postgres that `cargo xtask test` starts, and Redis
//! servers of a test's own.

use tenure_testbed::postgres::{Session, server};
use tenure_testbed::redis::RedisServer;

/// The Postgres to test on, and a session with it.
pub(crate) struct Postgres {
    pub(crate) url: String,
    session: Session,
}

impl Postgres {
    pub(crate) fn connect() -> Postgres {
        let url = server();
        Postgres { session: Session::open(&url), url }
    }

    pub(crate) fn run(&self, sql: &str) {
        self.session.run(sql);
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.session.number(sql)
    }
}

/// A Redis server that keeps nothing and that a test may look into.
pub(crate) fn redis() -> RedisServer {
    RedisServer::start_with(&["--enable-debug-command", "yes"])
}
