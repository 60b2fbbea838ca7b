//! The `tenure` command, as a library: [`run`] it with the stores that it should know.
//!
//! [`process`] is the half that starts, signals and ends a program that runs only while this
//! instance leads, and sees to it that the program never outlives its leadership.

mod args;
mod command_args;
mod commands;
mod container;
mod drill;
mod exit;
#[cfg(test)]
mod fuzz;
mod give_back;
mod options;
#[cfg(feature = "otel")]
mod otel;
mod output;
pub mod process;
mod registry;
mod signals;
mod sink;
mod store;
mod systemd;
mod usage;
mod wall;
mod witness;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, ColorChoice, CommandFactory as _, FromArgMatches as _};
use rustix::io::Errno;

use crate::args::{Cli, Color, CommandArgs};
use crate::commands::doctor::DoctorOptions;
use crate::commands::listen::ListenOptions;
use crate::commands::serve::ServeOptions;
use crate::drill::DrillOptions;
use crate::exit::{Exit, Failure};
use crate::options::{Candidacy, OnceOptions, ResignOptions, RunOptions, names};
use crate::output::{Output, is_colored};
pub use crate::registry::Registry;
use crate::sink::Sink;
use crate::store::StoreChoice;

/// Runs the command with the arguments of this process, and returns its exit code.
///
/// Call it first of all in `main`: the process may be a guardian or a candidate of a drill, which
/// are started as this very program.
pub fn run(registry: Registry) -> ExitCode {
    registry::install(registry);
    // First of all, before a runtime or a parser: the guardian must be up in a moment.
    if let Some(code) = process::dispatch(give_back::give_back) {
        return code;
    }
    if let Some(code) = witness::dispatch() {
        return code;
    }
    if let Some(code) = drill::candidate::dispatch() {
        return code;
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (exit, leads) = match parse(&arguments) {
        Ok((cli, password_in_argv)) => execute(cli, password_in_argv),
        Err(error) => (refuse(error, &arguments), false),
    };
    // A command that takes part in an election goes on without a reader, too.
    let broken = sink::broken_stdout().filter(|_| !leads).map(unwritten);
    ExitCode::from(broken.unwrap_or(exit).0)
}

/// The answer could not be written down, so it was not given. A reader that has seen enough ends
/// other programs by SIGPIPE, and nobody wants to read about that.
fn unwritten(errno: Errno) -> Exit {
    if errno == Errno::PIPE {
        return Exit::by_signal(process::Signal::PIPE);
    }
    Sink::Direct.err(&format!("tenure: stdout can't be written to: {errno}"));
    Exit::FAILED
}

/// Reads the command line; tells too whether it has a password in it.
fn parse(arguments: &[OsString]) -> Result<(Cli, bool), clap::Error> {
    let wish = color_wish(arguments);
    let color = match wish {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    };
    let matches = Cli::command().color(color).try_get_matches_from(arguments)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let has_password = cli.global.store.as_ref().is_some_and(store::may_hold_password);
    Ok((cli, has_password && is_flag(&matches, "store")))
}

/// Before everything is parsed, because help is coloured too.
fn color_wish(arguments: &[OsString]) -> Color {
    let words =
        || arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--");
    let given = words().zip(words().skip(1)).find_map(|(flag, value)| match flag {
        "--color" => Some(value),
        _ => None,
    });
    let given = given.or_else(|| words().find_map(|word| word.strip_prefix("--color=")));
    match given {
        Some("always") => Color::Always,
        Some("never") => Color::Never,
        _ => Color::Auto,
    }
}

/// Whether an argument was given as such, and not by a variable.
fn is_flag(matches: &ArgMatches, argument: &str) -> bool {
    let below = matches.subcommand().map(|(_, matches)| matches);
    [Some(matches), below]
        .into_iter()
        .flatten()
        .any(|matches| matches.value_source(argument) == Some(ValueSource::CommandLine))
}

/// Help and versions go to stdout, everything else is an error.
fn refuse(mut error: clap::Error, arguments: &[OsString]) -> Exit {
    let hidden = usage::hide_passwords(&mut error, arguments);
    usage::show_plain(&mut error, arguments);
    let wish = color_wish(arguments);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = rendered(&error, is_colored(wish, io::stdout().is_terminal()));
            Sink::Direct.out(text.trim_end());
            Exit::DONE
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Sink::Direct
                .err(rendered(&error, is_colored(wish, io::stderr().is_terminal())).trim_end());
            Exit::USAGE
        }
        _ if usage::lacks_dashes(&error, arguments) => {
            Sink::Direct.err(
                "tenure: a -- is missing before the command; write `tenure run NAME -- COMMAND`",
            );
            Exit::USAGE
        }
        _ => {
            let text = rendered(&error, is_colored(wish, io::stderr().is_terminal()));
            let text = text.trim_end().replacen("error:", "tenure:", 1);
            Sink::Direct.err(&text);
            if hidden {
                Sink::Direct.err(
                    "\n*** may be a part of a password; put the URL in quotes, or use TENURE_STORE",
                );
            }
            Exit::USAGE
        }
    }
}

fn rendered(error: &clap::Error, color: bool) -> String {
    let text = error.render();
    if color { text.ansi().to_string() } else { text.to_string() }
}

/// Also tells whether it took part in an election.
fn execute(cli: Cli, password_in_argv: bool) -> (Exit, bool) {
    let leads = match &cli.command {
        CommandArgs::Cron(args) => args.what.is_none(),
        CommandArgs::Run(_)
        | CommandArgs::Once(_)
        | CommandArgs::Campaign(_)
        | CommandArgs::Serve(_)
        | CommandArgs::Listen(_) => true,
        _ => false,
    };
    let long = leads || matches!(cli.command, CommandArgs::Watch(_));
    // Without a thread for it, lines are written at once.
    let sink = if long { Sink::queued().unwrap_or(Sink::Direct) } else { Sink::Direct };
    let out = Output::new(&cli.global, sink.clone());
    output::start_log(&cli.global, &sink);
    if password_in_argv {
        out.warn(
            "the password in --store can be read by everybody on this machine; use TENURE_STORE",
        );
    }
    let exit = perform(cli, &out).unwrap_or_else(|failure| {
        out.error(&format!("{:#}", failure.error));
        failure.exit
    });
    #[cfg(feature = "otel")]
    otel::finish();
    sink.finish();
    (exit, leads)
}

fn perform(cli: Cli, out: &Output) -> Result<Exit, Failure> {
    let global = cli.global;
    let color = is_colored(global.color, io::stdout().is_terminal());
    let choose = || StoreChoice::from_args(&global);
    match cli.command {
        CommandArgs::Run(args) => {
            let (options, store) = (RunOptions::try_from(args)?, choose()?);
            block_on(commands::run::run(&options, &store, out))
        }
        CommandArgs::Once(args) => {
            let (options, store) = (OnceOptions::try_from(args)?, choose()?);
            block_on(commands::once::run(&options, &store, out))
        }
        CommandArgs::Campaign(args) => {
            let (candidacy, store) = (Candidacy::try_from(args)?, choose()?);
            block_on(commands::campaign::run(&candidacy, &store, out))
        }
        CommandArgs::Cron(args) => commands::cron::perform(*args, choose, out),
        CommandArgs::Status(args) => {
            let (names, store) = (names(&args.names)?, choose()?);
            block_on(commands::status::run(names, &store, out))
        }
        CommandArgs::Watch(args) => {
            let (names, store) = (names(&args.names)?, choose()?);
            block_on(commands::watch::run(&names, &store, out, color))
        }
        CommandArgs::Resign(args) => {
            let (options, store) = (ResignOptions::try_from(args)?, choose()?);
            block_on(commands::resign::run(&options, &store, out))
        }
        CommandArgs::Forget(args) => {
            let (names, store) = (names(&args.names)?, choose()?);
            block_on(commands::forget::run(&names, &store, out))
        }
        CommandArgs::Migrate(args) => {
            block_on(commands::migrate::run(&args, global.store.as_ref(), out))
        }
        CommandArgs::Serve(args) => {
            let (options, store) = (ServeOptions::try_from(*args)?, choose()?);
            block_on(commands::serve::run(&options, &store, out))
        }
        CommandArgs::Doctor(args) => {
            let (options, store) = (DoctorOptions::try_from(args)?, choose()?);
            block_on(commands::doctor::run(&options, &store, out))
        }
        CommandArgs::Notify(args) => block_on(commands::notify::run(&args, &choose()?, out)),
        CommandArgs::Post(args) => block_on(commands::post::run(&args, &choose()?, out)),
        CommandArgs::DeadLetters(args) => block_on(commands::letters::run(&args, &choose()?, out)),
        CommandArgs::Listen(args) => {
            let (options, store) = (ListenOptions::try_from(*args)?, choose()?);
            block_on(commands::listen::run(&options, &store, out))
        }
        CommandArgs::Drill(args) => {
            let (options, store) = (DrillOptions::try_from(args)?, choose()?);
            block_on(drill::run(&options, &store, out))
        }
        CommandArgs::Completions(args) => commands::completions::run(&args),
        CommandArgs::Man(args) => commands::man::run(&args),
    }
}

/// One thread is enough: the elections have a driver of their own.
pub(crate) fn block_on(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}
