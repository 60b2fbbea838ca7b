//! Run if leader: every instance gets the same orders, and only the leader carries them out.
//!
//! ```text
//! cargo run -p tenure-examples --bin run_if_leader
//! ```
//! Start it twice and type lines into both. Ctrl-D ends it.

use anyhow::Result;
use tenure::Election;
use tenure_examples::open_store;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<()> {
    let election = Election::builder("example:run-if-leader", open_store()?).start().await?;
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(order) = lines.next_line().await? {
        // Dropped where it stands if trust in the leadership ends first.
        match election.run_if_leader(carry_out(&order)).await {
            Some(answer) => println!("{answer}"),
            None => match election.current_leader().await? {
                Some(leader) => println!("left {order:?} to {}", leader.holder.label()),
                None => println!("left {order:?}, nobody leads"),
            },
        }
    }
    election.stop().await?;
    println!("stopped");
    Ok(())
}

async fn carry_out(order: &str) -> String {
    format!("carried out {order:?}")
}
