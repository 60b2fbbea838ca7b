//! One command under one reign: the loop that `run`, `once`, `cron` and `listen` share.
//!
//! | what happens | `run`, `once` | `cron` | `listen` |
//! |---|---|---|---|
//! | the command ends | its rest is killed; then the end | the same | the same |
//! | leadership is lost | TERM, or what was chosen | the same | it may finish |
//! | trust or the drain ends | KILL | KILL | KILL |
//! | first signal to tenure | that signal, or what was chosen | the same | it may finish |
//! | second signal to tenure | KILL | KILL | KILL |
//! | it is not wanted any more | - | KILL | KILL |
//! | it takes too long | - | TERM, KILL 5 s later | TERM, KILL 5 s later |
//! | it is stopped (SIGSTOP, SIGTTIN, ...) | said | said | said |
//! | its guardian is killed | said, KILL | said, KILL | said, KILL |
//! | killed, and still there after 2 s | said; resigns | said | said |
//! | the same when tenure is to end | left after a ttl | left after a ttl | left after a ttl |
//!
//! The columns differ by [`Policy`] alone. `listen` lets a command finish within the drain, because
//! a message that is handled to its end does not come again. `run` and `once` resign for a command
//! that can't be killed, because it is all their work; `cron` and `listen` have other work to lead
//! for.
//!
//! # Guarantees
//! It ends with [`End::Gone`] only when it is proven that nothing of the command is left (D1).
//! Until then the caller must keep the [`Tenure`], and after [`End::Stuck`] for ever. So the lease
//! is not given back while somebody may still work under it. It runs out instead.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{BootClock, Clock as _, Election, Reason, Tenure, Time, Timing};
use tokio::sync::watch;

use super::command::{CannotStart, Running, start, start_with};
use super::guardian_handle::GuardianHandle;

/// How long before trust ends KILL is sent at most. It has to arrive and to work.
const KILL_LEAD_MAX: Duration = Duration::from_millis(100);

/// After how long it is said that a killed command does not go away.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// How long a command that took too long has to wind up.
const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// What the commands of tenure differ in.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What a command is told when leadership is lost, or tenure is to end.
    pub on_loss: OnLoss,
    /// How long it may take, if there is a limit.
    pub timeout: Option<Duration>,
    /// What is done about one that was killed and does not go away.
    pub stuck: OnStuck,
    /// How it is told to end.
    pub stop: StopBy,
}

/// How a command is told to end. All of it that does not end in time is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopBy {
    /// The signal; `None`: the one that tenure got, or TERM.
    pub signal: Option<Signal>,
    /// Its main process alone gets it, and sees to the rest itself.
    pub main_only: bool,
}

/// What a command is told when leadership is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// To end: by TERM, or by the signal that tenure got.
    Signal,
    /// Nothing: it may finish until the drain is over.
    LetFinish,
}

/// What is done about a command that was killed and does not go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStuck {
    /// Leadership is given up: the command is all the work there is.
    Resign,
    /// It is waited for: there is other work to lead for.
    Wait,
}

/// What is wanted of the commands of this process. It only ever goes on to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// They are to run.
    #[default]
    Run,
    /// Tenure got this signal and is to end, and they with it.
    End(Signal),
    /// They are to end now.
    Kill,
}

impl Wish {
    /// What is wanted once tenure got another signal that asks to end.
    #[must_use]
    pub fn after(self, signal: Signal) -> Wish {
        match self {
            Wish::Run => Wish::End(signal),
            Wish::End(_) | Wish::Kill => Wish::Kill,
        }
    }
}

/// Something that people should know about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A signal has stopped it.
    Stopped {
        /// The signal.
        signal: Signal,
        /// Its main process.
        pid: u32,
    },
    /// Its guardian was killed.
    GuardianKilled,
    /// It was killed and is still there.
    Stuck {
        /// Its main process.
        pid: u32,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Stopped { signal, pid } => {
                let why = match *signal {
                    Signal::TTIN => {
                        "SIGTTIN: it reads from the terminal, which a command of tenure can't"
                    }
                    Signal::TTOU => {
                        "SIGTTOU: it changes the terminal, which a command of tenure can't"
                    }
                    Signal::TSTP => "SIGTSTP",
                    _ => "SIGSTOP",
                };
                write!(
                    f,
                    "the command was stopped ({why}) and does nothing while it leads; `kill -CONT \
                     {pid}` lets it go on"
                )
            }
            Notice::GuardianKilled => {
                f.write_str("the guardian was killed, so the command is ended")
            }
            Notice::Stuck { pid } => write!(
                f,
                "the command was killed and is still there (process {pid}, or what it started); \
                 its lease is not given back before it is gone"
            ),
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything of it is gone.
    Gone {
        /// The code of its main process.
        code: i32,
        /// Why leadership was lost, if it was, or is about to be because tenure is to end.
        lost: Option<Reason>,
        /// It took too long, and was told to end.
        timed_out: bool,
    },
    /// It was killed, and is still there though its lease has run out. Only when tenure is to end.
    Stuck,
}

/// Starts a command for a reign; `None` if that is lost already, or the guardian is gone. Without a
/// stdin of its own the command gets tenure's, as [`start`] says.
///
/// # Errors
/// It could not be started.
///
/// # Panics
/// Outside of a tokio runtime with its I/O driver on.
pub fn start_under(
    tenure: &Tenure,
    timing: &Timing,
    guardian: &GuardianHandle,
    argv: &[OsString],
    envs: Vec<(&'static str, String)>,
    stdin: Option<OwnedFd>,
) -> Result<Option<Running>, CannotStart> {
    // The guardian first: whatever happens from here on, it knows when to kill.
    let kill_at = kill_at(timing, tenure.trusted_until());
    if guardian.set_deadline(Some(kill_at)).is_err() || !tenure.is_leader() {
        return Ok(None);
    }
    match stdin {
        Some(stdin) => start_with(argv, envs, guardian, stdin).map(Some),
        None => start(argv, envs, guardian).map(Some),
    }
}

/// What watches over one command.
pub struct Supervisor<'a> {
    /// The reign that the command works for.
    pub tenure: &'a Tenure,
    /// Its election.
    pub election: &'a Election,
    /// The guardian of this command.
    pub guardian: &'a GuardianHandle,
    /// What is wanted of all commands.
    pub wish: watch::Receiver<Wish>,
    /// What is done when.
    pub policy: Policy,
    /// Told what people should know.
    pub tell: &'a (dyn Fn(Notice) + Send + Sync),
}

impl Supervisor<'_> {
    /// Passes deadlines on, tells the command to stop when it should, kills it when its time is
    /// over or when `dropped` resolves, and returns when nothing of it is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, nobody watches over the command any more but its
    /// guardian. The caller ends it then.
    pub async fn until_gone(self, running: &Running, dropped: impl Future<Output = ()>) -> End {
        let watch = Watch {
            until: self.tenure.trusted_until(),
            time_out: self.policy.timeout.map(|timeout| BootClock::time() + timeout),
            supervisor: self,
            running,
            killed_at: None,
            lost: None,
            timed_out: false,
            told_to_end: false,
            told_stuck: false,
            told_guardian: false,
        };
        watch.until_gone(dropped).await
    }
}

/// How far a command has come.
struct Watch<'a> {
    supervisor: Supervisor<'a>,
    running: &'a Running,
    /// When trust ends, as the guardian was told.
    until: Time,
    /// When the next thing is to be done about a command that takes too long.
    time_out: Option<Time>,
    killed_at: Option<Time>,
    lost: Option<Reason>,
    timed_out: bool,
    /// It got a signal that asks to end.
    told_to_end: bool,
    told_stuck: bool,
    told_guardian: bool,
}

impl Watch<'_> {
    async fn until_gone(mut self, dropped: impl Future<Output = ()>) -> End {
        let (tenure, guardian) = (self.supervisor.tenure, self.supervisor.guardian);
        let (election, running) = (self.supervisor.election.clone(), self.running);
        let mut wish = self.supervisor.wish.clone();
        wish.mark_changed();
        // Gives leadership up for a command that does not go away. What it says was said already.
        let (mut resigning, mut resigns) = (pin!(election.resign()), false);
        let (mut dropped, mut is_dropped) = (pin!(dropped), false);
        loop {
            let alive = self.killed_at.is_none();
            let (kill_at, time_out) = (self.kill_at(), self.time_out.unwrap_or(Time::MAX));
            let stuck_at = self.stuck_at();
            tokio::select! {
                biased;
                code = running.gone() => return self.gone(code),
                // What its main process left behind has been killed, and may not go away.
                _ = running.wait(), if alive => self.kill(),
                Ok(()) = wish.changed() => self.wished(*wish.borrow_and_update()),
                () = &mut dropped, if !is_dropped => {
                    is_dropped = true;
                    self.kill();
                }
                reason = tenure.lost(), if self.lost.is_none() => self.lost(reason),
                _ = tenure.ended(), if alive => self.kill(),
                moved = tenure.deadline_moved(self.until), if alive => self.moved(moved),
                () = guardian.gone(), if alive => {
                    self.tell_guardian();
                    self.kill();
                }
                signal = running.stopped(), if alive => {
                    (self.supervisor.tell)(Notice::Stopped { signal, pid: running.pid() });
                }
                // The guardian does the same, unless somebody has stopped it.
                () = BootClock.sleep_until(kill_at), if alive => self.kill(),
                () = BootClock.sleep_until(time_out), if alive => self.takes_too_long(),
                _ = &mut resigning, if resigns => resigns = false,
                () = BootClock.sleep_until(stuck_at) => match self.stuck() {
                    Stuck::Leave => return End::Stuck,
                    Stuck::Resign => resigns = true,
                    Stuck::Wait => {}
                },
            }
        }
    }

    /// When the command must be killed if the lease is not renewed.
    fn kill_at(&self) -> Time {
        kill_at(self.supervisor.election.timing(), self.until)
    }

    fn moved(&mut self, until: Time) {
        self.until = until;
        // A guardian that can't be told would kill too late, or too early.
        if self.supervisor.guardian.set_deadline(Some(self.kill_at())).is_err() {
            self.kill();
        }
    }

    fn wished(&mut self, wish: Wish) {
        match wish {
            Wish::Run => {}
            Wish::End(signal) => self.tell_to_end(signal),
            Wish::Kill => self.kill(),
        }
    }

    fn lost(&mut self, reason: Reason) {
        self.lost = Some(reason);
        self.tell_to_end(Signal::TERM);
    }

    /// Tells it once, if it is to be told.
    fn tell_to_end(&mut self, signal: Signal) {
        let is_to_be_told = self.supervisor.policy.on_loss == OnLoss::Signal && !self.told_to_end;
        if is_to_be_told {
            self.signal_to_end(signal);
        }
    }

    fn signal_to_end(&mut self, signal: Signal) {
        self.told_to_end = true;
        let StopBy { signal: chosen, main_only } = self.supervisor.policy.stop;
        let signal = chosen.unwrap_or(signal);
        // It may just have ended; then there is nobody to tell.
        let _ended = match main_only {
            true => self.running.end_main(signal),
            false => self.running.signal_group(signal),
        };
    }

    fn takes_too_long(&mut self) {
        if self.timed_out {
            return self.kill();
        }
        self.timed_out = true;
        self.time_out = Some(BootClock::time() + TIMEOUT_GRACE);
        self.signal_to_end(Signal::TERM);
    }

    fn kill(&mut self) {
        self.running.kill();
        self.killed_at.get_or_insert_with(BootClock::time);
    }

    fn tell_guardian(&mut self) {
        if !std::mem::replace(&mut self.told_guardian, true) {
            (self.supervisor.tell)(Notice::GuardianKilled);
        }
    }

    fn is_to_end(&self) -> bool {
        *self.supervisor.wish.borrow() != Wish::Run
    }

    fn gone(mut self, code: i32) -> End {
        // It may have been quicker than the news of its guardian's death.
        if self.running.lost_its_guardian() {
            self.tell_guardian();
        }
        // If tenure itself was frozen, the guardian was faster than the news.
        let by_kill = code == 128 + Signal::KILL.as_raw();
        let unseen = by_kill && !self.supervisor.tenure.is_leader();
        let lost = self.lost.or(match self.is_to_end() {
            // It was told to end, and was faster than the news that leadership is given up.
            true => (unseen || self.told_to_end).then_some(Reason::Resigned),
            false => unseen.then_some(Reason::NotRenewed),
        });
        End::Gone { code, lost, timed_out: self.timed_out }
    }

    fn stuck_at(&self) -> Time {
        let ttl = self.supervisor.election.timing().ttl;
        match self.killed_at {
            Some(at) if !self.told_stuck => at + STUCK_AFTER,
            // By then the lease has run out, and nothing is left to wait for.
            Some(at) if self.is_to_end() => at + STUCK_AFTER.max(ttl),
            _ => Time::MAX,
        }
    }

    /// Says once that the command does not go away.
    fn stuck(&mut self) -> Stuck {
        if self.told_stuck {
            return Stuck::Leave;
        }
        self.told_stuck = true;
        (self.supervisor.tell)(Notice::Stuck { pid: self.running.pid() });
        let leads = self.lost.is_none() && !self.is_to_end();
        match self.supervisor.policy.stuck {
            // No lease is kept for what can't be ended. It is not given back either: the tenure is
            // held until nothing of the command is left.
            OnStuck::Resign if leads => Stuck::Resign,
            _ => Stuck::Wait,
        }
    }
}

/// What comes next for a command that does not go away.
enum Stuck {
    Wait,
    Resign,
    Leave,
}

/// A little before trust ends: KILL is sent then.
fn kill_at(timing: &Timing, trusted_until: Time) -> Time {
    trusted_until - KILL_LEAD_MAX.min(timing.drain / 4)
}
