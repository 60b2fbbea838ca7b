//! The step `node`: builds the package for Node, and tests it on servers of its own. What npm
//! installs is under `target/`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::cargo;
use crate::npm;
use crate::packages::{self, Tool};
use crate::servers::pgbouncer::PGBOUNCER;
use crate::servers::postgres::{POSTGRES, Postgres};
use crate::servers::redis::{REDIS, Redis};
use crate::test::{StepRun, Verdict};

const NODE: Tool = Tool { command: "node", packages: &["nodejs"] };
const NPM: Tool = Tool { command: "npm", packages: &["npm"] };

const IS_RECENT: &str = "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)";

/// The newer Node that the package is tried with, too.
const MODERN: &str = "24.21.0";

/// How many faults fleets meet in a long run.
const FAULTS_LONG: &str = "200";

/// Builds it, and runs its tests.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    for tool in [&NODE, &NPM] {
        if let Some(remedy) = packages::provide(tool, step)? {
            step.skip("step node", remedy);
            return Ok(Verdict::Skipped);
        }
    }
    let node = packages::find(NODE.command).context("cannot find node")?;
    if !step.run(Command::new(&node).args(["-e", IS_RECENT]))? {
        step.skip("step node", "install Node 20 or later");
        return Ok(Verdict::Skipped);
    }
    if !install(step)? {
        step.skip("step node", "find out why `npm ci` fails in bindings/node");
        return Ok(Verdict::Skipped);
    }
    let mut build = npm_command();
    if !step.run(build.current_dir(project()).args(["run", "build"]))? || !build_native(step)? {
        return Ok(Verdict::Failed);
    }
    // The command.
    if binaries::build(step)?.is_none() {
        return Ok(Verdict::Failed);
    }
    let mut tests = npm_command();
    tests.current_dir(project()).args(["run", "test"]);
    tests.env("TENURE_TEST_COMMAND", cargo::root().join("target/debug/tenure"));
    if step.session.long {
        tests.env("TENURE_TEST_FAULTS", FAULTS_LONG);
    }
    // Ended when this step is over, whatever comes of it.
    let (postgres, redis);
    if provide(step, &POSTGRES)? {
        // With it, the server comes with a pooler.
        provide(step, &PGBOUNCER)?;
        postgres = Postgres::start()?;
        tests.env("TENURE_TEST_POSTGRES", postgres.url());
        if let Some(url) = postgres.pooler_url() {
            tests.env("TENURE_TEST_PGBOUNCER", url);
        }
    }
    if provide(step, &REDIS)? {
        redis = Redis::start()?;
        tests.env("TENURE_TEST_REDIS", redis.url());
    }
    let success = step.run(&mut tests)? && modern(step)?;
    let passed = passed(&step.log_text()?);
    Ok(if success { Verdict::Passed(format!("{passed} passed")) } else { Verdict::Failed })
}

fn project() -> PathBuf {
    cargo::root().join("bindings/node")
}

fn npm_command() -> Command {
    let mut npm = Command::new(NPM.command);
    npm.env("npm_config_update_notifier", "false").env("npm_config_fund", "false");
    npm
}

/// Runs what only a newer Node can do, with a Node of its own, and the ends of processes again.
fn modern(step: &mut StepRun<'_>) -> Result<bool> {
    let node = match npm::node(MODERN, step)? {
        Ok(node) => node,
        Err(remedy) => {
            step.skip(format!("tests of the package for Node on Node {MODERN}"), remedy);
            return Ok(true);
        }
    };
    let mut tests = Command::new(node);
    tests.current_dir(project()).args(["--test", "--no-warnings", "test/modern/modern.test.mjs"]);
    step.run(tests.arg("test/native-process.test.mjs"))
}

/// `cargo xtask npm`: packs the package and that of this platform, installs both into an empty
/// project without scripts, and tries them there.
pub(crate) fn pack() -> Result<bool> {
    let built = cargo::root().join("target/release");
    let release = ["build", "--release", "--locked", "-p", "tenure-node", "-p", "tenure-cli"];
    if !cargo::passthrough(&release)? {
        return Ok(false);
    }
    let home = prepare()?;
    let install = ["ci", "--ignore-scripts", "--no-audit", "--loglevel=error"];
    if !npm_command().current_dir(&home).args(install).status()?.success() {
        return Ok(false);
    }
    link(&home.join("node_modules"), &project().join("node_modules"))?;
    if !npm_command().current_dir(project()).args(["run", "build"]).status()?.success() {
        return Ok(false);
    }
    let mut pack = Command::new(NODE.command);
    pack.current_dir(project()).arg("scripts/pack.mjs").arg(built.join(library()));
    pack.arg(built.join("tenure")).arg(cargo::scratch()?.join("npm"));
    Ok(pack.status()?.success())
}

/// Builds the native part as the other steps build, and puts it beside the package.
fn build_native(step: &mut StepRun<'_>) -> Result<bool> {
    if !step.cargo(&["build", "--package", "tenure-node", "--locked"])? {
        return Ok(false);
    }
    let built = cargo::root().join("target/debug").join(library());
    let place = project().join("dist").join(format!("tenure.{}.node", platform()));
    // Not over the old one: a process that still runs may have it mapped.
    fs::remove_file(&place).ok();
    fs::copy(&built, &place).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(true)
}

/// What cargo calls the native part.
fn library() -> String {
    format!("{}tenure_node{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

/// The name of this platform, as napi-rs has it.
fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    match std::env::consts::OS {
        "linux" if cfg!(target_env = "musl") => format!("linux-{arch}-musl"),
        "linux" => format!("linux-{arch}-gnu"),
        "macos" => format!("darwin-{arch}"),
        other => format!("{other}-{arch}"),
    }
}

/// Makes sure of a server, or notes what is skipped.
fn provide(step: &mut StepRun<'_>, tool: &Tool) -> Result<bool> {
    let remedy = packages::provide(tool, step)?;
    if let Some(remedy) = &remedy {
        step.skip(format!("tests of the package for Node on {}", tool.command), remedy);
    }
    Ok(remedy.is_none())
}

/// Installs what the lock file names, kept for the next run, and links it to where Node looks.
fn install(step: &mut StepRun<'_>) -> Result<bool> {
    let home = prepare()?;
    let lock = fs::read_to_string(project().join("package-lock.json"))?;
    let stamp = home.join("installed.txt");
    if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        let mut ci = npm_command();
        ci.current_dir(&home).args(["ci", "--ignore-scripts", "--no-audit", "--loglevel=error"]);
        if !step.run(&mut ci)? {
            return Ok(false);
        }
        fs::write(stamp, lock)?;
    }
    link(&home.join("node_modules"), &project().join("node_modules"))?;
    Ok(true)
}

/// Where npm installs, with the files that say what.
fn prepare() -> Result<PathBuf> {
    let home = cargo::scratch()?.join("node");
    fs::create_dir_all(&home)?;
    for name in ["package.json", "package-lock.json", ".npmrc"] {
        fs::copy(project().join(name), home.join(name))?;
    }
    Ok(home)
}

/// A link of an earlier run is replaced; a directory that somebody installed is left alone.
fn link(target: &Path, place: &Path) -> Result<()> {
    if place.is_symlink() {
        fs::remove_file(place)?;
    }
    if !place.exists() {
        symlink(target, place).with_context(|| format!("cannot link {}", place.display()))?;
    }
    Ok(())
}

/// How many tests passed, as the runner of Node says at the end of each run.
fn passed(log: &str) -> u64 {
    let ends = log.lines().filter(|line| line.starts_with(['#', 'ℹ']));
    ends.filter_map(|line| line.split_once(" pass ")?.1.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_the_runner_is_found_in_either_of_its_styles() {
        assert_eq!(passed("# tests 9\n# pass 8\n# fail 1\n"), 8);
        assert_eq!(passed("ℹ tests 9\nℹ pass 9\nℹ fail 0\n"), 9);
        assert_eq!(passed("# pass 8\nℹ pass 2\nok 1 - they pass 7\n"), 10);
        assert_eq!(passed("nothing"), 0);
    }

    #[test]
    fn a_directory_that_somebody_installed_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (target, place) = (dir.path().join("target"), dir.path().join("node_modules"));
        fs::create_dir(&target).unwrap();
        link(&target, &place).unwrap();
        link(&target, &place).unwrap();
        assert!(place.is_symlink());
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        link(&target, &place).unwrap();
        assert!(!place.is_symlink());
    }
}
