//! The tests of the engine, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod engine;
mod redeploy;
mod steering;
