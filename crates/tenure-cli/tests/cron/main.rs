//! `tenure cron` with real processes: what it tells, and that no tick runs twice or is lost while
//! leaders are killed and frozen.
#![cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod promises;
#[path = "../servers/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod words;
mod workload;
