//! The process group of one run, shared by its [`Keeper`](super::Keeper) and its
//! [`Running`](super::Running).
//!
//! It owns the rule that makes killing by a number safe: the group's id is signalled only while
//! the guardian, whose pid it is, has not been reaped, and the guardian is reaped only after KILL
//! was sent. Both happen under one lock.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::unistd::{Pid as NixPid, getpgid, getsid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::process::{
    Pid, RawPid, Signal, getpid, kill_process_group, pidfd_send_signal, test_kill_process_group,
};
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::reaper::{self, Code};

/// How long a drop waits for what it has killed.
const DROP_PATIENCE: Duration = Duration::from_millis(200);
const DROP_STEP: Duration = Duration::from_millis(2);

pub(super) struct Group {
    /// The guardian's pid, and so the group's id.
    pub(super) id: Pid,
    /// The guardian's pidfd.
    pub(super) guardian: AsyncFd<OwnedFd>,
    /// Where the guardian's orders go.
    pub(super) link: OwnedFd,
    /// The binary that plays the hidden parts.
    pub(super) program: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// KILL was sent. From here on the id is never signalled again.
    pub(super) killed: bool,
    /// Every process was seen to be gone.
    pub(super) gone: bool,
    pub(super) main: Option<Main>,
    pub(super) cgroup: Option<Cgroup>,
}

pub(super) struct Main {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) code: Code,
}

impl Group {
    pub(super) fn new(
        id: Pid,
        guardian: AsyncFd<OwnedFd>,
        link: OwnedFd,
        program: PathBuf,
    ) -> Group {
        Group { id, guardian, link, program, state: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal to every process of the group, and to a main process that left it.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let state = self.lock();
        if state.killed {
            return Err(Errno::SRCH);
        }
        if let Some(main) = &state.main
            && getpgid(Some(NixPid::from_raw(main.pid.as_raw_pid())))
                .is_ok_and(|group| group.as_raw() != self.id.as_raw_pid())
        {
            // The number may be a stranger's by now; the pidfd never is.
            let _ = pidfd_send_signal(&main.pidfd, signal);
        }
        kill_process_group(self.id, signal)
    }

    /// Sends KILL to all there is, the guardian last. Doing it again does nothing.
    pub(super) fn kill(&self) {
        self.kill_locked(&mut self.lock());
    }

    pub(super) fn kill_locked(&self, state: &mut State) {
        if state.killed {
            return;
        }
        if let Some(cgroup) = &state.cgroup
            && let Err(error) = cgroup.kill()
        {
            tracing::debug!(%error, "cgroup.kill failed");
        }
        if let Some(main) = &state.main {
            let _ = pidfd_send_signal(&main.pidfd, Signal::KILL);
        }
        let _ = kill_process_group(self.id, Signal::KILL);
        state.killed = true;
    }

    /// The exit code of the main process, if it has ended.
    pub(super) fn code(&self) -> Option<i32> {
        let state = self.lock();
        let main = state.main.as_ref()?;
        reaper::code(main.pid, &main.code)
    }

    /// Reaps what has ended of a killed group; true once nothing of it is left.
    pub(super) fn is_gone(&self) -> bool {
        let mut state = self.lock();
        if state.gone || !state.killed {
            return state.gone;
        }
        reaper::reap_group(self.id);
        if !self.is_empty() || state.cgroup.as_ref().is_some_and(Cgroup::is_populated) {
            return false;
        }
        // Removes its directory.
        state.cgroup = None;
        state.gone = true;
        true
    }

    fn is_empty(&self) -> bool {
        match test_kill_process_group(self.id) {
            Err(Errno::SRCH) => true,
            // Who is left may be a zombie whose parent left the group, or, now that the guardian
            // is reaped, a group of somebody else that was given our number.
            Ok(()) | Err(_) => !has_members(self.id),
        }
    }

    /// Kills, and waits a little for the end. The ordinary way out is to wait for it before.
    pub(super) fn end(&self) {
        self.kill();
        for _ in 0..DROP_PATIENCE.as_millis() / DROP_STEP.as_millis() {
            reaper::reap_strays();
            if self.is_gone() {
                break;
            }
            self.pause();
        }
        reaper::forget(self.id);
    }

    /// Returns when the main process ends, but after a [`DROP_STEP`] in any case.
    fn pause(&self) {
        let state = self.lock();
        let step = Timespec { tv_sec: 0, tv_nsec: DROP_STEP.subsec_nanos().into() };
        let alive = state.main.as_ref().filter(|main| main.code.get().is_none());
        let mut events: Vec<PollFd<'_>> =
            alive.map(|main| PollFd::new(&main.pidfd, PollFlags::IN)).into_iter().collect();
        let _ = poll(&mut events, Some(&step));
    }
}

/// Whether a process of our session is in the group and is no zombie, or one that we shall reap:
/// our child, or the child of a member that is about to leave it to us.
fn has_members(group: Pid) -> bool {
    // By nix: a session that began outside of our pid namespace, as in a container, has the id 0
    // (in /proc too), and rustix takes that for impossible.
    let (own, session) = (getpid().as_raw_pid(), getsid(None).map_or(0, NixPid::as_raw));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let members: Vec<Stat> = stats
        .filter_map(|stat| Stat::parse(&stat))
        .filter(|stat| stat.group == group.as_raw_pid() && stat.session == session)
        .collect();
    members.iter().any(|stat| {
        let heir = stat.parent == own || members.iter().any(|other| other.pid == stat.parent);
        !stat.dead || heir
    })
}

/// The fields of `/proc/PID/stat` that tell who belongs to whom.
struct Stat {
    pid: RawPid,
    dead: bool,
    parent: RawPid,
    group: RawPid,
    session: RawPid,
}

impl Stat {
    /// From `pid (name) state parent group session ...`; the name may hold anything, even `)`.
    fn parse(stat: &str) -> Option<Stat> {
        let (head, tail) = stat.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let mut fields = tail.split_ascii_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X");
        let mut number = || fields.next()?.parse().ok();
        Some(Stat { pid, dead, parent: number()?, group: number()?, session: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_confuse_the_fields() {
        let stat = Stat::parse("42 (a) b (c)) Z 7 8 9 0 -1 4194560").unwrap();
        assert_eq!((stat.pid, stat.parent, stat.group, stat.session), (42, 7, 8, 9));
        assert!(stat.dead);
        assert!(!Stat::parse("42 (sh) S 7 8 9 0").unwrap().dead);
        assert!(Stat::parse("42 (sh) S 7").is_none());
    }

    #[test]
    fn lines_of_proc_are_read_or_not_whatever_stands_in_them() {
        let time = std::time::Duration::from_millis(200);
        bolero::check!().with_test_time(time).with_type::<(String, i32)>().for_each(
            |(text, group)| {
                let _any = Stat::parse(text);
                let stat = Stat::parse(&format!("7 ({text}) Z 1 {group} 3 0")).unwrap();
                assert!(stat.dead && stat.group == *group, "{text:?}");
            },
        );
    }
}
