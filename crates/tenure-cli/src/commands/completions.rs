//! `tenure completions`: a script for a shell.

use std::io;

use clap::CommandFactory as _;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::{Exit, Failure};

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut script);
    super::man::print(&script, &mut io::stdout().lock())?;
    Ok(Exit::DONE)
}
