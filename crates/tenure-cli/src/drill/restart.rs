//! The restart of a store, by a command that the user gave and nobody else would know.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use tenure::BootClock;

use super::fleet::{Fleet, Halt};
use crate::exit::Failure;

/// Far more than a restart takes.
const WITHIN: Duration = Duration::from_secs(120);

/// How often to look whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs the command to its end, and goes on listening to the candidates meanwhile.
pub(crate) async fn run(command: &str, fleet: &mut Fleet) -> Result<(), Halt> {
    let started = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        // Ours is for data.
        .stdout(Stdio::null())
        .spawn()
        .context("the command of --restart-cmd can't be started");
    let mut child = started.map_err(Failure::from)?;
    let end = BootClock::time() + WITHIN;
    let ended = loop {
        match child.try_wait().map_err(Failure::from)? {
            Some(status) => break Some(status),
            None if BootClock::time() >= end => break None,
            None => {}
        }
        if let Err(halt) = fleet.listen(LOOK_EVERY).await {
            // Half a restart would be worse than one more moment.
            let _status = child.wait();
            return Err(halt);
        }
    };
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(broken(&format!("failed ({status})"))),
        None => {
            let _gone = child.kill();
            let _reaped = child.wait();
            Err(broken("did not end within two minutes"))
        }
    }
}

fn broken(what: &str) -> Halt {
    Failure::usage(format!("the command of --restart-cmd {what}; see whether the store is up"))
        .into()
}
