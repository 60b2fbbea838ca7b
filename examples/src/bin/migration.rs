//! A one-off migration: many instances start at once, one of them migrates, all wait for it.
//!
//! ```text
//! cargo run -p tenure-examples --bin migration -- /tmp/tenure.db /tmp/app.db
//! ```
//! Each instance leads in its turn; the first finds the work undone and does it.

use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, TransactionBehavior};
use tenure::sqlite::fence;
use tenure::{Election, Tenure};
use tenure_examples::open_store;

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::args().nth(2).context("name the file to migrate after the store")?;
    let election = Election::builder("example:migration", open_store()?).build()?;
    // Not started: it takes part only while `lead` waits, and gives the lease back at its end.
    let migrated = election
        .lead(|tenure| {
            let file = file.clone();
            async move { tokio::task::block_in_place(|| migrate(&file, &tenure)) }
        })
        .await?
        .context("stopped before the migration was done")??;
    if migrated {
        println!("migrated by this instance");
    } else {
        println!("migrated already");
    }
    println!("serving");
    Ok(())
}

/// Whether there was anything to do.
fn migrate(file: &str, tenure: &Tenure) -> Result<bool> {
    let mut app = Connection::open(file)?;
    app.busy_timeout(Duration::from_secs(5))?;
    fence::install(&app)?;
    let transaction = app.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // A leader that was paused and has a successor since is refused here.
    fence::check(&transaction, tenure.election(), tenure.term())?;
    let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version >= 1 {
        return Ok(false);
    }
    // Fails if it is run twice.
    transaction.execute_batch("CREATE TABLE invoices (id INTEGER PRIMARY KEY, cents INTEGER)")?;
    transaction.execute_batch("PRAGMA user_version = 1")?;
    transaction.commit()?;
    Ok(true)
}
