//! What the tests of tenure's crates share: servers of a test's own, other processes, certificates,
//! ops in few words, and waiting for what must come. Never published, and never for production.
//!
//! A test that needs a server says so with `#[needs(postgres)]` and its name, `needs_postgres_...`.
//! `cargo xtask test` starts the servers, names them in the environment and runs these tests. Run
//! in another way, they fail with a sentence, so that none can pass without having tested anything.
#![allow(clippy::unwrap_used, reason = "it is all for tests")]

pub mod certificates;
mod clock;
pub mod http;
pub mod ops;
mod player;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod redis_sets;
mod replies;
mod wait;

pub use clock::fake_wall_clock;
pub use player::Player;
pub use replies::{granted, refused, unknown};
pub use wait::{PATIENCE, eventually, now, real_wait, until};
