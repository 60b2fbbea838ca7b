//! Checks of documentation: links, files and functions that do not exist, decisions without their
//! parts, crates without a word about themselves.

use super::source::is_word;
use super::{Finding, SourceFile};

/// The parts of an architecture decision record.
const ADR_HEADINGS: [&str; 4] =
    ["Context", "Choice", "What we gave up", "What would change our mind"];

/// How the paths of files begin that a page may name.
const ROOTS: [&str; 6] = ["bench/", "crates/", "deploy/", "docs/", "examples/", "xtask/"];

/// Pages that tell of the past, and so of files that are gone.
const PAST: [&str; 2] = ["CHANGELOG.md", "docs/adr/"];

/// All checks of one file. `exists` says whether a path below the root exists.
pub(super) fn check(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    if file.extension() != "md" {
        return Vec::new();
    }
    let mut findings = check_links(file, &exists);
    findings.extend(check_paths(file, &exists));
    findings.extend(check_adr(file));
    findings
}

fn check_links(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in lines_outside_fences(&file.text) {
        for target in links(&without_code_spans(line)) {
            let target = target.split('#').next().unwrap_or_default();
            // Other sites, and items of the code, are the business of other tools.
            let elsewhere = target.contains(':');
            if target.is_empty() || elsewhere {
                continue;
            }
            let found = resolve(&file.path, target).is_some_and(|path| exists(&path));
            if !found {
                findings
                    .push(file.finding(number, format!("the link to `{target}` leads nowhere")));
            }
        }
    }
    findings
}

/// Files that a page names between backticks, by their path from the root.
fn check_paths(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    if PAST.iter().any(|past| file.path.starts_with(past)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in lines_outside_fences(&file.text) {
        let named = code_spans(line).filter(|span| {
            let one_path = !span.contains(|c: char| c.is_whitespace() || "*{}$:".contains(c));
            one_path && ROOTS.iter().any(|root| span.starts_with(root))
        });
        for path in named.filter(|path| !exists(path.trim_end_matches('/'))) {
            findings.push(file.finding(number, format!("there is no file `{path}`")));
        }
    }
    findings
}

/// A link such as ``[`Driver::run`](driver.rs)``, inline or by reference, leads to a file that has
/// this function or type.
pub(super) fn check_items(files: &[SourceFile]) -> Vec<Finding> {
    let source = |path: &str| files.iter().find(|file| file.path == path);
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.extension() == "md") {
        let lines = lines_outside_fences(&page.text);
        for (number, item, target) in lines.iter().flat_map(|line| linked_items(*line, &lines)) {
            let path = resolve(&page.path, target).filter(|path| path.ends_with(".rs"));
            let Some(file) = path.as_deref().and_then(source) else { continue };
            let is_file = file.name().strip_suffix(".rs") == Some(item);
            if !is_file && !defines(&file.text, item) {
                let what = format!("`{}` has no `{item}`", file.path);
                findings.push(page.finding(number, what));
            }
        }
    }
    findings
}

/// The links of a line whose text is one item of code: the line, the item and the target.
fn linked_items<'a>(
    (number, line): (usize, &'a str),
    lines: &[(usize, &'a str)],
) -> Vec<(usize, &'a str, &'a str)> {
    let target_of = |label: &str| {
        let definition = format!("[{label}]: ");
        lines.iter().find_map(|(_, line)| line.strip_prefix(&definition))
    };
    let links = line.split("[`").skip(1).filter_map(|rest| {
        let (item, after) = rest.split_once("`]")?;
        let target = match after.chars().next() {
            Some('(') => after[1..].split(')').next(),
            Some('[') => after[1..].split(']').next().and_then(target_of),
            Some(':') => None,
            _ => target_of(&format!("`{item}`")),
        };
        Some((number, item, target?))
    });
    links.collect()
}

/// Whether a text defines a function or type of this name; of a path, the last part counts.
fn defines(text: &str, item: &str) -> bool {
    let name = item.rsplit("::").next().unwrap_or(item);
    ["fn", "struct", "enum", "trait", "type"].iter().any(|kind| {
        let definition = format!("{kind} {name}");
        let mut ends = text.match_indices(&definition).map(|(at, found)| at + found.len());
        ends.any(|end| !text[end..].starts_with(is_word))
    })
}

/// The lines of a Markdown text that are not in fenced code, with their numbers.
fn lines_outside_fences(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push((index + 1, line)),
            _ => {}
        }
    }
    lines
}

/// The texts between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `line` with the text between backticks left out.
fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The targets of the links in a line, inline (`[a](b)`) and by reference (`[a]: b`).
fn links(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let footnote = line.trim_start().starts_with("[^");
    let definition = definition.filter(|_| !footnote).map(|(_, target)| target);
    // A title may follow the target.
    inline
        .chain(definition)
        .filter_map(|link| link.split_whitespace().next())
        .map(|link| link.trim_start_matches('<').trim_end_matches('>'))
        .collect()
}

/// The path below the root that a link in the file `from` leads to. Nothing if it leaves the tree.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn check_adr(file: &SourceFile) -> Vec<Finding> {
    if !file.path.starts_with("docs/adr/") || file.name() == "README.md" {
        return Vec::new();
    }
    let lines = lines_outside_fences(&file.text);
    let headings: Vec<&str> = lines
        .iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| line.trim_start_matches('#').trim())
        .collect();
    let missing = ADR_HEADINGS.iter().filter(|wanted| !headings.contains(*wanted));
    missing.map(|wanted| file.finding(1, format!("the heading `{wanted}` is missing"))).collect()
}

/// Every crate says what it is for, in a README or at the top of its root module.
pub(super) fn check_crates(files: &[SourceFile]) -> Vec<Finding> {
    let manifests = files.iter().filter(|file| {
        let parts: Vec<&str> = file.path.split('/').collect();
        matches!(parts[..], ["crates", _, "Cargo.toml"])
    });
    let undocumented = manifests.filter(|manifest| {
        let dir = manifest.path.trim_end_matches("Cargo.toml");
        let roots = ["README.md", "src/lib.rs", "src/main.rs"].map(|name| format!("{dir}{name}"));
        let speaks = |file: &SourceFile| {
            let start = file.text.trim_start();
            file.extension() == "md" || start.starts_with("//!") || start.starts_with("#![doc")
        };
        !files.iter().any(|file| roots.contains(&file.path) && speaks(file))
    });
    let what = "the crate has neither a README.md nor documentation in its root module";
    undocumented.map(|manifest| manifest.finding(1, what)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn of(path: &str, text: &str) -> Vec<String> {
        let exists = |path: &str| ["README.md", "docs/a.md", "docs"].contains(&path);
        findings_of(|file| check(file, exists), path, text)
    }

    #[test]
    fn links_lead_somewhere() {
        for good in [
            "[a](docs/a.md) and [b](./docs/a.md#part \"title\"), [c](#here)",
            "[a](https://example.org/x) [b](mailto:a@example.org) [c](crate::Store)",
            "[a]: docs/a.md\n[b]: <docs>\n[^1]: a note",
            "```\n[a](gone.md)\n```\n~~~text\n[a](gone.md)\n~~~",
            "say `[a](gone.md)` for a link, but [a](docs/a.md)",
        ] {
            assert!(of("README.md", good).is_empty(), "{good}: {:?}", of("README.md", good));
        }
        assert_eq!(of("README.md", "\n[a](b.md)"), ["2: the link to `b.md` leads nowhere"]);
        assert_eq!(of("README.md", "[a](docs/a.md) [b](c.md#d)").len(), 1);
        assert_eq!(of("README.md", "[a]: b.md").len(), 1);
        assert_eq!(of("README.md", "![a](b.png)").len(), 1);
        assert_eq!(of("README.md", "`x` [a](b.md) `y`").len(), 1);
    }

    #[test]
    fn links_are_relative_to_their_file_and_stay_in_the_tree() {
        assert!(of("docs/b.md", "[a](a.md) [b](../README.md)").is_empty());
        assert_eq!(of("docs/b.md", "[a](docs/a.md)").len(), 1);
        assert_eq!(of("docs/b.md", "[a](../../README.md)").len(), 1);
    }

    #[test]
    fn files_that_a_page_names_exist() {
        for good in ["`docs/a.md` and `docs/`", "`cargo run docs/x`", "`docs/*.rs`", "docs/gone.md"]
        {
            assert!(of("docs/b.md", good).is_empty(), "{good}: {:?}", of("docs/b.md", good));
        }
        assert_eq!(of("docs/b.md", "\nsee `docs/x.md`"), ["2: there is no file `docs/x.md`"]);
        assert_eq!(of("docs/b.md", "`x` `docs/x.md`").len(), 1);
        assert!(of("CHANGELOG.md", "`docs/x.md` is gone").is_empty());
        assert!(of("docs/b.md", "```\n`docs/x.md`\n```").is_empty());
    }

    #[test]
    fn functions_that_a_page_links_to_exist() {
        let findings = |page: &str| {
            let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
            let source = "pub struct Driver;\nimpl Driver {\n    async fn run(mut self) {}\n}\n";
            let files = [file("a/src/page.md", page), file("a/src/driver.rs", source)];
            check_items(&files).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let links = "[x.rs]: driver.rs\n[`Driver`]: driver.rs\n";
        for good in [
            "[`Driver::run`](driver.rs)",
            "[`Driver::run`][x.rs], [`Driver`] and the file [`driver`](driver.rs)",
            "[`gone`][other], [`gone`](https://example.org/x.rs), `gone` [x.rs]",
        ] {
            assert_eq!(findings(&format!("{good}\n\n{links}")), [""; 0], "{good}");
        }
        for bad in ["[`Driver::ru`](driver.rs)", "`run` [`Driver::ru`][x.rs]", "[`ru`][x.rs]"] {
            assert_eq!(findings(&format!("{bad}\n\n{links}")).len(), 1, "{bad}");
        }
        assert_eq!(
            findings("a\n[`stop`](driver.rs)"),
            ["a/src/page.md:2: `a/src/driver.rs` has no `stop`"]
        );
    }

    #[test]
    fn decisions_have_all_their_parts() {
        let whole = "# 1. A\n## Context\n## Choice\n## What we gave up\n\
                     ## What would change our mind\n";
        assert!(of("docs/adr/0001-a.md", whole).is_empty());
        assert_eq!(
            of("docs/adr/0001-a.md", &whole.replace("## Choice", "Choice")),
            ["1: the heading `Choice` is missing"]
        );
        assert!(of("docs/adr/README.md", "").is_empty());
        assert!(of("docs/other.md", "").is_empty());
    }

    #[test]
    fn crates_say_what_they_are_for() {
        let findings = |files: &[(&str, &str)]| {
            let files: Vec<SourceFile> = files
                .iter()
                .map(|(path, text)| SourceFile { path: (*path).into(), text: (*text).into() })
                .collect();
            check_crates(&files).len()
        };
        let manifest = ("crates/a/Cargo.toml", "");
        assert_eq!(findings(&[manifest]), 1);
        assert_eq!(findings(&[manifest, ("crates/a/src/lib.rs", "mod a;")]), 1);
        assert_eq!(findings(&[manifest, ("crates/b/README.md", "# b")]), 1);
        assert_eq!(findings(&[manifest, ("crates/a/README.md", "# a")]), 0);
        assert_eq!(findings(&[manifest, ("crates/a/src/lib.rs", "//! A.\n")]), 0);
        assert_eq!(findings(&[manifest, ("crates/a/src/main.rs", "//! A.\n")]), 0);
    }
}
