//! What is said about a command line that can't be read.
//!
//! The parser quotes what it does not understand. That may be a URL in the wrong place, or the rest
//! of one that the shell took apart at a space. Parts that may hold a password are taken out of the
//! parser's error before it is put into words.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};

use crate::args::Cli;

/// What stands for an argument that is not quoted.
const NOT_SHOWN: &str = "***";

/// Takes arguments out of the error that may be a part of a password. Returns whether there were
/// any, because then somebody may need a hint.
pub(crate) fn hide_passwords(error: &mut Error, arguments: &[OsString]) -> bool {
    if !may_hold_password(arguments) {
        return false;
    }
    // In all other errors it is the parser's own name of an argument.
    let arg = (error.kind() == ErrorKind::UnknownArgument).then_some(ContextKind::InvalidArg);
    let quoted = [ContextKind::InvalidSubcommand, ContextKind::InvalidValue].into_iter().chain(arg);
    let mut hidden = false;
    for kind in quoted {
        match error.get(kind) {
            Some(ContextValue::String(text)) if !text.is_empty() && !is_flag(text) => {}
            _ => continue,
        }
        error.insert(kind, ContextValue::String(NOT_SHOWN.to_owned()));
        hidden = true;
    }
    if hidden {
        // A tip repeats the argument.
        error.remove(ContextKind::Suggested);
    }
    hidden
}

/// Has the error show the usage as the help does. The parser adds what was given, and takes
/// variables for that: `--store` would look as if it were needed.
pub(crate) fn show_plain(error: &mut Error, arguments: &[OsString]) {
    let mut command = Cli::command();
    command.build();
    let name = arguments.iter().skip(1).find(|word| command.find_subcommand(word).is_some());
    let Some(command) = name.and_then(|name| command.find_subcommand_mut(name)) else { return };
    if error.get(ContextKind::Usage).is_some() {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    }
}

/// `tenure run NAME COMMAND`, without the `--` before the command. An option that is not known is a
/// mistake of its own.
pub(crate) fn lacks_dashes(error: &Error, arguments: &[OsString]) -> bool {
    let is_option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.starts_with('-'),
        _ => false,
    };
    let is_it = match error.kind() {
        ErrorKind::UnknownArgument => !is_option,
        ErrorKind::MissingRequiredArgument => true,
        _ => false,
    };
    let has_dashes = arguments.iter().any(|word| word == "--");
    let after = after_subcommand(arguments, &["run", "once"]);
    is_it && !has_dashes && after.is_some_and(|words| words.len() > 1)
}

/// What comes after the subcommand, if it is one of these.
fn after_subcommand<'a>(arguments: &'a [OsString], wanted: &[&str]) -> Option<&'a [OsString]> {
    let mut rest = arguments.get(1..)?;
    loop {
        let (word, after) = rest.split_first()?;
        rest = match word.to_str() {
            // These have a value of their own.
            Some("-s" | "--store" | "--log-format" | "--color") => after.get(1..)?,
            Some(flag) if flag.starts_with('-') => after,
            Some(name) if wanted.contains(&name) => return Some(after),
            _ => return None,
        };
    }
}

/// Whether the URL of a login may be among them, whole or in pieces.
fn may_hold_password(arguments: &[OsString]) -> bool {
    let any = |part: &str| arguments.iter().any(|word| word.to_string_lossy().contains(part));
    any("@") || any("password=")
}

/// `--name`, and nothing else.
fn is_flag(text: &str) -> bool {
    let name = text.trim_start_matches('-');
    name.len() < text.len() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn refused(words: &[&str]) -> (String, bool) {
        let words: Vec<OsString> = ["tenure"].iter().chain(words).map(OsString::from).collect();
        let mut error = Cli::try_parse_from(&words).expect_err("it can't be read");
        let hidden = hide_passwords(&mut error, &words);
        (error.to_string(), hidden)
    }

    #[test]
    fn the_usage_is_that_of_the_help() {
        let words = ["tenure", "--store", "redis://h:1/0", "run", "x", "--ttl", "5s"];
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut error = Cli::try_parse_from(&words).expect_err("there is no command");
        show_plain(&mut error, &words);
        let text = error.to_string();
        assert!(text.contains("Usage: tenure run [OPTIONS] <NAME> -- <COMMAND>..."), "{text}");
    }

    #[test]
    fn pieces_of_a_url_are_not_quoted_and_everything_else_is() {
        for (words, says) in [
            (&["--store", "postgres://u:a", "hunter2@h/d", "status"][..], "subcommand '***'"),
            (&["postgres://u:hunter2@h/d"], "subcommand '***'"),
            (&["--stoer=postgres://u:hunter2@h/d", "status"], "argument '--stoer'"),
            (&["status", "--color", "postgres://u:hunter2@h/d"], "invalid value '***'"),
            (&["completions", "bash", "--store", "a://u:b", "hunter2@"], "argument '***'"),
        ] {
            let (text, hidden) = refused(words);
            assert!(text.contains(says) && !text.contains("hunter2"), "{words:?}: {text}");
            assert_eq!(hidden, says.contains("***"), "{words:?}");
        }
        let (text, hidden) = refused(&["--store", "redis://h:1/0", "stauts"]);
        assert!(text.contains("'stauts'") && text.contains("'status'") && !hidden, "{text}");
    }
}
