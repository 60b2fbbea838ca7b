//! The one place where this crate draws a number.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A number that nobody can guess and that decides nothing: a name for a channel, a nonce, the
/// server to try first. The standard library's keys are drawn from the system, and are all that is
/// needed here.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate")]
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// From half of it to all of it: many who lost the same server come back one after the other.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let thousandths = u32::try_from(random() % 1_001).unwrap_or(0);
    pause / 2 + pause / 2_000 * thousandths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_are_never_longer_than_asked_for() {
        let whole = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..100).map(|_| jittered(whole)).collect();
        assert!(pauses.iter().all(|pause| (whole / 2..=whole).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
