//! Each example is run, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[macro_use]
extern crate tenure_needs;

mod common;
mod examples;
mod postgres;
