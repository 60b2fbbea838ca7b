//! Counts forks: each child is one generation older than its parent was.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many forks lie between this process and the first.
pub(super) static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Whether children know that they are one.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Has every child that is forked from now on count.
pub(super) fn watch_for_forks() -> io::Result<()> {
    // Not a `Once`: a fork in the middle of it would leave a child that waits for it for ever. Two
    // threads may both get here first. Then each child counts twice, which is as good.
    if WATCHED.load(Ordering::Acquire) {
        return Ok(());
    }
    at_fork_in_child(count)?;
    WATCHED.store(true, Ordering::Release);
    Ok(())
}

extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[allow(unsafe_code, reason = "ADR 23: there is no safe way to learn of a fork at this price")]
fn at_fork_in_child(handler: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the handler is a function of this crate, which stays where it is for as long as the
    // program does, or is unregistered by the C library when a shared library that contains it is
    // unloaded. It may run between fork and exec, where only async-signal-safe things are allowed:
    // it adds to one atomic number, takes no lock, allocates nothing and can't unwind.
    match unsafe { libc::pthread_atfork(None, None, Some(handler)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
