//! `tenure once`: a command that runs on one instance at a time, until a success is recorded.

use std::time::Duration;

use serde_json::json;
use tenure::core::OnceEnd;
use tenure::{BootClock, Clock as _, OnceClaim, OnceRun};

use super::runner::Runner;
use crate::exit::{Exit, Failure};
use crate::options::OnceOptions;
use crate::output::{Output, boot_now, printable};
use crate::process::End;
use crate::store::StoreChoice;

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Sees to it that a success of the command is recorded, here or elsewhere.
pub(crate) async fn run(
    options: &OnceOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let (command, store) = ((&options.command[..], options.stop), (choice, options.wait));
    let runner = match Runner::open(&options.candidacy, command, store, None, out).await? {
        Ok(runner) => runner,
        Err(exit) => return Ok(exit),
    };
    let narration = runner.narrate();
    let mut tries = Tries { options, runner, backoff: BACKOFF_MIN };
    let exit = tries.until_done().await;
    tries.runner.withdraw().await;
    narration.finish().await;
    exit
}

/// One try after the other, until a success is recorded.
struct Tries<'a> {
    options: &'a OnceOptions,
    runner: Runner<'a>,
    backoff: Duration,
}

impl Tries<'_> {
    async fn until_done(&mut self) -> Result<Exit, Failure> {
        let key = printable(&self.options.key);
        loop {
            self.runner.stand_by()?;
            let Runner { signals, election, guardians, .. } = &mut self.runner;
            let claim = tokio::select! {
                biased;
                signal = signals.end() => return Ok(Exit::by_signal(signal)),
                () = guardians.gone() => continue,
                claim = election.claim_once(&self.options.key, self.options.to_claim()) => claim?,
            };
            match claim {
                OnceClaim::Mine(run) => {
                    if let Some(exit) = self.reign(run).await? {
                        return Ok(exit);
                    }
                }
                OnceClaim::Already(record) => {
                    self.tell("already", record.attempt);
                    self.runner.out.say(&format!("{key} is done already"));
                    return Ok(Exit::DONE);
                }
                OnceClaim::Spent(record) => {
                    self.tell("failed", record.attempt);
                    let (tries, state) = (record.attempt, record.state.as_str());
                    self.runner.out.error(&format!(
                        "{key} has no success after {tries} tries (the last one is {state}); once \
                         that is fixed, give more with --tries, or another key"
                    ));
                    let code = record.state.code();
                    return Ok(code.map_or(Exit::NEGATIVE, Exit::of_command));
                }
                _ => {
                    self.tell("elsewhere", 0);
                    let name = self.runner.election.name();
                    self.runner
                        .out
                        .say(&format!("another instance leads {name}; {key} is not recorded"));
                    return Ok(Exit::ELSEWHERE);
                }
            }
        }
    }

    /// Runs the command under one reign, and records how it ended; tells the exit if that is all.
    async fn reign(&mut self, run: OnceRun) -> Result<Option<Exit>, Failure> {
        let more =
            [("TENURE_KEY", run.key().to_owned()), ("TENURE_ATTEMPT", run.attempt().to_string())];
        let started = match self.runner.start(run.tenure(), more) {
            Ok(Some(started)) => started,
            Ok(None) => {
                run.end(OnceEnd::Lost).await?;
                return Ok(None);
            }
            Err(cannot) => {
                self.runner.out.error(&cannot.to_string());
                run.end(OnceEnd::Failed(i32::from(cannot.code()))).await?;
                return Ok(Some(Exit(cannot.code())));
            }
        };
        let attempt = run.attempt();
        self.tell("running", attempt);
        let again = if attempt > 1 { format!(", try {attempt}") } else { String::new() };
        self.runner.say_started(run.tenure(), &again);
        let end = self.runner.supervise(run.tenure(), &started).await;
        let End::Gone { code, lost, .. } = end else {
            // Somebody may still work under this term. It must not be given back.
            std::mem::forget(run);
            return Ok(Some(Exit::FAILED));
        };
        drop(started);
        let stopped = self.runner.is_to_end();
        let end = match code {
            0 => OnceEnd::Ok,
            _ if stopped || lost.is_some() => OnceEnd::Lost,
            code => OnceEnd::Failed(code),
        };
        let known = run.end(end).await?;
        self.after(end, code, known, attempt).await
    }

    /// What comes after a run; `None`: the next one, here or elsewhere.
    async fn after(
        &mut self,
        end: OnceEnd,
        code: i32,
        known: bool,
        attempt: u32,
    ) -> Result<Option<Exit>, Failure> {
        let key = printable(&self.options.key);
        let at_once = self.options.wait == Some(Duration::ZERO);
        match end {
            OnceEnd::Ok if known => {
                self.tell("ok", attempt);
                self.runner.out.say(&format!("{key} is done, and recorded"));
                Ok(Some(Exit::DONE))
            }
            OnceEnd::Ok => {
                self.runner.out.warn(&format!(
                    "{key} is done, but leadership was lost before that was recorded; it is run \
                     again"
                ));
                Ok((at_once || self.runner.is_to_end()).then_some(Exit::LOST))
            }
            OnceEnd::Failed(_) => {
                self.tell("failed", attempt);
                let tries = self.options.tries;
                let how = format!("{key} failed with code {code}, try {attempt} of {tries}");
                if at_once || attempt >= tries {
                    self.runner.out.error(&how);
                    return Ok(Some(Exit::of_command(code)));
                }
                self.runner.out.warn(&how);
                self.back_off().await
            }
            _ if self.runner.is_to_end() => {
                self.tell("lost", attempt);
                Ok(Some(Exit::of_command(code)))
            }
            _ => {
                self.tell("lost", attempt);
                self.runner.out.warn(&format!("leadership was lost before {key} was done"));
                Ok(at_once.then_some(Exit::LOST))
            }
        }
    }

    /// Leaves the next try to others for a while.
    async fn back_off(&mut self) -> Result<Option<Exit>, Failure> {
        let until = BootClock::time() + self.backoff;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        tokio::select! {
            biased;
            signal = self.runner.signals.end() => Ok(Some(Exit::by_signal(signal))),
            () = BootClock.sleep_until(until) => Ok(None),
        }
    }

    fn tell(&self, state: &str, attempt: u32) {
        if self.runner.out.json {
            let fields = vec![
                ("key", json!(self.options.key)),
                ("state", json!(state)),
                ("attempt", json!(attempt)),
            ];
            self.runner.out.object(boot_now(), "once", self.runner.election.name(), fields);
        }
    }
}
