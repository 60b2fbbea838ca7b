//! A singleton consumer of a queue table in Postgres: kill it as often as you like, and no job is
//! lost or done twice.
//!
//! ```text
//! export TENURE_STORE=postgres://postgres@localhost/postgres
//! cargo run -p tenure-examples --bin postgres_queue
//! ```
//! Start several. One of them moves jobs from `example_jobs` to `example_done`, a batch at a time;
//! others take over when it dies. Each batch is one transaction, and the fence comes first in it:
//! it commits while its term is the latest, or not at all. A leader that was killed in the middle
//! leaves nothing half done, and one that was frozen and thaws too late is refused.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::postgres::fence;
use tenure::{Election, Tenure};
use tenure_examples::Shutdown;
use tokio::time::interval;
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> Result<()> {
    let mut shutdown = Shutdown::listen()?;
    let url = std::env::var("TENURE_STORE").context("set TENURE_STORE to postgres://...")?;
    let store = tenure::open(url.as_str())?;
    let tables = store.migrate().context("set TENURE_STORE to postgres://...")?;
    tables.run().await?;
    connect(&url).await?.batch_execute(TABLES).await?;
    let ttl = Duration::from_secs(2);
    let election = Election::builder("example:jobs", store).ttl(ttl).start().await?;
    println!("ready");
    tokio::select! {
        // Calls `drain` each time this instance is elected.
        drained = election.lead_each(|tenure| drain(tenure, &url)) => drained?,
        () = shutdown.requested() => {}
    }
    election.stop().await?;
    println!("stopped");
    Ok(())
}

/// At once from many instances: they take turns.
const TABLES: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(4711);
    CREATE TABLE IF NOT EXISTS example_jobs (id bigserial PRIMARY KEY, work text NOT NULL);
    CREATE TABLE IF NOT EXISTS example_done (job bigint NOT NULL, term bigint NOT NULL);
    COMMIT;";

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn drain(tenure: Arc<Tenure>, url: &str) -> Result<()> {
    let mut client = connect(url).await?;
    let mut looks = interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = tenure.lost() => return Ok(()),
        }
        while tenure.is_leader() {
            match do_some(&mut client, &tenure).await? {
                0 => break,
                count => println!("done: {count}, term {}", tenure.term()),
            }
        }
    }
}

/// Does the next jobs and records them, all in one fenced transaction.
async fn do_some(client: &mut Client, tenure: &Tenure) -> Result<u64> {
    let transaction = client.transaction().await?;
    fence::check(&transaction, "public", tenure.election(), tenure.term()).await?;
    let term = i64::try_from(tenure.term().get())?;
    let sql = "WITH next AS (DELETE FROM example_jobs WHERE id IN (
            SELECT id FROM example_jobs ORDER BY id LIMIT 10) RETURNING id)
        INSERT INTO example_done (job, term) SELECT id, $1 FROM next";
    let count = transaction.execute(sql, &[&term]).await?;
    // Here the effect would be yours: whatever else this transaction writes.
    transaction.commit().await?;
    Ok(count)
}
