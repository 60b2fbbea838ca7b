//! A copy of the tree with all mutants in it: built once, and tested as each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::variants::{Mutant, VARIABLE, Woven, weave};
use super::{Program, Stage};
use crate::cargo;
use crate::process::{Group as Processes, Stopwatch, check_interrupted};

/// How often a test is looked at.
const POLL: Duration = Duration::from_millis(20);
/// A test that takes so many times as long as without a mutant does not end; but see below.
const TIMES: u32 = 6;
/// Machines have bad moments.
const SHORTEST: Duration = Duration::from_secs(15);

/// What the tests made of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tested {
    Passed,
    Failed,
    TimedOut,
}

/// The copy, and the programs that were built of it.
pub(super) struct Lab {
    tree: PathBuf,
    target: PathBuf,
    stages: Vec<Ready>,
}

/// A stage whose program has been built.
struct Ready {
    stage: &'static Stage,
    program: PathBuf,
    patience: Duration,
}

impl Lab {
    /// Copies what git knows of, and builds it with these mutants in it. Says which of them do not
    /// compile, and which could not be built this way.
    pub(super) fn build(
        dir: &Path,
        mutants: &[&Mutant],
        stages: &'static [Stage],
    ) -> Result<(Lab, BTreeSet<u32>, BTreeSet<u32>)> {
        let mut lab = Lab { tree: dir.join("tree"), target: dir.join("build"), stages: Vec::new() };
        lab.copy(mutants)?;
        let (mut unviable, mut left_out) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let of_file = |file: &str, unviable: &BTreeSet<u32>| {
                let wanted = mutants.iter().copied().filter(|mutant| mutant.file == file);
                wanted.filter(|it| !unviable.contains(&it.number)).collect::<Vec<_>>()
            };
            let mut files: BTreeMap<String, Woven> = BTreeMap::new();
            for mutant in mutants {
                if files.contains_key(&mutant.file) {
                    continue;
                }
                let source = fs::read_to_string(cargo::root().join(&mutant.file))?;
                let woven = weave(&source, of_file(&mutant.file, &unviable).into_iter())?;
                left_out.extend(&woven.left_out);
                write_if_new(&lab.tree.join(&mutant.file), woven.text.as_bytes())?;
                files.insert(mutant.file.clone(), woven);
            }
            match lab.compile(stages)? {
                Built::Programs(programs) => {
                    lab.stages = lab.ready(stages, &programs)?;
                    return Ok((lab, unviable, left_out));
                }
                Built::Errors(errors) => {
                    let before = unviable.len();
                    unviable.extend(errors.iter().filter_map(|error| blamed(error, &files)));
                    if unviable.len() == before {
                        let text = errors.first().and_then(|error| cargo::text(error, "rendered"));
                        bail!("the mutants do not compile:\n{}", text.unwrap_or("no error at all"));
                    }
                    println!("{} mutants do not compile", unviable.len());
                }
            }
        }
    }

    fn copy(&self, mutants: &[&Mutant]) -> Result<()> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = git.current_dir(cargo::root()).output().context("git is needed")?;
        let (root, mut kept) = (cargo::root(), BTreeSet::new());
        for file in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            // What was removed and is not committed yet is listed, too.
            let Ok(bytes) = fs::read(root.join(file)) else { continue };
            // Those with mutants are written soon.
            if !mutants.iter().any(|mutant| mutant.file == file) {
                write_if_new(&self.tree.join(file), &bytes)?;
            }
            kept.insert(self.tree.join(file));
        }
        remove_others(&self.tree, &kept)
    }

    /// Builds the tests and programs of all stages.
    fn compile(&self, stages: &[Stage]) -> Result<Built> {
        let mut programs = BTreeMap::new();
        for stage in stages {
            let args = match stage.program {
                Program::UnitTests => vec!["test", "--no-run", "--lib"],
                Program::Tests(name) => vec!["test", "--no-run", "--test", name],
                Program::Binary(name) => vec!["build", "--bin", name],
            };
            let mut command = cargo::command();
            command.current_dir(&self.tree).args(args).args(["--package", stage.package]);
            command.args(["--locked", "-j", "2", "--message-format", "json", "--quiet"]);
            // Quick to build, and quick enough for a simulation.
            for package in ["tenure", "tenure-cron"] {
                command.args(["--config", &format!("profile.dev.package.{package}.opt-level=1")]);
            }
            command.args(["--config", "profile.dev.debug=0"]);
            command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "1");
            let log = self.target.with_extension("json");
            command.stdout(File::create(&log)?);
            let done = Processes::spawn(&mut command)?.wait(|_| ())?.success();
            let said = fs::read_to_string(&log)?;
            let said = said.lines().filter_map(|line| serde_json::from_str(line).ok());
            let said: Vec<Value> = said.collect();
            if !done {
                return Ok(Built::Errors(errors(&said)));
            }
            programs.extend(said.iter().filter_map(program));
        }
        Ok(Built::Programs(programs))
    }

    /// Runs each stage without a mutant, which must pass, and says how long that took.
    fn ready(
        &self,
        stages: &'static [Stage],
        programs: &BTreeMap<(String, String, bool), PathBuf>,
    ) -> Result<Vec<Ready>> {
        let mut all = Vec::new();
        for stage in stages {
            let package = stage.package.to_owned();
            let key = match stage.program {
                Program::UnitTests => (package, stage.package.replace('-', "_"), true),
                Program::Tests(name) => (package, name.to_owned(), true),
                Program::Binary(name) => (package, name.to_owned(), false),
            };
            let program = programs.get(&key).with_context(|| format!("{key:?} was not built"))?;
            let mut ready =
                Ready { stage, program: program.clone(), patience: Duration::from_secs(1_200) };
            let watch = Stopwatch::start();
            if self.test(&ready, None)? != Tested::Passed {
                bail!("{} fails without a mutant", stage.name);
            }
            let took = watch.elapsed();
            ready.patience = SHORTEST.max(took * TIMES);
            println!("{} takes {:.1} s", stage.name, took.as_secs_f64());
            all.push(ready);
        }
        Ok(all)
    }

    /// Has a mutant meet one stage after the other, and says what noticed it first.
    pub(super) fn try_on(&self, mutant: &Mutant) -> Result<(Tested, &'static str)> {
        for ready in &self.stages {
            let tested = self.test(ready, Some(mutant.number))?;
            if tested != Tested::Passed {
                return Ok((tested, ready.stage.name));
            }
        }
        Ok((Tested::Passed, "nothing"))
    }

    fn test(&self, ready: &Ready, mutant: Option<u32>) -> Result<Tested> {
        let log = self.target.with_extension("log");
        let output = File::create(&log)?;
        let mut command = Command::new("nice");
        command.args(["-n", "15"]).arg(&ready.program).args(ready.stage.args);
        command.current_dir(self.tree.join("crates").join(ready.stage.package));
        command.stdout(output.try_clone()?).stderr(output);
        match mutant {
            Some(number) => command.env(VARIABLE, number.to_string()),
            None => command.env_remove(VARIABLE),
        };
        cargo::forget_own_package(&mut command);
        let (mut group, watch) = (Processes::spawn(&mut command)?, Stopwatch::start());
        loop {
            if group.leader_ended()? {
                let passed = group.wait(|_| ())?.success();
                return Ok(if passed { Tested::Passed } else { Tested::Failed });
            }
            check_interrupted()?;
            if watch.elapsed() > ready.patience {
                return Ok(Tested::TimedOut);
            }
            // One test is enough, and others may hang.
            if mutant.is_some() && has_failed(&log) {
                return Ok(Tested::Failed);
            }
            thread::sleep(POLL);
        }
    }
}

fn has_failed(log: &Path) -> bool {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().any(|line| line.starts_with("test ") && line.ends_with("FAILED"))
}

enum Built {
    /// By package and name, and whether they are tests.
    Programs(BTreeMap<(String, String, bool), PathBuf>),
    Errors(Vec<Value>),
}

fn errors(said: &[Value]) -> Vec<Value> {
    let messages = said.iter().filter_map(|line| line.get("message"));
    messages.filter(|it| cargo::text(it, "level") == Some("error")).cloned().collect()
}

fn program(said: &Value) -> Option<((String, String, bool), PathBuf)> {
    let path = cargo::text(said, "executable")?;
    let manifest = Path::new(cargo::text(said, "manifest_path")?);
    let package = manifest.parent()?.file_name()?.to_string_lossy().into_owned();
    let name = cargo::text(&said["target"], "name")?.to_owned();
    let is_test = said["profile"]["test"].as_bool()?;
    Some(((package, name, is_test), path.into()))
}

/// The mutant that an error is about, by the places that the compiler names.
fn blamed(error: &Value, files: &BTreeMap<String, Woven>) -> Option<u32> {
    let mut places: Vec<&Value> = error["spans"].as_array().into_iter().flatten().collect();
    places.sort_by_key(|place| !place["is_primary"].as_bool().unwrap_or(false));
    for place in places {
        let mut place = place;
        // Inside of a macro, the place where it was called is meant.
        loop {
            let file = cargo::text(place, "file_name").unwrap_or_default();
            let line = place["line_start"].as_u64().and_then(|line| usize::try_from(line).ok());
            let found = files.get(file).zip(line).and_then(|(woven, line)| woven.mutant_at(line));
            if found.is_some() {
                return found;
            }
            match place["expansion"].get("span") {
                Some(outer) => place = outer,
                None => break,
            }
        }
    }
    let inner = error["children"].as_array().into_iter().flatten();
    inner.into_iter().find_map(|child| blamed(child, files))
}

/// Leaves what is the same as it is, so that cargo does not build it again.
fn write_if_new(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes files of an earlier copy.
fn remove_others(dir: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}
