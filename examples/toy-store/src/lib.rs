//! Elections in a plain file: what it takes to teach tenure another store.
//!
//! All candidates run on one host and share one file of JSON. An advisory lock lets one of them
//! at a time read it, decide and replace it. It is a real store that keeps the whole contract,
//! small enough to be read in one go. `docs/adding-a-store.md` walks through it.
//!
//! ```
//! use toy_store::TOY;
//!
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let url = format!("toy:{}", directory.path().join("leases.json").display());
//! let store = tenure::Stores::built_in().with(TOY).parse(url.as_str())?.open()?;
//! assert_eq!(store.info().kind, "toy");
//! # Ok::<(), tenure::Error>(())
//! ```

mod checkup;
mod config;
mod elections;
mod error;
mod file;
mod ground;
mod lease;
mod store;

pub use config::{TOY, ToyConfig};
pub use ground::GROUND;
pub use store::ToyStore;
