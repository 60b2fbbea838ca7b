//! What the tests with real processes share: processes, their deaths, and the clock.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};
use tenure_core::Time;

/// Far more than anything here takes; a test that needs it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The binary that plays the guardian and the trampoline.
pub(crate) fn tenure() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tenure"))
}

/// The clock that deadlines are measured on.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Looks again and again until there is something to see.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + LIMIT;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(now() < end, "never came: {what}");
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
    }
}

/// A process whose death can be awaited, whoever its parent is.
pub(crate) struct Watched {
    pub(crate) pid: u32,
    pidfd: OwnedFd,
}

impl Watched {
    pub(crate) fn new(pid: u32) -> Watched {
        let id = Pid::from_raw(pid as i32).unwrap();
        Watched { pid, pidfd: pidfd_open(id, PidfdFlags::empty()).unwrap() }
    }

    /// Whether it has ended when the limit is over; returns as soon as it has.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let (tv_sec, tv_nsec) = (limit.as_secs() as i64, limit.subsec_nanos().into());
        let mut events = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut events, Some(&Timespec { tv_sec, tv_nsec })).unwrap() == 1
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    pub(crate) fn ends(&self) {
        assert!(self.ends_within(LIMIT), "process {} is still there", self.pid);
    }
}

/// One line of `/proc`: who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) state: String,
    pub(crate) parent: u32,
    pub(crate) group: u32,
}

/// Every process there is.
pub(crate) fn processes() -> Vec<Stat> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            let (head, tail) = stat.rsplit_once(')')?;
            let tail: Vec<&str> = tail.split_whitespace().collect();
            Some(Stat {
                pid: head.split_once(' ')?.0.parse().ok()?,
                state: tail[0].into(),
                parent: tail[1].parse().ok()?,
                group: tail[2].parse().ok()?,
            })
        })
        .collect()
}

/// Waits until the group has `count` processes, and watches them all.
pub(crate) fn watch_group(group: u32, count: usize) -> Vec<Watched> {
    let pids = eventually(&format!("{count} processes of group {group}"), || {
        let pids: Vec<u32> =
            processes().iter().filter(|stat| stat.group == group).map(|stat| stat.pid).collect();
        (pids.len() == count).then_some(pids)
    });
    pids.into_iter().map(Watched::new).collect()
}

/// Waits for the command to write a whole line into a file, and returns it.
pub(crate) fn line_of(path: &Path) -> String {
    eventually(&format!("a line in {}", path.display()), || {
        let text = std::fs::read_to_string(path).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
}

/// Says what is not tested on this machine. Not by `eprintln!`, which a passing test swallows.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// A directory for the notes that a command leaves, gone with the test.
pub(crate) struct Notes(tempfile::TempDir);

impl Notes {
    pub(crate) fn new() -> Notes {
        Notes(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
