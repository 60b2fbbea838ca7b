//! Whatever stands on the command line, in the environment or on a pipe: it is taken or refused
//! with a sentence, never a panic, and no password is shown.

use std::time::Duration;

use bolero::check;
use clap::Parser as _;

use crate::args::{Cli, CommandArgs};
use crate::drill::{DrillOptions, fuzz as drill};
use crate::options::{Candidacy, ResignOptions, RunOptions};
use crate::output::printable;
use crate::redact::{password_in, redact};
use crate::store::StoreChoice;

const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(30);

/// Puts pieces together, so that the generator gets past the first letter.
fn put_together(picks: &[u8], pieces: &[&str]) -> String {
    picks.iter().take(12).map(|pick| pieces[usize::from(*pick) % pieces.len()]).collect()
}

fn store_urls(time: Duration) {
    const PIECES: [&str; 18] = [
        "sqlite:",
        "postgres://",
        "redis+cluster://",
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
        for url in [put_together(picks, &PIECES), free.clone()] {
            if let Some(password) = password_in(&url) {
                assert!(url.contains(password));
            }
            let shown = redact(&url);
            assert_eq!(password_in(&shown).filter(|left| *left != "***"), None, "{url:?}");
            // A password would be remembered, and hidden from the other tests of this process.
            if password_in(&url).is_none()
                && let Ok(choice) = StoreChoice::new(Some(&url))
            {
                assert_eq!(choice.url, url);
            }
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
fn lines_of_candidates_are_read_or_not() {
    lines(SHORT);
}

#[test]
#[ignore = "takes minutes: every fuzz target for half a minute"]
fn long_fuzz_of_the_command_line() {
    for target in [store_urls, command_lines, lines] {
        target(LONG);
    }
}
