//! The tests of the suite itself, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod model;
mod suite_can_fail;
