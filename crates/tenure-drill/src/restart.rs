//! The restart of a store, by a command that the user gave and nobody else would know.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::Clock;

use crate::error::DrillError;
use crate::fleet::{Fleet, Halt};

/// Far more than a restart takes.
const WITHIN: Duration = Duration::from_secs(120);

/// How often to look whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs the command to its end, and goes on listening to the candidates meanwhile.
///
/// A wish for the end of the drill has to wait for it: half a restart would be worse than one more
/// moment. A second wish has not.
pub(crate) async fn run(
    command: &str,
    clock: &dyn Clock,
    fleet: &mut Fleet<'_>,
) -> Result<(), Halt> {
    let mut running = Running::start(command)?;
    let end = clock.now() + WITHIN;
    let (mut halted, mut is_asked) = (None, false);
    let status = loop {
        if let Some(status) = running.0.try_wait().map_err(DrillError::from)? {
            break status;
        }
        if clock.now() >= end {
            return Err(halted.unwrap_or_else(|| broken("did not end within two minutes")));
        }
        if let Err(halt) = fleet.listen(LOOK_EVERY).await {
            let again = matches!(halt, Halt::Asked(_)) && is_asked;
            is_asked |= matches!(halt, Halt::Asked(_));
            halted = halted.or(Some(halt));
            if again {
                break ExitStatus::default();
            }
        }
    };
    match halted {
        Some(halt) => Err(halt),
        None if status.success() => Ok(()),
        None => Err(broken(&format!("failed ({status})"))),
    }
}

/// The command, in a process group of its own: a Ctrl-C at the terminal is for the drill alone.
/// What is left of it is killed when this is dropped before its end.
struct Running(Child);

impl Running {
    fn start(command: &str) -> Result<Running, DrillError> {
        let started = Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            // Ours is for data.
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(DrillError::because("the command of --restart-cmd can't be started"));
        Ok(Running(started?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended may have left a server behind, as it should.
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            // Not waited for yet: the pid, and so the group, is still its own.
            let _gone = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _reaped = self.0.wait();
        }
    }
}

fn broken(what: &str) -> Halt {
    let sentence = format!("the command of --restart-cmd {what}; see whether the store is up");
    DrillError::refused(sentence).into()
}
