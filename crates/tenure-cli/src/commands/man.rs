//! `tenure man`: the manual.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::exit::{Exit, Failure};

/// Prints the page of the whole, or writes a page for each command.
pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    match &args.dir {
        Some(dir) => write_all(dir)?,
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page)?;
            print(&page, &mut io::stdout().lock())?;
        }
    }
    Ok(Exit::DONE)
}

fn write_all(dir: &Path) -> Result<(), Failure> {
    let about = || format!("can't write manual pages into {}", dir.display());
    std::fs::create_dir_all(dir).with_context(about)?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(about)?;
    Ok(())
}

/// Writes it all; a reader that has seen enough (`head`) is no failure.
pub(super) fn print(text: &[u8], to: &mut impl Write) -> io::Result<()> {
    match to.write_all(text).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
