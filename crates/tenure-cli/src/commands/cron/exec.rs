//! One run of a job's command, from its start until nothing of it is left.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Election, Time};
use tenure_cli::process::{self, Keeper, Running, Signal};
use tenure_cron::{Outcome, Run};
use tokio::sync::Mutex;

use super::super::pause;
use super::super::supervise::kill_at;
use super::options::CommandJob;
use crate::store::Opened;

/// How long a command that took too long has to wind up.
const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// How often the store is told again of a guardian, after it could not be.
const TELL_AGAIN: Duration = Duration::from_millis(100);

/// What all runs share.
pub(super) struct Executor {
    pub(super) opened: Opened,
    pub(super) election: Election,
    /// As it was given.
    pub(super) url: String,
    /// How many commands are alive. While more than one is, nobody could vouch for all of them.
    alive: Mutex<usize>,
}

impl Executor {
    pub(super) fn new(opened: Opened, election: Election, url: String) -> Executor {
        Executor { opened, election, url, alive: Mutex::new(0) }
    }

    /// Runs the command for one tick.
    pub(super) async fn run(self: Arc<Executor>, job: Arc<CommandJob>, run: Run) -> Outcome {
        let keeper = match self.guard(&run).await {
            Ok(keeper) => keeper,
            Err(reason) => return Outcome::Failed { code: 125, reason },
        };
        let _alive = Alive(self.clone());
        let deadline = kill_at(&self.election, run.tenure().trusted_until());
        if keeper.set_deadline(Some(deadline)).is_err() || !run.tenure().is_leader() {
            return Outcome::Lost;
        }
        match process::start(&job.command, self.environment(&run), &keeper) {
            Ok(running) => {
                let watch = Watch::new(&self.election, &run, &keeper, &running, job.timeout);
                watch.until_gone().await
            }
            Err(cannot) => {
                Outcome::Failed { code: i32::from(cannot.code()), reason: cannot.to_string() }
            }
        }
    }

    /// A guardian that the store knows of, before the command starts (G1). The store knows one
    /// guardian and its group; of several commands at once it is told that nobody can prove them
    /// dead, so that a successor waits for the lease to run out.
    async fn guard(&self, run: &Run) -> Result<Keeper, String> {
        let keeper =
            Keeper::spawn().map_err(|error| format!("the guardian can't be started: {error}"))?;
        let mut alive = self.alive.lock().await;
        loop {
            let told = match *alive {
                0 => self.opened.attest(&keeper).await,
                _ => self.opened.attest_nobody().await,
            };
            match told {
                Ok(()) => break,
                Err(error) if error.is_retryable() && run.tenure().is_leader() => {
                    pause(TELL_AGAIN).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        *alive += 1;
        Ok(keeper)
    }

    fn environment(&self, run: &Run) -> Vec<(&'static str, OsString)> {
        let words = [
            ("TENURE_ELECTION", run.election().to_string()),
            ("TENURE_CANDIDATE", run.candidate().to_string()),
            ("TENURE_TERM", run.term().to_string()),
            ("TENURE_STORE", self.url.clone()),
            ("TENURE_JOB", run.job().to_owned()),
            ("TENURE_ATTEMPT", run.attempt().to_string()),
            ("TENURE_SCHEDULED_AT", run.scheduled_at()),
        ];
        words.map(|(name, value)| (name, value.into())).into()
    }
}

/// Counts a command out when its run is over, however it ends.
struct Alive(Arc<Executor>);

impl Drop for Alive {
    fn drop(&mut self) {
        // A guard that is being told of holds the lock; then the count stays too high, which
        // costs a successor the wait and nothing else.
        if let Ok(mut alive) = self.0.alive.try_lock() {
            *alive = alive.saturating_sub(1);
        } else {
            let executor = self.0.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    let mut alive = executor.alive.lock().await;
                    *alive = alive.saturating_sub(1);
                });
            }
        }
    }
}

/// Watches over one command.
struct Watch<'a> {
    election: &'a Election,
    run: &'a Run,
    keeper: &'a Keeper,
    running: &'a Running,
    /// When the next thing is to be done about a command that takes too long.
    time_out: Option<Time>,
    timed_out: bool,
    lost: bool,
    killed: bool,
}

impl<'a> Watch<'a> {
    fn new(
        election: &'a Election,
        run: &'a Run,
        keeper: &'a Keeper,
        running: &'a Running,
        timeout: Option<Duration>,
    ) -> Watch<'a> {
        let time_out = timeout.map(|timeout| BootClock::time() + timeout);
        let (timed_out, lost, killed) = (false, false, false);
        Watch { election, run, keeper, running, time_out, timed_out, lost, killed }
    }

    /// Passes deadlines on, tells the command to stop when leadership or its time is over, kills
    /// it if it does not, and returns when nothing of it is left.
    async fn until_gone(mut self) -> Outcome {
        let tenure = self.run.tenure();
        let mut until = tenure.trusted_until();
        loop {
            let alive = !self.killed;
            let kill = kill_at(self.election, until);
            let time_out = self.time_out.unwrap_or(Time::MAX);
            tokio::select! {
                biased;
                code = self.running.gone() => return self.outcome(code),
                _ = tenure.lost(), if !self.lost => {
                    self.lost = true;
                    // It may just have ended; then there is nobody to tell.
                    let _ = self.running.signal_group(Signal::TERM);
                }
                _ = tenure.ended(), if alive => self.kill(),
                moved = tenure.deadline_moved(until), if alive => {
                    until = moved;
                    // A guardian that can't be told would kill too late, or too early.
                    let deadline = kill_at(self.election, until);
                    if self.keeper.set_deadline(Some(deadline)).is_err() {
                        self.kill();
                    }
                }
                () = self.keeper.gone(), if alive => self.kill(),
                () = BootClock.sleep_until(kill), if alive => self.kill(),
                () = BootClock.sleep_until(time_out), if alive => self.takes_too_long(),
            }
        }
    }

    fn takes_too_long(&mut self) {
        if self.timed_out {
            return self.kill();
        }
        self.timed_out = true;
        self.time_out = Some(BootClock::time() + TIMEOUT_GRACE);
        let _ = self.running.signal_group(Signal::TERM);
    }

    fn kill(&mut self) {
        self.killed = true;
        self.running.kill();
    }

    fn outcome(&self, code: i32) -> Outcome {
        // If tenure itself was frozen, the guardian was faster than the news.
        let unseen = code == 128 + Signal::KILL.as_raw() && !self.run.tenure().is_leader();
        match code {
            _ if self.timed_out => Outcome::TimedOut,
            0 => Outcome::Ok,
            _ if self.lost || unseen => Outcome::Lost,
            code => Outcome::Failed { code, reason: String::new() },
        }
    }
}
