//! The one place that starts and reaps children.
//!
//! Tenure is a child subreaper (and in a container often process 1), so what a guardian that was
//! killed leaves behind becomes its child, and somebody has to end and reap that. Two kinds of
//! children are special. A guardian stays a zombie until its group has been killed: as long as it
//! is not reaped, its pid, which is the group's id, can't come to mean another group. The status
//! of a main process is kept for whoever waits for it; it is our child only if its guardian died.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use nix::errno::Errno as NixErrno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid as NixPid, getpgid, getpgrp};
use rustix::process::{
    Pid, PidfdFlags, RawPid, WaitOptions, WaitStatus, getpid, pidfd_open, wait, waitpgid, waitpid,
};
use tenure_core::sync;

use super::children;

/// Where an exit code is put, in the shell's convention, when its process is reaped.
pub(super) type Code = Arc<OnceLock<i32>>;

/// What a child is to us, until it is reaped.
#[derive(Debug)]
pub(super) enum Role {
    /// Not reaped before [`reap_group`] is called for the group that it leads.
    Guardian(Code),
    /// Reaped at any time, if it is our child at all.
    Main(Code),
}

type Children = BTreeMap<RawPid, Role>;

static CHILDREN: Mutex<Children> = Mutex::new(BTreeMap::new());

/// Whether every child that is no guardian was left behind by one: we had no other when the first
/// guardian was started, and are not the one to whom all orphans of a container go.
static ALL_ARE_OURS: OnceLock<bool> = OnceLock::new();

/// Starts a guardian and files it before anybody could reap it.
pub(super) fn spawn(command: &mut Command, code: Code) -> io::Result<(Pid, OwnedFd)> {
    let mut children = lock();
    ALL_ARE_OURS.get_or_init(|| {
        getpid().as_raw_pid() != 1 && children::list().is_some_and(|list| list.is_empty())
    });
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            children.insert(pid.as_raw_pid(), Role::Guardian(code));
            Ok((pid, pidfd))
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

/// Reaps every child that has ended, save guardians and children of our own process group.
///
/// Those that are spared hide the dead behind them for as long as they are not reaped themselves.
/// That is short: a dead guardian ends its run, and code that starts a child in our group waits.
pub(super) fn reap_strays() {
    let mut children = lock();
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        let ended = match waitid(Id::All, peek) {
            Ok(status) => status.pid().and_then(|pid| Pid::from_raw(pid.as_raw())),
            // nix has no name for a real-time signal, so it does not say whom it killed. It can't
            // be a guardian, which blocks them.
            Err(NixErrno::EINVAL) => match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    file(&mut children, pid, exit_code(status));
                    continue;
                }
                _ => return,
            },
            Err(_) => return,
        };
        let Some(pid) = ended else { return };
        let spared = match children.get(&pid.as_raw_pid()) {
            Some(Role::Guardian(_)) => true,
            Some(Role::Main(_)) => false,
            // By nix: the group of who was started from another pid namespace is 0, which is no
            // pid to rustix.
            None => getpgid(Some(NixPid::from_raw(pid.as_raw_pid()))) == Ok(getpgrp()),
        };
        if spared || !reap(&mut children, pid) {
            return;
        }
    }
}

/// Files a main process, whose parent is its guardian.
pub(super) fn expect(main: Pid, code: &Code) {
    lock().insert(main.as_raw_pid(), Role::Main(Arc::clone(code)));
}

/// Whether nothing is left of what guardians that were killed have left behind. What is left gets
/// KILL, if it can't be anybody else's.
pub(super) fn end_strays() -> bool {
    let children = lock();
    let Some(list) = children::list() else { return false };
    let own = getpgrp();
    let is_stray = |pid: &Pid| {
        let role = children.get(&pid.as_raw_pid());
        let group = getpgid(Some(NixPid::from_raw(pid.as_raw_pid())));
        !matches!(role, Some(Role::Guardian(_))) && group != Ok(own)
    };
    let strays: Vec<Pid> = list.into_iter().filter(is_stray).collect();
    if ALL_ARE_OURS.get() == Some(&true) {
        children::kill(&strays);
    }
    strays.is_empty()
}

/// The exit code of a main process that has ended, once its guardian is dead.
pub(super) fn code(pid: Pid, code: &Code) -> Option<i32> {
    let mut children = lock();
    // If the code is there the number may already be another child's.
    if code.get().is_none() {
        reap(&mut children, pid);
    }
    code.get().copied()
}

/// Reaps every child of the group that has ended, its guardian too.
///
/// From here on the group's id may come to mean another group: never signal it again.
pub(super) fn reap_group(group: Pid) {
    let mut children = lock();
    while let Ok(Some((pid, status))) = waitpgid(group, WaitOptions::NOHANG) {
        file(&mut children, pid, exit_code(status));
    }
}

/// Gives a child up: it may be reaped like any other.
pub(super) fn forget(child: Pid) {
    lock().remove(&child.as_raw_pid());
}

/// Whether there was something to reap.
fn reap(children: &mut Children, pid: Pid) -> bool {
    match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => file(children, pid, exit_code(status)),
        Ok(None) => return false,
        // Somebody else took its code. A wait that never ends would be worse than a wrong code.
        Err(_) => file(children, pid, 125),
    }
    true
}

fn file(children: &mut Children, pid: Pid, code: i32) {
    if let Some(Role::Main(slot) | Role::Guardian(slot)) = children.remove(&pid.as_raw_pid()) {
        // Its guardian may have told before it died.
        let _ = slot.set(code);
    }
}

/// The code, or 128 plus the number of the signal.
pub(super) fn exit_code(status: WaitStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(125)
}

fn lock() -> MutexGuard<'static, Children> {
    sync::lock(&CHILDREN)
}
