//! Tables of who leads, and a terminal on which one is drawn again and again.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use tenure::{Leader, Name};
use unicode_width::UnicodeWidthChar as _;

use crate::output::{printable, show_short};
use crate::{sink::Sink, wall};

/// One line of the table.
pub(super) struct Row([String; 6]);

const HEADER: [&str; 6] = ["ELECTION", "LEADER", "TERM", "SINCE", "REMAINING", "METADATA"];

/// What is not there.
const NONE: &str = "-";

impl Row {
    /// What is known of an election.
    pub(super) fn new(name: &Name, leader: &Option<Leader>) -> Row {
        let election = printable(name.as_str());
        let none = || NONE.to_owned();
        let Some(leader) = leader else {
            return Row([election, "nobody".to_owned(), none(), none(), none(), none()]);
        };
        let since = leader.since_unix_ms.and_then(wall::from_unix_ms);
        let metadata = leader.metadata.as_ref().map(|metadata| printable(metadata.as_str()));
        Row([
            election,
            printable(leader.holder.label()),
            leader.term.map_or_else(none, |term| term.to_string()),
            since.map_or_else(none, |since| format!("{since:.0}")),
            show_short(leader.remaining),
            metadata.unwrap_or_else(none),
        ])
    }
}

/// The lines of the table; wrapped to a width, if there is one.
pub(super) fn table(rows: &[Row], width: Option<u16>) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(HEADER);
    table.add_rows(rows.iter().map(|row| row.0.iter()));
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// A part of the terminal that is drawn again in place.
pub(super) struct Screen {
    sink: Sink,
    color: bool,
    /// How many lines stand there.
    drawn: usize,
}

impl Screen {
    pub(super) fn new(sink: Sink, color: bool) -> Screen {
        Screen { sink, color, drawn: 0 }
    }

    /// Draws the table and the news under it, over what was drawn before.
    pub(super) fn draw(&mut self, rows: &[Row], news: &[String]) {
        let (width, height) = size();
        let mut lines = table(rows, Some(width));
        let room = usize::from(height).saturating_sub(news.len() + 2).max(2);
        if lines.len() > room {
            let more = lines.len() + 1 - room;
            lines.truncate(room - 1);
            lines.push(format!("... and {more} more lines"));
        }
        let header = lines.len();
        lines.extend(news.iter().map(|line| cut(line, width.into()).to_owned()));
        let mut text = self.back();
        for (number, line) in lines.iter().enumerate() {
            if number == header {
                text.push('\n');
            }
            let bold = self.color && number == 0;
            let (on, off) = if bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
            let _ = writeln!(text, "{on}{}{off}", line);
        }
        self.drawn = lines.len() + usize::from(!news.is_empty());
        // The cursor is hidden, so that it does not jump about; the sink adds the last line's end.
        self.sink.out(&format!("\x1b[?25l{}", text.trim_end_matches('\n')));
    }

    /// Gives the terminal back.
    pub(super) fn finish(&self) {
        self.sink.out("\x1b[?25h");
    }

    fn back(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("\x1b[{}A\r\x1b[J", self.drawn) }
    }
}

/// As much of the line as fits into so many columns: one that wraps would stand on two lines.
fn cut(line: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = line.char_indices().find(|(_, letter)| {
        used += letter.width().unwrap_or(0);
        used > columns
    });
    end.map_or(line, |(end, _)| &line[..end])
}

/// Columns and lines of the terminal.
fn size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

/// What is left of a lease that had so much left some time ago.
pub(super) fn counted_down(leader: &Option<Leader>, ago: Duration) -> Option<Leader> {
    leader.clone().map(|mut leader| {
        leader.remaining = leader.remaining.saturating_sub(ago);
        leader
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_header_and_a_line_for_each_election() {
        let rows = [Row::new(&Name::new("invoices").unwrap(), &None)];
        let lines = table(&rows, None);
        assert_eq!(
            lines,
            [
                "ELECTION  LEADER  TERM  SINCE  REMAINING  METADATA",
                "invoices  nobody  -     -      -          -",
            ]
        );
    }

    #[test]
    fn a_line_is_cut_by_columns_and_not_by_letters() {
        assert_eq!(cut("invoices: a leads", 80), "invoices: a leads");
        assert_eq!(cut("invoices", 3), "inv");
        assert_eq!(cut("請求書: a", 5), "請求", "each takes two columns");
        assert_eq!(cut("e\u{301}te\u{301}", 2), "e\u{301}t", "an accent takes none");
        assert_eq!(cut("請", 1), "");
    }
}
