//! A follower tells the leader: every instance takes requests, one of them does the work.
//!
//! ```text
//! cargo run -p tenure-examples --bin tell_the_leader -- /tmp/tenure.db
//! ```
//! Start several and type into any of them. A line is a notice, heard by the leader, or by
//! nobody; a line that begins with `!` is a post, kept until a leader has handled it. Kill the
//! leader with `kill -9`: posts wait for the next one.

use anyhow::Result;
use tenure::{Election, Message};
use tenure_examples::{Shutdown, open_store};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<()> {
    let mut shutdown = Shutdown::listen()?;
    let election = Election::builder("example:told", open_store()?)
        .on_elected(|term| println!("leading, term {term}"))
        .on_notify("refresh", |message: Message| println!("heard: {}", message.payload))
        .on_post("orders", |message: Message| async move {
            println!("handled: {}, attempt {}", message.payload, message.attempt);
            anyhow::Ok(())
        })
        .start()
        .await?;
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            () = shutdown.requested() => break,
        };
        let Some(line) = line else {
            shutdown.requested().await;
            break;
        };
        match line.strip_prefix('!') {
            // The key makes it safe to send it again: here the line itself is one.
            Some(order) => {
                let posted = election.post("orders", &quoted(order), order).await?;
                println!("posted: {}", if posted.is_new { "new" } else { "known" });
            }
            None => election.notify("refresh", &quoted(&line)).await?,
        }
    }
    election.stop().await?;
    println!("stopped");
    Ok(())
}

/// A line as a JSON string.
fn quoted(line: &str) -> String {
    format!("\"{}\"", line.replace('\\', "\\\\").replace('"', "\\\""))
}
