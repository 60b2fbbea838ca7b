#![doc = include_str!("../README.md")]

mod advisory;
mod channels;
mod checkup;
mod clock;
mod config;
mod connection;
mod connector;
mod elections;
mod environment;
mod error;
pub mod fence;
#[cfg(feature = "drill")]
mod ground;
mod hints;
mod hosts;
mod inbox;
mod lease;
mod ledger;
mod listener;
mod migrate;
mod names;
mod notices;
mod notifications;
mod once;
mod passfile;
mod privileges;
mod random;
mod session;
mod shape;
mod store;
pub mod tick;
mod tls;

pub use advisory::{ADVISORY, AdvisoryConfig, AdvisoryStore};
pub use config::{POSTGRES, PostgresConfig};
#[cfg(feature = "drill")]
pub use ground::GROUND;
pub use privileges::MissingPrivilege;
pub use store::PostgresStore;
