//! `tenure run`: a command that runs only while this instance leads.

use std::time::Duration;

use tenure::{BootClock, Clock as _, Election, Event, Reason, Tenure, Time};
use tenure_cli::process::{self, CannotStart, Running, Signal};
use tenure_core::Secret;

use super::guard::Guard;
use super::supervise::{End, State, Stop, Supervisor, kill_at};
use super::{Narration, build, not_waited_for, note_default_store, open_within};
use crate::args::OnExit;
use crate::exit::{Exit, Failure};
use crate::options::RunOptions;
use crate::output::{self, Output};
use crate::signals::Signals;
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
    choice.check(&options.candidacy.timing)?;
    note_default_store(choice, out);
    let patience = options.wait.map(|wait| BootClock::time() + wait);
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
        runs: 0,
        backoff: BACKOFF_MIN,
        not_before: Time::ZERO,
        patience,
    };
    let mut narration = Narration::new();
    narration.follow(&runner.election, out, |event| match event {
        // Told together with the start and the end of the command.
        Event::Elected { .. } | Event::SteppedDown { reason: Reason::Resigned, .. } => None,
        event => output::sentence(event),
    });
    let exit = runner.campaign().await;
    runner.withdraw().await;
    narration.finish().await;
    exit
}

struct Runner<'a> {
    options: &'a RunOptions,
    /// As it was given.
    url: &'a Secret,
    out: &'a Output,
    election: Election,
    guard: Guard,
    signals: Signals,
    stop: Stop,
    /// How often the command was started.
    runs: u64,
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

impl Runner<'_> {
    async fn campaign(&mut self) -> Result<Exit, Failure> {
        // Before the campaign, so that there is one from the first instant of the lease.
        tokio::select! {
            signal = self.signals.end() => return Ok(Exit::by_signal(signal)),
            ready = self.guard.ready() => ready?,
        }
        tokio::select! {
            signal = self.signals.end() => return Ok(Exit::by_signal(signal)),
            started = self.election.start() => started?,
        }
        loop {
            let tenure = match self.wait_to_lead().await? {
                Ok(tenure) => tenure,
                Err(Some(signal)) => return Ok(Exit::by_signal(signal)),
                Err(None) => return not_waited_for(&self.election, self.out).await,
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
            tokio::select! {
                biased;
                signal = self.signals.end() => return Ok(Err(Some(signal))),
                ready = self.guard.ready() => ready?,
            }
            tokio::select! {
                biased;
                signal = self.signals.end() => return Ok(Err(Some(signal))),
                () = self.guard.gone() => {}
                tenure = self.election.campaign() => return Ok(Ok(tenure?)),
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
            let running = match self.start(&tenure) {
                Ok(Some(running)) => running,
                Ok(None) => return Ok(Next::Campaign),
                Err(cannot) => {
                    self.out.error(&cannot.to_string());
                    self.guard.spent();
                    return Ok(Next::Exit(Exit(cannot.code())));
                }
            };
            self.say_started(&tenure);
            let began = BootClock::time();
            let end = self.supervise(&tenure, &running).await;
            let End::Gone { code, lost } = end else {
                // Somebody may still work under this term. It must not be given back.
                std::mem::forget(tenure);
                return Ok(Next::Exit(Exit::FAILED));
            };
            drop(running);
            self.guard.spent();
            match self.after(code, lost.is_some(), BootClock::time() - began) {
                Some(next) => return Ok(next),
                None => continue,
            }
        }
    }

    /// Waits until the command may be started; tells what else is to be done if it may not.
    async fn until_start(&mut self, tenure: &Tenure) -> Result<Option<Next>, Failure> {
        let (guard, not_before) = (&mut self.guard, self.not_before);
        tokio::select! {
            biased;
            signal = self.signals.end() => Ok(Some(Next::Exit(Exit::by_signal(signal)))),
            _ = tenure.lost() => Ok(Some(Next::Campaign)),
            ready = async {
                guard.ready().await?;
                BootClock.sleep_until(not_before).await;
                // It may have died meanwhile.
                guard.ready().await
            } => ready.map(|()| None),
        }
    }

    /// Starts the command; `None` if leadership is lost already.
    fn start(&mut self, tenure: &Tenure) -> Result<Option<Running>, CannotStart> {
        // The guardian first: whatever happens from here on, it knows when to kill.
        let kill_at = kill_at(&self.election, tenure.trusted_until());
        let told = self.guard.set_deadline(kill_at);
        let Some(keeper) = self.guard.keeper().filter(|_| told && tenure.is_leader()) else {
            self.guard.spent();
            return Ok(None);
        };
        let envs = [
            ("TENURE_ELECTION", tenure.election().to_string()),
            ("TENURE_CANDIDATE", tenure.candidate().to_string()),
            ("TENURE_TERM", tenure.term().to_string()),
            ("TENURE_STORE", self.url.expose().to_owned()),
        ];
        process::start(&self.options.command, envs, keeper).map(Some)
    }

    async fn supervise(&mut self, tenure: &Tenure, running: &Running) -> End {
        let supervisor = Supervisor {
            tenure,
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

    /// What comes after a run; `None`: the next one.
    fn after(&mut self, code: i32, lost: bool, ran: Duration) -> Option<Next> {
        if lost && self.options.once {
            self.out.error("leadership was lost before the command ended");
            return Some(Next::Exit(Exit::LOST));
        }
        if self.stop.has_begun() {
            return Some(Next::Exit(Exit::of_command(code)));
        }
        if lost {
            return Some(Next::Campaign);
        }
        let how = how_it_ended(code);
        match (self.options.on_exit, code) {
            (Some(OnExit::Stop), _) | (None, 0) => {
                self.out.say(&format!("{} {how}; giving leadership up", self.program()));
                Some(Next::Exit(Exit::of_command(code)))
            }
            (Some(OnExit::Resign), _) => {
                self.out.say(&format!("{} {how}; stepping back", self.program()));
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
        self.out.say(&format!("{} {how}; starting it again in {wait}", self.program()));
        self.not_before = BootClock::time() + self.backoff;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    fn say_started(&mut self, tenure: &Tenure) {
        self.runs += 1;
        let again = if self.runs > 1 { " again" } else { "" };
        let (term, program) = (tenure.term(), self.program());
        self.out.say(&format!("leading as term {term}; started {program}{again}"));
    }

    /// The command without its arguments: they may be long, and secret.
    fn program(&self) -> String {
        let program = self.options.command.first().map(|program| program.to_string_lossy());
        format!("`{}`", program.unwrap_or_default())
    }

    /// Takes no further part, and gives back what is held; a signal ends the wait.
    async fn withdraw(mut self) {
        tokio::select! {
            stopped = self.stop.finish(&self.election) => if let Err(error) = stopped {
                self.out.warn(&error.to_string());
            },
            _ = self.signals.end() => {}
        }
    }
}

fn how_it_ended(code: i32) -> String {
    match code {
        0 => "is done".to_owned(),
        129..=192 => format!("was ended by signal {}", code - 128),
        _ => format!("ended with exit code {code}"),
    }
}
