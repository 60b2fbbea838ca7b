//! `cargo xtask miri`: the tests of `tenure-core` under Miri, which sees undefined behaviour and
//! leaks.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::cargo;
use crate::process::Group;

const MISSING: &str = "\
miri is not installed: get it with `rustup toolchain install nightly --component miri,rust-src`";

/// Runs the unit tests of the core; `false` if one failed or Miri is missing.
pub(crate) fn run() -> Result<bool> {
    let mut version = nightly(&["miri", "--version"]);
    version.stdout(Stdio::null()).stderr(Stdio::null());
    let there = Group::spawn(&mut version).and_then(|mut group| group.wait(|_| ()));
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("{MISSING}");
        return Ok(false);
    }
    let mut tests = nightly(&["miri", "test", "--locked", "--package", "tenure-core", "--lib"]);
    // Some tests read files of the system, which Miri keeps from them otherwise.
    tests.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    tests.env("CARGO_TARGET_DIR", cargo::root().join("target/miri"));
    Ok(Group::spawn(&mut tests)?.wait(|_| ())?.success())
}

/// Cargo of the nightly toolchain, which is the only one that has Miri.
fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(args).current_dir(cargo::root());
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(name);
    }
    cargo::forget_own_package(&mut command);
    command
}
