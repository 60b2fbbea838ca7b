#![doc = include_str!("../README.md")]

mod channels;
mod config;
mod db;
mod error;
pub mod fence;
mod fs;
mod hints;
mod host;
mod inbox;
mod lease;
mod ledger;
mod mail;
mod observe;
mod once;
mod store;
pub mod tick;
mod watcher;
mod witness;
mod worker;

pub use config::SqliteConfig;
#[doc(hidden)]
pub use host::Host;
pub use store::SqliteStore;
