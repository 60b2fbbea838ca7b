//! What the tests of the command share: a store of their own, and processes whose lines can be
//! waited for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
pub(crate) use tenure_testbed::process::{Done, Process, finish, finish_within};

use crate::common::tenure;

/// A directory with a store that nobody else uses.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The URL of the store.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("tenure.db"))
    }

    /// `tenure` with these arguments on this store, and nothing of the tester's own settings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(tenure());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command.env_remove("NO_COLOR").env("TENURE_STORE", self.url()).args(args);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        finish(&mut self.command(args))
    }

    /// Starts it.
    pub(crate) fn spawn(&self, args: &[&str]) -> Process {
        Process::new(&mut self.command(args))
    }

    /// The object of `status` for this election.
    pub(crate) fn status(&self, name: &str) -> Value {
        let done = self.run(&["status", "--json", name]);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

/// A command with faults on purpose, built aside, so that nobody mistakes it for the real one.
pub(crate) fn sabotaged_binary() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sabotaged");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "tenure-cli", "--bin", "tenure"])
        .args(["--features", "sabotage", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success());
    target.join("debug/tenure")
}
