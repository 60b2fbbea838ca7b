//! The children of this process, and their end.

use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tenure_core::ProcStat;

/// The children of this process, zombies included; `None` if that can't be told.
///
/// A child that ends or comes meanwhile may be missing: look again until there is none.
pub(super) fn list() -> Option<Vec<Pid>> {
    // In the `/proc` of another pid namespace the numbers mean others.
    let own = getpid();
    let link = fs::read_link("/proc/self").ok()?;
    if link.to_str()?.parse() != Ok(own.as_raw_pid()) {
        return None;
    }
    of_threads().or_else(|| by_parent(own))
}

/// Sends KILL to each of them. They are ours to reap, so that no number can mean another process.
pub(super) fn kill(children: &[Pid]) {
    for child in children {
        // A zombie, or a process of another user: the wait for it will tell.
        let _ = kill_process(*child, Signal::KILL);
    }
}

/// As the kernel lists them for each thread, if it was built to.
fn of_threads() -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let list = fs::read_to_string(thread.ok()?.path().join("children"));
        match list {
            Ok(list) => children.extend(pids(&list)),
            // The thread has ended, or no kernel of this kind has such a list.
            Err(_) if !children.is_empty() => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

fn by_parent(own: Pid) -> Option<Vec<Pid>> {
    let children = all()?.filter(|stat| stat.parent == own.as_raw_pid());
    Some(children.filter_map(|stat| Pid::from_raw(stat.pid)).collect())
}

/// Every process that `/proc` shows; `None` if it can't be read.
pub(super) fn all() -> Option<impl Iterator<Item = ProcStat>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    Some(entries.filter_map(|entry| ProcStat::parse(&fs::read(entry.path().join("stat")).ok()?)))
}

fn pids(list: &str) -> impl Iterator<Item = Pid> {
    list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    /// The name of a program is bytes. One that is no text once hid its process.
    #[test]
    fn a_child_whose_name_is_no_text_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(OsStr::from_bytes(b"sl\xff) R"));
        symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("600").spawn().unwrap();
        let found = by_parent(getpid()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&Pid::from_child(&child)), "{found:?}");
    }

    #[test]
    fn a_child_is_found_both_ways() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(list().unwrap().contains(&pid));
        assert!(by_parent(getpid()).unwrap().contains(&pid));
        kill(&[pid]);
        child.wait().unwrap();
        assert!(!list().unwrap().contains(&pid));
    }
}
