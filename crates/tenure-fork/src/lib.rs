//! Tells whether this process is still the one in which a handle was made.
//!
//! A forked child has a copy of all memory and none of the threads. A handle to an election that
//! was copied so would go on to say "you lead" with nobody behind it who renews, or who could say
//! that it is over (L3). So each handle notes its [`Origin`], and asks it before it answers.
//!
//! ```
//! let origin = tenure_fork::Origin::here()?;
//! assert!(origin.is_here()); // and false in every child that is forked from now on
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Guarantees
//! After `fork()`, and after whatever calls it (`daemon(3)`, Python's `os.fork` and
//! `multiprocessing`, gunicorn's `--preload`), every origin of the parent is foreign to the child,
//! to its children, and so on. An origin that the child makes is its own, and is here.
//!
//! # Non-guarantees
//! A process made by the raw system calls `clone` or `fork`, by `_Fork()`, or by `vfork()` takes
//! its parent's origins for its own: these run no fork handlers. Of those, only `vfork()` is usual,
//! and its child may do nothing but call `exec`. On systems other than Unix every origin is here.
//!
//! # Unsafe code
//! One call, to `pthread_atfork`; ADR 23 argues why.

#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
use other as process;
#[cfg(unix)]
use unix as process;

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    /// This process.
    ///
    /// # Errors
    /// Whatever the system says if it has no room to note one more fork handler. That happens at
    /// the first call in a program, if ever.
    pub fn here() -> std::io::Result<Origin> {
        process::watch_for_forks()?;
        Ok(Origin(process::generation()))
    }

    /// Whether this is the process in which it was made. One load, and never a lock: it may be
    /// asked in a child that was forked from a program with many threads.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.0 == process::generation()
    }
}
