#![doc = include_str!("../README.md")]

mod channels;
mod cluster;
mod config;
mod dial;
mod error;
pub mod fence;
mod hints;
mod inbox;
mod keys;
mod lease;
mod ledger;
mod lines;
mod link;
mod once;
mod patience;
mod place;
mod script;
mod sentinel;
#[cfg(feature = "redis")]
mod session;
mod slot;
mod store;
mod tls;
mod url;

pub use config::{FailClosed, RedisConfig, Settle};
#[cfg(feature = "redis")]
pub use session::{Deployment, Session};
pub use store::RedisStore;
