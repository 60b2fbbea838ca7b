//! The heart of tenure: its words, its pure machine, and the contract that stores keep.
//!
//! Many instances of a program run; exactly one must do the work. This crate decides who, from
//! nothing but inputs and times that it is handed. It has no clock, no random numbers, no I/O and
//! no runtime, so that production, simulator and model checker run the same code. Programs use
//! the crate `tenure`; those who teach tenure another engine implement [`Store`] from here.
//!
//! ```
//! use std::time::Duration;
//! use tenure_core::*;
//!
//! let candidate = CandidateId::new("web-1", 7)?;
//! let settings = Settings::new(Name::new("invoices")?, candidate, Timing::default());
//! let (mut machine, mut out) = (Machine::new(settings), Actions::new());
//! machine.handle(Time::ZERO, Input::Campaign, &mut out);
//! assert!(out.iter().any(|action| matches!(action, Action::Send(Op::Acquire { .. }))));
//! # Ok::<(), Error>(())
//! ```
//!
//! # Nouns
//! An *election* is a named contest, a *candidate* one incarnation of one process, a *lease* what
//! the store records, a *term* the store's number of one reign and the fencing token, a *margin*
//! the time between the end of trust and the expiry of the lease, a *hint* a reason to look again.
//!
//! # Guarantees
//! I1 to I7 of `docs/invariants.md`, given a store that keeps its contract and clocks whose rates
//! differ by at most 1 %.
//!
//! # Non-guarantees
//! No lease can stop a paused process from acting late. A fence can: give [`Term`] to every write.

mod channels;
mod checkup;
mod clock;
mod columns;
mod duration;
mod elections;
mod error;
mod hint_queue;
mod identity;
mod kind;
mod ledger;
mod ledger_ext;
mod machine;
mod migrate;
mod once;
mod op;
mod proc_stat;
mod secret;
mod steer;
mod store;
pub mod sync;
mod term;
mod time;
mod timing;
mod witness;

pub use channels::{
    Acknowledged, Arrival, ChannelBacklog, Channels, ChannelsExt, DeadLetter, Delivery, Inbox,
    KEY_MEMORY, Limits, Post, Posted, Taken, is_json,
};
pub use checkup::{Checkup, CheckupReport, Finding, Level};
pub use clock::Clock;
pub use columns::{OnceColumns, StepColumns};
pub use duration::{parse_duration, show_duration, show_rounded};
pub use elections::{Elections, Forgotten};
pub use error::{Error, ErrorKind};
pub use hint_queue::{HintQueue, HintSender};
pub use identity::{CandidateId, Holder, Name};
pub use kind::{StoreConfig, StoreKind, scheme_of, url_decoded};
pub use ledger::{
    LEDGER_OPEN_MAX, LEDGER_STEPS_MAX, Ledger, LedgerStep, Marked, Tick, TickEnd, TickRecord,
    TickState, Transactions, check_job_name,
};
pub use ledger_ext::LedgerExt;
#[cfg(feature = "sabotage")]
pub use machine::Sabotage;
pub use machine::{Action, Actions, Input, Machine, Past, Pick, Reason, Report, Settings};
pub use migrate::{Migrate, Migrated};
pub use once::{OnceEnd, OnceMark, OnceRecord, OnceState, OnceStep, check_once_key, decide_once};
pub use op::{Grant, Lease, Metadata, Op, Outcome, Reply, Sight};
pub use proc_stat::ProcStat;
pub use secret::Secret;
pub use steer::{JobProgress, STEER_AHEAD_MS, Steer};
pub use store::{
    BoxFuture, Expiry, Hint, Hints, NoHints, RELEASE_MEMORY, Store, StoreExt, StoreInfo,
};
pub use term::Term;
pub use time::Time;
pub use timing::Timing;
pub use witness::Witness;
