//! Real processes in one election: told to end, killed, frozen, and their clocks stepped.
//!
//! What they tell as JSON and what their fenced workload wrote makes up a history, and a checker
//! that knows nothing but that history holds it against the invariants.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../common/mod.rs"]
mod common;

mod faketime;
mod fleet;
mod groups;
mod record;
mod rounds;
mod workload;
