//! The files that a drill leaves for people: the raw history, a report, and a picture.

mod dots;
mod html;
mod timeline;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::judge::Judgement;
use super::record::Record;
use crate::exit::Failure;

/// Makes the directory, and sees whether a file can be written there.
pub(crate) fn prepare(dir: &Path) -> Result<(), Failure> {
    let about = || format!("can't write the report into {}", dir.display());
    fs::create_dir_all(dir).with_context(about)?;
    let probe = dir.join(format!(".tenure-drill-{}", std::process::id()));
    fs::write(&probe, "").with_context(about)?;
    Ok(fs::remove_file(&probe).with_context(about)?)
}

/// Writes `history.jsonl`, `report.html` and `timeline.svg`.
pub(crate) fn write(dir: &Path, record: &Record, judgement: &Judgement) -> Result<(), Failure> {
    let about = || format!("can't write the report into {}", dir.display());
    fs::create_dir_all(dir).with_context(about)?;
    let mut history = record.lines().join("\n");
    history.push('\n');
    let timeline = timeline::draw(record, judgement);
    let report = html::page(record, judgement, &timeline);
    for (name, text) in
        [("history.jsonl", &history), ("timeline.svg", &timeline), ("report.html", &report)]
    {
        fs::write(dir.join(name), text).with_context(about)?;
    }
    Ok(())
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
