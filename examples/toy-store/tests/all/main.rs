//! The toy store passes what every store must pass, and its command does what tenure's does.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod command;
mod conformance;
mod files;
