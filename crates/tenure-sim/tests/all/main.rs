//! The tests of the simulator and the model, in one binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "what was found is worth reading with --nocapture")]

#[macro_use]
extern crate tenure_needs;

mod library;
mod model;
mod sabotage;
mod scenarios;
mod simulator;
mod stepper;
mod vectors;
mod whole_library;
