//! Starts, signals and ends the command, and sees to it that it never outlives its leadership.
//!
//! Three processes, all of the same binary:
//!
//! ```text
//!   tenure ── orders (deadline, start, kill) ──▶ guardian   leader of group G, subreaper
//!      ▲                                           │ KILL at the deadline, or when tenure is gone,
//!      └───── news (started, stopped, ended) ──────┤ until there is no child left
//!                                                  └─▶ __exec ──▶ the command, in group G
//! ```
//!
//! The order of use: [`Keeper::spawn`] before the campaign, [`Keeper::set_deadline`] with each
//! grant, [`start`] once elected, then [`Running::wait`] beside [`Keeper::gone`], and
//! [`Running::gone`] before the lease is released. Each run has a [`Keeper`] of its own.
//!
//! # Guarantees
//! SIGKILL is *sent* to the command, to what it has started, and to its cgroup where there is one,
//! from the deadline on at the latest, until nothing of it is left: by the guardian, whether tenure
//! lives, is frozen or is dead (G1); by tenure, if the guardian was killed.
//!
//! The guardian is the parent of the command and a subreaper: what leaves the group or its session
//! (`setsid`, `set -m`, a double fork) becomes its child all the same. It ends in order only when
//! it has no child left. That is the proof that nobody works any more, and with a [`Bequest`] the
//! last guardian of a dead tenure acts on it (D1).
//!
//! # Non-guarantees
//! - A process of another user (`sudo`), which we may not signal, is out of reach. So is what the
//!   command has had started by somebody else: a container's runtime, `systemd-run`, `at`.
//! - A process in uninterruptible sleep dies when it wakes.
//! - What the command has sent to a server is carried out there, whoever is dead (D4). Use a fence.
//! - If the guardian is frozen together with tenure (a paused container, a suspended machine), the
//!   command most likely is too. It may run for a moment after the thaw, before the guardian does.
//!   Only a fence stops what it does in that moment.
//! - If tenure and its guardian are killed at once, nobody is left to end the command, or to prove
//!   anything: what held by then runs out.
//!
//! # Children
//! Tenure is a child subreaper too, and adopts what a guardian that was killed leaves behind.
//! Nothing else in this process may wait for children in other ways, `tokio::process` least of
//! all. A child that stays in tenure's own process group is left alone.

mod bequest;
mod cgroup;
mod children;
mod command;
mod exec;
mod group;
mod guardian;
mod keeper;
mod reaper;
mod wire;

use std::process::ExitCode;

pub use bequest::{Bequest, Heir};
pub use command::{CannotStart, Running, start, start_with};
pub use keeper::Keeper;
pub use rustix::process::Signal;

/// The hidden first argument that makes this binary the guardian.
const GUARDIAN: &str = "__guardian";
/// The hidden first argument that makes this binary the trampoline into the command.
const EXEC: &str = "__exec";

/// Plays the hidden part that the command line asks for, if it asks for one.
///
/// `main` calls this before anything else and returns the code if there is one. The heir is what a
/// guardian calls with the [`Bequest`] of a tenure that is dead with all its work.
pub fn dispatch(heir: Heir) -> Option<ExitCode> {
    let part = std::env::args_os().nth(1)?;
    if part == GUARDIAN {
        Some(guardian::run(heir))
    } else if part == EXEC {
        Some(exec::run())
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
