//! The one place where this crate draws a number.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number that nobody can guess and that decides nothing: a name for a channel, a nonce, the
/// server to try first. The standard library's keys are drawn from the system, and are all that is
/// needed here.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate")]
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
