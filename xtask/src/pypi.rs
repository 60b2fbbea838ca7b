//! Programs from PyPI, each in a virtual environment of its own under `target/`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
use crate::packages::{self, Tool};
use crate::test::StepRun;

/// A program and the version that the tests were written for.
pub(crate) struct Program {
    name: &'static str,
    version: &'static str,
}

/// Makes up requests from a description of an HTTP service.
pub(crate) const SCHEMATHESIS: Program = Program { name: "schemathesis", version: "4.32.5" };

const PYTHON: Tool = Tool { command: "python3", packages: &["python3", "python3-venv"] };

impl Program {
    /// Where it is, or is going to be.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        Ok(self.home()?.join("bin").join(self.name))
    }

    fn home(&self) -> Result<PathBuf> {
        Ok(cargo::scratch()?.join(format!("{}-{}", self.name, self.version)))
    }

    /// Finds it or installs it. If neither is possible, returns what a person can do about it.
    pub(crate) fn provide(&self, step: &mut StepRun<'_>) -> Result<Option<String>> {
        if self.path()?.is_file() {
            return Ok(None);
        }
        if let Some(remedy) = packages::provide(&PYTHON, step)? {
            return Ok(Some(remedy));
        }
        let home = self.home()?;
        if !self.install(step)? {
            // A Python may come without what makes environments.
            let venv = Tool { command: "no such command", packages: &["python3-venv"] };
            packages::provide(&venv, step)?;
            if !self.install(step)? {
                // Nothing half done is left for the next run to trip over.
                fs::remove_dir_all(&home).ok();
                let wish = format!("{}=={}", self.name, self.version);
                return Ok(Some(format!("find out why `pip install {wish}` fails")));
            }
        }
        Ok(None)
    }

    fn install(&self, step: &mut StepRun<'_>) -> Result<bool> {
        let home = self.home()?;
        let python = packages::find(PYTHON.command).context("cannot find python3")?;
        let mut venv = Command::new(python);
        venv.args(["-m", "venv"]).arg(&home);
        let mut pip = Command::new(home.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]);
        pip.arg(format!("{}=={}", self.name, self.version));
        Ok(step.run(&mut venv)? && step.run(&mut pip)?)
    }
}
