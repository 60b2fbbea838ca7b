//! The step `toy`: a store outside of the workspace gets all that tenure has.

use anyhow::Result;

use crate::cargo;
use crate::report::Counts;
use crate::test::{StepRun, Verdict};

/// The store. It is a workspace of its own, and shares our target directory.
const MANIFEST: &str = "examples/toy-store/Cargo.toml";

/// The packages whose changes it may notice. The examples are here because it lies among them.
const NEEDS: [&str; 3] = ["tenure-cli", "tenure-examples", "tenure-testkit"];

pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    if !NEEDS.iter().any(|package| step.session.selects(package)) {
        return Ok(Verdict::Passed("nothing that it needs has changed".to_owned()));
    }
    // A toolchain without these components is told so by steps of their own.
    let fmt = ["fmt", "--manifest-path", MANIFEST, "--check"];
    if cargo::has_subcommand("fmt")? && !step.cargo(&fmt)? {
        return Ok(Verdict::Failed);
    }
    let place = ["--manifest-path", MANIFEST, "--target-dir", "target", "--locked"];
    let clippy = [&["clippy", "--all-targets"], &place[..], &["--", "-D", "warnings"]].concat();
    if cargo::has_subcommand("clippy")? && !step.cargo(&clippy)? {
        return Ok(Verdict::Failed);
    }
    let success = step.cargo(&[&["test", "--no-fail-fast"], &place[..]].concat())?;
    step.counts = Counts::of(&step.log_text()?);
    Ok(Verdict::of(success))
}
