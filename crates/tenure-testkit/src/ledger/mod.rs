//! The suite for stores that keep a cron ledger.
//!
//! It runs on the same [`Subject`] as the [conformance](crate::conformance) suite, on data of
//! higher numbers. A store without a ledger skips all of it.

mod claims;
mod ends;
mod fencing;
mod once;
mod reading;
mod requests;
mod retries;
mod skips;
mod steering;
mod user;

use crate::conformance::{CaseFn, Report, Subject, Topic, cases, run_cases};

/// Data of the other suites has lower numbers.
const FIRST: u32 = 2_001;

const TOPICS: [Topic; 9] = [
    ("claims", claims::CASES),
    ("ends", ends::CASES),
    ("skips", skips::CASES),
    ("fencing", fencing::CASES),
    ("reading", reading::CASES),
    ("requests", requests::CASES),
    ("once", once::CASES),
    ("retries", retries::CASES),
    ("steering", steering::CASES),
];

/// Runs the whole suite, one case after the other, each on data of its own.
///
/// # Cancel safety
/// Dropping it ends the suite; the data of the current case stays as it is.
///
/// # Examples
/// ```no_run
/// # async fn test(subject: &dyn tenure_testkit::conformance::Subject) {
/// tenure_testkit::ledger::run(subject).await.assert_passed();
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
