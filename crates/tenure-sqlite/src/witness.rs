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

use crate::host::Host;

/// One process, told apart from later ones of the same pid by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: i32,
    start_ticks: i64,
}

/// Whose death is proof that the leases of a handle are nobody's any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pid_ns: i64,
    /// `None` where no death is proof, or none can be proven.
    own: Option<Process>,
}

impl Witness {
    /// This process, if it has declared that nothing else works for its reigns (D1).
    pub(crate) fn new(host: &Host, childless: bool) -> Witness {
        let pid = Pid::as_raw(Some(rustix::process::getpid()));
        let own = host.pid_ns.filter(|_| childless).and_then(|_| Process::running(pid));
        Witness { pid_ns: column(host.pid_ns.unwrap_or(0)), own }
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
    pub(crate) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<(i64, Witness)>> {
        let Some(id) = row.get::<_, Option<i64>>(first)? else {
            return Ok(None);
        };
        let process = |pid: usize| -> rusqlite::Result<Option<Process>> {
            let start_ticks: Option<i64> = row.get(pid + 1)?;
            let pid: Option<i32> = row.get(pid)?;
            Ok(pid.zip(start_ticks).map(|(pid, start_ticks)| Process { pid, start_ticks }))
        };
        let witness = Witness { pid_ns: row.get(first + 1)?, own: process(first + 2)? };
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

/// Field 22 of `/proc/PID/stat`; `None` if it can't be read.
fn start_ticks(pid: i32) -> Option<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_start_ticks(&String::from_utf8_lossy(&stat))
}

fn parse_start_ticks(stat: &str) -> Option<i64> {
    // The second field is the command's name in parentheses, with anything in it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
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

        fn witness(&self) -> Witness {
            let own = Process::running(self.0.id() as i32);
            Witness { own, ..Witness::new(&host(), true) }
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
    fn a_name_with_parentheses_does_not_confuse_the_start_time() {
        let stat = "7 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(parse_start_ticks(stat), Some(4711));
        assert_eq!(parse_start_ticks("7 (a"), None);
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

    #[test]
    fn a_pid_in_use_again_is_proof_and_an_unknown_namespace_is_none() {
        let mut child = Sleeper::start();
        let mut witness = child.witness();
        witness.own.as_mut().unwrap().start_ticks -= 1;
        assert!(witness.is_proven_dead(&host()), "who has the pid now is somebody else");
        child.kill_and_reap();
        assert!(!witness.is_proven_dead(&host().with_pid_namespace(Some(1))));
        assert!(!witness.is_proven_dead(&host().with_pid_namespace(None)));
        assert!(!Witness { own: None, ..witness }.is_proven_dead(&host()));
    }

    #[test]
    fn nobody_is_a_witness_who_has_not_declared_to_be_childless() {
        assert!(Witness::new(&host(), true).is_visible_from(&host()));
        let witness = Witness::new(&host(), false);
        assert!(!witness.is_visible_from(&host()) && witness.processes().next().is_none());
    }

    #[test]
    fn lines_of_proc_are_read_or_not_whatever_stands_in_them() {
        let time = std::time::Duration::from_millis(200);
        bolero::check!().with_test_time(time).with_type::<(String, i64)>().for_each(
            |(text, ticks)| {
                let _any = parse_start_ticks(text);
                // The name may hold anything; what follows it decides.
                let stat = format!("7 ({text}) S{} {ticks} 0", " 1".repeat(18));
                assert_eq!(parse_start_ticks(&stat), Some(*ticks), "{stat:?}");
            },
        );
    }
}
