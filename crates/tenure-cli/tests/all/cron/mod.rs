//! `tenure cron` with real processes: what it tells, and that no tick runs twice or is lost while
//! leaders are killed and frozen.
#![cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]

mod fleet;
mod promises;
mod words;
mod workload;
