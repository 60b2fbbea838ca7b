#![doc = include_str!("../README.md")]

mod channels;
mod checkup;
mod cluster;
mod config;
mod connector;
mod deadline;
mod elections;
mod error;
pub mod fence;
#[cfg(feature = "drill")]
mod ground;
mod hash_slot;
mod hints;
mod inbox;
mod keys;
mod lease;
mod ledger;
mod once;
mod pool;
mod primary;
mod router;
mod script;
mod sentinel;
mod session;
mod store;
mod subscribe;
mod subscriber;
mod subscriptions;
mod url;

pub use config::{FailClosed, REDIS, RedisConfig, Settle};
#[cfg(feature = "drill")]
pub use ground::GROUND;
pub use store::RedisStore;
