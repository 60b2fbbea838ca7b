//! The trampoline: a process that puts itself where the command belongs and becomes it.
//!
//! A child can't be moved into a cgroup between fork and exec without unsafe code, so a second
//! exec does it. It waits for tenure's word before it becomes the command, so the guardian knows
//! the main process before that runs its first instruction; and if tenure dies first, it never
//! does. Its stdin is the link to tenure until the real one has come over it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use super::wire::{self, Report};

/// Becomes the command `argv`; returns only if it can't.
pub(super) fn run(mut argv: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = argv.next() else { return super::refuse("no command") };
    let link = match settle() {
        Ok(Some(link)) => link,
        // Tenure died or thought better of it. The command never begins.
        Ok(None) => return ExitCode::from(125),
        Err(error) => return super::refuse(error),
    };
    let error = Command::new(program).args(argv).exec();
    let errno = error.raw_os_error().unwrap_or_default();
    // If tenure is gone there is nobody left to tell.
    let _ = Report::NotExecuted(errno).send(&link);
    ExitCode::from(126)
}

/// Takes over stdin and joins the cgroup. The link that it returns closes with the exec; there is
/// none if tenure has left.
fn settle() -> io::Result<Option<OwnedFd>> {
    let link = io::stdin().as_fd().try_clone_to_owned()?;
    let Some(given) = wire::take_over(&link)? else { return Ok(None) };
    let mut given = given.into_iter();
    let stdin = given.next().ok_or(io::ErrorKind::InvalidData)?;
    if let Some(procs) = given.next() {
        // "0" is the writer itself.
        if let Err(error) = rustix::io::write(&procs, b"0") {
            Report::Unconfined(error.raw_os_error()).send(&link)?;
        }
    }
    rustix::stdio::dup2_stdin(&stdin)?;
    Ok(Some(link))
}
