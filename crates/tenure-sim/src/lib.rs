//! Seeded simulators of tenure's machine and of the whole library, and a model of the machine.
//!
//! The same [`Machine`](tenure_core::Machine) that runs in production runs here against an
//! abstract store, with drifting, stepping and frozen clocks, lost, delayed and doubled messages,
//! crashes and people. A checker outside holds each step against I1 to I7. [`library`] does the
//! same with everything above the machine, up to where user code begins.
//!
//! # Nouns
//! A *seed* is one run; a *class* a kind of trouble that can be switched off; the *tail* the calm
//! end of a run, in which somebody must lead.

pub mod check;
pub mod clock;
pub mod library;
pub mod model;
pub mod plan;
pub mod sabotage;
pub mod scenario;
pub mod shrink;
pub mod soak;
pub mod store;
pub mod transcript;
pub mod vectors;
mod world;

pub use world::{Run, run};
