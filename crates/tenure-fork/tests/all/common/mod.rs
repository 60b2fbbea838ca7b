//! Real forks, each in a test process of its own.
#![allow(unsafe_code, reason = "what is tested here is what fork does")]

use std::io::{Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// Says that this process runs one test and no other.
const ALONE: &str = "TENURE_FORK_ALONE";

/// A child that takes longer hangs.
const CHILD_SECONDS_MAX: u32 = 60;

/// Runs the test of this name in a process of its own, where no other test holds a lock while it
/// forks.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(ALONE, "1");
    let output = command.output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "there is no test {name:?}: {out}");
}

/// Forks, has the child do something, and waits for its end. An error says how that was not well:
/// a panic, or a signal, which is SIGALRM if the child hung.
pub(crate) fn in_child(work: impl FnOnce()) -> Result<(), String> {
    let (mut hears, mut says) = std::io::pipe().unwrap();
    // SAFETY: the child has one thread. It calls what is being tested, which must stand that; the
    // C library keeps its allocator usable across a fork; and it leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: no handler is installed, so that the signal ends the child.
        unsafe { libc::alarm(CHILD_SECONDS_MAX) };
        let code = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => 0,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                let _parent_gone = says.write_all(text.unwrap_or_default().as_bytes());
                1
            }
        };
        // SAFETY: it does not return, and runs nothing of what the parent registered.
        unsafe { libc::_exit(code) };
    }
    drop(says);
    let mut said = String::new();
    hears.read_to_string(&mut said).unwrap();
    let mut status = 0;
    // SAFETY: the pid is our child's, and the status lives until this returns.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(ended, pid, "{}", std::io::Error::last_os_error());
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    if libc::WIFSIGNALED(status) {
        return Err(format!("the child ended by signal {}: {said}", libc::WTERMSIG(status)));
    }
    Err(said)
}
