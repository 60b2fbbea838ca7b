//! What is wrong with a set-up, before it hurts. `tenure doctor` prints it.

use std::fmt;
use std::time::Duration;

use crate::BoxFuture;

/// Looks a store over: its server or file, its settings, and what this user may do there.
pub trait Checkup: Send + Sync {
    /// Tells what it found, for leases of this ttl. What can't be found out is a finding, too.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    fn examine(&self, ttl: Duration) -> BoxFuture<'_, CheckupReport>;
}

/// How bad a finding is. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Two may lead at once, or a term may be issued twice, or nobody can lead at all.
    Safety,
    /// It works, but worse than it could.
    Advice,
}

/// One thing that was found: what, why it matters, what to do.
///
/// # Examples
/// ```
/// use tenure_core::{Finding, Level};
///
/// let finding = Finding::new(Level::Advice, "the disk is nearly full")
///     .because("a renewal that can't be written fails, and the leader steps down")
///     .so("make room");
/// assert_eq!(finding.level, Level::Advice);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do about it.
    pub todo: String,
}

impl Finding {
    /// A finding that says what; add [`because`](Finding::because) and [`so`](Finding::so).
    pub fn new(level: Level, what: impl Into<String>) -> Finding {
        Finding { level, what: what.into(), why: String::new(), todo: String::new() }
    }

    /// Says why it matters.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Finding {
        self.why = why.into();
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn so(mut self, todo: impl Into<String>) -> Finding {
        self.todo = todo.into();
        self
    }

    /// Says where it was found, for stores that consist of several servers.
    #[must_use]
    pub fn at(mut self, place: &str) -> Finding {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// `what`, the store or its server, can't be used for this reason.
    pub fn unusable(what: &str, reason: impl fmt::Display) -> Finding {
        Finding::new(Level::Safety, format!("{what} can't be used: {reason}"))
            .because("nobody can lead without it")
            .so("fix that first, then ask the doctor again")
    }
}

/// All that a checkup found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckupReport {
    /// Facts about the server or the file, by name: its version, its size, and so on.
    pub facts: Vec<(&'static str, String)>,
    /// What is wrong, in the order in which it was found.
    pub findings: Vec<Finding>,
}

impl CheckupReport {
    /// Nothing yet.
    pub fn new() -> CheckupReport {
        CheckupReport::default()
    }

    /// Notes a fact.
    pub fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.facts.push((name, value.into()));
    }

    /// Notes a finding.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
}
