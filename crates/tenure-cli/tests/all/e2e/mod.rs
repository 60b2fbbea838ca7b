//! Real processes in one election: told to end, killed, frozen, and their clocks stepped.
//!
//! What they tell as JSON and what their fenced workload wrote makes up a history, and a checker
//! that knows nothing but that history holds it against the invariants.

mod faketime;
mod fleet;
mod groups;
mod record;
mod rounds;
mod workload;
