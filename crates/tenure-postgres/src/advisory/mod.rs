//! Elections by advisory locks: no table, a lock that lives with one session.
//!
//! ```text
//!   lock session   holds the election locks of one candidate, and nothing else happens on it:
//!                  try, issue a term, beat, unlock; each a message that ends its own transaction
//!   connector      reads and asks; LISTEN for hints of releases, asks to resign and their answers
//!   wait           follows one holder: it ends when that session does
//! ```
//!
//! What makes the lock a lease: the server ends a session that has been silent for the ttl. What
//! makes it safe to trust: the [`Machine`](tenure_core::Machine) stops trusting it before that. The
//! parts here never let a lock be taken twice in one session, never keep a transaction open, and
//! never take a lock for a candidate whose session they lost.

mod candidate;
mod config;
mod details;
mod hints;
mod key;
mod lease;
mod lock_session;
mod sight;
mod store;
mod tables;
mod term;
mod waits;
mod work;

pub use config::{ADVISORY, AdvisoryConfig};
pub use store::AdvisoryStore;
