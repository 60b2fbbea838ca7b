//! Judges a history that another program wrote down: one event a line on stdin, its words separated
//! by blanks. Times are nanoseconds on an axis that all share, such as `CLOCK_BOOTTIME`.
//!
//! ```text
//! AT ELECTION CANDIDATE leads TERM UNTIL     told that it leads, and trusts itself until then
//! AT ELECTION CANDIDATE trusts TERM          was seen to trust itself
//! AT ELECTION CANDIDATE ends                 trusts itself no more
//! AT ELECTION CANDIDATE killed
//! AT ELECTION CANDIDATE wrote TERM           a fenced write passed
//! AT ELECTION CANDIDATE refused TERM         a fenced write was refused
//! ```
//!
//! Prints what is wrong, and ends with 1 if anything is.
#![allow(clippy::print_stdout, reason = "it talks to the person who started it")]

use std::io::stdin;
use std::process::ExitCode;

use tenure_core::{Name, Term, Time};
use tenure_history::{Event, History, Kind};

fn main() -> ExitCode {
    let mut history = History::new();
    for (number, line) in (1..).zip(stdin().lines()) {
        let Ok(line) = line else { return fail(number, "it can't be read") };
        match event(&line) {
            Some(event) => history.record(event),
            None => return fail(number, &format!("{line:?} is no event")),
        }
    }
    match history.check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(violations) => {
            violations.iter().for_each(|violation| println!("{violation}"));
            ExitCode::FAILURE
        }
    }
}

fn event(line: &str) -> Option<Event> {
    let mut words = line.split_whitespace();
    let (at, election, candidate) = (time(words.next())?, words.next()?, words.next()?);
    let kind = match words.next()? {
        "leads" => Kind::Lead { term: term(words.next())?, until: time(words.next())? },
        "trusts" => Kind::Trusts { term: term(words.next())? },
        "ends" => Kind::StepDown { reason: "told".to_owned(), until: at, resigning: false },
        "killed" => Kind::Killed,
        "wrote" => Kind::WriteFenced { term: term(words.next())?, accepted: true },
        "refused" => Kind::WriteFenced { term: term(words.next())?, accepted: false },
        _ => return None,
    };
    Some(Event::new(at, &Name::new(election).ok()?, candidate, kind))
}

fn time(word: Option<&str>) -> Option<Time> {
    word?.parse().ok().map(Time::from_nanos)
}

fn term(word: Option<&str>) -> Option<Term> {
    Term::new(word?.parse().ok()?)
}

fn fail(number: usize, what: &str) -> ExitCode {
    println!("line {number}: {what}");
    ExitCode::from(2)
}
