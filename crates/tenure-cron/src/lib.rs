#![doc = include_str!("../README.md")]

mod cron;
mod engine;
mod event;
mod job;
mod ledger_writer;
mod run;
mod schedule;
mod wall;

pub use cron::{Cron, CronBuilder};
pub use event::CronEvent;
pub use job::{Delivery, Job, Missed, Overlap};
pub use run::{Outcome, Run};
pub use schedule::{Schedule, parse_instant, show_instant, show_local};
pub use tenure_core::{JobProgress, Steer, Tick, TickEnd, TickRecord, TickState};
pub use wall::{SystemWall, WallClock};
