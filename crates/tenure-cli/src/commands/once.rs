//! `tenure once`: a command that runs on one instance at a time, until a success is recorded.

use std::time::Duration;

use serde_json::json;
use tenure::core::OnceEnd;
use tenure::{BootClock, Clock as _, Election, Event, OnceClaim, OnceRun, Reason};
use tenure_cli::process::{self, CannotStart, Running};
use tenure_core::Secret;

use super::guard::Guard;
use super::supervise::{End, State, Stop, Supervisor, kill_at};
use super::{Narration, build, note_default_store, open_within};
use crate::exit::{Exit, Failure};
use crate::options::OnceOptions;
use crate::output::{self, Output, boot_now, printable};
use crate::signals::Signals;
use crate::store::StoreChoice;

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Sees to it that a success of the command is recorded, here or elsewhere.
pub(crate) async fn run(
    options: &OnceOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    choice.check(&options.candidacy.timing)?;
    note_default_store(choice, out);
    let opened = open_within(choice, options.wait, out).await?;
    let election = build(&options.candidacy, &opened)?;
    let signals = Signals::listen()?;
    let mut runner = Runner {
        options,
        url: &choice.url,
        out,
        guard: Guard::new(opened.bequest(&election)?),
        election,
        signals,
        stop: Stop::No,
        backoff: BACKOFF_MIN,
    };
    let mut narration = Narration::new();
    narration.follow(&runner.election, out, |event| match event {
        // Told together with the start and the end of the command.
        Event::Elected { .. } | Event::SteppedDown { reason: Reason::Resigned, .. } => None,
        event => output::sentence(event),
    });
    let exit = runner.until_done().await;
    runner.withdraw().await;
    narration.finish().await;
    exit
}

struct Runner<'a> {
    options: &'a OnceOptions,
    /// As it was given.
    url: &'a Secret,
    out: &'a Output,
    election: Election,
    guard: Guard,
    signals: Signals,
    stop: Stop,
    backoff: Duration,
}

impl Runner<'_> {
    async fn until_done(&mut self) -> Result<Exit, Failure> {
        let key = printable(&self.options.key);
        loop {
            // Before the campaign: whatever happens from the grant on, there is a guardian.
            tokio::select! {
                biased;
                signal = self.signals.end() => return Ok(Exit::by_signal(signal)),
                ready = self.guard.ready() => ready?,
            }
            let claim = tokio::select! {
                biased;
                signal = self.signals.end() => return Ok(Exit::by_signal(signal)),
                () = self.guard.gone() => continue,
                claim = self.election.claim_once(&self.options.key, self.options.to_claim()) => {
                    claim?
                }
            };
            match claim {
                OnceClaim::Mine(run) => {
                    if let Some(exit) = self.reign(run).await? {
                        return Ok(exit);
                    }
                }
                OnceClaim::Already(record) => {
                    self.tell("already", record.attempt);
                    self.out.say(&format!("{key} is done already"));
                    return Ok(Exit::DONE);
                }
                OnceClaim::Spent(record) => {
                    self.tell("failed", record.attempt);
                    let (tries, state) = (record.attempt, record.state.as_str());
                    self.out.error(&format!(
                        "{key} has no success after {tries} tries (the last one is {state}); once \
                         that is fixed, give more with --tries, or another key"
                    ));
                    let code = record.state.code();
                    return Ok(code.map_or(Exit::NEGATIVE, Exit::of_command));
                }
                _ => {
                    self.tell("elsewhere", 0);
                    let name = self.election.name();
                    self.out.say(&format!("another instance leads {name}; {key} is not recorded"));
                    return Ok(Exit::ELSEWHERE);
                }
            }
        }
    }

    /// Runs the command under one reign, and records how it ended; tells the exit if that is all.
    async fn reign(&mut self, run: OnceRun) -> Result<Option<Exit>, Failure> {
        let running = match self.start(&run) {
            Ok(Some(running)) => running,
            Ok(None) => {
                run.end(OnceEnd::Lost).await?;
                return Ok(None);
            }
            Err(cannot) => {
                self.out.error(&cannot.to_string());
                self.guard.spent();
                run.end(OnceEnd::Failed(i32::from(cannot.code()))).await?;
                return Ok(Some(Exit(cannot.code())));
            }
        };
        let attempt = run.attempt();
        self.tell("running", attempt);
        let again = if attempt > 1 { format!(", try {attempt}") } else { String::new() };
        let (term, program) = (run.term(), self.program());
        self.out.say(&format!("leading as term {term}; started {program}{again}"));
        let end = self.supervise(&run, &running).await;
        let End::Gone { code, lost } = end else {
            // Somebody may still work under this term. It must not be given back.
            std::mem::forget(run);
            return Ok(Some(Exit::FAILED));
        };
        drop(running);
        self.guard.spent();
        let stopped = self.stop.has_begun();
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
                self.out.say(&format!("{key} is done, and recorded"));
                Ok(Some(Exit::DONE))
            }
            OnceEnd::Ok => {
                self.out.warn(&format!(
                    "{key} is done, but leadership was lost before that was recorded; it is run \
                     again"
                ));
                Ok((at_once || self.stop.has_begun()).then_some(Exit::LOST))
            }
            OnceEnd::Failed(_) => {
                self.tell("failed", attempt);
                let tries = self.options.tries;
                let how = format!("{key} failed with code {code}, try {attempt} of {tries}");
                if at_once || attempt >= tries {
                    self.out.error(&how);
                    return Ok(Some(Exit::of_command(code)));
                }
                self.out.warn(&how);
                self.back_off().await
            }
            _ if self.stop.has_begun() => {
                self.tell("lost", attempt);
                Ok(Some(Exit::of_command(code)))
            }
            _ => {
                self.tell("lost", attempt);
                self.out.warn(&format!("leadership was lost before {key} was done"));
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
            signal = self.signals.end() => Ok(Some(Exit::by_signal(signal))),
            () = BootClock.sleep_until(until) => Ok(None),
        }
    }

    /// Starts the command; `None` if leadership is lost already.
    fn start(&mut self, run: &OnceRun) -> Result<Option<Running>, CannotStart> {
        // The guardian first: whatever happens from here on, it knows when to kill.
        let kill_at = kill_at(&self.election, run.tenure().trusted_until());
        let told = self.guard.set_deadline(kill_at);
        let Some(keeper) = self.guard.keeper().filter(|_| told && run.tenure().is_leader()) else {
            self.guard.spent();
            return Ok(None);
        };
        let envs = [
            ("TENURE_ELECTION", run.election().to_string()),
            ("TENURE_CANDIDATE", run.candidate().to_string()),
            ("TENURE_TERM", run.term().to_string()),
            ("TENURE_STORE", self.url.expose().to_owned()),
            ("TENURE_KEY", run.key().to_owned()),
            ("TENURE_ATTEMPT", run.attempt().to_string()),
        ];
        process::start(&self.options.command, envs, keeper).map(Some)
    }

    async fn supervise(&mut self, run: &OnceRun, running: &Running) -> End {
        let supervisor = Supervisor {
            tenure: run.tenure(),
            election: &self.election,
            guard: &self.guard,
            running,
            signals: &mut self.signals,
            stop: &mut self.stop,
            out: self.out,
            state: State::default(),
        };
        supervisor.until_gone().await
    }

    fn tell(&self, state: &str, attempt: u32) {
        if self.out.json {
            let fields = vec![
                ("key", json!(self.options.key)),
                ("state", json!(state)),
                ("attempt", json!(attempt)),
            ];
            self.out.object(boot_now(), "once", self.election.name(), fields);
        }
    }

    /// The command without its arguments: they may be long, and secret.
    fn program(&self) -> String {
        let program = self.options.command.first().map(|program| program.to_string_lossy());
        format!("`{}`", program.unwrap_or_default())
    }

    /// Takes no further part; a signal ends the wait.
    async fn withdraw(mut self) {
        tokio::select! {
            stopped = self.stop.finish(&self.election) => if let Err(error) = stopped {
                self.out.warn(&error.to_string());
            },
            _ = self.signals.end() => {}
        }
    }
}
