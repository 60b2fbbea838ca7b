#![doc = include_str!("../README.md")]

mod cron;
mod event;
mod job;
mod reign;
mod run;
mod schedule;
mod scribe;
mod wall;

pub use cron::{Cron, CronBuilder};
pub use event::CronEvent;
pub use job::{Delivery, Job, Missed, Overlap};
pub use run::{Outcome, Run};
pub use schedule::{Schedule, parse_instant, show_instant, show_local};
pub use tenure_core::{Tick, TickEnd, TickRecord, TickState};
pub use wall::{SystemWall, WallClock};
