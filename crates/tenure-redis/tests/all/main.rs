//! The tests of the store, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests, and tell what they saw"
)]

#[macro_use]
extern crate tenure_needs;

mod clock;
mod cluster;
mod cluster_faults;
mod common;
mod conformance;
mod connections;
mod election;
mod faults;
mod fence;
mod foreign;
mod frozen;
mod input;
mod memory;
mod messages;
mod mixed;
mod outage;
mod sentinel;
mod settle;
mod subscriber;
mod tls;
mod vanished;
