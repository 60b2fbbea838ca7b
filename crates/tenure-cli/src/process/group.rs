//! The guardian, the process group and all else of one run, shared by its
//! [`GuardianHandle`](super::GuardianHandle) and its [`Running`](super::Running).
//!
//! It owns two rules. The group's id is signalled only while the guardian, whose pid it is, has not
//! been reaped, and the guardian is reaped only after KILL was sent; both happen under one lock.
//! And a run is over only when its guardian says that it has no child left, or when the guardian
//! was killed and this process, which adopted what it left behind, has no such child (D1).

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use nix::unistd::{Pid as NixPid, getpgid, getsid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::process::{
    Pid, Signal, getpid, kill_process_group, pidfd_send_signal, test_kill_process_group,
};
use tenure::{BootClock, Time};
use tenure_core::{ProcStat, sync};
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::children;
use super::guardian_pipe::{News, Order};
use super::reaper::{self, Code};
use super::release_note::{OpenProofs, ReleaseNote};

/// How long a drop waits for what it has killed.
const DROP_PATIENCE: Duration = Duration::from_millis(200);
const DROP_STEP: Duration = Duration::from_millis(2);

/// How long a guardian has to kill what it was told to, before it is killed with its group. Then
/// what is left becomes ours. Less for one that somebody has stopped: it does nothing at all.
const GUARDIAN_PATIENCE: Duration = Duration::from_secs(1);
const STOPPED_PATIENCE: Duration = Duration::from_millis(20);

/// How long a guardian has to start a process.
const START_PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

pub(super) struct Group {
    /// The guardian's pid, and so the group's id.
    pub(super) id: Pid,
    /// The guardian's pidfd.
    guardian: AsyncFd<OwnedFd>,
    /// The guardian's exit code, once it is reaped: 0 if it has proven that nothing is left.
    verdict: Code,
    /// Orders go out here, and news come in.
    link: AsyncFd<OwnedFd>,
    open_proofs: Option<OpenProofs>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// The guardian was told to kill, at this time.
    told_at: Option<Time>,
    /// KILL was sent to the group. From here on the id is never signalled again.
    killed: bool,
    /// Everything was seen to be gone.
    gone: bool,
    /// The guardian was killed by somebody else, while the command ran.
    guardian_killed: bool,
    /// The guardian can't say anything any more.
    silent: bool,
    /// The signal that stopped the main process, if nobody has asked yet.
    stopped: Option<i32>,
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
        verdict: Code,
        link: AsyncFd<OwnedFd>,
    ) -> Group {
        Group { id, guardian, verdict, link, open_proofs: None, state: Mutex::default() }
    }

    /// Has the guardian take part in proving that all is dead.
    pub(super) fn enroll(&mut self, note: &ReleaseNote) -> io::Result<()> {
        let open_proofs = note.open_proofs.try_clone()?;
        // First, so that nobody can be the last while this guardian has not heard of it.
        open_proofs.open()?;
        let fds = [note.elector.as_fd(), open_proofs.fd().as_fd(), note.text.as_fd()];
        if let Err(error) = Order::ReleaseNote(fds).send(self.link()) {
            open_proofs.close();
            return Err(error.into());
        }
        self.open_proofs = Some(open_proofs);
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    pub(super) fn link(&self) -> &OwnedFd {
        self.link.get_ref()
    }

    /// Has the guardian start the trampoline, with this as its stdin, and waits for that.
    pub(super) fn start(&self, state: &mut State, stdin: OwnedFd) -> io::Result<()> {
        if state.told_at.is_some() || state.killed || state.main.is_some() {
            return Err(io::Error::other("each run needs a guardian of its own"));
        }
        Order::Start(stdin).send(self.link())?;
        loop {
            let mut events = [PollFd::new(self.link(), PollFlags::IN)];
            if poll(&mut events, Some(&START_PATIENCE)) == Ok(0) {
                return Err(io::Error::other("the guardian does not answer"));
            }
            match News::receive(self.link()) {
                Ok(Some(News::Started(pid, pidfd))) => {
                    let pid = Pid::from_raw(pid).ok_or(Errno::PROTO)?;
                    let code = Code::default();
                    reaper::expect(pid, &code);
                    state.main = Some(Main { pid, pidfd, code });
                    return Ok(());
                }
                Ok(Some(News::NotStarted(errno))) => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                Ok(Some(_)) | Err(Errno::INTR | Errno::WOULDBLOCK) => {}
                Ok(None) => return Err(io::Error::other("the guardian was killed")),
                Err(error) => return Err(error.into()),
            }
        }
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

    /// Has the guardian kill until nothing is left. The main process and the cgroup are killed from
    /// here too, for the guardian may have been stopped. Doing it again does nothing.
    pub(super) fn kill(&self) {
        let mut state = self.lock();
        if state.told_at.is_some() || state.killed {
            return;
        }
        state.told_at = Some(BootClock::time());
        let told = Order::<OwnedFd>::Kill.send(self.link());
        if let Some(cgroup) = &state.cgroup
            && let Err(error) = cgroup.kill()
        {
            tracing::debug!(%error, "cgroup.kill failed");
        }
        if let Some(main) = &state.main {
            let _ = pidfd_send_signal(&main.pidfd, Signal::KILL);
        }
        if told.is_err() {
            self.force(&mut state);
        }
    }

    /// Sends KILL to the group, the guardian included.
    fn force(&self, state: &mut State) {
        if !state.killed {
            let _ = kill_process_group(self.id, Signal::KILL);
            state.killed = true;
        }
    }

    /// Resolves when the guardian is dead.
    pub(super) async fn guardian_dies(&self) {
        // An error means that the runtime is shutting down: count it as dead.
        let _ = self.guardian.readable().await;
    }

    pub(super) fn is_guardian_dead(&self) -> bool {
        let mut events = [PollFd::new(self.guardian.get_ref(), PollFlags::IN)];
        poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }

    /// Kills what a guardian that is dead has left behind: the command must not run without one.
    pub(super) fn end_without_guardian(&self) {
        let expected = self.is_over();
        self.lock().guardian_killed |= !expected;
        self.kill();
    }

    /// Whether the guardian was killed by somebody else, while the command ran.
    pub(super) fn lost_its_guardian(&self) -> bool {
        self.lock().guardian_killed
    }

    /// Whether the end of the guardian is no surprise.
    pub(super) fn is_over(&self) -> bool {
        let mut state = self.lock();
        self.take_in(&mut state);
        if state.guardian_killed {
            return false;
        }
        let ended = state.main.as_ref().is_some_and(|main| main.code.get().is_some());
        ended || state.told_at.is_some() || state.killed
    }

    /// Returns when the guardian may have told something; never, once it can't.
    pub(super) async fn news(&self) {
        if self.lock().silent {
            std::future::pending().await
        }
        match self.link.readable().await {
            Ok(mut ready) => {
                if !self.take_in(&mut self.lock()) {
                    ready.clear_ready();
                }
            }
            // The runtime is shutting down, and this future with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes in what the guardian has told; whether it has told anything.
    fn take_in(&self, state: &mut State) -> bool {
        let mut any = false;
        while !state.silent {
            match News::receive(self.link()) {
                Ok(Some(News::Ended(code))) => {
                    if let Some(main) = &state.main {
                        let _ = main.code.set(code);
                        reaper::forget(main.pid);
                    }
                }
                Ok(Some(News::Stopped(signal))) => state.stopped = Some(signal),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Ok(None) | Err(_) => state.silent = true,
            }
            any = true;
        }
        any
    }

    /// The signal that has stopped the main process, told once.
    pub(super) fn stopped(&self) -> Option<i32> {
        let mut state = self.lock();
        self.take_in(&mut state);
        state.stopped.take()
    }

    /// The exit code of the main process, if it has ended.
    pub(super) fn code(&self) -> Option<i32> {
        let mut state = self.lock();
        self.take_in(&mut state);
        let dead = state.silent && self.is_guardian_dead();
        let main = state.main.as_ref()?;
        match main.code.get() {
            // With its parent dead it is ours.
            None if dead => reaper::code(main.pid, &main.code),
            code => code.copied(),
        }
    }

    /// Reaps what has ended of a killed run; true once nothing of it is left.
    pub(super) fn is_gone(&self) -> bool {
        let mut state = self.lock();
        let Some(told_at) = state.told_at.filter(|_| !state.gone) else { return state.gone };
        self.take_in(&mut state);
        if !self.is_guardian_dead() {
            let waited = BootClock::time() - told_at;
            let is_late = waited > GUARDIAN_PATIENCE;
            if is_late || (waited > STOPPED_PATIENCE && is_stopped(self.id)) {
                self.force(&mut state);
            }
            return false;
        }
        // Its number may be given to others once it is reaped.
        self.force(&mut state);
        reaper::reap_group(self.id);
        if self.verdict.get() != Some(&0) {
            let populated = state.cgroup.as_ref().is_some_and(Cgroup::is_populated);
            if !reaper::end_strays() || !self.is_empty() || populated {
                return false;
            }
            // It is proven by us, and not by the guardian.
            if let Some(open_proofs) = &self.open_proofs {
                open_proofs.close();
            }
        }
        if let Some(main) = &state.main {
            reaper::forget(main.pid);
        }
        // Removes its directory.
        state.cgroup = None;
        state.gone = true;
        true
    }

    fn is_empty(&self) -> bool {
        match test_kill_process_group(self.id) {
            Err(Errno::SRCH) => true,
            // What is left may be a zombie whose parent left the group, or, now that the guardian
            // is reaped, a group of somebody else that was given our number.
            Ok(()) | Err(_) => !has_members(self.id),
        }
    }

    /// Kills, and waits a little for the end; true if nothing is left. The ordinary way out is to
    /// wait for it before.
    pub(super) fn end(&self) -> bool {
        self.kill();
        for _ in 0..DROP_PATIENCE.as_millis() / DROP_STEP.as_millis() {
            reaper::reap_strays();
            if self.is_gone() {
                break;
            }
            let step = Timespec { tv_sec: 0, tv_nsec: DROP_STEP.subsec_nanos().into() };
            let alive = (!self.is_guardian_dead()).then(|| self.guardian.get_ref());
            let mut events: Vec<PollFd<'_>> =
                alive.map(|guardian| PollFd::new(guardian, PollFlags::IN)).into_iter().collect();
            let _ = poll(&mut events, Some(&step));
        }
        reaper::forget(self.id);
        self.lock().gone
    }
}

/// Whether a process that we have not reaped is stopped.
fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    ProcStat::parse(&stat).is_some_and(|stat| stat.is_stopped())
}

/// Whether a process of our session is in the group and is no zombie, or one that we shall reap:
/// our child, or the child of a member that is about to leave it to us.
fn has_members(group: Pid) -> bool {
    // By nix: a session that began outside of our pid namespace, as in a container, has the id 0
    // (in /proc too), and rustix takes that for impossible.
    let (own, session) = (getpid().as_raw_pid(), getsid(None).map_or(0, NixPid::as_raw));
    // Without `/proc` nothing is known of it, and it is not called empty.
    let Some(all) = children::all() else { return true };
    let members: Vec<ProcStat> =
        all.filter(|stat| stat.group == group.as_raw_pid() && stat.session == session).collect();
    members.iter().any(|stat| {
        let ours = stat.parent == own || members.iter().any(|other| other.pid == stat.parent);
        !stat.is_dead() || ours
    })
}
