//! Who must be dead before a lease that has not run out may be taken, and how that is proven.
//!
//! Only proof counts (S1). Whatever is merely likely (another namespace, a missing privilege, an
//! unreadable `/proc`) means to wait until the lease runs out.

use std::fs;
use std::os::fd::OwnedFd;

use rusqlite::{Connection, Row};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tenure_core::{ProcStat, Secret, Witness};

use crate::host::Host;
use crate::store::SqliteStore;

impl Witness for SqliteStore {
    fn url(&self) -> Option<Secret> {
        Some(Secret::new(format!("sqlite:{}", self.path().to_str()?)))
    }
}

/// One process, told apart from later ones of the same pid by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: i32,
    start_ticks: i64,
}

/// Whose death is proof that the leases of a handle are nobody's any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderProcess {
    pid_ns: i64,
    /// `None` where no death is proof, or none can be proven.
    own: Option<Process>,
}

impl HolderProcess {
    /// This process, if it has declared that nothing else works for its reigns (D1).
    pub(crate) fn new(host: &Host, childless: bool) -> HolderProcess {
        let pid = Pid::as_raw(Some(rustix::process::getpid()));
        let own = host.pid_ns.filter(|_| childless).and_then(|_| Process::running(pid));
        HolderProcess { pid_ns: column(host.pid_ns.unwrap_or(0)), own }
    }

    /// Whether it is dead beyond doubt.
    pub(crate) fn is_proven_dead(&self, host: &Host) -> bool {
        self.is_visible_from(host) && self.own.is_some_and(|own| own.is_proven_dead())
    }

    /// Whether anything about it can be proven from here.
    pub(crate) fn is_visible_from(&self, host: &Host) -> bool {
        self.own.is_some() && host.pid_ns.map(column) == Some(self.pid_ns)
    }

    /// The process that can be waited for, if there is one.
    pub(crate) fn processes(&self) -> impl Iterator<Item = Process> {
        self.own.into_iter()
    }

    /// Writes the row that leases of one handle point to.
    pub(crate) fn write(&self, conn: &Connection, id: i64) -> rusqlite::Result<()> {
        conn.prepare_cached(include_str!("sql/write_witness.sql"))?.execute((
            id,
            self.pid_ns,
            self.own.map(|own| own.pid),
            self.own.map(|own| own.start_ticks),
        ))?;
        Ok(())
    }

    /// Reads the columns of `look.sql` from `id` on; `None` if the row is not there.
    pub(crate) fn read(
        row: &Row<'_>,
        first: usize,
    ) -> rusqlite::Result<Option<(i64, HolderProcess)>> {
        let Some(id) = row.get::<_, Option<i64>>(first)? else {
            return Ok(None);
        };
        let process = |pid: usize| -> rusqlite::Result<Option<Process>> {
            let start_ticks: Option<i64> = row.get(pid + 1)?;
            let pid: Option<i32> = row.get(pid)?;
            Ok(pid.zip(start_ticks).map(|(pid, start_ticks)| Process { pid, start_ticks }))
        };
        let witness = HolderProcess { pid_ns: row.get(first + 1)?, own: process(first + 2)? };
        Ok(Some((id, witness)))
    }
}

impl Process {
    /// The process that has this pid now.
    fn running(pid: i32) -> Option<Process> {
        Some(Process { pid, start_ticks: start_ticks(pid)? })
    }

    /// Proof is that the pid is free, that who has it now has exited (a zombie still answers
    /// signals, but its pidfd polls readable), or that who has it now started at another time. A
    /// process whose first thread has ended looks like a zombie while its other threads work on;
    /// its pidfd is not readable before the last of them has ended (D2).
    fn is_proven_dead(self) -> bool {
        match self.open() {
            Ok(pidfd) => {
                has_exited(&pidfd)
                    || start_ticks(self.pid).is_some_and(|ticks| ticks != self.start_ticks)
            }
            Err(Errno::SRCH) => true,
            Err(_) => false,
        }
    }

    /// A descriptor that becomes readable when the process of this pid exits.
    pub(crate) fn open(self) -> Result<OwnedFd, Errno> {
        pidfd_open(pid_from(self.pid, 1).ok_or(Errno::INVAL)?, PidfdFlags::empty())
    }

    /// Whether this is the process that asks.
    pub(crate) fn is_me(self) -> bool {
        self.pid == Pid::as_raw(Some(rustix::process::getpid()))
    }
}

fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// A pid that is at least this number. `Pid` itself panics on negative ones.
fn pid_from(raw: i32, least: i32) -> Option<Pid> {
    (raw >= least).then(|| Pid::from_raw(raw)).flatten()
}

/// When the process of this pid started; `None` if that can't be read.
fn start_ticks(pid: i32) -> Option<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    Some(ProcStat::parse(&stat)?.start_ticks)
}

/// Inodes of namespaces have 32 bits; a column has 63.
fn column(inode: u64) -> i64 {
    i64::try_from(inode).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn host() -> Host {
        Host::detect().unwrap()
    }

    /// A process that ends with the test, also with one that fails.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("600").spawn().unwrap())
        }

        fn witness(&self) -> HolderProcess {
            let own = Process::running(self.0.id() as i32);
            HolderProcess { own, ..HolderProcess::new(&host(), true) }
        }

        fn kill_and_reap(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_living_process_is_not_proven_dead_and_a_zombie_is() {
        let mut child = Sleeper::start();
        let witness = child.witness();
        assert!(!witness.is_proven_dead(&host()));
        let pidfd = witness.own.unwrap().open().unwrap();
        child.0.kill().unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        assert!(Process::running(child.0.id() as i32).is_some(), "not reaped yet");
        assert!(witness.is_proven_dead(&host()), "a zombie has exited");
        child.0.wait().unwrap();
        assert!(witness.is_proven_dead(&host()), "reaped");
    }

    /// Ends its first thread and keeps another one.
    const HEADLESS: &str = "
        #include <pthread.h>
        #include <unistd.h>
        static void *work(void *unused) { for (;;) pause(); return unused; }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            pthread_exit(0);
        }";

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive() {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("headless.c"), directory.path().join("it"));
        fs::write(&source, HEADLESS).unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-pthread").arg(&source).arg("-o").arg(&program);
        assert!(cc.status().expect("a C compiler, which Rust links with").success());
        let mut child = Sleeper(Command::new(&program).spawn().unwrap());
        let witness = child.witness();
        let pidfd = witness.own.unwrap().open().unwrap();
        let stat = || ProcStat::parse(&fs::read(format!("/proc/{}/stat", child.0.id())).unwrap());
        let a_moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        while stat().unwrap().state != b'Z' {
            let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&a_moment)).unwrap();
            assert_eq!(ended, 0, "its second thread goes on for ever");
        }
        let stat = stat().unwrap();
        assert!(stat.threads == 2 && !stat.is_dead(), "{stat:?}");
        assert!(!witness.is_proven_dead(&host()));
        child.kill_and_reap();
        assert!(witness.is_proven_dead(&host()));
    }

    #[test]
    fn a_pid_in_use_again_is_proof_and_an_unknown_namespace_is_none() {
        let mut child = Sleeper::start();
        let mut witness = child.witness();
        witness.own.as_mut().unwrap().start_ticks -= 1;
        assert!(witness.is_proven_dead(&host()), "who has the pid now is somebody else");
        child.kill_and_reap();
        assert!(!witness.is_proven_dead(&host().with_pid_namespace(Some(1))));
        assert!(!witness.is_proven_dead(&host().with_pid_namespace(None)));
        assert!(!HolderProcess { own: None, ..witness }.is_proven_dead(&host()));
    }

    #[test]
    fn nobody_is_a_witness_who_has_not_declared_to_be_childless() {
        assert!(HolderProcess::new(&host(), true).is_visible_from(&host()));
        let witness = HolderProcess::new(&host(), false);
        assert!(!witness.is_visible_from(&host()) && witness.processes().next().is_none());
    }
}
