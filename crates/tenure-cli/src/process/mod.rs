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
//! The order of use: [`Guardians::stand_by`] before the campaign; then, once elected,
//! [`Guardians::take`], [`start_under`] and [`Supervisor::until_gone`]. Only then may the lease be
//! released. Below that: [`GuardianHandle::set_deadline`] with each grant, [`start`],
//! [`Running::wait`] beside [`GuardianHandle::gone`], and [`Running::gone`]. Each command has a
//! guardian of its own.
//!
//! # Guarantees
//! SIGKILL is *sent* to the command, to what it has started, and to its cgroup where there is one,
//! from the deadline on at the latest, until nothing of it is left: by the guardian, whether tenure
//! lives, is frozen or is dead (G1); by tenure, if the guardian was killed.
//!
//! The guardian is the parent of the command and a subreaper: what leaves the group or its session
//! (`setsid`, `set -m`, a double fork) becomes its child all the same. It ends in order only when
//! it has no child left. That is the proof that nobody works any more, and with a [`ReleaseNote`]
//! the last guardian of a dead tenure acts on it (D1).
//!
//! # Non-guarantees
//! - A process of another user (`sudo`), which we may not signal, is out of reach. So is what the
//!   command has had started by somebody else: a container's runtime, `systemd-run`, `at`.
//! - A process in uninterruptible sleep dies when it wakes.
//! - What the command has sent to a server is carried out there, even if all are dead (D4). Use a
//!   fence.
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

mod cgroup;
mod children;
mod command;
mod exec;
mod group;
mod guardian;
mod guardian_handle;
mod guardian_pipe;
mod guardians;
mod reaper;
mod release_note;
mod supervise;

use std::fs;
use std::os::fd::RawFd;
use std::process::ExitCode;

pub use command::{CannotStart, Running, start, start_with};
pub use guardian_handle::GuardianHandle;
pub use guardians::Guardians;
pub use release_note::{GiveBack, ReleaseNote};
pub use rustix::process::Signal;
pub use supervise::{End, Notice, OnLoss, OnStuck, Policy, StopBy, Supervisor, Wish, start_under};

/// The hidden first argument that makes this binary the guardian.
const GUARDIAN: &str = "__guardian";
/// The hidden first argument that makes this binary the trampoline into the command.
const EXEC: &str = "__exec";

/// Plays the hidden part that the command line asks for, if it asks for one.
///
/// `main` calls this before anything else and returns the code if there is one. `give_back` is what
/// a guardian calls with the [`ReleaseNote`] of a tenure that is dead with all its work.
pub fn dispatch(give_back: GiveBack) -> Option<ExitCode> {
    let part = std::env::args_os().nth(1)?;
    if part == GUARDIAN {
        Some(guardian::run(give_back))
    } else if part == EXEC {
        Some(exec::run())
    } else {
        None
    }
}

/// Closes what this process inherited, save the first three: nobody must wait for a pipe, a socket
/// or a lock of the dead because a lease is being given back. Call it only while no other
/// descriptor is in use.
pub(crate) fn close_inherited() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The list was one of them itself, and is closed.
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        let _ = nix::unistd::close(fd);
    }
}

/// Says why a hidden part can't be played. Nobody but a curious person ever sees it.
pub(crate) fn refuse(error: impl std::fmt::Display) -> ExitCode {
    use std::io::Write as _;

    // There is no logger in the hidden parts, and a closed stderr is no reason to panic.
    let _ = writeln!(std::io::stderr(), "tenure: only tenure itself can call this: {error}");
    ExitCode::from(125)
}
