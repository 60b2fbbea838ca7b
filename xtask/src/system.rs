//! The step `system`: ignored tests that need more than Rust, by the prefix of their names.
//!
//! A plain `cargo test` must pass anywhere, so a test that needs root, a package or a long time is
//! ignored with a reason, and its name starts with one of the prefixes in [`NEEDS`]. An ignored
//! test without such a prefix would never run, so this step fails on it.

use anyhow::{Result, bail};

use crate::packages::{self, FAKETIME, Tool};
use crate::report::Counts;
use crate::test::{StepRun, Verdict};

/// What the tests with a certain prefix need.
struct Need {
    prefix: &'static str,
    root: bool,
    tools: &'static [Tool],
    /// Run with `--long` only.
    long: bool,
}

const NEEDS: &[Need] = &[
    Need { prefix: "needs_root_", root: true, tools: &[], long: false },
    Need { prefix: "needs_faketime_", root: false, tools: &[FAKETIME], long: false },
    Need { prefix: "long_", root: false, tools: &[], long: true },
];

/// Finds the ignored tests, provides what they need, and runs those that can run.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    let listed =
        step.cargo(&["test", "--workspace", "--locked", "--tests", "--", "--ignored", "--list"])?;
    if !listed {
        return Ok(Verdict::Failed);
    }
    let groups = group(&test_names(&step.log_text()?))?;
    let mut chosen: Vec<String> = Vec::new();
    let mut waiting = 0;
    for (need, names) in groups {
        if need.long && !step.session.long {
            waiting += names.len();
        } else if provide(step, need, names.len())? {
            chosen.extend(names);
        }
    }
    let note = if waiting > 0 { format!("{waiting} more with --long") } else { String::new() };
    if chosen.is_empty() {
        return Ok(Verdict::Passed(note));
    }
    let before = step.log_text()?.len();
    let mut args = vec!["test", "--workspace", "--locked", "--no-fail-fast", "--tests", "--"];
    args.extend(["--ignored", "--exact"]);
    args.extend(chosen.iter().map(String::as_str));
    let success = step.cargo(&args)?;
    let ran = Counts::of(&step.log_text()?[before..]);
    let counts = step.session.counts.map(|counts| counts.with_ignored_run(ran));
    step.session.counts = Some(counts.unwrap_or(ran));
    if success && ran.passed < chosen.len() as u64 {
        bail!("{} tests were listed and only {} ran", chosen.len(), ran.passed);
    }
    Ok(if success { Verdict::Passed(note) } else { Verdict::Failed })
}

/// Makes sure that `need` is met. If it cannot be, notes how many tests are skipped and why.
fn provide(step: &mut StepRun<'_>, need: &Need, tests: usize) -> Result<bool> {
    let what = format!("tests named {}* ({tests})", need.prefix);
    if need.root && !packages::is_root() {
        step.skip(what, "run `cargo xtask test` as root");
        return Ok(false);
    }
    for tool in need.tools {
        if let Some(remedy) = packages::provide(tool, step)? {
            step.skip(what, remedy);
            return Ok(false);
        }
    }
    Ok(true)
}

/// The names in the output of `--list`.
fn test_names(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Sorts tests by what they need.
fn group(names: &[String]) -> Result<Vec<(&'static Need, Vec<String>)>> {
    let mut groups: Vec<(&Need, Vec<String>)> = NEEDS.iter().map(|need| (need, vec![])).collect();
    for name in names {
        let own_name = name.rsplit("::").next().unwrap_or(name);
        let fits = |(need, _): &&mut (&Need, Vec<String>)| own_name.starts_with(need.prefix);
        let Some((_, members)) = groups.iter_mut().find(fits) else {
            let known: Vec<&str> = NEEDS.iter().map(|need| need.prefix).collect();
            bail!(
                "the ignored test {name} would never run: start its name with one of {}",
                known.join(", ")
            );
        };
        members.push(name.clone());
    }
    groups.retain(|(_, members)| !members.is_empty());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_sorted_by_the_prefix_of_their_own_name() {
        let output = "\
     Running unittests src/lib.rs (target/debug/deps/x)
clock::tests::needs_root_a_time_namespace_is_refused: test
needs_faketime_a_step_changes_nothing: test
long_soak: test
3 tests, 0 benchmarks
";
        let names = test_names(output);
        assert_eq!(names.len(), 3);
        let groups = group(&names).unwrap();
        let prefixes: Vec<&str> = groups.iter().map(|(need, _)| need.prefix).collect();
        assert_eq!(prefixes, ["needs_root_", "needs_faketime_", "long_"]);
        assert_eq!(groups[2].1, ["long_soak"]);
    }

    #[test]
    fn an_ignored_test_that_would_never_run_is_an_error() {
        let names = ["tests::flaky_on_mondays".to_owned()];
        let error = group(&names).err().unwrap().to_string();
        assert!(error.contains("tests::flaky_on_mondays would never run"), "{error}");
    }
}
