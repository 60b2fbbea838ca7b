//! Failover drills: real processes, real faults, and a checker outside of them.
//!
//! A [`Drill`] starts candidates in an election of its own on a store, does things to the one that
//! leads (kills it, freezes it, cuts its connections), and writes down what happens on the one
//! clock that all of them share. Then it [judges](judge) the record: never two leaders at once,
//! terms that only rise, no stale write past the fence. It never touches an election that it did
//! not name itself, and it removes its own when it is over.
//!
//! The command `tenure drill` is made of this crate. Its parts are useful on their own: a
//! [fleet](fleet::Fleet) of processes and what they say, a [proxy](proxy::Proxy) that cuts, holds
//! and slows connections, the [record](record::Record) of a drill and its [report].
//!
//! # A drill on a store of your own
//! Implement [`Ground`] and [`Workload`] for it and name both in a [`GroundKind`]. The program that
//! runs the drill implements [`Host`]:
//!
//! ```no_run
//! use std::io;
//! use std::process::Command;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use tenure_core::{Clock, Error, Secret, Store, Timing};
//! use tenure_drill::{
//!     Assignment, Drill, DrillError, Extent, GroundKind, Host, Options, Target, Uninterrupted,
//! };
//! # fn open_my_store(url: &Secret) -> Result<Arc<dyn Store>, Error> { unimplemented!() }
//! # fn my_clock() -> Arc<dyn Clock> { unimplemented!() }
//! # const MY_GROUND: GroundKind = GroundKind {
//! #     schemes: &["mine"],
//! #     ground: |_| unimplemented!(),
//! #     workload: |_| unimplemented!(),
//! # };
//!
//! struct Program;
//!
//! impl Host for Program {
//!     fn clock(&self) -> Arc<dyn Clock> {
//!         my_clock() // the boot clock of the crate `tenure`, say
//!     }
//!
//!     fn open(&self, url: &Secret) -> Result<Arc<dyn Store>, Error> {
//!         open_my_store(url)
//!     }
//!
//!     /// This very program, started again. It takes part while it runs, and says so on stdout.
//!     fn candidate(&self, part: &Assignment<'_>) -> io::Result<Command> {
//!         let mut command = Command::new(std::env::current_exe()?);
//!         command.args(["candidate", part.label, part.election.as_str()]);
//!         command.env("STORE", part.url.expose());
//!         Ok(command)
//!     }
//! }
//!
//! # async fn drill() -> Result<(), DrillError> {
//! let target = Target { url: Secret::new("mine:file"), address: "mine:file".to_owned() };
//! let timing = Timing::new(Duration::from_secs(3));
//! let options = Options { extent: Extent::Rounds(20), ..Options::new(timing) };
//! let drill = Drill::new(&Program, &[MY_GROUND], target, options)?;
//! let outcome = drill.run(&mut Uninterrupted).await?;
//! let report = outcome.report.expect("nobody interrupted it");
//! println!("{}", report.verdict());
//! assert!(report.judgement.is_sound());
//! # Ok(()) }
//! ```
//!
//! What a candidate has to say on its stdout stands in [`fleet`].
//!
//! # What it does not show
//! A drill shows what happened in its rounds, with their timings, on one machine. It can find a
//! fault; it can't prove that there is none.

mod drill;
mod error;
mod event;
mod faketime;
pub mod fleet;
mod ground;
pub mod judge;
mod member;
mod plan;
mod progress;
pub mod proxy;
pub mod record;
pub mod report;
mod restart;
mod rounds;
pub mod route;
mod runtime;
mod scratch;
mod show;
mod wall;

pub use drill::{
    Assignment, CANDIDATES, Drill, Extent, Host, Interrupt, Options, Outcome, Target, Uninterrupted,
};
pub use error::DrillError;
pub use ground::{
    BY_NETWORK, BY_PROCESS, Ground, GroundKind, Refusal, Row, Site, Workload, find_ground,
};
pub use plan::{Fault, Plan, Step};
pub use progress::Progress;
pub use runtime::WorkloadRuntime;
