//! How this workspace calls cargo.

use std::env;
use std::ffi::OsString;
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
    prepared(Command::new(program()))
}

/// As [`command`], at the lowest priority, so that tests beside it have the machine when they want
/// it.
pub(crate) fn gentle_command() -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program());
    prepared(command)
}

fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn prepared(mut command: Command) -> Command {
    command.current_dir(root());
    forget_own_package(&mut command);
    if !stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "never");
    }
    command
}

/// Removes the variables by which cargo tells a program of its package: they name xtask.
pub(crate) fn forget_own_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
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

/// A package of this workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    /// The names of all that it depends on, for its tests too.
    pub(crate) needs: Vec<String>,
}

/// The packages of this workspace.
pub(crate) fn members() -> Result<Vec<Package>> {
    let metadata = metadata(&["--no-deps"])?;
    packages(&metadata)?.iter().map(Package::read).collect()
}

impl Package {
    fn read(value: &Value) -> Result<Self> {
        let name = text(value, "name").context("a package has a name")?;
        let manifest = text(value, "manifest_path").context("a package has a manifest")?;
        let dir = Path::new(manifest).parent().context("a manifest lies in a directory")?;
        let needs = value["dependencies"].as_array().into_iter().flatten();
        let needs = needs.filter_map(|need| text(need, "name").map(str::to_owned)).collect();
        Ok(Self { name: name.to_owned(), dir: dir.to_owned(), needs })
    }
}

/// The packages in the answer of `cargo metadata`.
pub(crate) fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata.get("packages").and_then(Value::as_array).context("cargo metadata names no packages")
}
