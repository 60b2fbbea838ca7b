//! The real library, simulated whole: driver, slots, relay, handles, callbacks, channels, `once`
//! and the cron engine of many processes, on one thread and by one seed.
//!
//! The library asks its [`Runtime`](tenure::runtime::Runtime) for everything that it needs of the
//! outside. Here the simulation answers: it has the clocks, picks which task goes on, and is the
//! store. User code is hostile. The judge sees only what a user would: effects.

mod executor;
mod host;
mod judge;
mod plan;
pub mod soak;
mod store;
mod tail;
mod user;
mod world;

pub use self::judge::{Seen, Violation};
pub use self::plan::Options;
pub use self::world::{Run, run};
