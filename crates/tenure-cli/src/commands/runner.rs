//! One command at a time under one election: what `run` and `once` share.

use std::ffi::OsString;
use std::future::pending;
use std::pin::{Pin, pin};
use std::time::Duration;

use tenure::{Election, Error, Event, Reason, Tenure};
use tenure_core::Secret;
use tokio::sync::watch;

use super::presence::Presence;
use super::{Narration, build, environment, note_default_store, open_or_end};
use crate::command_args::Observe;
use crate::exit::{Exit, Failure};
use crate::options::Candidacy;
use crate::output::{self, Output};
use crate::process::{
    CannotStart, End, GuardianHandle, Guardians, Notice, OnLoss, OnStuck, Policy, Running, StopBy,
    Supervisor, Wish, start_under,
};
use crate::signals::{Signals, Told};
use crate::store::StoreChoice;

/// Runs a command, again if need be, while its election is led.
pub(super) struct Runner<'a> {
    pub(super) election: Election,
    pub(super) signals: Signals,
    pub(super) out: &'a Output,
    pub(super) guardians: Guardians,
    command: &'a [OsString],
    /// As it was given.
    url: &'a Secret,
    wish: watch::Sender<Wish>,
    stop: Stop,
    stop_by: StopBy,
    presence: Presence,
}

/// A command that was started, with its guardian.
pub(super) struct Started {
    running: Running,
    guardian: GuardianHandle,
}

impl<'a> Runner<'a> {
    /// Opens the store, waiting for it this long, and builds the election; tells the exit if a
    /// signal comes first.
    pub(super) async fn open(
        candidacy: &Candidacy,
        (command, stop_by): (&'a [OsString], StopBy),
        (choice, wait): (&'a StoreChoice, Option<Duration>),
        observe: Option<&Observe>,
        out: &'a Output,
    ) -> Result<Result<Runner<'a>, Exit>, Failure> {
        choice.check(&candidacy.timing)?;
        let mut signals = Signals::of_candidate(out)?;
        note_default_store(choice, out);
        let mut presence = Presence::new(observe)?;
        let opened = match open_or_end(choice, wait, &mut signals, out).await? {
            Ok(opened) => opened,
            Err(signal) => return Ok(Err(Exit::by_signal(signal))),
        };
        let election = build(candidacy, &opened)?;
        let guardians = Guardians::new(opened.release_note(&election)?);
        presence.show(&election, out)?;
        Ok(Ok(Runner {
            election,
            signals,
            out,
            guardians,
            command,
            url: &choice.url,
            wish: watch::Sender::default(),
            stop: Stop::No,
            stop_by,
            presence,
        }))
    }

    /// Tells what happens in the election, but for what is told with the start and the end of the
    /// command.
    pub(super) fn narrate(&self) -> Narration {
        let mut narration = Narration::new();
        narration.follow(&self.election, self.out, |event| match event {
            Event::Elected { .. } | Event::SteppedDown { reason: Reason::Resigned, .. } => None,
            event => output::sentence(event),
        });
        narration
    }

    /// Has a guardian stand by. Before the campaign, so that there is one from the first instant of
    /// the lease.
    pub(super) fn stand_by(&self) -> Result<(), Failure> {
        Ok(self.guardians.stand_by()?)
    }

    /// Whether a signal has asked to end while the command ran.
    pub(super) fn is_to_end(&self) -> bool {
        *self.wish.borrow() != Wish::Run
    }

    /// Starts the command; `None` if leadership is lost already.
    pub(super) fn start(
        &self,
        tenure: &Tenure,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Option<Started>, CannotStart> {
        let guardian = self.guardians.take()?;
        let mut envs = environment(tenure, self.url);
        envs.extend(more);
        let timing = self.election.timing();
        let running = start_under(tenure, timing, &guardian, self.command, envs, None)?;
        Ok(running.map(|running| Started { running, guardian }))
    }

    /// Says that the command was started.
    pub(super) fn say_started(&self, tenure: &Tenure, how: &str) {
        let (term, program) = (tenure.term(), self.program());
        self.out.say(&format!("leading as term {term}; started {program}{how}"));
    }

    /// Passes signals on and watches over the command until nothing of it is left.
    pub(super) async fn supervise(&mut self, tenure: &Tenure, started: &Started) -> End {
        let Started { running, guardian } = started;
        let out = self.out;
        let tell = |notice: Notice| match notice {
            Notice::Stuck { .. } => out.error(&notice.to_string()),
            _ => out.warn(&notice.to_string()),
        };
        let (on_loss, stuck) = (OnLoss::Signal, OnStuck::Resign);
        let policy = Policy { on_loss, timeout: None, stuck, stop: self.stop_by };
        let election = self.election.clone();
        let supervisor = Supervisor {
            tenure,
            election: &election,
            guardian,
            wish: self.wish.subscribe(),
            policy,
            tell: &tell,
        };
        let mut gone = pin!(supervisor.until_gone(running, pending()));
        loop {
            tokio::select! {
                biased;
                end = &mut gone => return end,
                told = self.signals.next() => match told {
                    // It may just have ended; then there is nobody to tell.
                    Told::Pass(signal) => drop(running.signal_main(signal)),
                    Told::End(signal) => {
                        self.presence.stopping();
                        self.stop.begin(&self.election);
                        self.wish.send_modify(|wish| *wish = wish.after(signal));
                    }
                },
                () = self.stop.progress() => {}
            }
        }
    }

    /// The command without its arguments: they may be long, and secret.
    pub(super) fn program(&self) -> String {
        let program = self.command.first().map(|program| program.to_string_lossy());
        format!("`{}`", program.unwrap_or_default())
    }

    /// Takes no further part, and gives back what is held; a signal ends the wait.
    pub(super) async fn withdraw(mut self) {
        self.presence.stopping();
        tokio::select! {
            stopped = self.stop.finish(&self.election) => if let Err(error) = stopped {
                self.out.warn(&error.to_string());
            },
            _ = self.signals.end() => {}
        }
    }
}

/// The stop of the election, once a signal has asked for it.
enum Stop {
    No,
    Going(Pin<Box<dyn Future<Output = Result<(), Error>>>>),
    Done(Result<(), Error>),
}

impl Stop {
    /// Begins to stop; the future has to be awaited for it.
    fn begin(&mut self, election: &Election) {
        if let Stop::No = self {
            let election = election.clone();
            *self = Stop::Going(Box::pin(async move { election.stop().await }));
        }
    }

    /// Goes on stopping; returns once, when that is done.
    async fn progress(&mut self) {
        match self {
            Stop::Going(stop) => {
                let result = stop.await;
                *self = Stop::Done(result);
            }
            Stop::No | Stop::Done(_) => pending().await,
        }
    }

    /// Stops, or waits until that is done.
    async fn finish(mut self, election: &Election) -> Result<(), Error> {
        self.begin(election);
        match self {
            Stop::Going(stop) => stop.await,
            Stop::Done(result) => result,
            Stop::No => Ok(()),
        }
    }
}
