//! `cargo xtask mutants`: changes the code in small ways and sees whether a test notices.
//!
//! cargo-mutants lists the changes. All of them are built into one copy of the tree, so that a
//! mutant costs a run of tests and no build (ADR 52). A mutant first meets the quick tests of its
//! group; only those that survive meet the slow ones. A run that was ended goes on where it
//! stopped, as long as the files that are changed are the same.

mod trial;
mod variants;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::trial::{Lab, Tested};
use self::variants::Mutant;
use crate::{bench, cargo};

const VERSION: &str = "27.1.0";

/// Files that are tested by the same commands.
struct Group {
    name: &'static str,
    files: &'static [&'static str],
    stages: &'static [Stage],
}

/// One run of tests.
struct Stage {
    name: &'static str,
    package: &'static str,
    program: Program,
    args: &'static [&'static str],
}

/// What is run, of a package.
#[derive(Clone, Copy)]
enum Program {
    UnitTests,
    Tests(&'static str),
    Binary(&'static str),
}

/// Seeds of the whole library. Many mutants are noticed at once by many of them.
const LIBRARY_SEEDS: Stage = Stage {
    name: "60 seeds",
    package: "tenure-sim",
    program: Program::Binary("tenure-sim"),
    args: &["library", "--seeds", "60"],
};

const GROUPS: &[Group] = &[
    Group {
        name: "machine",
        files: &["crates/tenure-core/src/machine/*.rs"],
        stages: &[
            Stage {
                name: "unit tests",
                package: "tenure-core",
                program: Program::UnitTests,
                args: &["machine"],
            },
            Stage {
                name: "3,000 seeds",
                package: "tenure-sim",
                program: Program::Binary("tenure-sim"),
                args: &["--seeds", "3000"],
            },
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
        stages: &[UNIT_TESTS, LIBRARY_SEEDS, TESTS, LOOM],
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
        stages: &[UNIT_TESTS, LIBRARY_SEEDS, TESTS],
    },
    Group {
        name: "cron",
        files: &["crates/tenure-cron/src/engine/*.rs"],
        stages: &[
            Stage {
                name: "unit tests",
                package: "tenure-cron",
                program: Program::UnitTests,
                args: &[],
            },
            Stage {
                name: "tests/all",
                package: "tenure-cron",
                program: Program::Tests("all"),
                args: &[],
            },
            LIBRARY_SEEDS,
        ],
    },
];

const UNIT_TESTS: Stage =
    Stage { name: "unit tests", package: "tenure", program: Program::UnitTests, args: &[] };
const TESTS: Stage =
    Stage { name: "tests/all", package: "tenure", program: Program::Tests("all"), args: &[] };
/// Last: they take the longest.
const LOOM: Stage =
    Stage { name: "loom", package: "tenure", program: Program::Tests("loom"), args: &[] };

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
                    let text = args.next().context("--shard needs a part, as in 0/4")?;
                    if shard(text).is_none() {
                        bail!("`{text}` is no shard; count from 0, as in 0/4 to 3/4");
                    }
                    options.shard = Some(text.clone());
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

/// Every so manieth mutant: a part has some of every file.
fn shard(text: &str) -> Option<(u32, u32)> {
    let (part, parts) = text.split_once('/')?;
    let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
    (part < parts).then_some((part, parts))
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

fn run_group(program: &Path, group: &'static Group, options: &Options) -> Result<bool> {
    let mutants = list(program, group)?;
    let (part, parts) = options.shard.as_deref().and_then(shard).unwrap_or((0, 1));
    let wanted = mutants.iter().filter(|mutant| {
        let part_of_file = options.file.as_ref().is_none_or(|part| mutant.file.contains(part));
        part_of_file && mutant.number % parts == part
    });
    let commit = bench::commit();
    let mut book = Book::open(group, &commit)?;
    let wanted: Vec<&Mutant> = wanted.collect();
    let open: Vec<&Mutant> =
        wanted.iter().copied().filter(|mutant| book.is_open(mutant, &commit)).collect();
    if !open.is_empty() {
        println!("{}: {} of {} mutants are to be tried", group.name, open.len(), wanted.len());
        let (lab, unviable, left_out) = Lab::build(&folder(group), &open, group.stages)?;
        for mutant in open {
            let (result, by) = match () {
                () if unviable.contains(&mutant.number) => (Came::Unviable, "the compiler"),
                () if left_out.contains(&mutant.number) => (Came::LeftOut, "nothing"),
                () => match lab.try_on(mutant)? {
                    (Tested::Failed, by) => (Came::Caught, by),
                    (Tested::TimedOut, by) => (Came::TimedOut, by),
                    (Tested::Passed, by) => (Came::Missed, by),
                },
            };
            println!("{} by {by}: {}", result.word(), mutant.name);
            book.note(mutant, result, by, &commit)?;
        }
    }
    println!("{} at {commit}:\n{}", group.name, book.table(&wanted));
    let survivors = wanted.iter().filter(|mutant| book.came(mutant) == Some(Came::Missed));
    survivors.clone().for_each(|mutant| println!("survived: {}", mutant.name));
    Ok(survivors.count() == 0)
}

/// Where all of a group is kept.
fn folder(group: &Group) -> PathBuf {
    cargo::root().join("target/mutants").join(group.name)
}

/// All mutants of a group, in the order in which cargo-mutants lists them.
fn list(program: &Path, group: &Group) -> Result<Vec<Mutant>> {
    let mut command = Command::new(program);
    command.args(["mutants", "--list", "--json", "--colors", "never"]);
    // Without the feature `sabotage` its faults are no code.
    command.args(["--exclude", "**/sabotage.rs"]).current_dir(cargo::root());
    command.args(group.files.iter().flat_map(|file| ["--file", file]));
    cargo::forget_own_package(&mut command);
    let output = command.output().context("cannot start cargo-mutants")?;
    if !output.status.success() {
        bail!("cargo-mutants says: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed: Vec<Value> =
        serde_json::from_slice(&output.stdout).context("no list of mutants")?;
    (1..).zip(&listed).map(|(number, value)| Mutant::read(number, value)).collect()
}

/// What came of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Caught,
    TimedOut,
    Missed,
    Unviable,
    /// It can't be built together with the others.
    LeftOut,
}

impl Came {
    const ALL: [Came; 5] =
        [Came::Caught, Came::TimedOut, Came::Missed, Came::Unviable, Came::LeftOut];

    fn word(self) -> &'static str {
        match self {
            Came::Caught => "caught",
            Came::TimedOut => "timeout",
            Came::Missed => "missed",
            Came::Unviable => "unviable",
            Came::LeftOut => "left-out",
        }
    }
}

/// What came of the mutants of a group, by their names. Each line on disk has the result, the
/// commit, what noticed it, and the name.
struct Book {
    path: PathBuf,
    known: BTreeMap<String, (Came, String)>,
}

impl Book {
    /// A mutant is named by its line, so what was found in other files means nothing.
    fn open(group: &Group, commit: &str) -> Result<Book> {
        let dir = folder(group);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let note = dir.join("files");
        let files = state_of(group.files)?;
        let path = dir.join("results.txt");
        if !fs::read_to_string(&note).is_ok_and(|noted| noted == files) {
            fs::write(&path, format!("# begun at {commit}\n"))?;
            fs::write(&note, files)?;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        Ok(Book { known: text.lines().filter_map(entry).collect(), path })
    }

    /// Those that survived are tried again at another commit: it may have a test for them.
    fn is_open(&self, mutant: &Mutant, commit: &str) -> bool {
        match self.known.get(&mutant.name) {
            None => true,
            Some((came, at)) => *came == Came::Missed && at != commit,
        }
    }

    fn came(&self, mutant: &Mutant) -> Option<Came> {
        self.known.get(&mutant.name).map(|(came, _)| *came)
    }

    fn note(&mut self, mutant: &Mutant, came: Came, by: &str, commit: &str) -> Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(&self.path)?;
        writeln!(file, "{}\t{commit}\t{by}\t{}", came.word(), mutant.name)?;
        self.known.insert(mutant.name.clone(), (came, commit.to_owned()));
        Ok(())
    }

    fn table(&self, wanted: &[&Mutant]) -> String {
        let mut files: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
        for mutant in wanted {
            let row = files.entry(&mutant.file).or_default();
            let column = Came::ALL.into_iter().position(|came| self.came(mutant) == Some(came));
            if let Some(count) = column.and_then(|column| row.get_mut(column)) {
                *count += 1;
            }
        }
        let mut text =
            String::from("| file | caught | timeouts | missed | do not compile | left out |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for (file, counts) in files {
            let counts = counts.map(|count| count.to_string()).join(" | ");
            text.push_str(&format!("| {file} | {counts} |\n"));
        }
        text
    }
}

fn entry(line: &str) -> Option<(String, (Came, String))> {
    let mut parts = line.splitn(4, '\t');
    let word = parts.next()?;
    let came = Came::ALL.into_iter().find(|came| came.word() == word)?;
    let (commit, _by, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some((name.to_owned(), (came, commit.to_owned())))
}

/// The files of a group, as git names their contents.
fn state_of(files: &[&str]) -> Result<String> {
    let mut all = Vec::new();
    for file in files {
        let path = cargo::root().join(file);
        match file.strip_suffix("*.rs") {
            Some(_) => {
                let dir = path.parent().context("a file lies in a directory")?;
                for entry in fs::read_dir(dir)? {
                    all.push(entry?.path());
                }
                all.retain(|path| path.extension().is_some_and(|end| end == "rs"));
            }
            None => all.push(path),
        }
    }
    all.sort();
    let mut git = Command::new("git");
    git.arg("hash-object").args(&all).current_dir(cargo::root());
    let output = git.output().context("git is needed")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
    fn survivors_are_tried_again_at_another_commit_and_the_rest_is_kept() {
        let value = |name: &str| {
            serde_json::json!({
                "name": name, "file": "a.rs", "replacement": "true",
                "span": { "start": { "line": 1, "column": 1 }, "end": { "line": 1, "column": 2 } },
                "function": { "span": {
                    "start": { "line": 1, "column": 1 }, "end": { "line": 1, "column": 2 } } },
            })
        };
        let caught = Mutant::read(1, &value("a.rs:1: x")).unwrap();
        let missed = Mutant::read(2, &value("a.rs:2: y")).unwrap();
        let new = Mutant::read(3, &value("a.rs:3: z")).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut book = Book { path: file.path().to_owned(), known: BTreeMap::new() };
        book.note(&caught, Came::Caught, "unit tests", "c1").unwrap();
        book.note(&missed, Came::Missed, "nothing", "c1").unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        let read = Book { known: text.lines().filter_map(entry).collect(), ..book };
        let open = |mutant| (read.is_open(mutant, "c1"), read.is_open(mutant, "c2"));
        assert_eq!(open(&caught), (false, false));
        assert_eq!(open(&missed), (false, true));
        assert_eq!(open(&new), (true, true));
        let table = read.table(&[&caught, &missed, &new]);
        assert!(table.contains("| a.rs | 1 | 0 | 1 | 0 | 0 |"), "{table}");
    }
}
