//! Starts, signals and ends the command, and sees to it that it never outlives its leadership.
//!
//! Three processes, all of the same binary:
//!
//! ```text
//!   tenure ──── orders (deadline, main process, cgroup) ────▶ guardian   leader of group G
//!      │                                                       │ KILL at the deadline,
//!      └── __exec: joins G and the cgroup, then execs ──▶ the command    or when tenure is gone
//! ```
//!
//! The order of use: [`Keeper::spawn`] before the campaign (so that the group's id can be recorded
//! with the lease), [`Keeper::set_deadline`] with each grant, [`start`] once elected, then
//! [`Running::wait`] beside [`Keeper::gone`], and [`Running::gone`] before the lease is released.
//! Killing the group takes the guardian with it, so each run has a [`Keeper`] of its own.
//!
//! # Guarantees
//! SIGKILL is *sent* to every process of the group, and of the cgroup where there is one, no later
//! than the deadline: by tenure, or by the guardian when tenure is dead or frozen (G1).
//!
//! # Non-guarantees
//! - Without a cgroup of our own, a process that leaves the group (`setsid`, `set -m` in a shell)
//!   is out of reach; so is a process of another user (`sudo`), which we may not signal.
//! - A process in uninterruptible sleep dies when it wakes.
//! - If the guardian is frozen together with tenure (a paused container, a suspended machine), the
//!   command most likely is too. It may run for a moment after the thaw, before the guardian does.
//!   Only a fence stops what it does in that moment.
//!
//! # Children
//! Tenure adopts the orphans of its command (it is a child subreaper) and reaps them. Nothing else
//! in this process may wait for children in other ways, `tokio::process` least of all. A child
//! that stays in tenure's own process group is left alone.

mod cgroup;
mod command;
mod exec;
mod group;
mod guardian;
mod keeper;
mod reaper;
mod wire;

use std::process::ExitCode;

pub use command::{CannotStart, Running, start, start_with};
pub use keeper::Keeper;
pub use rustix::process::Signal;

/// The hidden first argument that makes this binary the guardian.
const GUARDIAN: &str = "__guardian";
/// The hidden first argument that makes this binary the trampoline into the command.
const EXEC: &str = "__exec";

/// Plays the hidden part that the command line asks for, if it asks for one.
///
/// `main` calls this before anything else and returns the code if there is one.
pub fn dispatch() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let part = args.next()?;
    if part == GUARDIAN {
        Some(guardian::run())
    } else if part == EXEC {
        Some(exec::run(args))
    } else {
        None
    }
}

/// Says why a hidden part can't be played. Nobody but a curious person ever sees it.
fn refuse(error: impl std::fmt::Display) -> ExitCode {
    use std::io::Write as _;

    // There is no logger in the hidden parts, and a closed stderr is no reason to panic.
    let _ = writeln!(std::io::stderr(), "tenure: only tenure itself can call this: {error}");
    ExitCode::from(125)
}
