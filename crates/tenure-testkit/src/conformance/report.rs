//! What came of a run of the suite.

use std::fmt;

/// The results of a run, in order.
///
/// Its text form lists what was skipped and why, what failed and how, and counts the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Report {
    results: Vec<CaseReport>,
}

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseReport {
    /// The topic.
    pub topic: &'static str,
    /// The case, a sentence.
    pub case: String,
    /// How it ended.
    pub ending: Ending,
}

/// The ways in which a case can end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The store did what it owes.
    Passed,
    /// The case does not apply, for this reason.
    Skipped(String),
    /// The store did something else.
    Failed(String),
}

impl Report {
    pub(crate) fn new() -> Report {
        Report::default()
    }

    pub(crate) fn add(&mut self, result: CaseReport) {
        self.results.push(result);
    }

    /// All results, in the order in which the cases ran.
    pub fn results(&self) -> &[CaseReport] {
        &self.results
    }

    /// The cases that the store passed.
    pub fn passed(&self) -> impl Iterator<Item = &CaseReport> {
        self.results.iter().filter(|result| result.ending == Ending::Passed)
    }

    /// The cases that were left out.
    pub fn skipped(&self) -> impl Iterator<Item = &CaseReport> {
        self.results.iter().filter(|result| matches!(result.ending, Ending::Skipped(_)))
    }

    /// The cases that the store failed.
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        self.results.iter().filter(|result| matches!(result.ending, Ending::Failed(_)))
    }

    /// Prints the report, and ends the test if a case failed or none was run.
    ///
    /// # Panics
    /// If a case failed, with the whole report; or if there was no case to run.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(!self.results.is_empty(), "no case of the suite has this topic or name");
        assert!(self.failed().next().is_none(), "{self}");
        #[expect(clippy::print_stdout, reason = "what was skipped must be seen, and by a test")]
        {
            println!("{self}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CaseReport { topic, case, ending } in &self.results {
            match ending {
                Ending::Passed => {}
                Ending::Skipped(why) => writeln!(f, "skipped {topic}: {case}: {why}")?,
                Ending::Failed(what) => writeln!(f, "FAILED  {topic}: {case}: {what}")?,
            }
        }
        let (passed, skipped) = (self.passed().count(), self.skipped().count());
        write!(f, "{passed} passed, {skipped} skipped, {} failed", self.failed().count())
    }
}
