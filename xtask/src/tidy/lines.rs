//! `cargo xtask lines`: how much Rust there is that is not for tests, by crate.
//!
//! Counted are the files of `crates/*/src`. Left out are files that exist for tests only, and in
//! the others every item behind `#[test]` or `#[cfg(test)]`. A line of code is one that is neither
//! empty nor a comment alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::SourceFile;
use super::source::{code_only, line_of, test_items};

/// Lines, and those of them that are code.
type Count = (usize, usize);

/// A table with a line for each crate, and the sum.
pub(super) fn table(files: &[SourceFile]) -> String {
    let of_crates = counts(files);
    let sum = of_crates.values().fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
    let mut text = format!("{:20}{:>8}{:>8}\n", "crate", "lines", "code");
    for (name, (lines, code)) in of_crates.iter().chain([(&"all", &sum)]) {
        let _written = writeln!(text, "{name:20}{lines:8}{code:8}");
    }
    text
}

fn counts(files: &[SourceFile]) -> BTreeMap<&str, Count> {
    let sources = || files.iter().filter(|file| file.extension() == "rs");
    let for_tests: BTreeSet<String> = sources().flat_map(modules_for_tests).collect();
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for file in sources().filter(|file| !file.is_test() && !for_tests.contains(&file.path)) {
        if let ["crates", name, "src", ..] = file.path.split('/').collect::<Vec<_>>()[..] {
            let (lines, code) = count(&file.text);
            let sum = counts.entry(name).or_default();
            *sum = (sum.0 + lines, sum.1 + code);
        }
    }
    counts
}

fn count(text: &str) -> Count {
    let blanked = code_only(text);
    let tests = test_items(&blanked);
    let tests: Vec<_> = tests
        .iter()
        .map(|item| line_of(&blanked, item.start)..=line_of(&blanked, item.end))
        .collect();
    let kept =
        text.lines().enumerate().filter(|(at, _)| !tests.iter().any(|t| t.contains(&(at + 1))));
    let kept: Vec<&str> = kept.map(|(_, line)| line.trim()).collect();
    let code = kept.iter().filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    (kept.len(), code)
}

/// The files of modules that are declared here for tests only.
fn modules_for_tests(file: &SourceFile) -> Vec<String> {
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let (parent, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let place = if ["lib", "main", "mod"].contains(&name) { parent } else { stem };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
        pair[1].rsplit_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';'))
    });
    declared.map(|name| format!("{place}/{name}.rs")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn tests_are_left_out_wherever_they_are() {
        let files = [
            file("crates/a/src/lib.rs", "//! About.\n\nmod b;\n#[cfg(test)]\nmod words_tests;\n"),
            file("crates/a/src/b.rs", "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n"),
            file("crates/a/src/words_tests.rs", "fn g() {}\n"),
            file("crates/a/src/b/tests.rs", "fn g() {}\n"),
            file("crates/a/tests/all/main.rs", "fn g() {}\n"),
            file("xtask/src/main.rs", "fn g() {}\n"),
        ];
        assert_eq!(counts(&files), BTreeMap::from([("a", (7, 4))]));
        assert_eq!(table(&files).lines().last(), Some("all                        7       4"));
    }
}
