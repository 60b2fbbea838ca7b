//! A cgroup of the command's own, where the machine lets us have one.
//!
//! A process can leave its process group, but not (without privileges) its cgroup, and one write
//! to `cgroup.kill` ends all that is in it. Where we may not create one (an ordinary user's login,
//! most containers) the command has its process group alone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// How many names are tried: a dead tenure with our pid may have left some behind.
const NAMES_MAX: u32 = 64;

/// A cgroup that is removed when this is dropped, if it is empty by then.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
    /// `cgroup.kill`, open for writing.
    pub(super) kill: File,
    /// `cgroup.procs`, open for writing.
    pub(super) procs: File,
}

impl Cgroup {
    /// A new, empty cgroup below the one that this process is in.
    pub(super) fn create() -> io::Result<Cgroup> {
        let parent = own_dir()?;
        remove_leftovers(&parent);
        let dir = make_dir(&parent)?;
        let open = |name: &str| OpenOptions::new().write(true).open(dir.join(name));
        match (open("cgroup.kill"), open("cgroup.procs")) {
            (Ok(kill), Ok(procs)) => Ok(Cgroup { dir, kill, procs }),
            (Err(error), _) | (_, Err(error)) => {
                let _ = fs::remove_dir(&dir);
                Err(error)
            }
        }
    }

    /// Sends SIGKILL to every process in it, those that are being forked included.
    pub(super) fn kill(&self) -> io::Result<()> {
        (&self.kill).write_all(b"1")
    }

    /// Whether a process in it, or below it, is alive.
    pub(super) fn is_populated(&self) -> bool {
        // If it can't be read it is gone, and so is all that was in it.
        fs::read_to_string(self.dir.join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove_tree(&self.dir);
    }
}

/// Removes a cgroup and those that the command made below it.
fn remove_tree(dir: &Path) {
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path());
    }
    if let Err(error) = fs::remove_dir(dir) {
        tracing::debug!(dir = %dir.display(), %error, "a cgroup is left behind, which is harmless");
    }
}

/// Removes what tenures that were killed have left behind.
///
/// One that is in use can't be removed. If we take the still empty one of a tenure whose pid we
/// can't see, because it lives in another pid namespace, its command runs without.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner_of).and_then(Pid::from_raw);
        if owner.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            remove_tree(&entry.path());
        }
    }
}

/// The pid in a name that [`make_dir`] has made.
fn owner_of(name: &str) -> Option<i32> {
    let (pid, number) = name.strip_prefix("tenure-")?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

fn make_dir(parent: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let pid = std::process::id();
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("tenure-{pid}-{number}"));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn own_dir() -> io::Result<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let own = fs::read("/proc/self/cgroup")?;
    locate(&mounts, &own).ok_or_else(|| io::Error::new(ErrorKind::NotFound, "no cgroup2 mount"))
}

/// Where the cgroup of the process is mounted, from its `mountinfo` and `cgroup` files.
fn locate(mounts: &[u8], own: &[u8]) -> Option<PathBuf> {
    let own = lines(own).find_map(|line| line.strip_prefix(b"0::"))?;
    let own = PathBuf::from(OsString::from_vec(own.to_vec()));
    lines(mounts).find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        if *fields.get(separator + 1)? != b"cgroup2" {
            return None;
        }
        // A mount may show a part of the hierarchy only; ours must lie in it.
        let (root, point) = (unescape(fields.get(3)?), unescape(fields.get(4)?));
        Some(point.join(own.strip_prefix(root).ok()?))
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Undoes the kernel's `\040` for a blank, and its like.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut plain, mut rest) = (Vec::new(), field);
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) if byte == b'\\' => {
                plain.push(code);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(mounts: &str, own: &str) -> Option<String> {
        locate(mounts.as_bytes(), own.as_bytes()).map(|dir| dir.display().to_string())
    }

    #[test]
    fn only_our_own_names_have_an_owner() {
        assert_eq!(owner_of("tenure-42-0"), Some(42));
        for name in ["tenure-42", "tenure-x-0", "tenure-42-x", "tenure.service", "42-0"] {
            assert_eq!(owner_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_own_cgroup_is_found_in_every_layout() {
        let plain =
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let hybrid = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let part = "30 23 0:26 /docker/ab /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw";
        let table = [
            (plain, "0::/user.slice/a.scope\n", Some("/sys/fs/cgroup/user.slice/a.scope")),
            (hybrid, "4:memory:/x\n0::/\n", Some("/sys/fs/cgroup/unified/")),
            (part, "0::/docker/ab/c\n", Some("/sys/fs/my cgroup/c")),
            (part, "0::/elsewhere\n", None),
            (plain, "4:memory:/x\n", None),
            ("", "0::/\n", None),
        ];
        for (mounts, own, expected) in table {
            assert_eq!(located(mounts, own).as_deref(), expected, "{mounts} with {own}");
        }
    }
}
