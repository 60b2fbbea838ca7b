#![doc = include_str!("../README.md")]

mod channels;
mod checkup;
mod config;
mod db;
mod elections;
mod error;
pub mod fence;
mod fs;
#[cfg(feature = "drill")]
mod ground;
mod hints;
mod host;
mod inbox;
mod lease;
mod ledger;
mod mail;
mod observe;
mod once;
mod read_only;
mod store;
pub mod tick;
mod watcher;
mod witness;
mod worker;

pub use config::{SQLITE, SqliteConfig};
#[cfg(feature = "drill")]
pub use ground::GROUND;
#[doc(hidden)]
pub use host::Host;
pub use store::SqliteStore;
