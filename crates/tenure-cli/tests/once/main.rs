//! `tenure once` and `run --no-wait` with real processes: what they tell, and that each key has one
//! run at a time and one success while instances are killed.
#![cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail, and tells what it saw"
)]

#[path = "../common/mod.rs"]
mod common;
mod kills;
#[path = "../servers/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod words;
