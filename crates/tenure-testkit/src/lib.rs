#![doc = include_str!("../README.md")]

pub mod channels;
mod clock;
pub mod conformance;
mod fault;
pub mod ledger;
mod util;

pub use clock::ManualClock;
pub use fault::{Counts, FaultStore, Faults};
pub use tenure_history as history;
