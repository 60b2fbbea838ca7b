//! Leadership with a term.
//!
//! Many instances of a program run; exactly one of them must do the work: fire the cron jobs, drain
//! the queue, reconcile, migrate. tenure elects it, tells it, takes the job away *before* anyone
//! else can get it, and hands over in milliseconds.
//!
//! ```
//! use std::sync::Arc;
//! use tenure::{Election, MemoryStore};
//!
//! # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
//! let store = Arc::new(MemoryStore::new()); // or SQLite, Postgres, Redis
//! let election = Election::builder("invoices", store).start().await?;
//! let sent = election
//!     .lead(|tenure| async move {
//!         // The term is the fencing token: it goes with every write.
//!         format!("invoices sent in term {}", tenure.term())
//!     })
//!     .await?;
//! assert_eq!(sent.as_deref(), Some("invoices sent in term 1"));
//! election.stop().await?;
//! # Ok(()) }
//! ```
//!
//! # Nouns
//! An [`Election`] is a named contest; a [`Candidate`] one incarnation of one process; a *lease*
//! what the store records; a [`Term`] the store's number of one reign, and the fencing token; a
//! [`Tenure`] the handle held while leading.
//!
//! # Guarantees
//! - At most one candidate trusts itself at any instant, as long as clocks run at rates that differ
//!   by at most 1 % (I1). Trust ends by itself, by the clock, whatever hangs (I3).
//! - Terms only rise, and none is led twice (I2).
//! - Work is told to stop before trust ends; a lease is given back only when the work has ended.
//! - User code cannot delay a renewal: the driver has its own thread. And a lease is not kept alive
//!   for work that can't be told to give it up: see [`Tenure::lost`].
//! - A forked child leads nothing: see [`Candidate`].
//!
//! # Non-guarantees
//! No lease can stop a paused process from acting late: a hypervisor's pause, a restored snapshot
//! or a long stall between a check and a write. A fence can. Send [`Tenure::term`] with every write
//! and have the place where your data lives refuse a lower one.
//!
//! Children that are made by raw `clone` or `fork` system calls, by `_Fork()` or by `vfork()` are
//! not known as such, and take the handles of their parent for their own.
//!
//! How it works inside, with pictures and three walks through the code: [`design`].
//!
//! # Features
//! [`open`] reads the URLs of the stores that are there; [`Election::open`] holds an election on
//! one.
//!
//! | feature | what it adds |
//! |---|---|
//! | (none) | the memory store, for tests and single-process programs |
//! | `sqlite` | `SqliteStore`: processes that share one file on one host |
//! | `postgres` | `PostgresStore`: a lease in a table row, with a fence for your transactions |
//! | | `AdvisoryStore`: a lock that lives with a session, no table |
//! | `redis` | `RedisStore`: a lease in a key, with a script that fences your writes |
//! | `rusqlite` | the fence on the user's own `rusqlite` connections, in `sqlite::fence` |
//! | `tokio-postgres` | the fence on your own transactions, in `postgres::fence`, and your pool |

mod announcer;
mod atomic;
mod bell;
mod builder;
mod callback;
mod calls;
mod candidate;
mod channels;
mod clock;
mod command;
pub mod design;
mod driver;
mod election;
mod event;
mod feed;
mod lead_word;
mod leading;
mod memory;
mod metrics;
mod once;
mod open;
mod pasts;
mod phase;
mod pulse;
mod reign_words;
mod relay;
#[doc(hidden)]
pub mod runtime;
#[doc(hidden)]
pub mod sabotage;
mod schedule;
mod shared;
mod slot;
mod standing;
mod telemetry;
mod telling;
mod tenure;
mod watched;
mod witness;
#[cfg(test)]
mod words_tests;

pub use builder::ElectionBuilder;
pub use callback::{Async, CallbackResult, Plain};
pub use candidate::{Candidate, CandidateBuilder};
pub use channels::{Message, MessageCounts, Messenger};
pub use clock::BootClock;
pub use election::Election;
pub use event::{Event, Leader};
pub use feed::{Changes, Events};
pub use memory::MemoryStore;
pub use metrics::{describe_metrics, refresh_metrics};
pub use once::{OnceClaim, OnceOptions, OnceOutcome, OnceRun};
pub use open::{StoreUrl, Stores, open};
#[doc(hidden)]
pub use sabotage::Fault;
pub use standing::{Overdue, Standing};
pub use tenure::Tenure;
pub use tenure_core::{
    CandidateId, ChannelBacklog, Clock, DeadLetter, Error, ErrorKind, Holder, Limits, Metadata,
    Name, Post, Posted, Reason, Secret, Store, StoreInfo, Term, Time, Timing,
};
pub use witness::WitnessConfig;

/// The contract for those who write stores, and the pure machine.
pub use tenure_core as core;

/// PostgreSQL: its configuration, migrations and fence.
#[cfg(feature = "postgres")]
pub use tenure_postgres as postgres;
#[cfg(feature = "postgres")]
pub use tenure_postgres::{AdvisoryStore, PostgresStore};
#[cfg(feature = "redis")]
pub use tenure_redis as redis;
#[cfg(feature = "redis")]
pub use tenure_redis::RedisStore;

/// The embedded store: its configuration, and the fence for a user's own database.
#[cfg(feature = "sqlite")]
pub use tenure_sqlite as sqlite;
#[cfg(feature = "sqlite")]
pub use tenure_sqlite::SqliteStore;
