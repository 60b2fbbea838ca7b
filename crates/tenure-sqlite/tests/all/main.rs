//! The tests of the store, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests, and tell what they saw"
)]

#[macro_use]
extern crate tenure_needs;

mod batch;
mod boot;
mod child;
mod common;
mod conformance;
mod fence;
mod files;
mod forget;
mod fuzz;
mod messages;
mod processes;
