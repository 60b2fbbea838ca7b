//! `tenure run`: a command that runs only while this instance leads.

use std::time::Duration;

use ::metrics::Counter;
use tenure::{BootClock, Clock as _, Reason, Tenure, Time};

use super::not_waited_for;
use super::runner::Runner;
use super::serve::metrics;
use crate::args::OnExit;
use crate::exit::{Exit, Failure};
use crate::options::RunOptions;
use crate::output::{self, Output};
use crate::process::{End, Signal};
use crate::store::StoreChoice;

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// A command that ran this long was well.
const GOOD_RUN: Duration = BACKOFF_MAX;

/// Runs the command, for as long as it takes.
pub(crate) async fn run(
    options: &RunOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let patience = options.wait.map(|wait| BootClock::time() + wait);
    let (command, store) = ((&options.command[..], options.stop), (choice, options.wait));
    let observe = options.observe.as_ref();
    let runner = match Runner::open(&options.candidacy, command, store, observe, out).await? {
        Ok(runner) => runner,
        Err(exit) => return Ok(exit),
    };
    let narration = runner.narrate();
    let (backoff, not_before) = (BACKOFF_MIN, Time::ZERO);
    let failures = metrics::command_failures(runner.election.name());
    let mut reigns = Reigns { options, runner, runs: 0, failures, backoff, not_before, patience };
    let exit = reigns.campaign().await;
    reigns.runner.withdraw().await;
    narration.finish().await;
    exit
}

/// One reign after the other, and the command in each.
struct Reigns<'a> {
    options: &'a RunOptions,
    runner: Runner<'a>,
    /// How often the command was started.
    runs: u64,
    /// How often it failed by itself.
    failures: Counter,
    backoff: Duration,
    not_before: Time,
    /// Until when the first turn to lead is waited for, unless for as long as it takes.
    patience: Option<Time>,
}

/// What comes after a reign.
enum Next {
    Campaign,
    Exit(Exit),
}

impl Reigns<'_> {
    async fn campaign(&mut self) -> Result<Exit, Failure> {
        self.runner.stand_by()?;
        tokio::select! {
            signal = self.runner.signals.end() => return Ok(Exit::by_signal(signal)),
            started = self.runner.election.start() => started?,
        }
        loop {
            let tenure = match self.wait_to_lead().await? {
                Ok(tenure) => tenure,
                Err(Some(signal)) => return Ok(Exit::by_signal(signal)),
                Err(None) => return not_waited_for(&self.runner.election, self.runner.out).await,
            };
            self.patience = None;
            if let Next::Exit(exit) = self.reign(tenure).await? {
                return Ok(exit);
            }
        }
    }

    /// Waits for a reign, with a guardian at hand; or for a signal that asks to end, or the end of
    /// its patience.
    async fn wait_to_lead(&mut self) -> Result<Result<Tenure, Option<Signal>>, Failure> {
        let patience = self.patience.unwrap_or(Time::MAX);
        loop {
            self.runner.stand_by()?;
            let Runner { signals, election, guardians, .. } = &mut self.runner;
            tokio::select! {
                biased;
                signal = signals.end() => return Ok(Err(Some(signal))),
                () = guardians.gone() => {}
                tenure = election.campaign() => return Ok(Ok(tenure?)),
                () = BootClock.sleep_until(patience) => return Ok(Err(None)),
            }
        }
    }

    /// Runs the command, again if need be, until the reign or the wish for it is over. The tenure
    /// is dropped, and so the lease released, only when nothing of the command is left.
    async fn reign(&mut self, tenure: Tenure) -> Result<Next, Failure> {
        loop {
            if let Some(next) = self.until_start(&tenure).await? {
                return Ok(next);
            }
            let started = match self.runner.start(&tenure, []) {
                Ok(Some(started)) => started,
                Ok(None) => return Ok(Next::Campaign),
                Err(cannot) => {
                    self.runner.out.error(&cannot.to_string());
                    return Ok(Next::Exit(Exit(cannot.code())));
                }
            };
            self.runs += 1;
            self.runner.say_started(&tenure, if self.runs > 1 { " again" } else { "" });
            let began = BootClock::time();
            let End::Gone { code, lost, .. } = self.runner.supervise(&tenure, &started).await
            else {
                // Somebody may still work under this term. It must not be given back.
                std::mem::forget(tenure);
                return Ok(Next::Exit(Exit::FAILED));
            };
            drop(started);
            // An orderly end that was asked for is no loss.
            let told_to_end = self.runner.is_to_end() && lost == Some(Reason::Resigned);
            let lost = lost.is_some() && !told_to_end;
            if let Some(next) = self.after(code, lost, BootClock::time() - began) {
                return Ok(next);
            }
        }
    }

    /// Waits until the command may be started; tells what else is to be done if it may not.
    async fn until_start(&mut self, tenure: &Tenure) -> Result<Option<Next>, Failure> {
        // For a kill of this process while it waits.
        self.runner.stand_by()?;
        tokio::select! {
            biased;
            signal = self.runner.signals.end() => {
                Ok(Some(Next::Exit(Exit::by_signal(signal))))
            }
            _ = tenure.lost() => Ok(Some(Next::Campaign)),
            () = BootClock.sleep_until(self.not_before) => Ok(None),
        }
    }

    /// What comes after a run; `None`: the next one.
    fn after(&mut self, code: i32, lost: bool, ran: Duration) -> Option<Next> {
        if lost && self.options.once {
            self.runner.out.error("leadership was lost before the command ended");
            return Some(Next::Exit(Exit::LOST));
        }
        if self.runner.is_to_end() {
            return Some(Next::Exit(Exit::of_command(code)));
        }
        if lost {
            return Some(Next::Campaign);
        }
        if code != 0 {
            self.failures.increment(1);
        }
        let how = how_it_ended(code);
        match (self.options.on_exit, code) {
            (Some(OnExit::Stop), _) | (None, 0) => {
                self.runner
                    .out
                    .say(&format!("{} {how}; giving leadership up", self.runner.program()));
                Some(Next::Exit(Exit::of_command(code)))
            }
            (Some(OnExit::Resign), _) => {
                self.runner.out.say(&format!("{} {how}; stepping back", self.runner.program()));
                Some(Next::Campaign)
            }
            (Some(OnExit::Restart) | None, _) => {
                self.back_off(ran, &how);
                None
            }
        }
    }

    fn back_off(&mut self, ran: Duration, how: &str) {
        if ran >= GOOD_RUN {
            self.backoff = BACKOFF_MIN;
        }
        let wait = output::show_short(self.backoff);
        self.runner
            .out
            .say(&format!("{} {how}; starting it again in {wait}", self.runner.program()));
        self.not_before = BootClock::time() + self.backoff;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

fn how_it_ended(code: i32) -> String {
    match code {
        0 => "is done".to_owned(),
        129..=192 => format!("was ended by signal {}", code - 128),
        _ => format!("ended with exit code {code}"),
    }
}
