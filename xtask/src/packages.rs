//! Programs that some tests need: found, or installed from Debian's packages.
//!
//! Packages are installed only as root on Debian and its kin, and never get to start a service.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, Group};
use crate::test::StepRun;

/// A program, and the Debian packages that bring it.
pub(crate) struct Tool {
    pub(crate) command: &'static str,
    pub(crate) packages: &'static [&'static str],
}

/// Runs a program with a wall clock that is off.
pub(crate) const FAKETIME: Tool = Tool { command: "faketime", packages: &["faketime"] };

/// Makes hosts out of network namespaces, and drops packets between them.
pub(crate) const IP: Tool = Tool { command: "ip", packages: &["iproute2"] };
pub(crate) const NFT: Tool = Tool { command: "nft", packages: &["nftables"] };

/// Drives Chromium; the tests look at the page with it.
pub(crate) const BROWSER: Tool =
    Tool { command: "chromedriver", packages: &["chromium", "chromium-driver"] };

/// Checks alert rules.
pub(crate) const PROMTOOL: Tool = Tool { command: "promtool", packages: &["prometheus"] };

/// Asks a server over HTTP as fast as it can.
pub(crate) const WRK: Tool = Tool { command: "wrk", packages: &["wrk"] };

/// Debian asks this script before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Debian keeps the programs of each version of PostgreSQL apart.
const POSTGRES_DIR: &str = "/usr/lib/postgresql";

/// Two runs at once would undo each other's policy.
const ONE_AT_A_TIME: &str = "/run/tenure-xtask-packages";

/// Our policy. The comment lets a later run know it again after a crash.
const DENY_ALL: &str = "\
#!/bin/sh
# Written by `cargo xtask test` of tenure, and removed when its packages are installed.
exit 101
";

/// Whether this process may do anything.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds `tool` or installs it. If neither is possible, returns what a person can do about it.
pub(crate) fn provide(tool: &Tool, step: &mut StepRun<'_>) -> Result<Option<String>> {
    if find(tool.command).is_some() {
        return Ok(None);
    }
    let packages = tool.packages.join(" ");
    if find("apt-get").is_none() || !Path::new("/etc/debian_version").exists() {
        return Ok(Some(format!("install `{}` (Debian's package {packages})", tool.command)));
    }
    if !is_root() {
        return Ok(Some(format!("run `apt-get install {packages}`, or the tests as root")));
    }
    install(tool, step)?;
    match find(tool.command) {
        Some(_) => Ok(None),
        None => Ok(Some(format!("`apt-get install {packages}` failed, find out why"))),
    }
}

/// Makes sure that `tool` is there, outside of a test run: what apt says is shown.
pub(crate) fn provide_now(tool: &Tool) -> Result<()> {
    if find(tool.command).is_none() && is_root() && find("apt-get").is_some() {
        let _turn = take_turn(Path::new(ONE_AT_A_TIME))?;
        let _policy = NoServices::impose(Path::new(POLICY))?;
        let run = |command: &mut Command| -> Result<bool> {
            Ok(Group::spawn(command)?.wait(|_| ())?.success())
        };
        if !run(apt("install").args(tool.packages))? && run(&mut apt("update"))? {
            run(apt("install").args(tool.packages))?;
        }
    }
    match find(tool.command) {
        Some(_) => Ok(()),
        None => bail!(
            "`{}` is missing; install it (Debian's package {})",
            tool.command,
            tool.packages.join(" ")
        ),
    }
}

/// Installs the packages of `tool`. That apt fails is no error here: the caller looks again.
fn install(tool: &Tool, step: &mut StepRun<'_>) -> Result<()> {
    let _turn = take_turn(Path::new(ONE_AT_A_TIME))?;
    let _policy = NoServices::impose(Path::new(POLICY))?;
    // The lists of a fresh machine are empty, and those of an old one name files that are gone.
    if !step.run_through_signals(apt("install").args(tool.packages))?
        && step.run(&mut apt("update"))?
    {
        step.run_through_signals(apt("install").args(tool.packages))?;
    }
    Ok(process::check_interrupted()?)
}

fn apt(what: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", what]);
    command
}

/// The path of `command`, searched as a shell does, in the directories for administrators, and
/// where Debian keeps the programs of PostgreSQL.
pub(crate) fn find(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let dirs = env::split_paths(&path).chain(usual).chain(postgres_dirs(Path::new(POSTGRES_DIR)));
    dirs.map(|dir| dir.join(command)).find(|candidate| candidate.is_file())
}

/// One directory for each version, the latest first.
fn postgres_dirs(parent: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<u32> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| parent.join(version.to_string()).join("bin")).collect()
}

/// Waits until no other run installs packages. The turn ends when the file is dropped.
fn take_turn(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => process::check_interrupted()?,
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// While this lives, packages that are installed start no services.
///
/// A policy that was there before is set aside and comes back, also after a failure; after a crash,
/// the next run brings it back.
struct NoServices {
    path: PathBuf,
    aside: PathBuf,
}

impl NoServices {
    fn impose(path: &Path) -> Result<Self> {
        let aside = path.with_file_name("policy-rc.d.before-tenure");
        let guard = Self { path: path.to_owned(), aside };
        guard.restore().context("cannot restore the service policy after a crash")?;
        match fs::rename(&guard.path, &guard.aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context("cannot set the service policy aside");
            }
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(path)
            .context("cannot write a service policy")?;
        file.write_all(DENY_ALL.as_bytes()).context("cannot write a service policy")?;
        Ok(guard)
    }

    /// Removes our policy and brings back the one before it, whichever of them there is.
    fn restore(&self) -> std::io::Result<()> {
        let ours = fs::read_to_string(&self.path).is_ok_and(|text| text == DENY_ALL);
        if self.aside.exists() {
            fs::rename(&self.aside, &self.path)
        } else if ours {
            fs::remove_file(&self.path)
        } else {
            Ok(())
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            eprintln!("warning: cannot restore {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_policy_is_imposed_and_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy-rc.d");
        let guard = NoServices::impose(&path).unwrap();
        let status = Command::new(&path).args(["postgresql", "start"]).status().unwrap();
        assert_eq!(status.code(), Some(101));
        drop(guard);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_earlier_policy_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy-rc.d");
        fs::write(&path, "theirs").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        let guard = NoServices::impose(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), DENY_ALL);
        drop(guard);
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_run_after_a_crash_restores_what_was_there() {
        for earlier in [Some("theirs"), None] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("policy-rc.d");
            if let Some(text) = earlier {
                fs::write(&path, text).unwrap();
            }
            std::mem::forget(NoServices::impose(&path).unwrap());
            drop(NoServices::impose(&path).unwrap());
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), earlier);
        }
    }

    #[test]
    fn commands_are_found_on_the_path_only_if_they_exist() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-command-here"), None);
    }

    #[test]
    fn the_latest_postgres_is_found_first() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["9", "15", "common", "16"] {
            fs::create_dir(dir.path().join(version)).unwrap();
        }
        let expected = ["16/bin", "15/bin", "9/bin"].map(|path| dir.path().join(path));
        assert_eq!(postgres_dirs(dir.path()), expected);
        assert!(postgres_dirs(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn only_one_run_at_a_time_has_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn");
        let turn = take_turn(&path).unwrap();
        let other = File::create(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(turn);
        assert!(other.try_lock().is_ok());
    }
}
