//! The process of one candidate, and those of its group.

use std::fs;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::ProcStat;

/// One candidate that was started. It is killed when this is dropped.
pub(crate) struct Member {
    pub(crate) process: usize,
    pub(crate) lane: usize,
    pub(crate) child: Child,
    pub(crate) has_ended: bool,
    /// It may end: it was killed or told to.
    pub(crate) may_end: bool,
    /// Whether those of its group end with it, and its number is still its own.
    pub(crate) with_group: bool,
}

impl Member {
    /// Whether somebody of its group lives beside it: its witness.
    pub(crate) fn has_company(&self) -> bool {
        let own = Pid::from_child(&self.child).as_raw_pid();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = entries.filter_map(|entry| fs::read(entry.path().join("stat")).ok());
        let mut stats = stats.filter_map(|stat| ProcStat::parse(&stat));
        stats.any(|stat| stat.group == own && stat.pid != own && !stat.is_dead())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Our own child, not waited for yet: the pid is still its own. A frozen one dies too.
        if self.with_group {
            let _ended = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
