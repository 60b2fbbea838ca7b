//! The tests of both stores, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests, and tell what they saw"
)]

#[macro_use]
extern crate tenure_needs;

mod access;
mod advisory_common;
mod advisory_conformance;
mod advisory_crash;
mod advisory_faults;
mod advisory_fence;
mod advisory_locks;
mod advisory_processes;
mod clock;
mod common;
mod conformance;
mod connections;
mod crash;
mod faults;
mod fence;
mod floors;
mod messages;
mod migrations;
mod moving;
mod once;
mod operations;
mod pooler;
mod postgrest;
mod repairs;
mod row_lock;
mod rows;
mod rpc;
mod table_clients;
mod tls;
mod trouble;
