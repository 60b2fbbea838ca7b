//! The word that `is_leader()` is answered from (I8, L1).
//!
//! It holds the instant until which new work may be started, 0 while following, and in its lowest
//! bit whether somebody *relies* on the reign: was told "you lead" without being registered as
//! work. Both live in one word, so that no answer slips through: an answer that comes before the
//! step-down is seen by it, and after the step-down there is no `true`.

use crate::atomic::{AtomicU64, Ordering};

const RELIED: u64 = 1;

/// Until when new work may be started, and whether somebody was told so.
#[derive(Debug)]
pub(crate) struct LeadWord(AtomicU64);

impl LeadWord {
    pub(crate) fn new() -> LeadWord {
        LeadWord(AtomicU64::new(0))
    }

    /// Whether new work may be started, for those who act on the answer: the first `true` of a
    /// reign makes it relied upon. One load while following; while leading one clock read more.
    #[inline]
    pub(crate) fn vouch(&self, now: impl Fn() -> u64) -> bool {
        let word = self.0.load(Ordering::Acquire);
        if word == 0 || now() >= word & !RELIED {
            return false;
        }
        word & RELIED != 0 || self.vouch_first(word, now)
    }

    #[cold]
    fn vouch_first(&self, mut word: u64, now: impl Fn() -> u64) -> bool {
        loop {
            let told = word | RELIED;
            match self.0.compare_exchange(word, told, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                // Renewed, stepped down, or told by somebody else: look again.
                Err(now_there) => word = now_there,
            }
            if word == 0 || now() >= word & !RELIED {
                return false;
            }
            if word & RELIED != 0 {
                return true;
            }
        }
    }

    /// The same question by those who only show the answer, or are registered as work.
    #[inline]
    pub(crate) fn peek(&self, now: impl Fn() -> u64) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word != 0 && now() < word & !RELIED
    }

    /// Whether somebody was told in the present reign and has not said that they are done.
    pub(crate) fn is_relied_upon(&self) -> bool {
        self.0.load(Ordering::Acquire) & RELIED != 0
    }

    /// A reign begins; `relied` if somebody is told by this very act.
    pub(crate) fn begin(&self, until: u64, relied: bool) {
        let word = (until & !RELIED).max(2);
        self.0.store(word | u64::from(relied), Ordering::Release);
    }

    /// Somebody is told, if a reign is on.
    pub(crate) fn rely(&self) {
        let told = |word: u64| (word != 0).then_some(word | RELIED);
        let _ended = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, told);
    }

    /// A renewal: the instant moves, what was told stays told.
    pub(crate) fn extend(&self, until: u64) {
        let moved = |word: u64| (word != 0).then_some((until & !RELIED).max(2) | (word & RELIED));
        let _ended = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, moved);
    }

    /// The step-down: nobody is told `true` from here on. Returns whether somebody relies on it.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & RELIED != 0
    }

    /// Everybody who was told so far is done. `false` if the word changed since `is_the_one` looked
    /// at it or is not of the reign that is meant.
    pub(crate) fn done(&self, is_the_one: impl Fn() -> bool) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            // Looked at after the word: a word of a later reign is then never taken for this one.
            if word == 0 || !is_the_one() {
                return false;
            }
            let done = word & !RELIED;
            match self.0.compare_exchange(word, done, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now_there) => word = now_there,
            }
        }
    }
}
