#![doc = include_str!("../README.md")]

mod config;
mod error;
pub mod fence;
mod hints;
mod keys;
mod lease;
mod link;
mod script;
mod store;

pub use config::{RedisConfig, Settle};
pub use store::RedisStore;
