//! Election only: take part, and say when this instance leads and when it no longer does.
//!
//! ```text
//! cargo run -p tenure-examples --bin election_only
//! ```
//! Start it twice. End the leader: the other one leads within milliseconds, under a higher term.

use anyhow::Result;
use tenure::Election;
use tenure_examples::{Shutdown, open_store};

#[tokio::main]
async fn main() -> Result<()> {
    let mut shutdown = Shutdown::listen()?;
    let election = Election::builder("example:election-only", open_store()?).build()?;
    // Asked for before the start, so that the first change is not missed.
    let mut changes = election.changes();
    election.start().await?;
    println!("{} takes part", election.candidate().label());
    let mut leading = None;
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Some(term)) => {
                    println!("leading, term {term}");
                    leading = Some(term);
                }
                Some(None) => println!("not leading any more"),
                None => break,
            },
            () = shutdown.requested() => break,
        }
    }
    // Nothing is done here because of that term any more. Without this, the lease would be kept for
    // the drain, in case something is.
    if let Some(term) = leading {
        election.done(term)?;
    }
    // Gives the lease back, so that nobody has to wait for it to run out.
    election.stop().await?;
    println!("stopped");
    Ok(())
}
