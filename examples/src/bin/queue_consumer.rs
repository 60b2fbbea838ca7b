//! A singleton queue consumer: anybody adds jobs, the leader alone works them off, in order.
//!
//! ```text
//! cargo run -p tenure-examples --bin queue_consumer -- /tmp/tenure.db /tmp/queue.db
//! ```
//! Each instance adds three jobs. Start several: one of them does all the jobs.
//!
//! The queue is in a file of its own, with a fence: a transaction of a leader that was paused, and
//! has a successor since, is refused, so no job is done twice.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tenure::sqlite::fence;
use tenure::{Election, Tenure};
use tenure_examples::{Shutdown, open_store};
use tokio::time::interval;

#[tokio::main]
async fn main() -> Result<()> {
    let mut shutdown = Shutdown::listen()?;
    let file = std::env::args().nth(2).context("name the file of the queue after the store")?;
    add_jobs(&open_queue(&file)?)?;
    let election = Election::builder("example:queue", open_store()?).start().await?;
    println!("ready");
    tokio::select! {
        // Calls `drain` each time this instance is elected.
        drained = election.lead_each(|tenure| drain(tenure, &file)) => drained?,
        () = shutdown.requested() => {}
    }
    election.stop().await?;
    println!("stopped");
    Ok(())
}

fn open_queue(file: &str) -> Result<Connection> {
    let queue = Connection::open(file)?;
    queue.busy_timeout(Duration::from_secs(5))?;
    let table = "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, work TEXT, term INTEGER)";
    queue.execute_batch(table)?;
    fence::install(&queue)?;
    Ok(queue)
}

fn add_jobs(queue: &Connection) -> Result<()> {
    for number in 1..=3 {
        let work = format!("job {number} of process {}", std::process::id());
        queue.execute("INSERT INTO jobs (work) VALUES (?1)", [work])?;
    }
    Ok(())
}

async fn drain(tenure: Arc<Tenure>, file: &str) -> Result<()> {
    let mut queue = open_queue(file)?;
    // First of all: from here on no earlier leader can change the queue.
    fence::raise(&queue, tenure.election(), tenure.term())?;
    let mut looks = interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = tenure.lost() => return Ok(()),
        }
        while tenure.is_leader() {
            // SQLite blocks; tell tokio so.
            let done = tokio::task::block_in_place(|| do_one(&mut queue, &tenure))?;
            let Some(work) = done else { break };
            println!("done: {work}, term {}", tenure.term());
        }
    }
}

/// Does the next job and marks it as done, both in one fenced transaction.
fn do_one(queue: &mut Connection, tenure: &Tenure) -> Result<Option<String>> {
    let transaction = queue.transaction_with_behavior(TransactionBehavior::Immediate)?;
    fence::check(&transaction, tenure.election(), tenure.term())?;
    let next = "SELECT id, work FROM jobs WHERE term IS NULL ORDER BY id LIMIT 1";
    let row = transaction.query_row(next, [], |row| <(i64, String)>::try_from(row)).optional()?;
    let Some((id, work)) = row else { return Ok(None) };
    let term = i64::try_from(tenure.term().get())?;
    transaction.execute("UPDATE jobs SET term = ?1 WHERE id = ?2", (term, id))?;
    transaction.commit()?;
    Ok(Some(work))
}
