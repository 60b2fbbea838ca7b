//! The tests of the command, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests, and tell what they saw"
)]

#[macro_use]
extern crate tenure_needs;

mod bad_input;
mod campaign;
mod common;
mod cron;
mod default_store;
mod drill;
mod drill_servers;
mod e2e;
mod events;
mod forget;
mod guardian;
mod hosts;
mod library_witness;
mod messages;
mod moving;
mod observe;
mod once;
mod postgres;
mod run;
mod secrets;
mod servers;
mod sidecar;
mod stopping;
mod streams;
mod support;
mod witness;
