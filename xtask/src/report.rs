//! What the person at the terminal sees: one line per step, and the parts of a log worth showing.

use std::time::Duration;

/// How much of a failed step's log is shown when nothing better is known about it.
const TAIL_LINES: usize = 80;

/// How much of the failed tests' own output is shown.
const FAILURE_LINES: usize = 300;

/// How a step ended, as the first word of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Ok,
    Fail,
    Skip,
    Running,
}

/// The line that tells how a step ended, or how long it has been running.
pub(crate) fn step_line(mark: Mark, name: &str, took: Duration, note: &str) -> String {
    let mark = match mark {
        Mark::Ok => "ok",
        Mark::Fail => "FAIL",
        Mark::Skip => "skip",
        Mark::Running => "...",
    };
    let line = format!("{mark:<4} {name:<16} {:>5.1} s  {note}", took.as_secs_f64());
    line.trim_end().to_owned()
}

/// How long each step took, and all of them. Some run at once, so the total is no sum.
pub(crate) fn times<'a>(
    steps: impl Iterator<Item = (&'a str, Duration)>,
    total: Duration,
) -> String {
    let line =
        |(name, took): (&str, Duration)| format!("{name:<10} {:>7.1} s\n", took.as_secs_f64());
    steps.chain([("total", total)]).map(line).collect()
}

/// Sums of the lines in which test binaries tell how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: i64,
    pub(crate) failed: i64,
    pub(crate) ignored: i64,
}

impl Counts {
    /// Adds up all `test result:` lines of `log`.
    pub(crate) fn of(log: &str) -> Self {
        let mut counts = Self::default();
        for line in log.lines() {
            let Some(result) = line.trim_start().strip_prefix("test result: ") else { continue };
            let numbers = result.split_once(". ").map_or("", |(_, rest)| rest);
            for part in numbers.split("; ") {
                let Some((number, what)) = part.split_once(' ') else { continue };
                let Ok(number) = number.parse::<i64>() else { continue };
                match what {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    "ignored" => counts.ignored += number,
                    _ => {}
                }
            }
        }
        counts
    }

    /// Counts of a run of some of the tests that another run ignored: for these, the sum of both
    /// has fewer ignored ones.
    pub(crate) fn of_ignored(log: &str) -> Self {
        let Self { passed, failed, .. } = Self::of(log);
        Self { passed, failed, ignored: -(passed + failed) }
    }

    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }

    /// The closing line of a run.
    pub(crate) fn line(self) -> String {
        let skipped = self.ignored.max(0);
        format!("{} passed, {} failed, {skipped} skipped", self.passed, self.failed)
    }
}

/// The part of a failed step's log that most likely tells why it failed.
///
/// Failed tests print their output in the middle of a long log, so their blocks are picked out;
/// everything else tells its reason at the end.
pub(crate) fn excerpt(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let mut shown: Vec<&str> = Vec::new();
    let mut in_failures = false;
    for line in &lines {
        in_failures = (in_failures || *line == "failures:") && !line.starts_with("test result:");
        let names_target = line.trim_start().starts_with("Running ") && line.contains("(target/");
        let is_verdict = line.starts_with("test result: FAILED") || line.starts_with("error: ");
        if in_failures || is_verdict || (names_target && !shown.is_empty()) {
            shown.push(line);
        }
    }
    if !shown.contains(&"failures:") {
        shown = lines[lines.len().saturating_sub(TAIL_LINES)..].to_vec();
    }
    shown.truncate(FAILURE_LINES);
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_aligned_line() {
        let took = Duration::from_millis(12_340);
        assert_eq!(step_line(Mark::Ok, "clippy", took, ""), "ok   clippy            12.3 s");
        assert_eq!(
            step_line(Mark::Fail, "tidy", Duration::from_millis(40), "2 findings"),
            "FAIL tidy               0.0 s  2 findings"
        );
    }

    #[test]
    fn times_are_a_table_with_a_total() {
        let (clippy, total) = (Duration::from_millis(61_250), Duration::from_millis(1_062_000));
        let table = times([("clippy", clippy)].into_iter(), total);
        assert_eq!(table, "clippy        61.2 s\ntotal       1062.0 s\n");
    }

    #[test]
    fn counts_are_summed_over_all_binaries() {
        let log = "\
running 3 tests
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
noise: test result: ok. 9 passed
test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1s
";
        let counts = Counts::of(log);
        assert_eq!(counts, Counts { passed: 6, failed: 1, ignored: 1 });
        assert_eq!(counts.line(), "6 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn ignored_tests_that_ran_later_are_no_longer_skipped() {
        let first = Counts { passed: 10, failed: 0, ignored: 3 };
        let later = Counts::of_ignored("test result: FAILED. 1 passed; 1 failed; 0 ignored");
        let both = first.and(later);
        assert_eq!(both, Counts { passed: 11, failed: 1, ignored: 1 });
        assert_eq!(later.line(), "1 passed, 1 failed, 0 skipped", "one such step alone");
    }

    #[test]
    fn the_output_of_failed_tests_is_picked_out_of_a_long_log() {
        let noise = "test a ... ok\n".repeat(500);
        let log = format!(
            "{noise}\nfailures:\n\n---- b stdout ----\nleft: 1\n\nfailures:\n    b\n\n\
             test result: FAILED. 1 passed; 1 failed\n{noise}error: 1 target failed:\n"
        );
        let excerpt = excerpt(&log);
        assert!(excerpt.contains("left: 1"));
        assert!(excerpt.contains("error: 1 target failed:"));
        assert!(!excerpt.contains("test a ... ok"));
    }

    #[test]
    fn a_log_without_failed_tests_is_shown_from_its_end() {
        let log: String = (0..200).map(|n| format!("line {n}\n")).collect();
        let excerpt = excerpt(&log);
        assert_eq!(excerpt.lines().count(), 80);
        assert!(excerpt.ends_with("line 199"));
    }
}
