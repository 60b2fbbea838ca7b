//! Writes all mutants of a file into one source, so that one build has all of them.
//!
//! Each function that has mutants becomes a choice among its bodies: the one that it has, and one
//! for each mutant. The variable `TENURE_MUTANT` chooses when the program runs.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What a process reads to know which mutant it is; none if it is not set.
pub(super) const VARIABLE: &str = "TENURE_MUTANT";

/// One small change, as cargo-mutants lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    /// Counted from 1, in the order of the list.
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) file: String,
    span: Span,
    function: Span,
    replacement: String,
}

/// From one position to another, each a line and a column, both counted from 1.
type Span = Range<(usize, usize)>;

impl Mutant {
    pub(super) fn read(number: u32, value: &Value) -> Result<Mutant> {
        let text = |key: &str| {
            let text = value.get(key).and_then(Value::as_str);
            text.map(str::to_owned).with_context(|| format!("a mutant has no {key}"))
        };
        Ok(Mutant {
            number,
            name: text("name")?,
            file: text("file")?,
            span: span(&value["span"])?,
            function: span(&value["function"]["span"]).context("a mutant outside of functions")?,
            replacement: text("replacement")?,
        })
    }
}

fn span(value: &Value) -> Result<Span> {
    let position = |end: &str| {
        let number = |key: &str| value[end][key].as_u64().and_then(|it| usize::try_from(it).ok());
        Some((number("line")?, number("column")?))
    };
    let (start, end) = (position("start"), position("end"));
    start.zip(end).map(|(start, end)| start..end).context("a mutant has no place")
}

/// A file with its mutants in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Woven {
    pub(super) text: String,
    /// Which lines are whose.
    lines: Vec<(Range<usize>, u32)>,
    /// Those that can't be chosen while a program runs.
    pub(super) left_out: Vec<u32>,
}

impl Woven {
    /// The mutant whose body has this line.
    pub(super) fn mutant_at(&self, line: usize) -> Option<u32> {
        self.lines.iter().find(|(lines, _)| lines.contains(&line)).map(|(_, number)| *number)
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }
}

/// Puts these mutants of a file into it.
pub(super) fn weave<'a>(source: &str, mutants: impl Iterator<Item = &'a Mutant>) -> Result<Woven> {
    let mut functions: BTreeMap<(usize, usize), Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let place = offsets(source, &mutant.function)?;
        functions.entry((place.start, place.end)).or_default().push(mutant);
    }
    let mut woven = Woven { text: String::new(), lines: Vec::new(), left_out: Vec::new() };
    let mut written = 0;
    for ((start, end), mutants) in functions {
        let function = &source[start..end];
        let open = start + body(function).with_context(|| format!("no body in {function:?}"))?;
        let (signature, close) = (&source[start..open], end - 1);
        if start < written || !source[close..].starts_with('}') {
            bail!("{} is in a function inside of another", mutants[0].name);
        }
        // Each body would have a type of its own, or could not be chosen.
        if signature.contains("-> impl ") || signature.contains("const fn ") {
            woven.left_out.extend(mutants.iter().map(|mutant| mutant.number));
            continue;
        }
        woven.push(&source[written..=open]);
        woven.push(&format!(
            "static CHOSEN: ::std::sync::OnceLock<u32> = ::std::sync::OnceLock::new(); \
             match *CHOSEN.get_or_init(|| ::std::env::var({VARIABLE:?}).ok()\
             .and_then(|it| it.parse().ok()).unwrap_or(0)) {{\n"
        ));
        for mutant in mutants {
            let place = offsets(source, &mutant.span)?;
            let from = woven.line();
            woven.push(&format!("{} => {{\n", mutant.number));
            woven.push(&source[open + 1..place.start]);
            woven.push(&mutant.replacement);
            woven.push(&source[place.end..close]);
            woven.push("\n}\n");
            let lines = from..woven.line();
            woven.lines.push((lines, mutant.number));
        }
        woven.push("_ => {");
        woven.push(&source[open + 1..close]);
        woven.push("\n}}");
        written = close;
    }
    woven.push(&source[written..]);
    Ok(woven)
}

fn offsets(source: &str, span: &Span) -> Result<Range<usize>> {
    let offset = |(line, column): (usize, usize)| {
        let start: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let line = source.get(start..)?;
        let within = line.char_indices().nth(column - 1).map_or(line.len(), |(at, _)| at);
        Some(start + within)
    };
    let (start, end) = (offset(span.start), offset(span.end));
    let found = start.zip(end).map(|(start, end)| start..end);
    found.context("a mutant lies outside of its file")
}

/// Where the body of a function begins. Comments, texts and attributes before it are passed over.
fn body(function: &str) -> Option<usize> {
    let (mut depth, mut signature, mut rest) = (0_u32, false, function);
    while let Some(letter) = rest.chars().next() {
        let at = function.len() - rest.len();
        let skip = match letter {
            '/' if rest.starts_with("//") => rest.find('\n')?,
            '"' => rest[1..].find('"')? + 2,
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
                let word = &rest[..end.unwrap_or(rest.len())];
                signature |= word == "fn" && depth == 0;
                word.len()
            }
            '{' if signature && depth == 0 => return Some(at),
            '(' | '[' => {
                depth += 1;
                1
            }
            ')' | ']' => {
                depth = depth.saturating_sub(1);
                1
            }
            other => other.len_utf8(),
        };
        rest = &rest[skip..];
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SOURCE: &str = "\
/// A fn { of two.
#[expect(x, reason = \"a fn { too\")]
fn less(a: [u8; 2], b: impl Fn(u8)) -> bool {
    // ends with a comment
    a[0] < a[1] // here
}

const fn fixed() -> u8 {
    1 + 1
}
";

    fn mutant(number: u32, function: [usize; 4], at: [usize; 4], replacement: &str) -> Mutant {
        let place = |[line, column, last, end]: [usize; 4]| {
            json!({ "start": { "line": line, "column": column },
                    "end": { "line": last, "column": end } })
        };
        let value = json!({
            "name": format!("m{number}"),
            "file": "a.rs",
            "span": place(at),
            "function": { "span": place(function) },
            "replacement": replacement,
        });
        Mutant::read(number, &value).unwrap()
    }

    #[test]
    fn each_body_of_a_function_can_be_chosen() {
        let less = [1, 1, 6, 2];
        let all = [
            mutant(1, less, [5, 5, 5, 16], "true"),
            mutant(2, less, [5, 10, 5, 11], ">"),
            mutant(3, [8, 1, 10, 2], [9, 5, 9, 10], "0"),
        ];
        let woven = weave(SOURCE, all.iter()).unwrap();
        assert_eq!(woven.left_out, [3], "nothing is chosen while a program is compiled");
        let bodies: Vec<&str> =
            woven.text.lines().filter(|line| line.contains("// here")).map(str::trim).collect();
        assert_eq!(bodies, ["true // here", "a[0] > a[1] // here", "a[0] < a[1] // here"]);
        let line = |text: &str| woven.text.lines().position(|it| it.contains(text)).unwrap() + 1;
        assert_eq!(woven.mutant_at(line("true // here")), Some(1));
        assert_eq!(woven.mutant_at(line("a[0] > a[1]")), Some(2));
        assert_eq!(woven.mutant_at(line("a[0] < a[1]")), None);
        assert!(woven.text.ends_with("const fn fixed() -> u8 {\n    1 + 1\n}\n"));
        assert_eq!(weave(SOURCE, std::iter::empty()).unwrap().text, SOURCE);
    }
}
