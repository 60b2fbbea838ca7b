//! The test binaries of the workspace: cargo builds them, and we run them.
//!
//! Cargo runs one binary after the other, though most of them mostly wait. So it only builds them
//! here, in one call with the features of the whole workspace, and tells where they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{self, Package};
use crate::test::{Job, StepRun};

/// One test binary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) package: String,
    /// The directory of the package, where its tests run.
    dir: PathBuf,
    path: PathBuf,
}

impl Binary {
    /// A run of it with these arguments, as cargo would start it.
    pub(crate) fn job(&self, args: &[&str]) -> Job {
        let mut command = Command::new(&self.path);
        command.args(args).current_dir(&self.dir);
        cargo::forget_own_package(&mut command);
        command.env("CARGO_MANIFEST_DIR", &self.dir).env("CARGO_PKG_NAME", &self.package);
        let path = self.path.strip_prefix(cargo::root()).unwrap_or(&self.path);
        Job { title: format!("     Running {} ({})", self.package, path.display()), command }
    }

    /// One that exists by name only.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { package: name.to_owned(), dir: name.into(), path: name.into() }
    }

    /// The names of its ignored tests.
    pub(crate) fn ignored(&self) -> Result<Vec<String>> {
        let mut command = self.job(&["--ignored", "--list"]).command;
        let output = command.output().with_context(|| format!("cannot run {self:?}"))?;
        Ok(test_names(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// Builds all test binaries, unless an earlier step has done so, and returns those of the selected
/// packages; nothing if that failed.
pub(crate) fn build<'a>(step: &mut StepRun<'a>) -> Result<Option<&'a [Binary]>> {
    let session = step.session;
    if let Some(built) = session.binaries.get() {
        return Ok(Some(built));
    }
    let args = ["test", "--workspace", "--locked", "--no-run", "--message-format"];
    let args = [&args[..], &["json-render-diagnostics"]].concat();
    let Some(answer) = step.cargo_answer(&args)? else { return Ok(None) };
    let mut binaries = parse(&answer, &session.packages)?;
    binaries.retain(|binary| session.selects(&binary.package));
    Ok(Some(session.binaries.get_or_init(|| binaries)))
}

/// The test binaries among the messages of cargo, in the order of their packages.
fn parse(messages: &str, packages: &[Package]) -> Result<Vec<Binary>> {
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo speaks no JSON")?;
        let is_test = message["profile"]["test"] == true;
        let (Some(path), true) = (cargo::text(&message, "executable"), is_test) else { continue };
        let manifest = cargo::text(&message, "manifest_path").context("a binary of no package")?;
        let dir = Path::new(manifest).parent().context("a manifest lies in a directory")?;
        let package = packages.iter().find(|package| package.dir == dir);
        let package = package.with_context(|| format!("{manifest} is of no package here"))?;
        binaries.push(Binary {
            package: package.name.clone(),
            dir: dir.to_owned(),
            path: path.into(),
        });
    }
    binaries.sort_by(|a, b| (&a.package, &a.path).cmp(&(&b.package, &b.path)));
    Ok(binaries)
}

/// The names in the output of `--list`.
fn test_names(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str) -> Package {
        Package { name: name.to_owned(), dir: format!("/w/{name}").into(), needs: Vec::new() }
    }

    #[test]
    fn tests_are_told_from_other_artifacts() {
        let artifact = |package: &str, test: bool, executable: Option<&str>| {
            let manifest = format!("/w/{package}/Cargo.toml");
            let profile = json!({ "test": test });
            json!({ "manifest_path": manifest, "profile": profile, "executable": executable })
        };
        let messages = [
            json!({ "reason": "build-script-executed" }),
            artifact("b", true, Some("/t/b-1")),
            artifact("a", true, Some("/t/all-1")),
            artifact("a", false, Some("/t/a")),
            artifact("a", true, None),
            json!({ "reason": "build-finished" }),
        ];
        let messages = messages.map(|message| message.to_string()).join("\n");
        let found = parse(&messages, &[package("a"), package("b")]).unwrap();
        let paths: Vec<_> =
            found.iter().map(|it| (it.package.as_str(), it.path.as_path())).collect();
        assert_eq!(paths, [("a", Path::new("/t/all-1")), ("b", Path::new("/t/b-1"))]);
        assert!(parse(&messages, &[package("a")]).is_err(), "a binary is lost");
    }

    #[test]
    fn tests_are_known_from_a_list() {
        let output = "\
clock::tests::needs_root_a_time_namespace_is_refused: test
needs_faketime_a_step_changes_nothing: test
2 tests, 0 benchmarks
";
        assert_eq!(test_names(output).len(), 2);
    }
}
