#![doc = include_str!("../README.md")]

mod advisory;
mod channels;
mod config;
mod error;
pub mod fence;
mod hints;
mod hosts;
mod inbox;
mod lease;
mod ledger;
mod link;
mod migrate;
mod names;
mod once;
mod outbox;
mod passfile;
mod pool;
mod privileges;
#[cfg(feature = "tokio-postgres")]
mod session;
mod store;
pub mod tick;
mod tls;

pub use advisory::{AdvisoryConfig, AdvisoryStore};
pub use config::PostgresConfig;
pub use migrate::Migrated;
pub use privileges::MissingPrivilege;
pub use store::PostgresStore;
