//! The tests of the routes, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod abuse;
mod common;
mod fuzz;
mod relied;
mod routes;
mod sockets;
mod truth;
