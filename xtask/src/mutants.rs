//! `cargo xtask mutants`: changes the code in small ways and sees whether a test notices.
//!
//! A mutant first meets the quick tests of its group. Only those that survive meet the slow ones. A
//! run that was ended goes on where it stopped, as long as the commit is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::Group as Processes;
use crate::{bench, cargo};

const VERSION: &str = "27.1.0";

/// Files that are tested by the same commands.
struct Group {
    name: &'static str,
    files: &'static [&'static str],
    stages: &'static [Stage],
}

/// One test command: a package, and what `cargo test` is to run of it.
struct Stage {
    package: &'static str,
    tests: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        name: "machine",
        files: &["crates/tenure-core/src/machine/*.rs"],
        stages: &[
            Stage { package: "tenure-core", tests: &["--lib"] },
            Stage { package: "tenure-sim", tests: &["--test", "all", "simulator::"] },
        ],
    },
    Group {
        name: "words",
        files: &[
            "crates/tenure/src/lead_word.rs",
            "crates/tenure/src/reign_words.rs",
            "crates/tenure/src/bell.rs",
            "crates/tenure/src/phase.rs",
        ],
        stages: &[
            Stage { package: "tenure", tests: &["--lib"] },
            Stage { package: "tenure", tests: &["--test", "all"] },
            // Last: they take the longest.
            Stage { package: "tenure", tests: &["--test", "loom"] },
        ],
    },
    Group {
        name: "library",
        files: &[
            "crates/tenure/src/driver.rs",
            "crates/tenure/src/slot.rs",
            "crates/tenure/src/slot/*.rs",
            "crates/tenure/src/calls.rs",
            "crates/tenure/src/relay.rs",
            "crates/tenure/src/pulse.rs",
        ],
        stages: &[
            Stage { package: "tenure", tests: &["--lib"] },
            Stage { package: "tenure", tests: &["--test", "all"] },
        ],
    },
    Group {
        name: "cron",
        files: &["crates/tenure-cron/src/engine/*.rs"],
        stages: &[
            Stage { package: "tenure-cron", tests: &["--lib"] },
            Stage { package: "tenure-cron", tests: &["--test", "all"] },
        ],
    },
];

/// What to run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    groups: Vec<String>,
    /// As in `2/8`.
    shard: Option<String>,
    /// Only files whose path contains this.
    file: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--shard" => {
                    let shard = args.next().context("--shard needs a part, as in 0/4")?;
                    check_shard(shard)?;
                    options.shard = Some(shard.clone());
                }
                "--file" => {
                    let file = args.next().context("--file needs a part of a path")?;
                    options.file = Some(file.clone());
                }
                name if GROUPS.iter().any(|group| group.name == name) => {
                    options.groups.push(name.to_owned());
                }
                other => {
                    let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
                    bail!("there are no mutants `{other}`; choose among {}", names.join(", "));
                }
            }
        }
        Ok(options)
    }

    fn selects(&self, group: &Group) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|name| name == group.name)
    }
}

fn check_shard(shard: &str) -> Result<()> {
    let parts = shard.split_once('/').map(|(k, n)| (k.parse::<u32>(), n.parse::<u32>()));
    match parts {
        Some((Ok(part), Ok(parts))) if part < parts => Ok(()),
        _ => bail!("`{shard}` is no shard; count from 0, as in 0/4 to 3/4"),
    }
}

/// Runs the mutants of these groups, or all. `false` if one survived.
pub(crate) fn run(args: &[String]) -> Result<bool> {
    let options = Options::parse(args)?;
    let program = provide()?;
    let mut all_killed = true;
    for group in GROUPS.iter().filter(|group| options.selects(group)) {
        all_killed &= run_group(&program, group, &options)?;
    }
    Ok(all_killed)
}

/// The program, installed below `target` if it is not there yet.
fn provide() -> Result<PathBuf> {
    let tools = cargo::root().join("target/tools");
    let program = tools.join("bin/cargo-mutants");
    if !program.is_file() {
        let root = tools.to_string_lossy();
        let install = ["install", "--locked", "--root", &root, "cargo-mutants"];
        if !cargo::passthrough(&[&install[..], &["--version", VERSION]].concat())? {
            bail!("cargo-mutants {VERSION} could not be installed; it comes from crates.io");
        }
    }
    Ok(program)
}

fn run_group(program: &Path, group: &Group, options: &Options) -> Result<bool> {
    let files: Vec<&str> = group
        .files
        .iter()
        .copied()
        .filter(|file| options.file.as_ref().is_none_or(|part| file.contains(part)))
        .collect();
    if files.is_empty() {
        return Ok(true);
    }
    let shard = options.shard.as_deref().map_or_else(String::new, |s| s.replace('/', "-of-"));
    let part = options.file.as_deref().unwrap_or_default().replace('/', "-");
    let name = [group.name, &part, &shard].map(str::to_owned);
    let name: Vec<String> = name.into_iter().filter(|word| !word.is_empty()).collect();
    let dir = cargo::root().join("target/mutants").join(name.join("-"));
    let commit = bench::commit();
    forget_other_commit(&dir, &commit)?;
    for stage in group.stages {
        let mut found = Found::read(&dir)?;
        found.write(&dir)?;
        let mut command = command(program, stage, &files, &dir);
        if let Some(shard) = &options.shard {
            command.args(["--shard", shard]);
        }
        command.arg("--").args(stage.tests);
        // It also says so by its exit code if mutants survive. What matters is what it wrote.
        let status = Processes::spawn(&mut command)?.wait(|_| ())?;
        if !status.success() && !matches!(status.code(), Some(2 | 3)) {
            bail!("cargo-mutants failed on {}, which says why above", group.name);
        }
        found = Found::read(&dir)?;
        found.write(&dir)?;
        if found.survivors().next().is_none() {
            break;
        }
    }
    let found = Found::read(&dir)?;
    println!("{} at {commit}:\n{}", group.name, found.table());
    found.survivors().for_each(|mutant| println!("survived: {mutant}"));
    Ok(found.survivors().next().is_none())
}

/// Without the feature `sabotage` its faults are no code.
fn command(program: &Path, stage: &Stage, files: &[&str], dir: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "15"]).arg(program).args(["mutants", "--iterate", "--colors", "never"]);
    command.args(["--cap-lints", "true", "--minimum-test-timeout", "60"]);
    command.args(["--cargo-arg=--locked", "--exclude", "**/sabotage.rs"]);
    // Built faster, and fast enough for what the tests of a mutant do.
    if stage.package == "tenure-core" {
        command.arg("--cargo-arg=--config=profile.dev.package.tenure-core.opt-level=1");
    }
    command.args(["--test-package", stage.package]).arg("--output").arg(dir);
    command.args(files.iter().flat_map(|file| ["--file", file]));
    cargo::forget_own_package(&mut command);
    command.current_dir(cargo::root());
    command.env("CARGO_TARGET_DIR", cargo::root().join("target/mutants/build"));
    command
}

/// A mutant is named by its line, so what was found at another commit means nothing.
fn forget_other_commit(dir: &Path, commit: &str) -> Result<()> {
    let note = dir.join("commit");
    if fs::read_to_string(&note).is_ok_and(|noted| noted == commit) {
        return Ok(());
    }
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    fs::write(&note, commit).with_context(|| format!("cannot write {}", note.display()))
}

/// What became of the mutants, by their names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    caught: BTreeSet<String>,
    unviable: BTreeSet<String>,
    missed: BTreeSet<String>,
    timeout: BTreeSet<String>,
}

impl Found {
    /// What the last stage wrote, and what was kept of those before it.
    fn read(dir: &Path) -> Result<Found> {
        let last = dir.join("mutants.out");
        let lines = |path: PathBuf| -> Result<BTreeSet<String>> {
            if !path.exists() {
                return Ok(BTreeSet::new());
            }
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
        };
        let mut found = Found {
            caught: lines(dir.join("caught.txt"))?,
            unviable: lines(dir.join("unviable.txt"))?,
            missed: lines(last.join("missed.txt"))?,
            timeout: lines(dir.join("timeout.txt"))?,
        };
        found.caught.extend(lines(last.join("caught.txt"))?);
        found.unviable.extend(lines(last.join("unviable.txt"))?);
        found.timeout.extend(lines(last.join("timeout.txt"))?);
        Ok(found)
    }

    /// Keeps what the next stage does not look at again: also those for which a test never ended.
    fn write(&self, dir: &Path) -> Result<()> {
        let kept = [
            ("caught.txt", &self.caught),
            ("unviable.txt", &self.unviable),
            ("timeout.txt", &self.timeout),
        ];
        for (name, lines) in kept {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let last = dir.join("mutants.out/previously_caught.txt");
        if last.parent().is_some_and(Path::exists) {
            let skip = [&self.caught, &self.unviable, &self.timeout].into_iter().flatten();
            let text: String = skip.map(|line| format!("{line}\n")).collect();
            fs::write(&last, text).with_context(|| format!("cannot write {}", last.display()))?;
        }
        Ok(())
    }

    fn survivors(&self) -> impl Iterator<Item = &String> {
        self.missed.iter().filter(|mutant| !self.caught.contains(*mutant))
    }

    /// One line of a Markdown table per file.
    fn table(&self) -> String {
        let mut files: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
        let survivors: BTreeSet<String> = self.survivors().cloned().collect();
        let all = [&self.caught, &survivors, &self.timeout, &self.unviable];
        for (column, mutants) in all.into_iter().enumerate() {
            for mutant in mutants {
                let file = mutant.split(':').next().unwrap_or_default();
                files.entry(file).or_default()[column] += 1;
            }
        }
        let mut text = String::from("| file | caught | missed | timeouts | do not compile |\n");
        text.push_str("|---|---|---|---|---|\n");
        for (file, [caught, missed, timeout, unviable]) in files {
            let row = format!("| {file} | {caught} | {missed} | {timeout} | {unviable} |\n");
            text.push_str(&row);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn groups_and_shards_are_checked_before_anything_runs() {
        let options = parse(&["machine", "--shard", "1/4"]).unwrap();
        assert_eq!((options.groups, options.shard), (vec!["machine".into()], Some("1/4".into())));
        for wrong in ["4/4", "1", "a/4", "/"] {
            let error = parse(&["--shard", wrong]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is no shard")), "{error}");
        }
        let error = parse(&["motor"]).unwrap_err().to_string();
        assert!(error.contains("choose among machine, words, library, cron"), "{error}");
    }

    #[test]
    fn every_file_of_a_group_exists() {
        for file in GROUPS.iter().flat_map(|group| group.files) {
            let path = cargo::root().join(file.trim_end_matches("*.rs"));
            assert!(path.exists(), "{file}");
        }
    }

    #[test]
    fn what_earlier_stages_caught_is_kept_and_counted_by_file() {
        let dir = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        fs::create_dir_all(dir.join("mutants.out")).unwrap();
        fs::write(dir.join("mutants.out/caught.txt"), "a.rs:1: x\n").unwrap();
        fs::write(dir.join("mutants.out/missed.txt"), "a.rs:2: y\nb.rs:1: z\n").unwrap();
        let first = Found::read(&dir).unwrap();
        first.write(&dir).unwrap();
        assert_eq!(first.survivors().count(), 2);
        fs::write(dir.join("mutants.out/caught.txt"), "a.rs:2: y\n").unwrap();
        fs::write(dir.join("mutants.out/missed.txt"), "b.rs:1: z\n").unwrap();
        let second = Found::read(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(second.survivors().collect::<Vec<_>>(), ["b.rs:1: z"]);
        assert!(second.table().contains("| a.rs | 2 | 0 | 0 | 0 |"), "{}", second.table());
        assert!(second.table().contains("| b.rs | 0 | 1 | 0 | 0 |"), "{}", second.table());
    }
}
