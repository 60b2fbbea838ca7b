//! Rules that comments cite are defined in `docs/rules.md`, invariants in `docs/invariants.md`.
//! Every rule names the tests that hold it, and they exist.

use std::collections::BTreeSet;

use super::source::is_word;
use super::{Finding, SourceFile};

/// Where a code is defined: as the first bold word of an item.
const DEFINED_IN: [&str; 2] = ["docs/rules.md", "docs/invariants.md"];

/// The letters of the areas, and of the invariants.
const AREAS: &str = "CLDWOPARSEBGMKI";

/// The kinds of file whose comments cite rules, and how their comments begin.
const COMMENTS: [(&str, &str); 3] = [("rs", "//"), ("sql", "--"), ("lua", "--")];

/// All comments that cite what nobody has defined.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let defined: BTreeSet<&str> = files
        .iter()
        .filter(|file| DEFINED_IN.contains(&file.path.as_str()))
        .flat_map(|file| file.text.lines())
        .filter_map(|line| line.strip_prefix("- **")?.split("**").next())
        .collect();
    files.iter().flat_map(|file| check_file(file, &defined)).collect()
}

/// All rules that name no test, or one that does not exist. `exists` says whether a path below the
/// root exists.
pub(super) fn check_tests(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    if file.path != DEFINED_IN[0] {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, rule, text) in items(&file.text) {
        match text.split_once("Tests: ") {
            Some((_, tests)) => {
                let missing = missing_tests(tests, &exists);
                findings.extend(missing.into_iter().map(|what| file.finding(line, what)));
            }
            None if text.contains("No test: ") => {}
            None => findings.push(file.finding(line, format!("the rule {rule} names no test"))),
        }
    }
    findings
}

/// The rules of a text: the line that each begins at, its code, and what it says.
fn items(text: &str) -> Vec<(usize, &str, String)> {
    let mut items: Vec<(usize, &str, String)> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let code = line.strip_prefix("- **").and_then(|rest| rest.split("**").next());
        inside = code.is_some() || inside && line.starts_with("  ");
        match (code, items.last_mut()) {
            (Some(code), _) => items.push((index + 1, code, line.to_owned())),
            (None, Some((_, _, said))) if inside => {
                said.push(' ');
                said.push_str(line.trim());
            }
            _ => {}
        }
    }
    items
}

/// What is wrong with a list of tests: the name of a crate, then modules of its tests, then perhaps
/// another crate.
fn missing_tests(tests: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut of_crate, mut missing) = (None, Vec::new());
    for name in tests.split('`').skip(1).step_by(2) {
        if exists(&format!("crates/{name}/Cargo.toml")) {
            of_crate = Some(name);
            continue;
        }
        let Some(of_crate) = of_crate else {
            return vec!["the tests of a rule begin with the name of a crate".to_owned()];
        };
        let places = ["tests/all", "tests", "src"];
        let found = places.iter().any(|place| {
            let path = format!("crates/{of_crate}/{place}/{}", name.replace("::", "/"));
            exists(&format!("{path}.rs")) || exists(&format!("{path}/mod.rs"))
        });
        if !found {
            missing.push(format!("there are no tests `{name}` in {of_crate}"));
        }
    }
    missing
}

fn check_file(file: &SourceFile, defined: &BTreeSet<&str>) -> Vec<Finding> {
    let comment = COMMENTS.iter().find(|(extension, _)| *extension == file.extension());
    // The tests below speak of codes that nobody defines.
    let Some((_, mark)) = comment.filter(|_| !file.is_in("tidy")) else { return Vec::new() };
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let Some((_, text)) = line.split_once(mark) else { continue };
        for code in codes(text).filter(|code| !defined.contains(code)) {
            let what = format!("the rule {code} is not defined in {}", DEFINED_IN[0]);
            findings.push(file.finding(index + 1, what));
        }
    }
    findings
}

/// The words of `text` that are a letter of an area and one or two digits, in brackets or not.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !is_word(c));
    words.filter(|word| {
        let mut letters = word.chars();
        let digits = word.len().saturating_sub(1);
        letters.next().is_some_and(|first| AREAS.contains(first))
            && (1..=2).contains(&digits)
            && letters.all(|c| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_code_that_a_comment_cites_is_defined() {
        let files = [
            file("docs/rules.md", "# Rules\n- **P1** First lock.\n"),
            file("docs/invariants.md", "- **I1** One leads.\n"),
            file("a.rs", "/// As it must be (P1, I1).\nlet x = \"M0 -6V5\";\n"),
            file("a.sql", "SELECT 1; -- never waits (P2)\n"),
            file("b.rs", "// see P1 and K99; not X1, P100 or P1a\n"),
        ];
        let said: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "a.sql:1: the rule P2 is not defined in docs/rules.md",
                "b.rs:1: the rule K99 is not defined in docs/rules.md",
            ]
        );
    }

    #[test]
    fn every_rule_names_tests_that_exist() {
        let exists = |path: &str| {
            let there = ["a/Cargo.toml", "a/tests/all/x.rs", "a/src/y/mod.rs", "b/Cargo.toml"];
            path.strip_prefix("crates/").is_some_and(|path| there.contains(&path))
        };
        let said = |text: &str| {
            let findings = check_tests(&file("docs/rules.md", text), exists);
            findings.iter().map(|finding| finding.what.clone()).collect::<Vec<_>>()
        };
        assert_eq!(said("- **P1** So. Tests: `a` `x`,\n  `y`.\n\n## P2 `z`\n"), [""; 0]);
        assert_eq!(said("- **P1** So. No test: it is a limit.\n"), [""; 0]);
        assert_eq!(
            said("# R\n\n- **P1** So.\n- **P2** Tests: `a` `x`."),
            ["the rule P1 names no test"]
        );
        assert_eq!(said("- **P1** Tests: `a` `x`; `b`\n  `x`."), ["there are no tests `x` in b"]);
        assert_eq!(said("- **P1** Tests: `a` `y::z`."), ["there are no tests `y::z` in a"]);
        let crate_first = "the tests of a rule begin with the name of a crate";
        assert_eq!(said("- **P1** Tests: `x`, `a` `y`."), [crate_first]);
        assert_eq!(check_tests(&file("docs/other.md", "- **P1** So."), exists), []);
    }
}
