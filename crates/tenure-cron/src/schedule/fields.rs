//! The words of a schedule, each checked by itself so that an error names the one that is wrong.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use tenure_core::Error;

/// What a field may hold, beyond numbers and `* , - /`.
struct Field {
    name: &'static str,
    takes: &'static str,
    names: &'static [&'static str],
    marks: &'static str,
}

const MONTHS: &[&str] =
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 6] = [
    Field { name: "second", takes: "0 to 59", names: &[], marks: "" },
    Field { name: "minute", takes: "0 to 59", names: &[], marks: "" },
    Field { name: "hour", takes: "0 to 23", names: &[], marks: "" },
    Field { name: "day of month", takes: "1 to 31, L for the last, 15W", names: &[], marks: "LW?" },
    Field { name: "month", takes: "1 to 12 or JAN to DEC", names: MONTHS, marks: "" },
    Field {
        name: "weekday",
        takes: "0 to 7 or SUN to SAT, 5L for the last Friday, MON#2 for the second Monday",
        names: WEEKDAYS,
        marks: "L#?+",
    },
];

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The schedule, and whether it is a fixed-time one.
pub(super) fn parse(text: &str) -> Result<(Cron, bool), Error> {
    let words: Vec<&str> = match text.trim() {
        "" => return Err(refused(text, "it is empty; write one such as \"30 3 * * *\"")),
        nickname if nickname.starts_with('@') => expand(nickname)?,
        text => text.split_whitespace().collect(),
    };
    let fields = match words.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        count => {
            let what = format!(
                "it has {count} {}; write five (minute, hour, day of month, month, weekday), or \
                 six with the second first",
                if count == 1 { "field" } else { "fields" }
            );
            return Err(refused(text, &what));
        }
    };
    for (index, (word, field)) in words.iter().zip(fields).enumerate() {
        if !field.takes(word, index, words.len()) {
            let what = format!(
                "field {} ({}) is {word:?}, and takes {}, lists, ranges, steps and *",
                index + 1,
                field.name,
                field.takes
            );
            return Err(refused(text, &what));
        }
    }
    let cron = parser().parse(&words.join(" "));
    let cron = cron.map_err(|error| refused(text, &error.to_string().to_lowercase()))?;
    let (minute, hour) = (words[words.len() - 5], words[words.len() - 4]);
    Ok((cron, !minute.starts_with('*') && !hour.starts_with('*')))
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build()
}

fn expand(nickname: &str) -> Result<Vec<&'static str>, Error> {
    let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(nickname));
    if let Some((_, fields)) = known {
        return Ok(fields.split(' ').collect());
    }
    let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
    Err(refused(nickname, &format!("there is no such name; known are {}", names.join(", "))))
}

impl Field {
    /// Whether this word will do in this field, alone.
    fn takes(&self, word: &str, index: usize, count: usize) -> bool {
        self.has_fitting_words(word) && {
            let mut all = vec!["*"; count];
            all[index] = word;
            parser().parse(&all.join(" ")).is_ok()
        }
    }

    /// Names and marks stand only where they mean something: `croner` would take a weekday for a
    /// minute.
    fn has_fitting_words(&self, word: &str) -> bool {
        let word = word.to_ascii_uppercase();
        let is_mark = |letter: char| self.marks.contains(letter) || "*,-/".contains(letter);
        let mut rest = word.as_str();
        while let Some(letter) = rest.chars().next() {
            let name = self.names.iter().find(|name| rest.starts_with(**name));
            match name {
                Some(name) => rest = &rest[name.len()..],
                None if letter.is_ascii_digit() || is_mark(letter) => rest = &rest[1..],
                None => return false,
            }
        }
        true
    }
}

fn refused(text: &str, what: &str) -> Error {
    Error::config(format!("the schedule {text:?} is not understood: {what}"))
}
