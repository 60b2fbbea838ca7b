//! `cargo xtask tidy`: numbers and habits that rustfmt and clippy do not check.
//!
//! Each check is a function from text to findings, and a finding is one line of the form
//! `path:line: sentence`.

mod blocks;
mod docs;
mod lines;
mod rules;
mod rust;
mod source;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo;
use crate::test::{StepRun, Verdict};

/// Directories that hold nothing written by us.
const FOREIGN_DIRS: [&str; 4] = ["target", "node_modules", "__pycache__", "dist"];

/// The hidden directories that hold something written by us.
const HIDDEN_DIRS: [&str; 3] = [".cargo", ".ci", ".github"];

/// A text file of the tree.
struct SourceFile {
    /// Relative to the root, with `/` between its parts.
    path: String,
    text: String,
}

impl SourceFile {
    fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    fn is_in(&self, dir: &str) -> bool {
        self.path.split('/').rev().skip(1).any(|part| part == dir)
    }

    /// Whether the whole file is there for tests or benches.
    fn is_test(&self) -> bool {
        self.name() == "tests.rs" || ["tests", "e2e", "benches"].iter().any(|dir| self.is_in(dir))
    }

    /// Something is wrong at `line`, counted from 1.
    fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The command: prints what is wrong.
pub(crate) fn run() -> Result<bool> {
    let findings = check_tree(&cargo::root())?;
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

/// The command `lines`: prints how much code there is.
pub(crate) fn lines() -> Result<bool> {
    let mut files = Vec::new();
    collect(&cargo::root(), "", &mut files)?;
    print!("{}", lines::table(&files));
    Ok(true)
}

/// The step: what is wrong goes to the log.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    let findings = check_tree(&cargo::root())?;
    for finding in &findings {
        step.write(&finding.to_string())?;
    }
    Ok(Verdict::of(findings.is_empty()))
}

fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let mut files = Vec::new();
    collect(root, "", &mut files)?;
    let exists = |path: &str| root.join(path).exists();
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(text::check(file));
        findings.extend(rust::check(file));
        findings.extend(docs::check(file, exists));
        findings.extend(rules::check_tests(file, exists));
    }
    findings.extend(blocks::check(&files));
    findings.extend(docs::check_crates(&files));
    findings.extend(docs::check_items(&files));
    findings.extend(rules::check(&files));
    findings.sort();
    Ok(findings)
}

/// Reads all text files below `root/dir`.
fn collect(root: &Path, dir: &str, files: &mut Vec<SourceFile>) -> Result<()> {
    let place = root.join(dir);
    let entries = fs::read_dir(&place).with_context(|| format!("cannot read {dir:?}"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && is_ours(&name) {
            collect(root, &path, files)?;
        // In a work tree, `.git` is a file that says where the repository is.
        } else if kind.is_file() && name != ".git" {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
            // What is not text (a picture, say) has no lines to check.
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(SourceFile { path, text });
            }
        }
    }
    Ok(())
}

fn is_ours(dir: &str) -> bool {
    !FOREIGN_DIRS.contains(&dir) && (!dir.starts_with('.') || HIDDEN_DIRS.contains(&dir))
}

/// Makes a file and tells what a check says of it, as `line: sentence`.
#[cfg(test)]
fn findings_of<I: IntoIterator<Item = Finding>>(
    check: impl Fn(&SourceFile) -> I,
    path: &str,
    text: &str,
) -> Vec<String> {
    let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
    let findings = check(&file).into_iter();
    findings.map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_walked_without_what_others_wrote() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/src/lib.rs", ".ci/run", "target/x.rs", ".git/config", "a/target/y.rs"] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        fs::write(dir.path().join("picture.png"), [0xff, 0xfe, 0x00]).unwrap();
        let mut files = Vec::new();
        collect(dir.path(), "", &mut files).unwrap();
        let mut paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, [".ci/run", "a/src/lib.rs"]);
    }

    #[test]
    fn findings_name_path_and_line() {
        let file = SourceFile { path: "a/b.rs".into(), text: String::new() };
        assert_eq!(file.finding(3, "is wrong").to_string(), "a/b.rs:3: is wrong");
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        let is_test = |path: &str| SourceFile { path: path.into(), text: String::new() }.is_test();
        for path in ["crates/a/tests/x.rs", "e2e/src/main.rs", "crates/a/src/tests.rs"] {
            assert!(is_test(path), "{path}");
        }
        for path in ["crates/a/src/x.rs", "crates/testing/src/x.rs", "crates/a/src/tests_of.rs"] {
            assert!(!is_test(path), "{path}");
        }
    }
}
