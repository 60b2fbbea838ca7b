//! What a drill leaves for people and programs: a verdict, a table, the raw history, a page and a
//! picture.

mod dots;
mod html;
mod timeline;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::error::DrillError;
use crate::judge::Judgement;
use crate::record::Record;
use crate::show;

/// What happened in a drill, and the verdict on it.
#[derive(Clone, Debug)]
pub struct Report {
    /// What happened.
    pub record: Record,
    /// What is to be said of it.
    pub judgement: Judgement,
}

impl Report {
    /// The verdict in a sentence.
    pub fn verdict(&self) -> String {
        show::verdict(&self.record, &self.judgement)
    }

    /// The numbers for each fault, as the lines of a table.
    pub fn table(&self) -> Vec<String> {
        show::table(&self.judgement)
    }

    /// The broken promises that are worth showing, a sentence each.
    pub fn complaints(&self) -> Vec<String> {
        show::complaints(&self.judgement)
    }

    /// All of it for programs, as the fields of an object.
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        show::fields(&self.record, &self.judgement)
    }

    /// The page: one HTML document that needs nothing but itself.
    pub fn html(&self) -> String {
        html::page(&self.record, &self.judgement, &self.svg())
    }

    /// The picture: an SVG document that shows who led when.
    pub fn svg(&self) -> String {
        timeline::draw(&self.record, &self.judgement)
    }

    /// The raw history, one JSON object a line.
    pub fn history(&self) -> String {
        let mut history = self.record.lines().join("\n");
        history.push('\n');
        history
    }

    /// Writes `history.jsonl`, `timeline.svg` and `report.html` into a directory.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn write(&self, dir: &Path) -> Result<(), DrillError> {
        fs::create_dir_all(dir).map_err(unwritable(dir))?;
        for (name, text) in [
            ("history.jsonl", self.history()),
            ("timeline.svg", self.svg()),
            ("report.html", self.html()),
        ] {
            fs::write(dir.join(name), text).map_err(unwritable(dir))?;
        }
        Ok(())
    }
}

/// Makes the directory of a report, and sees whether a file can be written there: better before the
/// drill than after an hour of it.
///
/// # Errors
/// It can't.
pub fn prepare(dir: &Path) -> Result<(), DrillError> {
    fs::create_dir_all(dir).map_err(unwritable(dir))?;
    let probe = dir.join(format!(".tenure-drill-{}", std::process::id()));
    fs::write(&probe, "").map_err(unwritable(dir))?;
    fs::remove_file(&probe).map_err(unwritable(dir))
}

fn unwritable(dir: &Path) -> impl FnOnce(io::Error) -> DrillError {
    DrillError::because(format!("can't write the report into {}", dir.display()))
}

/// Text as it stands in HTML and SVG, between tags and in attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no way to write most of these.
            _ if letter.is_control() => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

/// An instant of the drill for people: `35s`, `2:05`.
fn clock(since: Duration) -> String {
    match since.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}:{:02}", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
