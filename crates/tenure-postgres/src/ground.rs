//! Drills on Postgres: a schema of the drill's own, made before and dropped after.
//!
//! The schema holds the table that the workload writes to, and all that `tenure migrate` makes, so
//! that a schema in use is not touched. The fence of both stores is `tenure_fence` there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Name, Secret, Term, Time};
use tenure_drill::route::{Route, UrlStyle};
use tenure_drill::{
    BY_NETWORK, BY_PROCESS, DrillError, Fault, Ground, GroundKind, Refusal, Row, Site, Workload,
    WorkloadRuntime,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use crate::config::PostgresConfig;
use crate::fence::{self, FenceError};

/// How to have drills on PostgreSQL, for both of its stores.
pub const GROUND: GroundKind = GroundKind {
    schemes: &["postgres", "postgresql", "postgres+advisory", "postgresql+advisory"],
    ground: |site| Ok(Box::new(PostgresGround::new(site)?)),
    workload: |site| Ok(Box::new(PostgresWorkload::new(site)?)),
};

const PORT: u16 = 5432;

/// How long removing everything may take: somebody may still be in a transaction.
const CLEAN_WITHIN: &str = "SET statement_timeout = '10s'";

const TABLES: &str = "\
    CREATE TABLE @.written (
        id bigint GENERATED ALWAYS AS IDENTITY, checked bigint NOT NULL, at bigint NOT NULL,
        term bigint NOT NULL, counter bigint NOT NULL, candidate text NOT NULL
    )";

struct PostgresGround {
    /// With the schema in it.
    route: Route,
    config: PostgresConfig,
    schema: String,
    /// Set before the schema is asked for: the answer may be lost.
    is_touched: AtomicBool,
}

impl PostgresGround {
    fn new(site: Site) -> Result<PostgresGround, DrillError> {
        let schema = site.election.as_str().replace('-', "_");
        let route = route(&site.url)?.with_option("schema", &schema);
        let (config, is_touched) = (plain(&route)?, AtomicBool::new(false));
        Ok(PostgresGround { route, config, schema, is_touched })
    }

    async fn make(&self) -> Result<(), DrillError> {
        let client = self.config.connect().await?;
        let schema = quoted(&self.schema);
        self.is_touched.store(true, Ordering::Relaxed);
        let made = client.batch_execute(&format!("CREATE SCHEMA {schema}")).await;
        made.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => DrillError::refused(
                "the drill makes a schema of its own and drops it again, and this role may create \
                 none in the database; GRANT CREATE ON DATABASE ... TO it, or give the drill \
                 another role or database on the same server",
            ),
            _ => failed("can't make a schema", error),
        })?;
        self.config.clone().open().migrate().await?;
        let tables = TABLES.replace('@', &schema);
        client.batch_execute(&tables).await.map_err(|error| failed("can't make a table", error))
    }

    async fn read(&self) -> Result<Vec<Row>, DrillError> {
        let client = self.config.connect().await?;
        let sql = format!(
            "SELECT checked, at, term, counter, candidate FROM {}.written ORDER BY id",
            quoted(&self.schema)
        );
        let rows = client.query_typed(&sql, &[]).await;
        let rows = rows.map_err(|error| failed("can't read what was written", error))?;
        let number = |row: &tokio_postgres::Row, column: usize| {
            u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
        };
        let row = |row: &tokio_postgres::Row| Row {
            checked: Time::from_nanos(number(row, 0)),
            at: Time::from_nanos(number(row, 1)),
            term: number(row, 2),
            counter: number(row, 3),
            candidate: row.get(4),
        };
        Ok(rows.iter().map(row).collect())
    }

    async fn remove(&self) -> Result<(), DrillError> {
        let client = self.config.connect().await?;
        let drop =
            format!("{CLEAN_WITHIN}; DROP SCHEMA IF EXISTS {} CASCADE", quoted(&self.schema));
        client.batch_execute(&drop).await.map_err(|error| failed("can't clean up", error))
    }
}

impl Ground for PostgresGround {
    fn faults(&self) -> &'static [Fault] {
        if self.route().is_some() { BY_NETWORK } else { BY_PROCESS }
    }

    fn why_not(&self, _fault: Fault) -> &'static str {
        "needs a network, and the URL names a socket file or has its hosts among the options; \
         write postgres://USER@HOST:PORT/DATABASE"
    }

    fn has_server(&self) -> bool {
        true
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), DrillError>> {
        Box::pin(self.make())
    }

    fn is_touched(&self) -> bool {
        self.is_touched.load(Ordering::Relaxed)
    }

    fn url(&self) -> Secret {
        self.route.url()
    }

    fn route(&self) -> Option<&Route> {
        self.route.hosts().is_some().then_some(&self.route)
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<Row>, DrillError>> {
        Box::pin(self.read())
    }

    fn clean_up<'a>(
        &'a self,
        _candidates: &'a BTreeSet<String>,
    ) -> BoxFuture<'a, Result<(), DrillError>> {
        Box::pin(self.remove())
    }

    fn leftovers(&self) -> String {
        format!("DROP SCHEMA {} CASCADE removes them", quoted(&self.schema))
    }
}

struct PostgresWorkload {
    runtime: WorkloadRuntime,
    clock: Arc<dyn Clock>,
    config: PostgresConfig,
    schema: String,
    election: Name,
    /// How long one piece of work may take.
    limit: Duration,
    client: Option<Client>,
}

impl PostgresWorkload {
    fn new(site: Site) -> Result<PostgresWorkload, DrillError> {
        let route = route(&site.url)?;
        Ok(PostgresWorkload {
            runtime: WorkloadRuntime::new()?,
            clock: site.clock,
            config: plain(&route)?,
            schema: route.option("schema").unwrap_or("public").to_owned(),
            election: site.election,
            limit: site.ttl / 2,
            client: None,
        })
    }

    /// Runs a piece of work on a connection, a new one if the last has failed.
    fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client, &Fenced<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let PostgresWorkload { config, schema, election, limit, .. } = self;
        let fenced = Fenced { schema, election };
        let client = self.client.take();
        let done = self.runtime.run(*limit, async {
            let mut client = match client {
                Some(client) => client,
                None => config.connect().await.map_err(|e| Refusal::Failed(e.to_string()))?,
            };
            work(&mut client, &fenced).await.map(|done| (client, done))
        });
        let (client, done) = done?;
        self.client = Some(client);
        Ok(done)
    }
}

impl Workload for PostgresWorkload {
    fn begin(&mut self, term: Term) -> Result<u64, Refusal> {
        self.run(async |client, fenced| {
            let turn = client.transaction().await.map_err(refusal)?;
            fenced.check(&turn, term).await?;
            let last = format!("SELECT coalesce(max(counter), 0) FROM {}", fenced.table("written"));
            let rows = turn.query_typed(&last, &[]).await.map_err(refusal)?;
            let last = rows.first().map_or(0, |row| row.get::<_, i64>(0));
            turn.commit().await.map_err(refusal)?;
            Ok(u64::try_from(last).unwrap_or(0))
        })
    }

    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal> {
        let clock = self.clock.clone();
        self.run(async |client, fenced| {
            let turn = client.transaction().await.map_err(refusal)?;
            fenced.check(&turn, term).await?;
            let at = clock.now();
            let write = format!(
                "INSERT INTO {} (checked, at, term, counter, candidate) \
                 VALUES ($1, $2, $3, $4, $5)",
                fenced.table("written")
            );
            let numbers = [row.checked.as_nanos(), at.as_nanos(), term.get(), row.counter];
            let numbers = numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
            let mut values: Vec<(&(dyn ToSql + Sync), Type)> =
                numbers.iter().map(|n| (n as &(dyn ToSql + Sync), Type::INT8)).collect();
            values.push((&row.candidate, Type::TEXT));
            turn.query_typed(&write, &values).await.map_err(refusal)?;
            turn.commit().await.map_err(refusal)?;
            Ok(at)
        })
    }
}

/// The fence of one election.
struct Fenced<'a> {
    schema: &'a str,
    election: &'a Name,
}

impl Fenced<'_> {
    fn table(&self, name: &str) -> String {
        format!("{}.{name}", quoted(self.schema))
    }

    /// Lets the transaction pass if no newer term is known, and keeps it so until its end.
    async fn check(&self, turn: &Transaction<'_>, term: Term) -> Result<(), Refusal> {
        let checked = fence::check(turn, self.schema, self.election, term).await;
        checked.map_err(|error| match error {
            FenceError::Stale(says) => Refusal::Stale(says),
            other => Refusal::Failed(other.to_string()),
        })
    }
}

fn route(url: &Secret) -> Result<Route, DrillError> {
    let route = Route::new(url.expose(), PORT, UrlStyle::Libpq);
    route.ok_or_else(|| DrillError::refused("the URL has no host"))
}

/// The server of a store, for sessions of the drill's own.
fn plain(route: &Route) -> Result<PostgresConfig, DrillError> {
    let route = route.clone().with_scheme("postgres");
    let route = route.without_option("term_offset").without_option("frozen_leaders");
    Ok(PostgresConfig::from_url(route.url().expose())?)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn refusal(error: tokio_postgres::Error) -> Refusal {
    Refusal::Failed(says(&error))
}

fn failed(what: &str, error: tokio_postgres::Error) -> DrillError {
    DrillError::failed(format!("the drill {what}: {}", says(&error)))
}

fn says(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}
