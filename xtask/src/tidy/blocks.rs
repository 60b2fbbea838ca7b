//! Code in documentation that names its file stands in that file, word for word.
//!
//! A fence names a file after its language, as in `rust file=examples/toy-store/src/lib.rs`. The
//! guide to a new store is made of such blocks, and they are all of the toy: so its directory is
//! all that a new store needs.

use super::{Finding, SourceFile};

/// The walk through a new store.
const GUIDE: &str = "docs/adding-a-store.md";

/// The store that it walks through.
const TOY: &str = "examples/toy-store/";

/// The languages that are code of a store. Others show what to type and what comes of it.
const CODE: [&str; 2] = ["rust", "toml"];

/// A fenced block of a Markdown file.
struct Block<'a> {
    line: usize,
    language: &'a str,
    /// The file that it names.
    file: Option<&'a str>,
    /// Its lines, each with its end.
    text: String,
}

/// All blocks that are not true, and parts of the toy that the guide leaves out.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let pages = files.iter().filter(|file| file.extension() == "md");
    let mut findings: Vec<Finding> = pages.flat_map(|page| check_page(page, files)).collect();
    if let Some(guide) = files.iter().find(|file| file.path == GUIDE) {
        findings.extend(check_guide(guide, files));
    }
    findings
}

fn check_page(page: &SourceFile, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for block in blocks(&page.text) {
        let Some(path) = block.file else { continue };
        let what = match files.iter().find(|file| file.path == path) {
            None => format!("there is no file `{path}`"),
            Some(file) if !has_lines(&file.text, &block.text) => {
                format!("this does not stand in `{path}`")
            }
            Some(_) => continue,
        };
        findings.push(page.finding(block.line, what));
    }
    findings
}

/// The guide shows each source file of the toy, and nothing else is to be edited.
fn check_guide(guide: &SourceFile, files: &[SourceFile]) -> Vec<Finding> {
    let blocks = blocks(&guide.text);
    let mut findings = Vec::new();
    for block in &blocks {
        let what = match block.file {
            Some(path) if !path.starts_with(TOY) => {
                format!("`{path}` is not in {TOY}, which must be all that a store needs")
            }
            None if CODE.contains(&block.language) => "the code names no file".to_owned(),
            _ => continue,
        };
        findings.push(guide.finding(block.line, what));
    }
    let sources = files.iter().filter(|file| file.path.starts_with(&format!("{TOY}src/")));
    let is_shown = |file: &SourceFile| blocks.iter().any(|block| block.file == Some(&file.path));
    let left_out = sources.filter(|file| !is_shown(file));
    findings.extend(left_out.map(|file| guide.finding(1, format!("`{}` is not shown", file.path))));
    findings
}

/// Whether `part` is some whole lines of `text`.
fn has_lines(text: &str, part: &str) -> bool {
    !part.is_empty() && format!("\n{text}").contains(&format!("\n{part}"))
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        match (open.take(), line.strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace();
                let language = words.next().unwrap_or_default();
                let file = words.find_map(|word| word.strip_prefix("file="));
                open = Some(Block { line: index + 1, language, file, text: String::new() });
            }
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    blocks.extend(open);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a page that shows a file of these lines.
    fn of(path: &str, page: &str) -> Vec<String> {
        let file =
            |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(path, page),
            file("examples/toy-store/src/lib.rs", "//! Toy.\n\nmod a;\nmod b;\n"),
            file("src/lib.rs", "mod c;\n"),
        ];
        check(&files).iter().map(ToString::to_string).collect()
    }

    fn fence(info: &str, text: &str) -> String {
        format!("Words.\n\n```{info}\n{text}\n```\n")
    }

    #[test]
    fn code_that_names_its_file_stands_in_it() {
        let says = |text: &str| of("docs/a.md", &fence("rust file=src/lib.rs", text));
        assert!(says("mod c;").is_empty());
        for text in ["mod d;", "mod c", " mod c;", "mod c;\nmod d;", ""] {
            assert_eq!(says(text), ["docs/a.md:3: this does not stand in `src/lib.rs`"], "{text}");
        }
        let gone = fence("rust file=src/gone.rs", "mod c;");
        assert_eq!(of("docs/a.md", &gone), ["docs/a.md:3: there is no file `src/gone.rs`"]);
        assert!(of("docs/a.md", &fence("rust", "mod d;")).is_empty());
    }

    #[test]
    fn a_block_may_be_in_the_middle_of_its_file_and_several_lines_long() {
        let says = |text: &str| of(GUIDE, &fence("rust file=examples/toy-store/src/lib.rs", text));
        for text in ["mod a;\nmod b;", "\nmod a;", "//! Toy.\n\nmod a;"] {
            assert!(says(text).is_empty(), "{text}: {:?}", says(text));
        }
        assert_eq!(says("//! Toy.\nmod a;").len(), 1);
    }

    #[test]
    fn the_guide_is_all_code_of_the_toy_and_leaves_none_of_it_out() {
        let whole = fence("rust file=examples/toy-store/src/lib.rs", "mod a;");
        assert!(of(GUIDE, &whole).is_empty());
        assert!(of(GUIDE, &(whole.clone() + &fence("console", "$ toy run"))).is_empty());
        assert_eq!(
            of(GUIDE, &(whole.clone() + &fence("rust file=src/lib.rs", "mod c;"))),
            [format!(
                "{GUIDE}:8: `src/lib.rs` is not in {TOY}, which must be all that a store needs"
            )]
        );
        assert_eq!(
            of(GUIDE, &(whole + &fence("toml", "[a]"))),
            [format!("{GUIDE}:8: the code names no file")]
        );
        assert_eq!(of(GUIDE, "Words."), [format!("{GUIDE}:1: `{TOY}src/lib.rs` is not shown")]);
    }
}
