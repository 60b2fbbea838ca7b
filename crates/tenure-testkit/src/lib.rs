#![doc = include_str!("../README.md")]

mod clock;
pub mod conformance;
mod fault;
pub mod history;
mod util;

pub use clock::ManualClock;
pub use fault::{Counts, FaultStore, Faults};
