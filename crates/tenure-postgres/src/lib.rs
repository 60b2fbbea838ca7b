#![doc = include_str!("../README.md")]

mod config;
mod error;
pub mod fence;
mod hints;
mod lease;
mod link;
mod migrate;
mod names;
mod store;
mod tls;

pub use config::PostgresConfig;
pub use migrate::Migrated;
pub use store::PostgresStore;
