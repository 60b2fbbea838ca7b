//! Child processes, each in a process group of its own, and the signals that end them.
//!
//! A child is only ever ended by the id of the group that this process made for it, and only
//! while the leader of that group has not been reaped, so the id cannot have passed to a stranger.

use std::fmt;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks at the child and at the signals.
const POLL: Duration = Duration::from_millis(20);

/// How long a child may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How often a wait calls back, so that a long step shows that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// The last signal that asked this process to end, or 0.
static SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// This process was asked to end by a signal.
///
/// It travels up as an error, so that guards on the way (child processes, changed system files)
/// clean up as they do after any other failure.
#[derive(Debug)]
pub(crate) struct Interrupted {
    signal: usize,
}

impl Interrupted {
    /// The exit status that shells use for a command ended by this signal.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::try_from(128 + self.signal).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended by signal {}", self.signal)
    }
}

impl std::error::Error for Interrupted {}

/// From now on SIGINT, SIGTERM and SIGHUP are noted instead of ending this process at once.
pub(crate) fn catch_signals() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).context("a signal number is positive")?;
        signal_hook::flag::register_usize(signal, &SIGNAL, number)
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
    Ok(())
}

/// Fails if this process was asked to end.
pub(crate) fn check_interrupted() -> Result<(), Interrupted> {
    match SIGNAL.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => Err(Interrupted { signal }),
    }
}

/// What a signal to this process does to a child that is being waited for.
#[derive(Clone, Copy)]
pub(crate) enum Signals {
    /// It ends the child.
    EndIt,
    /// It waits, because the child would leave a mess if it were ended half-way.
    Wait,
}

/// Measures how long a chore takes.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a duration shown to people, not a lease")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A child process and all that it starts in its group. Dropping it ends them.
pub(crate) struct Group {
    child: Child,
    reaped: bool,
    grace: Duration,
}

impl Group {
    /// Starts `command` without standard input.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        check_interrupted()?;
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child, reaped: false, grace: GRACE })
    }

    /// Waits for the child, then ends what it left behind in its group.
    ///
    /// Calls `heartbeat` with the time waited, once a minute.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] if a signal arrived. The group is gone by then.
    pub(crate) fn wait(&mut self, heartbeat: impl FnMut(Duration)) -> Result<ExitStatus> {
        self.wait_for(Signals::EndIt, heartbeat)
    }

    /// Waits for the child, then ends what it left behind in its group.
    pub(crate) fn wait_for(
        &mut self,
        signals: Signals,
        mut heartbeat: impl FnMut(Duration),
    ) -> Result<ExitStatus> {
        let watch = Stopwatch::start();
        let mut next_beat = HEARTBEAT;
        while !self.leader_ended()? {
            if let (Err(interrupted), Signals::EndIt) = (check_interrupted(), signals) {
                self.end();
                return Err(interrupted.into());
            }
            if watch.elapsed() >= next_beat {
                heartbeat(watch.elapsed());
                next_beat += HEARTBEAT;
            }
            thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        self.reap()
    }

    /// Asks the group to end, waits a little, and makes it end.
    fn end(&mut self) {
        if self.reaped {
            return;
        }
        self.signal(Signal::TERM);
        let watch = Stopwatch::start();
        while watch.elapsed() < self.grace && matches!(self.leader_ended(), Ok(false)) {
            thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        // The leader was killed, so this cannot wait long, and a status is of no use any more.
        let _ = self.reap();
    }

    /// Whether the leader of the group has ended. Leaves it unreaped, which keeps its id ours.
    pub(crate) fn leader_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()), options).context("cannot wait for a child")?;
        Ok(status.is_some())
    }

    fn reap(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().context("cannot wait for a child")?;
        self.reaped = true;
        Ok(status)
    }

    /// Signals the whole group. That nobody is left to receive it is no failure.
    fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process_group(self.pid(), signal);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs `command` to its end with its output appended to `log`.
pub(crate) fn run_logged(
    command: &mut Command,
    log: &File,
    signals: Signals,
    heartbeat: impl FnMut(Duration),
) -> Result<ExitStatus> {
    command.stdout(log.try_clone()?).stderr(log.try_clone()?);
    run(command, signals, heartbeat)
}

/// Runs `command` to its end.
pub(crate) fn run(
    command: &mut Command,
    signals: Signals,
    heartbeat: impl FnMut(Duration),
) -> Result<ExitStatus> {
    Group::spawn(command)?.wait_for(signals, heartbeat)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::sync::mpsc;

    use super::*;

    /// A shell that says `up` once it has started a grandchild which shares its output.
    fn parent_and_child(script: &str) -> (Group, BufReader<std::process::ChildStdout>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let mut group = Group::spawn(&mut command).unwrap();
        let mut output = BufReader::new(group.child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        (group, output)
    }

    /// Whether every process that holds the other end of `output` is gone within 20 s.
    fn all_gone(mut output: impl Read + Send + 'static) -> bool {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = done.send(output.read_to_end(&mut rest).is_ok());
        });
        ended.recv_timeout(Duration::from_secs(20)).unwrap_or(false)
    }

    #[test]
    fn dropping_a_group_ends_the_grandchildren_too() {
        let (group, output) = parent_and_child("sleep 600 & echo up; wait");
        drop(group);
        assert!(all_gone(output));
    }

    #[test]
    fn a_group_that_ignores_term_is_killed() {
        let (mut group, output) = parent_and_child("trap '' TERM; sleep 600 & echo up; wait");
        group.grace = Duration::from_millis(100);
        drop(group);
        assert!(all_gone(output));
    }

    #[test]
    fn what_a_child_leaves_behind_ends_with_it() {
        let (mut group, output) = parent_and_child("sleep 600 & echo up; exit 7");
        assert_eq!(group.wait(|_| ()).unwrap().code(), Some(7));
        assert!(all_gone(output));
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let error = Group::spawn(&mut Command::new("no-such-command-here")).err().unwrap();
        assert_eq!(error.to_string(), "cannot start no-such-command-here");
    }
}
