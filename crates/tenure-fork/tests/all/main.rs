//! Tests with real forks, in one binary. Each runs in a process of its own.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod library;
mod origin;
