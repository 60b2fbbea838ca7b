//! The words of one reign: who works under it, whether its handle is taken, and until when its
//! lease may be trusted. No locks, because `is_current()` reads them.
//!
//! What must hold in every order of events: the driver that closes a reign sees all work that was
//! let in, or is told by exactly one of those who leave (I8). At most one handle is taken, and a
//! handle that comes too late leaves no work behind. A look that sees trust over also sees when.

use std::sync::Arc;

use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const CLOSED: u32 = 1 << 31;

/// The words that the driver and the handles of one reign share. Instants are in nanoseconds.
#[derive(Debug)]
pub(crate) struct ReignWords {
    /// When trust ended, if nothing moves it any more; for those who ask how late the work is.
    trust_ended: AtomicU64,
    /// Until when the lease may be trusted; 0 once trust has ended.
    trust_until: AtomicU64,
    /// Whether the one handle of this reign is taken.
    claimed: AtomicBool,
    /// How many work under this reign, and whether it takes no more.
    work: AtomicU32,
}

impl ReignWords {
    pub(crate) fn new(until: u64) -> ReignWords {
        ReignWords {
            trust_ended: AtomicU64::new(until),
            trust_until: AtomicU64::new(until),
            claimed: AtomicBool::new(false),
            work: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn trust_until(&self) -> u64 {
        self.trust_until.load(Ordering::Acquire)
    }

    /// Moves the end of trust; 0 ends it. Only the driver does.
    pub(crate) fn set_trust_until(&self, until: u64) {
        self.trust_until.store(until, Ordering::Release);
        if until != 0 {
            self.trust_ended.store(until, Ordering::Release);
        }
    }

    /// The last instant that trust was to end at, even after it was ended.
    pub(crate) fn trust_ended(&self) -> u64 {
        self.trust_ended.load(Ordering::Acquire)
    }

    /// Takes the one handle of this reign and works under it; `false` if it is taken or the reign
    /// is over.
    pub(crate) fn claim(&self) -> bool {
        // Claimed first: a claim that comes too late then leaves no work behind to wait for.
        !self.claimed.swap(true, Ordering::AcqRel) && self.enter()
    }

    /// Lets nobody claim it any more; `false` if somebody has.
    pub(crate) fn deny_claims(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// Begins to work under this reign; `false` if it is over.
    pub(crate) fn enter(&self) -> bool {
        let more = |work: u32| (work & CLOSED == 0).then_some(work + 1);
        self.work.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Ends one work; `true` if it was the last of a reign that is over.
    pub(crate) fn exit(&self) -> bool {
        let before = self.work.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !CLOSED > 0, "who leaves has entered");
        before == CLOSED + 1
    }

    /// Lets nobody work under it any more.
    pub(crate) fn close(&self) {
        self.work.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.work.load(Ordering::Acquire) & CLOSED == 0
    }

    pub(crate) fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire) & !CLOSED > 0
    }
}

/// The reign that is `present`, if `leads` says so of it, and not of the one before or after it.
pub(crate) fn reign_meant<T>(
    present: impl Fn() -> Option<Arc<T>>,
    leads: impl Fn() -> bool,
) -> Option<Arc<T>> {
    loop {
        let reign = present()?;
        if !leads() {
            return None;
        }
        // The driver changes the word before the status at an end, and the status after the word
        // at a beginning: the same reign on both sides of the question was meant by it.
        if present().is_some_and(|after| Arc::ptr_eq(&after, &reign)) {
            return Some(reign);
        }
    }
}
