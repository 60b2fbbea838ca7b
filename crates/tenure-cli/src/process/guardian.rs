//! The guardian: the parent of the command, which ends it when tenure can't.
//!
//! It leads the command's process group and is its parent and subreaper, so that whatever the
//! command starts, and however it hides (`setsid`, a double fork), becomes its child in the end. It
//! knows the instant at which all of that must be dead, and does little but wait for it or for the
//! death of tenure. It must never allocate much, start a thread, a runtime or a logger, and
//! whatever goes wrong in it ends the command: one without a guardian is worse than none.
//!
//! When it has ended the command it kills its children until `waitpid` says that there are none
//! (D1). That, and nothing less, is the proof that nobody works any more. Then, if tenure is dead
//! too, the last guardian hands the [`ReleaseNote`] to [`GiveBack`]. That may take a runtime:
//! nothing is left that could come too late.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getpgrp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::net::{SocketType, sockopt::socket_type};
use rustix::process::{
    Pid, PidfdFlags, WaitOptions, WaitStatus, getpid, pidfd_open, set_child_subreaper, wait,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tenure::{BootClock, Time};

use super::children;
use super::guardian_pipe::{News, Order};
use super::reaper::exit_code;
use super::release_note::{GiveBack, ReleaseNote};

/// How often the children of a command that is being killed are looked at, in case one has come
/// without a signal.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Guards the group that this process leads, until one of them is over. The code 0 says that it
/// has proven the command to be dead.
pub(super) fn run(give_back: GiveBack) -> ExitCode {
    let link = rustix::stdio::stdin();
    // Called by hand it would kill the children of whoever called it.
    if getpgrp().as_raw() != getpid().as_raw_pid() || socket_type(link) != Ok(SocketType::SEQPACKET)
    {
        return super::refuse("the guardian leads a process group and takes orders on stdin");
    }
    // Blocked, not handled: `kill 0` in the command reaches us too, with any signal it likes.
    // Tenure blocks them before it starts us; this is for whoever starts us otherwise.
    let _ = SigSet::all().thread_block();
    // A name of its own, so that `pkill -9 tenure` does not take both at once.
    let _ = rustix::thread::set_name(c"guardian");
    match Guardian::new(link) {
        Ok(guardian) => guardian.guard(give_back),
        Err(error) => super::refuse(error),
    }
}

struct Guardian {
    link: BorrowedFd<'static>,
    timer: OwnedFd,
    /// SIGCHLD.
    signals: SignalFd,
    deadline: Option<Time>,
    /// The main process, until it is reaped.
    main: Option<Pid>,
    cgroup: Option<OwnedFd>,
    note: Option<ReleaseNote>,
}

/// Why the command must die.
#[derive(PartialEq)]
enum Over {
    /// Tenure is gone, or as good as.
    Gone,
    /// Tenure says so, or its time is over, or its main process has ended.
    Due,
}

impl Guardian {
    fn new(link: BorrowedFd<'static>) -> Result<Guardian> {
        set_child_subreaper(Some(getpid()))?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        let mut mask = SigSet::empty();
        mask.add(NixSignal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags);
        let signals = signals.map_err(|error| Errno::from_raw_os_error(error as i32))?;
        let (deadline, main, cgroup, note) = (None, None, None, None);
        Ok(Guardian { link, timer, signals, deadline, main, cgroup, note })
    }

    fn guard(mut self, give_back: GiveBack) -> ExitCode {
        // An error means that we can no longer watch.
        let over = self.watch().unwrap_or(Over::Due);
        if !self.end() {
            return ExitCode::FAILURE;
        }
        let Some(note) = self.note.take() else { return ExitCode::SUCCESS };
        // It closed the link, so it is about to be dead; or it lives, and has more to do.
        let dead = note.is_elector_dead(over == Over::Gone);
        if note.open_proofs.close()
            && dead
            && let Ok(text) = note.read()
        {
            drop(self);
            super::close_inherited();
            give_back(&text);
        }
        ExitCode::SUCCESS
    }

    /// Returns when the command must die.
    fn watch(&mut self) -> Result<Over> {
        loop {
            let mut events = [
                PollFd::from_borrowed_fd(self.link, PollFlags::IN),
                PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            retry_on_intr(|| poll(&mut events, None))?;
            // Orders first: after a freeze of all of us, a deadline that has passed may already
            // have been replaced by the one in the queue.
            loop {
                match Order::receive(self.link) {
                    Ok(Some(Order::Kill)) => return Ok(Over::Due),
                    Ok(Some(order)) => self.obey(order)?,
                    Ok(None) => return Ok(Over::Gone),
                    Err(Errno::WOULDBLOCK) => break,
                    Err(error) => return Err(error),
                }
            }
            if self.deadline.is_some_and(|deadline| BootClock::time() >= deadline) {
                return Ok(Over::Due);
            }
            let had_main = self.main.is_some();
            self.reap();
            if had_main && self.main.is_none() {
                return Ok(Over::Due);
            }
        }
    }

    fn obey(&mut self, order: Order<OwnedFd>) -> Result<()> {
        match order {
            Order::Deadline(deadline) => {
                self.deadline = deadline;
                return arm(&self.timer, deadline);
            }
            Order::ReleaseNote(fds) => self.note = Some(ReleaseNote::received(fds)),
            Order::Start(stdin) => return self.start(stdin),
            Order::Cgroup(kill) => self.cgroup = Some(kill),
            Order::Kill => {}
        }
        Ok(())
    }

    /// Starts the trampoline in our own group, of which the command does not become the leader:
    /// that could not call `setsid` without a fork.
    fn start(&mut self, stdin: OwnedFd) -> Result<()> {
        let mut trampoline = Command::new("/proc/self/exe");
        trampoline.arg0("tenure").arg(super::EXEC);
        trampoline.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        let started = trampoline.spawn().and_then(|child| {
            let pid = Pid::from_child(&child);
            Ok((pid, pidfd_open(pid, PidfdFlags::empty())?))
        });
        match started {
            Ok((pid, pidfd)) => {
                self.main = Some(pid);
                News::Started(pid.as_raw_pid(), pidfd).send(self.link)
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                News::<OwnedFd>::NotStarted(errno).send(self.link)
            }
        }
    }

    /// Reaps who has ended, and tells of the main process; true if there is no child left.
    fn reap(&mut self) -> bool {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) => self.note(pid, status),
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(error) => return error == Errno::CHILD,
            }
        }
    }

    fn note(&mut self, pid: Pid, status: WaitStatus) {
        if self.main != Some(pid) {
            return;
        }
        let news = match status.stopping_signal() {
            Some(signal) => News::<OwnedFd>::Stopped(signal),
            None => {
                self.main = None;
                News::Ended(exit_code(status))
            }
        };
        // If tenure is gone there is nobody left to tell.
        let _ = news.send(self.link);
    }

    /// Kills until there is no child left; true if that is proven.
    fn end(&mut self) -> bool {
        if let Some(cgroup) = self.cgroup.take() {
            let _ = rustix::io::write(&cgroup, b"1");
        }
        loop {
            match children::list() {
                Some(children) => children::kill(&children),
                None => children::kill(self.main.as_slice()),
            }
            if self.reap() {
                return true;
            }
            let mut events = [PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            match poll(&mut events, Some(&LOOK_AGAIN)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Guardian {
    /// In a panic too, all are killed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end();
        }
    }
}

fn arm(timer: &OwnedFd, deadline: Option<Time>) -> Result<()> {
    let nanos = deadline.map_or(0, Time::as_nanos);
    let it_value =
        Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop)
}
