//! One run of the command, from its start until nothing of it is left.

use std::pin::Pin;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Election, Error, Reason, Tenure, Time};
use tenure_cli::process::{Running, Signal};

use super::guard::Guard;
use crate::output::Output;
use crate::signals::{Signals, Told};

/// How long before trust ends KILL is sent at most. It has to arrive and to work.
const KILL_LEAD_MAX: Duration = Duration::from_millis(100);

/// After how long it is said that a killed command does not go away.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything of it is gone.
    Gone {
        /// The code of its main process.
        code: i32,
        /// Why it was told to stop, if leadership was lost.
        lost: Option<Reason>,
    },
    /// It was killed, and is still there though its lease has run out. Only when tenure is to end.
    Stuck,
}

/// Something asked of the election that is not done yet.
type Going = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// The wish to take no further part, once somebody has it.
#[derive(Default)]
pub(super) enum Stop {
    #[default]
    No,
    Going(Going),
    Done(Result<(), Error>),
}

impl Stop {
    /// Begins to stop; the future has to be awaited for it.
    pub(super) fn begin(&mut self, election: &Election) {
        if let Stop::No = self {
            let election = election.clone();
            *self = Stop::Going(Box::pin(async move { election.stop().await }));
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        !matches!(self, Stop::No)
    }

    /// Goes on stopping; returns once, when that is done.
    async fn progress(&mut self) {
        match self {
            Stop::Going(stop) => {
                let result = stop.await;
                *self = Stop::Done(result);
            }
            Stop::No | Stop::Done(_) => std::future::pending().await,
        }
    }

    /// Stops, or waits until that is done.
    pub(super) async fn finish(mut self, election: &Election) -> Result<(), Error> {
        self.begin(election);
        match self {
            Stop::Going(stop) => stop.await,
            Stop::Done(result) => result,
            Stop::No => Ok(()),
        }
    }
}

/// What watches over one run.
pub(super) struct Supervisor<'a> {
    pub(super) tenure: &'a Tenure,
    pub(super) election: &'a Election,
    pub(super) guard: &'a Guard,
    pub(super) running: &'a Running,
    pub(super) signals: &'a mut Signals,
    pub(super) stop: &'a mut Stop,
    pub(super) out: &'a Output,
    pub(super) state: State,
}

/// How far a run has come.
#[derive(Default)]
pub(super) struct State {
    killed_at: Option<Time>,
    lost: Option<Reason>,
    told_stuck: bool,
    told_bereft: bool,
    /// Gives leadership up for a command that does not go away.
    resigning: Option<Going>,
}

impl State {
    /// Goes on resigning; returns once, when there is no more to it.
    async fn resigned(&mut self) {
        match &mut self.resigning {
            Some(resigning) => {
                // What it says, `stuck` has said already.
                let _still_running = resigning.await;
                self.resigning = None;
            }
            None => std::future::pending().await,
        }
    }
}

impl Supervisor<'_> {
    /// Passes signals and deadlines on, tells the command to stop when leadership is lost, kills it
    /// when its time is over, and returns when nothing of it is left.
    pub(super) async fn until_gone(mut self) -> End {
        let mut until = self.tenure.trusted_until();
        loop {
            let alive = self.state.killed_at.is_none();
            let (kill_at, stuck_at) = (self.kill_at(until), self.stuck_at());
            tokio::select! {
                biased;
                code = self.running.gone() => {
                    // It may have been quicker than the news of its guardian's death.
                    if self.running.lost_its_guardian() {
                        self.tell_bereft();
                    }
                    return self.gone(code);
                }
                // What its main process left behind has been killed, and may not go away.
                _ = self.running.wait(), if alive => self.kill(),
                told = self.signals.next() => self.told(told),
                reason = self.tenure.lost(), if self.state.lost.is_none() => self.lost(reason),
                _ = self.tenure.ended(), if alive => self.kill(),
                moved = self.tenure.deadline_moved(until), if alive => {
                    until = moved;
                    // A guardian that can't be told would kill too late, or too early.
                    if !self.guard.set_deadline(self.kill_at(until)) {
                        self.kill();
                    }
                }
                () = self.guard.gone(), if alive => {
                    self.tell_bereft();
                    self.kill();
                }
                signal = self.running.stopped(), if alive => {
                    self.out.warn(&stopped_sentence(signal, self.running.pid()));
                }
                // The guardian does the same, unless somebody has stopped it.
                () = BootClock.sleep_until(kill_at), if alive => self.kill(),
                () = self.stop.progress() => {}
                () = self.state.resigned() => {}
                () = BootClock.sleep_until(stuck_at) => if self.stuck() {
                    return End::Stuck;
                },
            }
        }
    }

    /// When the command must be killed if the lease is not renewed.
    fn kill_at(&self, trusted_until: Time) -> Time {
        kill_at(self.election, trusted_until)
    }

    fn tell_bereft(&mut self) {
        if !std::mem::replace(&mut self.state.told_bereft, true) {
            self.out.warn("the guardian was killed, so the command is ended");
        }
    }

    fn told(&mut self, told: Told) {
        match told {
            // It may just have ended; then there is nobody to tell.
            Told::Pass(signal) => drop(self.running.signal_main(signal)),
            Told::End(_) if self.stop.has_begun() => self.kill(),
            Told::End(signal) => {
                self.stop.begin(self.election);
                self.signal_group(signal);
            }
        }
    }

    fn lost(&mut self, reason: Reason) {
        self.state.lost = Some(reason);
        // Whoever was told to end by a signal got that signal.
        if !self.stop.has_begun() {
            self.signal_group(Signal::TERM);
        }
    }

    fn signal_group(&self, signal: Signal) {
        // It may just have ended; then there is nobody to tell.
        let _ = self.running.signal_group(signal);
    }

    fn kill(&mut self) {
        self.running.kill();
        self.state.killed_at.get_or_insert_with(BootClock::time);
    }

    fn gone(&self, code: i32) -> End {
        let by_kill = code == 128 + Signal::KILL.as_raw();
        // If tenure itself was frozen, the guardian was faster than the news.
        let unseen = by_kill && !self.stop.has_begun() && !self.tenure.is_leader();
        let told_to_end = self.stop.has_begun() && self.state.lost == Some(Reason::Resigned);
        let lost = self.state.lost.filter(|_| !told_to_end);
        End::Gone { code, lost: lost.or(unseen.then_some(Reason::NotRenewed)) }
    }

    fn stuck_at(&self) -> Time {
        let ttl = self.election.timing().ttl;
        match self.state.killed_at {
            Some(at) if !self.state.told_stuck => at + STUCK_AFTER,
            // By then the lease has run out, and nothing is left to wait for.
            Some(at) if self.stop.has_begun() => at + STUCK_AFTER.max(ttl),
            _ => Time::MAX,
        }
    }

    /// Says once that the command does not go away; true if tenure is to go without it.
    fn stuck(&mut self) -> bool {
        if self.state.told_stuck {
            return true;
        }
        self.state.told_stuck = true;
        if self.state.lost.is_none() && !self.stop.has_begun() {
            // No lease is kept for what can't be ended. It is not given back either: the tenure
            // is held until nothing of the command is left.
            let election = self.election.clone();
            self.state.resigning = Some(Box::pin(async move { election.resign().await }));
        }
        self.out.error(&format!(
            "the command was killed and is still there (process {}, or what it started); its lease \
             is left to run out",
            self.running.pid()
        ));
        false
    }
}

/// What people are told about a command that was stopped.
pub(super) fn stopped_sentence(signal: Signal, pid: u32) -> String {
    let why = match signal {
        Signal::TTIN => "SIGTTIN: it reads from the terminal, which a command of tenure can't",
        Signal::TTOU => "SIGTTOU: it changes the terminal, which a command of tenure can't",
        Signal::TSTP => "SIGTSTP",
        _ => "SIGSTOP",
    };
    format!(
        "the command was stopped ({why}) and does nothing while it leads; `kill -CONT {pid}` lets \
         it go on"
    )
}

/// A little before trust ends: KILL is sent then.
pub(super) fn kill_at(election: &Election, trusted_until: Time) -> Time {
    trusted_until - KILL_LEAD_MAX.min(election.timing().drain / 4)
}
