//! One candidate of a fleet that a program in another language watches: it asks whether it leads as
//! often as it can, and writes down each yes.
//!
//! ```text
//! believer URL NAME RECORD TTL_MS
//! ```
//! It appends a line to RECORD for each yes: process, term, and the instants (`CLOCK_BOOTTIME` in
//! nanoseconds) before and after the question. It takes part until it is killed.
#![allow(clippy::print_stdout, reason = "it talks to the program that started it")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Election, Error, Tenure};

const ASK_EVERY: Duration = Duration::from_millis(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match take_part(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn take_part(args: &[String]) -> Result<(), Error> {
    let [url, name, record, ttl_ms] = args else {
        return Err(Error::config("give URL NAME RECORD TTL_MS"));
    };
    let ttl_ms = ttl_ms.parse().map_err(|_| Error::config("TTL_MS is no number"))?;
    let record = OpenOptions::new().append(true).open(record);
    let record = Arc::new(record.map_err(|_| Error::config("RECORD can't be written to"))?);
    let election = Election::open(name, url).ttl(Duration::from_millis(ttl_ms)).start().await?;
    election
        .lead_each(|tenure| {
            let record = record.clone();
            async move {
                believe(&tenure, &record).await;
                Ok::<(), Error>(())
            }
        })
        .await
}

/// Asks until it is lost.
async fn believe(tenure: &Tenure, record: &File) {
    let mut record = record;
    let pid = std::process::id();
    loop {
        let before = BootClock::time();
        let is_current = tenure.is_current();
        let after = BootClock::time();
        if is_current {
            let (before, after) = (before.as_nanos(), after.as_nanos());
            // One write, so that lines of several processes do not mix.
            let line = format!("{pid} {} {before} {after}\n", tenure.term());
            if record.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
        tokio::select! {
            () = BootClock.sleep_until(after + ASK_EVERY) => {}
            _ = tenure.lost() => return,
        }
    }
}
