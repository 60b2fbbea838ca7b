//! Checks of all text files: long lines, leftover marks, paths of somebody's machine.

use super::source::{is_word, words};
use super::{Finding, SourceFile};

const CODE_COLUMNS_MAX: usize = 100;
const PROSE_COLUMNS_MAX: usize = 120;

/// The kinds of file in which the limit for code holds.
const CODE: [&str; 4] = ["rs", "toml", "sql", "lua"];

/// Marks of work that was put off. In pieces, so that this file does not hold them.
const MARKS: [&str; 3] = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Top directories that exist on one machine only.
const MACHINE_DIRS: [&str; 3] = ["work", "farm", "root"];

/// All checks of one file.
pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let problems = [long_line(file, line), mark(file, line), machine_path(line)];
        findings.extend(problems.into_iter().flatten().map(|what| file.finding(index + 1, what)));
    }
    findings
}

fn long_line(file: &SourceFile, line: &str) -> Option<String> {
    let is_prose = file.extension() == "md";
    if file.is_in("snapshots") || !(is_prose || CODE.contains(&file.extension())) {
        return None;
    }
    let cannot_be_broken = line.contains("://")
        || is_prose && (line.trim_start().starts_with('|') || line.contains("]("));
    let limit = if is_prose { PROSE_COLUMNS_MAX } else { CODE_COLUMNS_MAX };
    let columns = line.chars().count();
    (columns > limit && !cannot_be_broken)
        .then(|| format!("the line has {columns} columns; {limit} is the limit"))
}

/// Prose may speak of the marks.
fn mark(file: &SourceFile, line: &str) -> Option<String> {
    let found = |mark: &&&str| words(line, mark).next().is_some();
    let mark = MARKS.iter().find(found).filter(|_| file.extension() != "md")?;
    Some(format!("{mark}: do it, or open an issue"))
}

fn machine_path(line: &str) -> Option<String> {
    MACHINE_DIRS.iter().map(|dir| format!("/{dir}/")).find_map(|path| {
        let mut places = line.match_indices(&path).map(|(at, _)| at);
        let is_absolute = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| is_word(c) || ".-~})$*".contains(c))
        };
        places.any(is_absolute).then(|| format!("{path} is a path of one machine"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn of(path: &str, text: &str) -> Vec<String> {
        findings_of(check, path, text)
    }

    #[test]
    fn lines_of_code_have_at_most_100_columns() {
        for path in ["a.rs", "Cargo.toml", "a.sql", "a.lua"] {
            assert!(of(path, &"x".repeat(100)).is_empty());
            assert!(of(path, &"ä".repeat(100)).is_empty());
            assert_eq!(
                of(path, &format!("\n{}", "x".repeat(101))),
                ["2: the line has 101 columns; 100 is the limit"]
            );
        }
        assert!(of("a.txt", &"x".repeat(101)).is_empty());
        assert!(of("a/snapshots/b.rs", &"x".repeat(101)).is_empty());
        assert!(of("a.rs", &format!("// https://example.org/{}", "x".repeat(90))).is_empty());
    }

    #[test]
    fn lines_of_prose_have_at_most_120_columns() {
        assert!(of("a.md", &"x".repeat(120)).is_empty());
        assert_eq!(of("a.md", &"x".repeat(121)).len(), 1);
        assert!(of("a.md", &format!("| {}", "x".repeat(121))).is_empty());
        assert!(of("a.md", &format!("[x](b.md) {}", "x".repeat(121))).is_empty());
    }

    #[test]
    fn nothing_is_marked_for_later() {
        for mark in MARKS {
            assert_eq!(of("a.rs", &format!("// {mark}: later")).len(), 1);
            assert!(of("a.rs", &format!("// {mark}{mark} {mark}_A")).is_empty());
            assert!(of("a.md", &format!("no {mark} please")).is_empty());
        }
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for dir in MACHINE_DIRS {
            for bad in [format!("\"/{dir}/x\""), format!("cd /{dir}/x"), format!("file:/{dir}/x")] {
                assert_eq!(of("a.txt", &bad).len(), 1, "{bad}");
            }
            for good in [format!("a/{dir}/x"), format!("$HOME/{dir}/x"), format!("{{a}}/{dir}/")] {
                assert!(of("a.txt", &good).is_empty(), "{good}");
            }
        }
    }
}
