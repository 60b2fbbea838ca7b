//! The step `python`: builds the extension for Python, and tests it in an environment of its own
//! under `target/`, on servers of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::cargo;
use crate::packages::{self, Tool};
use crate::servers::postgres::{POSTGRES, Postgres};
use crate::servers::redis::{REDIS, Redis};
use crate::test::{StepRun, Verdict};
use crate::wheel;

const PYTHON: Tool = Tool { command: "python3", packages: &["python3", "python3-venv"] };

/// A Python that came without what makes environments.
const VENV: Tool = Tool { command: "no such command", packages: &["python3-venv"] };

const IS_RECENT: &str = "import sys; sys.exit(sys.version_info < (3, 10))";

/// Builds it, checks its types, and runs its tests.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    let Some(home) = environment(step)? else { return Ok(Verdict::Skipped) };
    if !(install(step, &home)? && check_types(step, &home)?) {
        return Ok(Verdict::Failed);
    }
    // The command, and among the examples what fleets need: a checker, a network, a neighbour.
    if binaries::build(step)?.is_none() {
        return Ok(Verdict::Failed);
    }
    let built = cargo::root().join("target/debug");
    let mut tests = Command::new(home.join("bin/python"));
    tests.current_dir(project());
    tests.args(["-X", "dev", "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    tests.env("TENURE_TEST_COMMAND", built.join("tenure"));
    for program in ["judge", "proxy", "believer"] {
        let variable = format!("TENURE_TEST_{}", program.to_uppercase());
        tests.env(variable, built.join("examples").join(program));
    }
    if step.session.long {
        tests.env("TENURE_TEST_LONG", "1");
    }
    // Ended when this step is over, whatever comes of it.
    let (postgres, redis);
    if provide(step, &POSTGRES)? {
        postgres = Postgres::start()?;
        tests.env("TENURE_TEST_POSTGRES", postgres.url());
    }
    if provide(step, &REDIS)? {
        redis = Redis::start()?;
        tests.env("TENURE_TEST_REDIS", redis.url());
    }
    let mut success = step.run(&mut tests)?;
    if success && step.session.long {
        success = wheel::run()?;
    }
    let log = step.log_text()?;
    let summary = log.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    Ok(if success {
        Verdict::Passed(summary.trim_matches([' ', '=']).to_owned())
    } else {
        Verdict::Failed
    })
}

fn project() -> PathBuf {
    cargo::root().join("bindings/python")
}

/// Makes sure of a server, or notes what is skipped.
fn provide(step: &mut StepRun<'_>, tool: &Tool) -> Result<bool> {
    let remedy = packages::provide(tool, step)?;
    if let Some(remedy) = &remedy {
        step.skip(format!("tests of the extension for Python on {}", tool.command), remedy);
    }
    Ok(remedy.is_none())
}

/// An environment with everything that the tests need, kept for the next run. `None` if there is
/// no Python for it; that is noted.
fn environment(step: &mut StepRun<'_>) -> Result<Option<PathBuf>> {
    let what = "step python";
    if let Some(remedy) = packages::provide(&PYTHON, step)? {
        step.skip(what, remedy);
        return Ok(None);
    }
    let python = packages::find(PYTHON.command).context("cannot find python3")?;
    if !step.run(Command::new(&python).args(["-c", IS_RECENT]))? {
        step.skip(what, "install Python 3.10 or later as python3");
        return Ok(None);
    }
    let home = cargo::scratch()?.join("python");
    let wanted = fs::read_to_string(project().join("requirements-test.txt"))?;
    let stamp = home.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Some(home));
    }
    if !make(step, &python, &home)? {
        packages::provide(&VENV, step)?;
        if !make(step, &python, &home)? {
            step.skip(what, "find out why `python3 -m venv` or `pip install` fails");
            return Ok(None);
        }
    }
    fs::write(stamp, wanted)?;
    Ok(Some(home))
}

fn make(step: &mut StepRun<'_>, python: &Path, home: &Path) -> Result<bool> {
    let mut venv = Command::new(python);
    venv.args(["-m", "venv", "--clear"]).arg(home);
    let mut pip = pip(home);
    pip.arg("--requirement").arg(project().join("requirements-test.txt"));
    Ok(step.run(&mut venv)? && step.run(&mut pip)?)
}

fn pip(home: &Path) -> Command {
    let mut pip = Command::new(home.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Builds a wheel as the other steps build, and installs it.
fn install(step: &mut StepRun<'_>, home: &Path) -> Result<bool> {
    let wheels = home.join("wheels");
    fs::remove_dir_all(&wheels).ok();
    let mut build = Command::new(home.join("bin/maturin"));
    cargo::forget_own_package(&mut build);
    build.current_dir(project()).args(["build", "--profile", "dev", "--locked", "--out"]);
    build.arg(&wheels).args(["--interpreter"]).arg(home.join("bin/python"));
    if !step.run(&mut build)? {
        return Ok(false);
    }
    let wheel = fs::read_dir(&wheels)?.next().context("maturin made no wheel")??;
    step.run(pip(home).args(["--force-reinstall", "--no-deps"]).arg(wheel.path()))
}

/// Two checkers, over the package, its tests and its examples.
fn check_types(step: &mut StepRun<'_>, home: &Path) -> Result<bool> {
    let mut mypy = Command::new(home.join("bin/mypy"));
    mypy.args(["--strict", "python/tenure", "tests", "examples", "bench"]);
    let mut pyright = Command::new(home.join("bin/pyright"));
    pyright.arg("--pythonpath").arg(home.join("bin/python"));
    Ok(step.run(mypy.current_dir(project()))? && step.run(pyright.current_dir(project()))?)
}
