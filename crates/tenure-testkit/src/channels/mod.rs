//! The suite for stores that carry messages.
//!
//! It runs on the same [`Subject`] as the [conformance](crate::conformance) suite, on data of
//! higher numbers. A store without channels skips all of it.

mod dead_letters;
mod fencing;
mod notices;
mod posts;
mod senders;
mod user;

use crate::conformance::{CaseFn, Report, Subject, Topic, cases, run_cases};

/// Data of the other suite has lower numbers.
const FIRST: u32 = 1_001;

const TOPICS: [Topic; 5] = [
    ("notices", notices::CASES),
    ("posts", posts::CASES),
    ("fencing", fencing::CASES),
    ("dead letters", dead_letters::CASES),
    ("senders", senders::CASES),
];

/// Runs the whole suite, one case after the other, each on data of its own.
///
/// # Cancel safety
/// Dropping it ends the suite; the data of the current case stays as it is.
///
/// # Examples
/// ```no_run
/// # async fn test(subject: &dyn tenure_testkit::conformance::Subject) {
/// tenure_testkit::channels::run(subject).await.assert_passed();
/// # }
/// ```
pub async fn run(subject: &dyn Subject) -> Report {
    run_cases(subject, &TOPICS, FIRST, "").await
}

/// Runs the cases whose topic or name contains `pattern`.
///
/// # Cancel safety
/// As [`run`].
pub async fn run_matching(subject: &dyn Subject, pattern: &str) -> Report {
    run_cases(subject, &TOPICS, FIRST, pattern).await
}
