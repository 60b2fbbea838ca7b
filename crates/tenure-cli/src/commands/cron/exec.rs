//! One run of a job's command, from its start until nothing of it is left.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Election, Time};
use tenure_cli::process::{self, Keeper, Running, Signal};
use tenure_core::Secret;
use tenure_cron::{Outcome, Run};

use super::super::guardians::Guardians;
use super::super::supervise::kill_at;
use super::options::CommandJob;
use crate::exit::Failure;
use crate::store::Opened;

/// How long a command that took too long has to wind up.
const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// What all runs share.
pub(super) struct Executor {
    guardians: Guardians,
    pub(super) election: Election,
    /// As it was given.
    pub(super) url: Secret,
}

impl Executor {
    pub(super) fn new(election: Election, url: Secret) -> Executor {
        Executor { guardians: Guardians::default(), election, url }
    }

    /// Has a guardian stand by, before the campaign.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn stand_by(&self, opened: &Opened) -> Result<(), Failure> {
        let bequest = opened.bequest(&self.election)?;
        Ok(self.guardians.stand_by(bequest).await?)
    }

    /// Runs the command for one tick.
    pub(super) async fn run(self: Arc<Executor>, job: Arc<CommandJob>, run: Run) -> Outcome {
        let leads = || run.tenure().is_leader();
        let keeper = match self.guardians.next().await {
            Ok(keeper) => keeper,
            Err(reason) => return not_begun(leads(), reason),
        };
        let keeper = &keeper;
        let deadline = kill_at(&self.election, run.tenure().trusted_until());
        if keeper.set_deadline(Some(deadline)).is_err() || !leads() {
            return not_begun(leads(), "the guardian is gone".to_owned());
        }
        match process::start(&job.command, self.environment(&run), keeper) {
            Ok(running) => {
                let watch = Watch::new(&self.election, &run, keeper, &running, job.timeout);
                watch.until_gone().await
            }
            Err(cannot) => {
                Outcome::Failed { code: i32::from(cannot.code()), reason: cannot.to_string() }
            }
        }
    }

    fn environment(&self, run: &Run) -> Vec<(&'static str, OsString)> {
        let words = [
            ("TENURE_ELECTION", run.election().to_string()),
            ("TENURE_CANDIDATE", run.candidate().to_string()),
            ("TENURE_TERM", run.term().to_string()),
            ("TENURE_STORE", self.url.expose().to_owned()),
            ("TENURE_JOB", run.job().to_owned()),
            ("TENURE_ATTEMPT", run.attempt().to_string()),
            ("TENURE_SCHEDULED_AT", run.scheduled_at()),
        ];
        words.map(|(name, value)| (name, value.into())).into()
    }
}

/// How a run ends that never began. Whoever does not lead any more did not fail: the next leader
/// decides about the tick.
fn not_begun(leads: bool, reason: String) -> Outcome {
    if leads { Outcome::Failed { code: 125, reason } } else { Outcome::Lost }
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
                signal = self.running.stopped() => {
                    let (job, pid) = (self.run.job(), self.running.pid());
                    tracing::warn!(job, pid, signal = signal.as_raw(), "the command was stopped");
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_never_began_has_failed_only_under_a_leader() {
        let failed = Outcome::Failed { code: 125, reason: "why".to_owned() };
        assert_eq!(not_begun(true, "why".to_owned()), failed);
        assert_eq!(not_begun(false, "why".to_owned()), Outcome::Lost);
    }
}
