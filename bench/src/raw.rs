//! The yardstick: what one durable write costs on the same store, without tenure.

use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::Connection;
use tenure::BootClock;
use tokio::runtime::Runtime;

use crate::ground::{Engine, Ground};
use crate::numbers::Sample;

/// Written once in each round, it knows the same weather.
pub(crate) struct Yardstick {
    raw: Raw,
    took: Vec<Duration>,
}

enum Raw {
    /// A file beside the store.
    Sqlite(Connection),
    /// A connection to the same server.
    Postgres(Runtime, tokio_postgres::Client),
    Redis(redis::Connection),
}

impl Yardstick {
    pub(crate) fn new(ground: &Ground) -> Result<Yardstick> {
        let raw = match ground.engine {
            Engine::Sqlite => sqlite(ground)?,
            Engine::Postgres | Engine::Advisory => postgres(&ground.plain_url())?,
            Engine::Redis => Raw::Redis(redis::Client::open(ground.plain_url())?.get_connection()?),
        };
        Ok(Yardstick { raw, took: Vec::new() })
    }

    /// Measures one write: durable where the store is.
    pub(crate) fn measure(&mut self) -> Result<()> {
        let start = BootClock::time();
        match &mut self.raw {
            Raw::Sqlite(file) => {
                file.execute_batch("BEGIN IMMEDIATE; UPDATE one SET n = n + 1; COMMIT")?;
            }
            Raw::Postgres(runtime, client) => {
                runtime.block_on(client.batch_execute("UPDATE bench_raw SET n = n + 1"))?;
            }
            Raw::Redis(connection) => {
                redis::cmd("SET").arg("bench-raw").arg(1).query::<()>(connection)?;
            }
        }
        self.took.push(BootClock::time() - start);
        Ok(())
    }

    /// All measurements, in milliseconds.
    pub(crate) fn sample(&self) -> Result<Sample> {
        Sample::of_durations(&self.took)
    }
}

fn sqlite(ground: &Ground) -> Result<Raw> {
    let file = Connection::open(ground.directory().join("raw.db"))?;
    file.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE one (n INTEGER); INSERT INTO one VALUES (0)",
    )?;
    Ok(Raw::Sqlite(file))
}

fn postgres(url: &str) -> Result<Raw> {
    // A thread of its own carries the connection, as a program's runtime would.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (client, connection) = runtime
        .block_on(tokio_postgres::connect(url, tokio_postgres::NoTls))
        .context("can't connect to Postgres")?;
    runtime.spawn(async move { drop(connection.await) });
    runtime.block_on(client.batch_execute(
        "CREATE TABLE IF NOT EXISTS bench_raw (n bigint);
         DELETE FROM bench_raw; INSERT INTO bench_raw VALUES (0)",
    ))?;
    Ok(Raw::Postgres(runtime, client))
}
