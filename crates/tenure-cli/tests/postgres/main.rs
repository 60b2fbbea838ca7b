//! The command on a real PostgreSQL server.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod database;
mod migrate;
mod mixed;
#[path = "../support/mod.rs"]
mod support;
