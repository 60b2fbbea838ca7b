//! A singleton job: something happens every half second, once in the whole fleet.
//!
//! ```text
//! cargo run -p tenure-examples --bin cron_job
//! ```
//! Start it three times: one instance prints. End it: another one goes on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::{Election, Tenure};
use tenure_examples::{Shutdown, open_store};
use tokio::time::{MissedTickBehavior, interval};

#[tokio::main]
async fn main() -> Result<()> {
    let mut shutdown = Shutdown::listen()?;
    let election = Election::builder("example:cron-job", open_store()?).start().await?;
    println!("ready");
    tokio::select! {
        // Calls `every_half_second` each time this instance is elected.
        ended = election.lead_each(every_half_second) => ended?,
        () = shutdown.requested() => {}
    }
    election.stop().await?;
    println!("stopped");
    Ok(())
}

async fn every_half_second(tenure: Arc<Tenure>) -> Result<()> {
    let mut ticks = interval(Duration::from_millis(500));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = tenure.lost() => return Ok(()),
        }
        // Nothing is started once leadership is going.
        if tenure.is_leader() {
            println!("tick, term {}", tenure.term());
        }
    }
}
