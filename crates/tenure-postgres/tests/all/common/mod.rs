//! What the tests of this crate share: a schema of their own on the server that `cargo xtask test`
//! starts, sessions beside the store, and ops in few words.

pub(crate) mod frozen;
pub(crate) mod group;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::Reply;
use tenure_postgres::{PostgresConfig, PostgresStore};
pub(crate) use tenure_testbed::ops::{name, term};
pub(crate) use tenure_testbed::postgres::server;
pub(crate) use tenure_testbed::{PATIENCE, granted, now, real_wait, refused, until};
use tokio::runtime::Handle;
use tokio_postgres::{Client, NoTls};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A schema of its own, migrated unless said otherwise.
pub(crate) struct Place {
    pub(crate) server: String,
    pub(crate) schema: String,
}

impl Place {
    pub(crate) async fn new(server: &str) -> Place {
        let place = Place::empty(server);
        place.store().migrate().await.unwrap();
        place
    }

    pub(crate) fn empty(server: &str) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("test_{}_{number}", std::process::id());
        Place { server: server.to_owned(), schema }
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        config(&self.server, &format!("schema={}", self.schema))
    }

    pub(crate) fn store(&self) -> PostgresStore {
        // Enough for a machine that runs many tests at once.
        self.config().with_call_timeout(PATIENCE).with_connect_timeout(PATIENCE).open()
    }

    /// A session of its own, as a client in another language would have one.
    pub(crate) async fn session(&self) -> Session {
        let session = Session::open(&self.server).await;
        session.run(&format!("SET search_path = {}", self.schema)).await;
        session
    }

    /// The row of an election: leader, term.
    pub(crate) async fn row(&self, election: &str) -> (String, i32) {
        let session = self.session().await;
        let sql = "SELECT leader_id, term FROM leader_election WHERE service_name = $1";
        let row = session.client.query_one(sql, &[&election]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

pub(crate) fn config(server: &str, options: &str) -> PostgresConfig {
    let sign = if server.contains('?') { '&' } else { '?' };
    PostgresConfig::from_url(&format!("{server}{sign}{options}")).unwrap()
}

/// One session with the server, beside the store.
pub(crate) struct Session {
    pub(crate) client: Client,
}

impl Session {
    pub(crate) async fn open(url: &str) -> Session {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        Handle::current().spawn(connection);
        Session { client }
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.try_run(sql).await.unwrap();
    }

    /// The SQLSTATE of the error, if there was one.
    pub(crate) async fn try_run(&self, sql: &str) -> Result<(), String> {
        self.client.batch_execute(sql).await.map_err(|error| match error.as_db_error() {
            Some(db) => format!("{}: {}", db.code().code(), db.message()),
            None => error.to_string(),
        })
    }

    pub(crate) async fn truth(&self, sql: &str) -> bool {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn pid(&self) -> i32 {
        self.client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
    }
}

/// One candidate at one store.
pub(crate) type Player = tenure_testbed::Player<PostgresStore>;

/// The sentence of an unknown outcome.
pub(crate) fn unknown(reply: Reply) -> String {
    tenure_testbed::unknown(reply).to_string()
}
