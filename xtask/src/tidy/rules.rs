//! Rules that comments cite are defined in `docs/rules.md`, invariants in `docs/invariants.md`.

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
}
