//! The children of this process, and their end.

use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process};

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
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let children = stats.filter_map(|stat| {
        let (head, tail) = stat.rsplit_once(')')?;
        let parent = tail.split_ascii_whitespace().nth(1)?;
        (parent.parse() == Ok(own.as_raw_pid())).then(|| pids(head.split(' ').next()?).next())?
    });
    Some(children.collect())
}

fn pids(list: &str) -> impl Iterator<Item = Pid> {
    list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

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
