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

use std::sync::atomic::{AtomicU64, Ordering};

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// How many forks there had been.
    made: u64,
    /// How many there have been by now.
    forks: &'static AtomicU64,
}

impl Origin {
    /// This process.
    ///
    /// # Errors
    /// Whatever the system says if it has no room to note one more fork handler. That happens at
    /// the first call in a program, if ever.
    pub fn here() -> std::io::Result<Origin> {
        process::watch_for_forks()?;
        Ok(Origin::counted_by(&process::GENERATION))
    }

    /// This process, as somebody else counts its forks: for a simulation of them.
    #[doc(hidden)]
    #[must_use]
    pub fn counted_by(forks: &'static AtomicU64) -> Origin {
        // A child begins with one thread, which has counted: there is nothing to be ordered.
        Origin { made: forks.load(Ordering::Relaxed), forks }
    }

    /// Whether this is the process in which it was made. One load, and never a lock: it may be
    /// asked in a child that was forked from a program with many threads.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.made == self.forks.load(Ordering::Relaxed)
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Origin) -> bool {
        self.made == other.made && std::ptr::eq(self.forks, other.forks)
    }
}

impl Eq for Origin {}
