//! Whatever stands on the command line, in the environment or on a pipe: it is taken or refused
//! with a sentence, never a panic, and no password is shown.

use std::time::Duration;

use bolero::check;
use clap::Parser as _;
use tenure_core::Secret;
use tenure_cron::Schedule;
use tenure_needs::needs;

use crate::args::{Cli, CommandArgs};
use crate::commands::cron::fuzz as cron;
use crate::drill::{DrillOptions, fuzz as drill};
use crate::options::{Candidacy, ResignOptions, RunOptions};
use crate::output::printable;
use crate::store::StoreChoice;

const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(30);

/// Puts pieces together, so that the generator gets past the first letter.
fn put_together(picks: &[u8], pieces: &[&str]) -> String {
    picks.iter().take(12).map(|pick| pieces[usize::from(*pick) % pieces.len()]).collect()
}

fn store_urls(time: Duration) {
    const SCHEMES: [&str; 12] = [
        "sqlite:",
        "postgres://",
        "postgresql://",
        "postgres+advisory://",
        "postgresql+advisory://",
        "redis://",
        "rediss://",
        "redis+sentinel://",
        "rediss+sentinel://",
        "redis+cluster://",
        "rediss+cluster://",
        "mysql://",
    ];
    const PIECES: [&str; 26] = [
        "prefix=",
        "settle=",
        "10s",
        "schema=",
        "sslmode=",
        "term_offset=",
        ",",
        "65536",
        "postgres://",
        "{}",
        "#",
        "user",
        ":",
        "hunter2!",
        "@",
        "host",
        "/",
        "db",
        "?",
        "password=",
        "&",
        "%40",
        " ",
        "\0",
        "é",
        "[::1]",
    ];
    check!().with_test_time(time).with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
        let scheme = SCHEMES[usize::from(picks.first().copied().unwrap_or(0)) % SCHEMES.len()];
        let rest = put_together(picks, &PIECES);
        let given =
            [format!("{scheme}{rest}"), rest.clone(), format!("{scheme}{free}"), free.clone()];
        for url in given {
            match StoreChoice::new(Some(&Secret::new(url.as_str()))) {
                Ok(choice) => assert_eq!(choice.url.expose(), url),
                Err(failure) => assert!(!failure.error.to_string().is_empty(), "{url:?}"),
            }
        }
        // What stands after `sqlite:` is a path, and no password.
        if scheme == "sqlite:" {
            return;
        }
        for password in [format!("{rest}hunter2!"), format!("hunter2!{free}hunter2!")] {
            let url = format!("{scheme}user:{password}@host/db");
            let shown = match StoreChoice::new(Some(&Secret::new(url.as_str()))) {
                Ok(choice) => format!("{choice:?} {}", choice.address()),
                Err(failure) => format!("{:#} {:?}", failure.error, failure.error),
            };
            assert!(!shown.contains("hunter2!"), "{url:?}: {shown}");
        }
    });
}

fn command_lines(time: Duration) {
    const WORDS: [&str; 26] = [
        "run",
        "campaign",
        "status",
        "watch",
        "resign",
        "drill",
        "completions",
        "x",
        "--",
        "--ttl",
        "1m30s",
        "5",
        "--store",
        "sqlite:x",
        "--json",
        "--faults",
        "kill,freeze",
        "--rounds",
        "-1",
        "--for",
        "--metadata",
        "{}",
        "--id",
        "\u{7f}",
        "--candidates",
        "--profile",
    ];
    check!().with_test_time(time).with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
        let picked = picks.iter().take(12).map(|pick| WORDS.get(usize::from(*pick) % 27));
        let words = picked.map(|word| word.map_or_else(|| free.clone(), ToString::to_string));
        let Ok(cli) = Cli::try_parse_from(["tenure".to_owned()].into_iter().chain(words)) else {
            return;
        };
        let refused = match cli.command {
            CommandArgs::Run(args) => RunOptions::try_from(args).err(),
            CommandArgs::Campaign(args) => Candidacy::try_from(args).err(),
            CommandArgs::Resign(args) => ResignOptions::try_from(args).err(),
            CommandArgs::Drill(args) => DrillOptions::try_from(args).err(),
            _ => None,
        };
        assert!(refused.is_none_or(|failure| !failure.error.to_string().is_empty()));
    });
}

fn schedules(time: Duration) {
    const PIECES: [&str; 20] = [
        "*",
        " ",
        "/",
        "-",
        ",",
        "0",
        "5",
        "29",
        "31",
        "60",
        "@daily",
        "@every ",
        "90s",
        "MON",
        "FEB",
        "L",
        "#",
        "?",
        "W",
        "999999999999",
    ];
    const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "No/Where"];
    check!().with_test_time(time).with_type::<(Vec<u8>, String, i64)>().for_each(
        |(picks, free, from)| {
            let zone = ZONES[picks.len() % ZONES.len()];
            let five: Vec<&str> =
                picks.iter().take(5).map(|pick| PIECES[usize::from(*pick) % 13]).collect();
            for text in [put_together(picks, &PIECES), five.join(" "), free.clone()] {
                match Schedule::new(&text, zone) {
                    Ok(schedule) => {
                        // From any instant of some thousand years.
                        let from = from % 100_000_000_000_000;
                        let next = schedule.next_after(from);
                        assert!(next.is_none_or(|next| next > from), "{text:?} {zone} {from}");
                    }
                    Err(error) => assert!(error.message().len() > 10, "{text:?}: {error}"),
                }
            }
        },
    );
}

fn job_files(time: Duration) {
    const PIECES: [&str; 18] = [
        "[[job]]\n",
        "name = \"a\"\n",
        "name = \"b\"\n",
        "schedule = \"* * * * *\"\n",
        "schedule = \"@every 1s\"\n",
        "command = \"true\"\n",
        "command = []\n",
        "command = [\"x\", \"\"]\n",
        "tz = \"Mars/Base\"\n",
        "timeout = \"0s\"\n",
        "missed = \"all\"\n",
        "overlap = \"skip\"\n",
        "delivery = \"twice\"\n",
        "keep = 0\n",
        "election = \"\"\n",
        "jitter = \"9999h\"\n",
        "é = \"\\u0000\"\n",
        "[",
    ];
    check!().with_test_time(time).with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
        for text in [put_together(picks, &PIECES), free.clone()] {
            cron::read_job_file(&text);
        }
    });
}

fn lines(time: Duration) {
    check!().with_test_time(time).with_type::<(String, u64)>().for_each(|(text, number)| {
        assert!(!printable(text).chars().any(char::is_control));
        drill::read_line(text);
        let string = serde_json::json!(text);
        drill::read_line(&format!(
            "{{\"boot_ns\":{number},\"event\":{string},\"term\":{number},\"until_ns\":{number}}}"
        ));
    });
}

#[test]
fn urls_are_taken_or_refused_and_passwords_are_hidden() {
    store_urls(SHORT);
}

#[test]
fn command_lines_are_taken_or_refused() {
    command_lines(SHORT);
}

#[test]
fn schedules_are_taken_or_refused_and_lie_ahead() {
    schedules(SHORT);
}

#[test]
fn job_files_are_taken_or_refused() {
    job_files(SHORT);
}

#[test]
fn lines_of_candidates_are_read_or_not() {
    lines(SHORT);
}

#[needs(long)]
#[test]
fn long_fuzz_of_the_command_line() {
    for target in [store_urls, command_lines, schedules, job_files, lines] {
        target(LONG);
    }
}
