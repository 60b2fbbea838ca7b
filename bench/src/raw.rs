//! The yardstick: what one durable write costs on this file system, without tenure.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rusqlite::Connection;
use tenure::BootClock;

use crate::numbers::Sample;

/// A file beside the store. Written once in each round, it knows the same weather.
pub(crate) struct Yardstick {
    file: Connection,
    took: Vec<Duration>,
}

impl Yardstick {
    pub(crate) fn new(directory: &Path) -> Result<Yardstick> {
        let file = Connection::open(directory.join("raw.db"))?;
        file.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE one (n INTEGER); INSERT INTO one VALUES (0)",
        )?;
        Ok(Yardstick { file, took: Vec::new() })
    }

    /// Measures one write transaction in WAL mode with FULL sync.
    pub(crate) fn measure(&mut self) -> Result<()> {
        let start = BootClock::time();
        self.file.execute_batch("BEGIN IMMEDIATE; UPDATE one SET n = n + 1; COMMIT")?;
        self.took.push(BootClock::time() - start);
        Ok(())
    }

    /// All measurements, in milliseconds.
    pub(crate) fn sample(&self) -> Result<Sample> {
        Sample::of_durations(&self.took)
    }
}
