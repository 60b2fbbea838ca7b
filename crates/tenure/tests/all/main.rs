//! The tests of the library, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod election;
mod handlers;
mod hostile;
mod memory_conformance;
mod messages;
mod observe;
mod once;
mod relied;
mod suites_can_fail;
mod surroundings;
mod trouble;
mod work;
