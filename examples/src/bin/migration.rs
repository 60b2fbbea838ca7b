//! A one-off migration: many instances start at once, one of them migrates, all wait for it, and no
//! later start runs it again.
//!
//! ```text
//! cargo run -p tenure-examples --bin migration -- /tmp/tenure.db /tmp/app.db
//! ```
//! The key names the migration. If an instance dies in the middle, another one tries again.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rusqlite::{Connection, TransactionBehavior};
use tenure::sqlite::fence;
use tenure::{Election, OnceOutcome, OnceRun};
use tenure_examples::open_store;

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::args().nth(2).context("name the file to migrate after the store")?;
    let election = Election::builder("example:migration", open_store()?).build()?;
    let outcome = election
        .once("v1", |run| {
            let file = file.clone();
            async move { tokio::task::block_in_place(|| migrate(&file, &run)) }
        })
        .await?;
    match outcome {
        OnceOutcome::Ran(()) => println!("migrated by this instance"),
        OnceOutcome::Already => println!("migrated already"),
        outcome => bail!("not migrated: {outcome:?}"),
    }
    println!("serving");
    Ok(())
}

fn migrate(file: &str, run: &OnceRun) -> Result<()> {
    let mut app = Connection::open(file)?;
    app.busy_timeout(Duration::from_secs(5))?;
    fence::install(&app)?;
    let transaction = app.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // A leader that was paused and has a successor since is refused here.
    fence::check(&transaction, run.election(), run.term())?;
    let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version >= 1 {
        // An instance died after its commit and before its success was recorded.
        return Ok(());
    }
    // Fails if it is run twice.
    transaction.execute_batch("CREATE TABLE invoices (id INTEGER PRIMARY KEY, cents INTEGER)")?;
    transaction.execute_batch("PRAGMA user_version = 1")?;
    transaction.commit()?;
    Ok(())
}
