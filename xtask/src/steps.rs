//! The steps of `cargo xtask test`, in the order in which they run.

use anyhow::Result;

use crate::binaries::{self, Binary};
use crate::cargo;
use crate::report::Counts;
use crate::test::{Job, StepRun, Verdict};
use crate::{features, licences, node, postgres_versions, python, system, tidy, toy, valkey};

/// How many test binaries run at the same time: most of them mostly wait.
const AT_ONCE: usize = 2;

/// The package whose tests wait for real processes, and take longest: they begin first, and more of
/// them run at the same time.
const PATIENT: &str = "tenure-cli";
const PATIENT_ARGS: [&str; 2] = ["--test-threads", "4"];

/// One step of the test run.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Runs even after an earlier quick step failed.
    pub(crate) quick: bool,
    /// Runs at the same time as its neighbours that do so too. Tests on servers mostly wait, and
    /// what compiles beside them does so gently.
    pub(crate) beside: bool,
    pub(crate) run: Run,
}

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    quick("fmt", "the code is formatted", fmt),
    quick("tidy", "our own numbers and habits", tidy::step),
    quick("clippy", "no warnings anywhere", clippy),
    slow("build", "tests and examples compile", build),
    slow("tests", "tests and doc tests that need nothing but Rust", tests),
    slow("toy", "a store from outside gets all that tenure has", toy::step),
    slow("system", "tests that need more, such as root or a package", system::step),
    beside("postgres", "tests on a PostgreSQL server of our own", system::postgres_step),
    beside(
        "postgres-versions",
        "the contract on other versions of PostgreSQL",
        postgres_versions::step,
    ),
    beside("redis", "tests on Redis servers of their own", system::redis_step),
    beside("valkey", "tests of the Redis store on Valkey", valkey::step),
    beside("docs", "the documentation has no warnings", docs),
    beside("features", "every set of features", features::step),
    slow("python", "the package for Python, on servers of its own", python::step),
    slow("node", "the package for Node, on servers of its own", node::step),
    slow("sidecar", "the page in a browser, the rules, the description", system::sidecar_step),
    slow("licences", "licences, banned crates and sources", licences::step),
];

type Run = fn(&mut StepRun<'_>) -> Result<Verdict>;

const fn quick(name: &'static str, about: &'static str, run: Run) -> Step {
    Step { name, about, quick: true, beside: false, run }
}

const fn slow(name: &'static str, about: &'static str, run: Run) -> Step {
    Step { name, about, quick: false, beside: false, run }
}

const fn beside(name: &'static str, about: &'static str, run: Run) -> Step {
    Step { name, about, quick: false, beside: true, run }
}

/// The steps, one line each.
pub(crate) fn list() -> String {
    STEPS.iter().map(|step| format!("  {:<10} {}\n", step.name, step.about)).collect()
}

fn fmt(step: &mut StepRun<'_>) -> Result<Verdict> {
    if lacks_component(step, "fmt", "rustfmt")? {
        return Ok(Verdict::Skipped);
    }
    Ok(Verdict::of(step.cargo(&["fmt", "--all", "--check", "--", "--color", "never"])?))
}

fn clippy(step: &mut StepRun<'_>) -> Result<Verdict> {
    if lacks_component(step, "clippy", "clippy")? {
        return Ok(Verdict::Skipped);
    }
    let args = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    Ok(Verdict::of(step.cargo(&args)?))
}

fn build(step: &mut StepRun<'_>) -> Result<Verdict> {
    Ok(Verdict::of(binaries::build(step)?.is_some()))
}

fn tests(step: &mut StepRun<'_>) -> Result<Verdict> {
    let Some(binaries) = binaries::build(step)? else { return Ok(Verdict::Failed) };
    let mut docs = cargo::command();
    docs.args(["test", "--workspace", "--locked", "--no-fail-fast", "--doc"]);
    let docs = Job { title: "     Doc-tests".to_owned(), command: docs };
    let (patient, others): (Vec<&Binary>, Vec<&Binary>) =
        binaries.iter().partition(|binary| binary.package == PATIENT);
    let patient = patient.into_iter().map(|binary| binary.job(&PATIENT_ARGS));
    let others = others.into_iter().map(|binary| binary.job(&[]));
    let success = step.run_all(patient.chain([docs]).chain(others).collect(), AT_ONCE)?;
    step.counts = Counts::of(&step.log_text()?);
    Ok(Verdict::of(success))
}

fn docs(step: &mut StepRun<'_>) -> Result<Verdict> {
    let mut command = cargo::gentle_command();
    command.args(["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-Dwarnings").env("CARGO_TERM_COLOR", "never");
    Ok(Verdict::of(step.run(&mut command)?))
}

/// Notes a skip if this toolchain came without one of its usual components.
fn lacks_component(step: &mut StepRun<'_>, subcommand: &str, component: &str) -> Result<bool> {
    let found = cargo::has_subcommand(subcommand)?;
    if !found {
        let remedy = format!("get it with `rustup component add {component}`");
        step.skip(format!("step {subcommand}: {component} is not installed"), remedy);
    }
    Ok(!found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn steps_have_names_of_their_own_and_the_quick_ones_come_first() {
        let names: BTreeSet<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        assert!(STEPS.is_sorted_by_key(|step| !step.quick));
    }
}
