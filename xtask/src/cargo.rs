//! How this workspace calls cargo.

use std::env;
use std::fs::{self, File};
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Group;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().expect("the manifest of xtask lies one level below the root").to_owned()
}

/// Where logs and other leavings of a run go.
pub(crate) fn scratch() -> Result<PathBuf> {
    let path = root().join("target/xtask");
    fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// The cargo that started us, at the root of the workspace, with the variables removed that it set
/// for us alone.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    if !stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "never");
    }
    command
}

/// Runs cargo with its output shown, and says whether it succeeded.
pub(crate) fn passthrough(args: &[&str]) -> Result<bool> {
    passthrough_with(args, &[])
}

/// As [`passthrough`], with more variables.
pub(crate) fn passthrough_with(args: &[&str], variables: &[(&str, String)]) -> Result<bool> {
    let mut command = command();
    command.args(args).envs(variables.iter().map(|(name, value)| (name, value)));
    Ok(Group::spawn(&mut command)?.wait(|_| ())?.success())
}

/// Whether cargo knows the subcommand `name`, built in or installed.
pub(crate) fn has_subcommand(name: &str) -> Result<bool> {
    let mut command = command();
    command.args([name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Group::spawn(&mut command)?.wait(|_| ())?.success())
}

/// The answer of `cargo metadata` to `extra` arguments.
pub(crate) fn metadata(extra: &[&str]) -> Result<Value> {
    let path = scratch()?.join("metadata.json");
    let mut command = command();
    command.args(["metadata", "--format-version", "1", "--locked"]).args(extra);
    command.stdout(File::create(&path)?);
    if !Group::spawn(&mut command)?.wait(|_| ())?.success() {
        bail!("cargo metadata failed; is Cargo.lock up to date?");
    }
    read_json(&path)
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// The text at `key` of a JSON object, or nothing if it is absent or no text.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// The packages in the answer of `cargo metadata`.
pub(crate) fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata.get("packages").and_then(Value::as_array).context("cargo metadata names no packages")
}
