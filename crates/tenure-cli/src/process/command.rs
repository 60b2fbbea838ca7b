//! The command: its start, its signals and its end.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tenure::{BootClock, Clock as _};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use super::cgroup::Cgroup;
use super::exec::{self, Part};
use super::group::Group;
use super::guardian_handle::GuardianHandle;
use super::guardian_pipe::{self, Order, Report};
use super::reaper;

/// How often a killed group is looked at: soon at first, for the usual end takes no time.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(100);

/// Has the guardian start `argv` in its process group, with `envs` added to tenure's environment.
///
/// Stdout and stderr are tenure's; so is stdin, unless it is a terminal: then it is `/dev/null`,
/// because a background group that reads from a terminal is stopped. Returns once the command has
/// been executed. Set a deadline before: until there is one, a frozen tenure is not noticed.
///
/// # Errors
/// The command could not be started. The guardian is used up, as it is after a run.
///
/// # Panics
/// Outside of a tokio runtime with its I/O driver on.
pub fn start<I, K, V>(
    argv: &[OsString],
    envs: I,
    guardian: &GuardianHandle,
) -> Result<Running, CannotStart>
where
    I: IntoIterator<Item = (K, V)>,
    K: AsRef<OsStr>,
    V: AsRef<OsStr>,
{
    match stdin_of_command() {
        Ok(stdin) => start_with(argv, envs, guardian, stdin),
        Err(error) => {
            guardian.group.kill();
            Err(CannotStart::from(error))
        }
    }
}

/// Starts `argv` as [`start`] does, with this as its stdin.
///
/// # Errors
/// As for [`start`].
///
/// # Panics
/// As for [`start`].
pub fn start_with<I, K, V>(
    argv: &[OsString],
    envs: I,
    guardian: &GuardianHandle,
    stdin: OwnedFd,
) -> Result<Running, CannotStart>
where
    I: IntoIterator<Item = (K, V)>,
    K: AsRef<OsStr>,
    V: AsRef<OsStr>,
{
    let Some(program) = argv.first() else {
        return Err(CannotStart { code: 125, message: "there is no command to run".into() });
    };
    let group = &guardian.group;
    let part = Part::new(argv, exec::flat(envs));
    let started =
        launch(group, &part, &stdin).map_err(CannotStart::from).and_then(|launched| match launched
            .refused
        {
            Some(errno) => Err(CannotStart::refused(program, errno)),
            None => Ok(launched.running),
        });
    if started.is_err() {
        group.kill();
    }
    started
}

struct Launched {
    running: Running,
    /// Why the trampoline could not become the command.
    refused: Option<Errno>,
}

fn launch(group: &Arc<Group>, part: &Part, stdin: &OwnedFd) -> io::Result<Launched> {
    let (part, directory) = (part.write()?, File::open(".")?);
    // Held throughout, so that nobody kills the group, and thinks that was all, while we add to it.
    let mut state = group.lock();
    let (ours, theirs) = guardian_pipe::pair()?;
    group.start(&mut state, theirs)?;
    // From here on a failure is cleaned up by killing.
    let (pid, pidfd) = match &state.main {
        Some(main) => (main.pid, main.pidfd.try_clone()?),
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    let cgroup = match Cgroup::create() {
        Ok(cgroup) => Some(&*state.cgroup.insert(cgroup)),
        Err(error) => {
            tracing::debug!(%error, "no cgroup for the command, its guardian must do");
            None
        }
    };
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let (stdout, stderr) = (stdout.as_fd(), stderr.as_fd());
    let mut handed = vec![stdin.as_fd(), stdout, stderr, directory.as_fd(), part.as_fd()];
    if let Some(cgroup) = cgroup {
        // The guardian first. If it has died, the command must not begin.
        Order::Cgroup(&cgroup.kill).send(group.link())?;
        handed.push(cgroup.procs.as_fd());
    }
    // An end of the stream here is a trampoline that died; the wait for it will say how.
    let _ = guardian_pipe::hand_over(&ours, &handed);
    let mut confined = cgroup.is_some();
    let mut refused = None;
    while let Some(report) = Report::receive(&ours)? {
        match report {
            Report::Unconfined(errno) => {
                confined = false;
                let error = Errno::from_raw_os_error(errno);
                tracing::debug!(%error, "the command can't join its cgroup");
            }
            Report::NotExecuted(errno) => refused = Some(Errno::from_raw_os_error(errno)),
        }
    }
    drop(state);
    let running = Running { group: Arc::clone(group), pid, main: pidfd, confined };
    Ok(Launched { running, refused })
}

fn stdin_of_command() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(OpenOptions::new().read(true).open("/dev/null")?.into());
    }
    stdin.as_fd().try_clone_to_owned()
}

/// Why a command could not be started, with the exit code that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CannotStart {
    code: u8,
    message: String,
}

impl CannotStart {
    /// 127: not found. 126: found, but it can't be executed. 125: tenure itself failed.
    pub fn code(&self) -> u8 {
        self.code
    }

    fn refused(program: &OsStr, errno: Errno) -> CannotStart {
        let program = program.display();
        if errno == Errno::NOENT {
            return CannotStart { code: 127, message: format!("command not found: {program}") };
        }
        CannotStart { code: 126, message: format!("can't execute {program}: {errno}") }
    }
}

impl From<io::Error> for CannotStart {
    /// By us, and not by the command.
    fn from(error: io::Error) -> CannotStart {
        CannotStart { code: 125, message: format!("can't start a process: {error}") }
    }
}

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CannotStart {}

/// A command that was started. Dropping it kills the group, as dropping its [`GuardianHandle`]
/// does.
pub struct Running {
    group: Arc<Group>,
    pid: Pid,
    main: OwnedFd,
    confined: bool,
}

impl Running {
    /// The pid of the main process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Whether the command has a cgroup of its own, so that nothing can escape the kill.
    pub fn is_confined(&self) -> bool {
        self.confined
    }

    /// Sends a signal to the main process alone.
    ///
    /// # Errors
    /// It has ended, or became another user's.
    pub fn signal_main(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.main, signal)?)
    }

    /// Sends a signal that asks to end to the main process alone, and then CONT, so that it gets it
    /// though it was stopped.
    ///
    /// # Errors
    /// As for [`Running::signal_main`].
    pub fn end_main(&self, signal: Signal) -> io::Result<()> {
        self.signal_main(signal)?;
        self.signal_main(Signal::CONT)
    }

    /// Sends a signal to every process of the group, and then CONT, so that those that were
    /// stopped get it too. The guardian blocks every signal but KILL and STOP.
    ///
    /// # Errors
    /// The group was killed before.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        self.group.signal(signal)?;
        if ![Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU].contains(&signal) {
            self.group.signal(Signal::CONT)?;
        }
        Ok(())
    }

    /// Sends KILL to the main process and the cgroup, and has the guardian kill all the rest.
    ///
    /// [`Running::gone`] says when it has worked. Doing it again does nothing.
    pub fn kill(&self) {
        self.group.kill();
    }

    /// Waits for the main process: its exit code, or 128 plus the number of its signal.
    ///
    /// Whatever it leaves behind is killed then: it would go on working without a leader.
    ///
    /// # Cancel safety
    /// Cancel safe: the code is kept, and every call returns the same one.
    pub async fn wait(&self) -> i32 {
        let mut children = signal(SignalKind::child()).ok();
        let mut pause = LOOK_FIRST;
        loop {
            reaper::reap_strays();
            if let Some(code) = self.group.code() {
                self.kill();
                return code;
            }
            if self.group.is_guardian_dead() {
                // The main process is ours now.
                self.group.end_without_guardian();
                let _ = tokio::time::timeout(pause, next(&mut children)).await;
                pause = LOOK_LAST.min(pause * 2);
                continue;
            }
            tokio::select! {
                () = self.group.news() => {}
                () = self.group.guardian_dies() => {}
            }
        }
    }

    /// Resolves when the main process was stopped by a signal, once for each time. It then does
    /// nothing while it leads.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is consumed before it resolves.
    pub async fn stopped(&self) -> Signal {
        loop {
            if let Some(signal) = self.group.stopped().and_then(Signal::from_named_raw) {
                return signal;
            }
            self.group.news().await;
        }
    }

    /// Waits for the main process like [`Running::wait`], and then until it is proven that nothing
    /// of what it has started is left (D1). Only then may the lease be released.
    ///
    /// It can take as long as a process is stuck in the kernel; the caller bounds it.
    ///
    /// # Cancel safety
    /// Cancel safe: it can be called again and goes on where it was.
    pub async fn gone(&self) -> i32 {
        let code = self.wait().await;
        let mut pause = LOOK_FIRST;
        loop {
            reaper::reap_strays();
            if self.group.is_gone() {
                return code;
            }
            if self.group.is_guardian_dead() {
                BootClock.sleep_until(BootClock::time() + pause).await;
            } else {
                let _ = tokio::time::timeout(pause, self.group.guardian_dies()).await;
            }
            pause = LOOK_LAST.min(pause * 2);
        }
    }

    /// Kills the command and waits up to 200 ms for its end; true if it is proven that nothing is
    /// left. For those who can't await [`Running::gone`].
    pub fn end(&self) -> bool {
        self.group.end()
    }

    /// Whether the guardian was killed by somebody else while the command ran, which ended it.
    pub fn lost_its_guardian(&self) -> bool {
        self.group.lost_its_guardian()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.end();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("Running");
        parts.field("pid", &self.pid()).field("confined", &self.confined).finish_non_exhaustive()
    }
}

/// The next SIGCHLD; never, if there is no telling.
async fn next(children: &mut Option<Signals>) {
    let told = match children {
        Some(children) => children.recv().await,
        None => None,
    };
    if told.is_none() {
        std::future::pending().await
    }
}
