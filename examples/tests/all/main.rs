//! Each example is run, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod examples;
mod postgres;
