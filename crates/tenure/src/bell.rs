//! The word behind a pulse: whether a bell was rung that nobody has answered, and since when.
//!
//! What must hold in every order of events: a listener that is awake leaves no bell unanswered, and
//! silence is counted from the first bell that was not answered, not from the last.

use crate::atomic::{AtomicU64, Ordering};

/// When the bell was rung that has not been answered, in nanoseconds; 0 if none.
#[derive(Debug)]
pub(crate) struct Bell(AtomicU64);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(AtomicU64::new(0))
    }

    /// Notes that the bell rings; `true` if it did not ring before, so that the listener is to be
    /// woken.
    pub(crate) fn ring(&self, now: u64) -> bool {
        self.0.compare_exchange(0, now.max(1), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The listener has heard it. Only after it was woken: then each wake answers its own bell.
    pub(crate) fn answer(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Since when a bell is unanswered.
    pub(crate) fn rung_at(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|at| *at != 0)
    }
}
