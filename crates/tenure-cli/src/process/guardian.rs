//! The guardian: the process that ends the command when tenure can't.
//!
//! It leads the command's process group, knows the instant at which the group must be dead, and
//! does nothing but wait for it or for the death of tenure. It must never allocate much, start a
//! thread, a runtime or a logger, and whatever goes wrong in it ends the group: a command without
//! a guardian is worse than no command.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use nix::sys::signal::SigSet;
use nix::unistd::getpgrp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::net::{SocketType, sockopt::socket_type};
use rustix::process::{Signal, getpid, kill_current_process_group, pidfd_send_signal};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tenure_core::Time;

use super::wire::Order;

/// Guards the group that this process leads, until one of them is over.
pub(super) fn run() -> ExitCode {
    let link = rustix::stdio::stdin();
    // Called by hand it would kill the group of whoever called it.
    if getpgrp().as_raw() != getpid().as_raw_pid() || socket_type(link) != Ok(SocketType::SEQPACKET)
    {
        return super::refuse("the guardian leads a process group and takes orders on stdin");
    }
    // Blocked, not handled: `kill 0` in the command reaches us too, with any signal it likes.
    // Tenure blocks them before it starts us; this is for whoever starts us otherwise.
    let _ = SigSet::all().thread_block();
    // A name of its own, so that `pkill -9 tenure` does not take both at once.
    let _ = rustix::thread::set_name(c"guardian");

    let mut guardian = Guardian { link, deadline: None, main: None, cgroup: None };
    // Both ways out mean the same: it is over, or we can no longer watch.
    let _ = guardian.watch();
    drop(guardian);
    ExitCode::FAILURE
}

struct Guardian {
    link: BorrowedFd<'static>,
    deadline: Option<Time>,
    main: Option<OwnedFd>,
    cgroup: Option<OwnedFd>,
}

impl Guardian {
    /// Returns when the group must die.
    fn watch(&mut self) -> Result<()> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        loop {
            let mut events = [
                PollFd::from_borrowed_fd(self.link, PollFlags::IN),
                PollFd::from_borrowed_fd(timer.as_fd(), PollFlags::IN),
            ];
            retry_on_intr(|| poll(&mut events, None))?;
            // Orders first: after a freeze of all of us, a deadline that has passed may already
            // have been replaced by the one in the queue.
            loop {
                match Order::receive(self.link) {
                    Ok(Some(order)) => self.obey(order, &timer)?,
                    Ok(None) => return Ok(()),
                    Err(Errno::WOULDBLOCK) => break,
                    Err(error) => return Err(error),
                }
            }
            if self.deadline.is_some_and(|deadline| now() >= deadline) {
                return Ok(());
            }
        }
    }

    fn obey(&mut self, order: Order<OwnedFd>, timer: &OwnedFd) -> Result<()> {
        match order {
            Order::Deadline(deadline) => {
                self.deadline = deadline;
                return arm(timer, deadline);
            }
            Order::Main(pidfd) => self.main = Some(pidfd),
            Order::Cgroup(kill) => self.cgroup = Some(kill),
        }
        Ok(())
    }
}

impl Drop for Guardian {
    /// Ends everything, this process last. A drop, so that a panic ends it too.
    fn drop(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            let _ = rustix::io::write(cgroup, b"1");
        }
        if let Some(main) = &self.main {
            let _ = pidfd_send_signal(main, Signal::KILL);
        }
        let _ = kill_current_process_group(Signal::KILL);
    }
}

fn arm(timer: &OwnedFd, deadline: Option<Time>) -> Result<()> {
    let nanos = deadline.map_or(0, Time::as_nanos);
    let it_value =
        Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop)
}

fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
