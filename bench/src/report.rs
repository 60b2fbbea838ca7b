//! The table of a bench, and the file that keeps the tables of all.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// What was measured, where and when.
#[derive(Debug)]
pub(crate) struct Origin {
    machine: String,
    commit: String,
    date: String,
    load: String,
}

impl Origin {
    /// As it is now, with what else the machine has to do.
    pub(crate) fn now(machine: &str, commit: &str) -> Origin {
        let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("unknown").to_owned();
        Origin { machine: machine.to_owned(), commit: commit.to_owned(), date, load }
    }
}

/// The numbers of one bench.
#[derive(Debug, Default)]
pub(crate) struct Section {
    rows: Vec<[String; 4]>,
    notes: Vec<String>,
}

impl Section {
    pub(crate) fn new() -> Section {
        Section::default()
    }

    /// A number that has no bar.
    pub(crate) fn number(&mut self, what: &str, value: f64, unit: &str) {
        self.rows.push([what.to_owned(), show(value, unit), String::new(), String::new()]);
    }

    /// A number that is to be at most `bar`.
    pub(crate) fn at_most(&mut self, what: &str, value: f64, bar: f64, unit: &str) {
        let verdict = if value <= bar { "ok" } else { "**missed**" };
        let bar = format!("≤ {bar} {unit}");
        self.rows.push([what.to_owned(), show(value, unit), bar, verdict.to_owned()]);
    }

    /// A number that is to be at least `bar`.
    pub(crate) fn at_least(&mut self, what: &str, value: f64, bar: f64, unit: &str) {
        let verdict = if value >= bar { "ok" } else { "**missed**" };
        let bar = format!("≥ {bar} {unit}");
        self.rows.push([what.to_owned(), show(value, unit), bar, verdict.to_owned()]);
    }

    /// Something that must never have happened.
    pub(crate) fn never(&mut self, what: &str, count: usize) {
        let verdict = if count == 0 { "ok" } else { "**missed**" };
        self.rows.push([what.to_owned(), count.to_string(), "0".to_owned(), verdict.to_owned()]);
    }

    /// A sentence under the table.
    pub(crate) fn note(&mut self, sentence: impl Into<String>) {
        self.notes.push(sentence.into());
    }

    /// The rows as a Markdown table that also reads well as it is.
    pub(crate) fn table(&self) -> String {
        let head = ["measure", "value", "bar", ""].map(str::to_owned);
        let all: Vec<&[String; 4]> = std::iter::once(&head).chain(&self.rows).collect();
        let width = |column: usize| {
            all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3)
        };
        let widths = [0, 1, 2, 3].map(width);
        let line = |row: &[String; 4]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} "));
            format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
        };
        let rule = widths.map(|width| format!(" {} ", "-".repeat(width))).join("|");
        let mut text = line(&head) + &format!("|{rule}|\n");
        text.extend(self.rows.iter().map(line));
        text
    }

    /// The whole section, without its heading.
    pub(crate) fn text(&self, about: &str, origin: &Origin) -> String {
        let Origin { machine, commit, date, load } = origin;
        let mut text = format!(
            "{about}\n\nMeasured on {date}, commit {commit}; load before: {load}.\n{machine}.\n\n"
        );
        text += &self.table();
        for note in &self.notes {
            text += &format!("\n{note}\n");
        }
        text
    }
}

fn show(value: f64, unit: &str) -> String {
    let digits = if value < 10.0 { 2 } else { 1 };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

/// Prints to whoever runs this.
#[allow(clippy::print_stdout, reason = "the one place where this program prints")]
pub(crate) fn say(text: &str) {
    println!("{text}");
    let _shown = std::io::stdout().flush();
}

const HEAD: &str = "\
# Results

Written by `cargo xtask bench`; each section by its last run. p99 of 50 rounds is the worst of them.
";

/// Replaces one section of the file and keeps the others, in this order.
pub(crate) fn write(file: &Path, order: &[&str], name: &str, text: &str) -> Result<()> {
    let old = match fs::read_to_string(file) {
        Ok(old) => old,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context("can't read the results so far"),
    };
    fs::write(file, merged(&old, order, name, text)).context("can't write the results")
}

fn merged(old: &str, order: &[&str], name: &str, text: &str) -> String {
    let mut sections: Vec<(&str, &str)> = old
        .split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .filter(|(heading, _)| *heading != name)
        .collect();
    sections.push((name, text));
    let place = |name: &str| order.iter().position(|known| *known == name);
    sections.sort_by_key(|(heading, _)| place(heading).unwrap_or(order.len()));
    let mut file = HEAD.to_owned();
    for (heading, body) in sections {
        file += &format!("\n## {heading}\n\n{}\n", body.trim());
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_missed_is_marked() {
        let mut section = Section::new();
        section.at_most("p50", 4.0, 5.0, "ms");
        section.at_most("p99", 20.5, 20.0, "ms");
        section.number("rounds", 50.0, "");
        section.never("two leaders at once", 1);
        let table = section.table();
        assert!(table.contains("| p50                 | 4.00 ms | ≤ 5 ms  | ok"), "{table}");
        assert!(table.contains("| p99                 | 20.5 ms | ≤ 20 ms | **missed** |"));
        assert!(table.contains("| rounds              | 50.0    |         |"), "{table}");
        assert!(table.contains("| two leaders at once | 1       | 0       | **missed** |"));
    }

    #[test]
    fn sections_that_did_not_run_are_kept_in_their_order() {
        let order = ["a", "b", "c"];
        let first = merged("", &order, "c", "of c");
        let second = merged(&first, &order, "a", "of a\n\n| x |");
        assert_eq!(second, format!("{HEAD}\n## a\n\nof a\n\n| x |\n\n## c\n\nof c\n"));
        let third = merged(&second, &order, "c", "new");
        assert_eq!(third, format!("{HEAD}\n## a\n\nof a\n\n| x |\n\n## c\n\nnew\n"));
        let kept = merged(&third, &["b"], "b", "of b");
        assert!(kept.contains("## a\n\nof a") && kept.contains("## b\n\nof b"), "{kept}");
    }
}
