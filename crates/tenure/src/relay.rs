//! Carries the news to user code, on the user's own runtime.
//!
//! It must never hold up the driver: news are queued, and callbacks are begun here, one after the
//! other; what goes on of those that are async goes on side by side. It answers the bell (see
//! `pulse`) while it waits, so that a callback that blocks its thread is noticed and the lease is
//! not kept alive for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::{Error, Term};
use tokio::sync::mpsc;

use crate::callback::{Callbacks, Guarded, begin};
use crate::command::{Command, WeakCommands};
use crate::pulse::Pulse;
use crate::sabotage::{Fault, Faults};
use crate::shared::Shared;

/// One piece of news.
pub(crate) enum Notice {
    Elected(Term),
    Lost(Term),
    /// The time for winding up is over.
    Abort,
    Error(Error),
}

/// How many notices wait at most. Errors leave room, so that changes always fit.
pub(crate) const ROOM: usize = 256;
pub(crate) const ROOM_FOR_CHANGES: usize = 16;

/// How many errors wait for a slow `on_error`; what comes on top is logged only.
const ERRORS_MAX: usize = 64;

/// Each callback that goes on has a place of its own, so that one that hangs holds up none of the
/// others.
pub(crate) struct Relay {
    callbacks: Callbacks,
    notices: mpsc::Receiver<Notice>,
    pulse: Arc<Pulse>,
    commands: WeakCommands,
    id: u64,
    /// The reign that user code knows of.
    leading: Option<Term>,
    /// The reign whose end is being told, and whether `on_lost` has not failed so far.
    losing: Option<Losing>,
    /// What goes on of `on_elected`, then of `on_lost`.
    reign: Option<Guarded>,
    /// What goes on of `on_change`.
    change: Option<Guarded>,
    /// What goes on of `on_error`.
    error: Option<Guarded>,
    errors: VecDeque<Error>,
    faults: Faults,
}

struct Losing {
    term: Term,
    /// `on_lost` returned, or may still do so: it did not panic and was not dropped.
    returns: bool,
}

/// What comes next.
enum Step {
    News(Option<Notice>),
    Reign(Result<(), Error>),
    Change(Result<(), Error>),
    Error(Result<(), Error>),
}

impl Relay {
    pub(crate) fn new(
        callbacks: Callbacks,
        notices: mpsc::Receiver<Notice>,
        shared: &Shared,
        commands: WeakCommands,
        id: u64,
    ) -> Relay {
        Relay {
            callbacks,
            notices,
            pulse: shared.pulses.listen(),
            commands,
            id,
            leading: None,
            losing: None,
            reign: None,
            change: None,
            error: None,
            errors: VecDeque::new(),
            faults: shared.faults,
        }
    }

    /// Runs until there is no more news, and those who know of a reign have been told of its end.
    ///
    /// # Cancel safety
    /// Dropping it drops the callbacks that go on.
    pub(crate) async fn run(mut self) {
        let mut more = true;
        while more || self.losing.is_some() {
            match self.step(more).await {
                Step::News(Some(notice)) => self.take(notice),
                Step::News(None) => {
                    more = false;
                    // The driver went without a word.
                    if let Some(term) = self.leading {
                        self.lost(term);
                    }
                }
                Step::Reign(ended) => {
                    self.reign = None;
                    self.keep_returning(ended.is_ok());
                    self.told(ended);
                }
                Step::Change(ended) => {
                    self.change = None;
                    self.told(ended);
                }
                Step::Error(ended) => {
                    self.error = None;
                    if let Err(error) = ended {
                        tracing::error!(%error, "a callback failed");
                    }
                }
            }
            self.next_error();
            self.finish_losing();
        }
    }

    /// Waits for news while the callbacks go on and the bell is answered.
    async fn step(&mut self, more: bool) -> Step {
        tokio::select! {
            biased;
            never = self.pulse.answer() => match never {},
            notice = self.notices.recv(), if more => Step::News(notice),
            ended = rest_of(&mut self.change) => Step::Change(ended),
            ended = rest_of(&mut self.reign) => Step::Reign(ended),
            ended = rest_of(&mut self.error) => Step::Error(ended),
        }
    }

    fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Elected(term) => self.elected(term),
            Notice::Lost(term) => self.lost(term),
            Notice::Abort => {
                self.keep_returning(self.reign.is_none());
                (self.reign, self.change) = (None, None);
            }
            Notice::Error(error) => self.report(error),
        }
    }

    fn elected(&mut self, term: Term) {
        self.leading = Some(term);
        let begun = begin("on_change", self.callbacks.change.as_ref(), Some(term));
        self.change = self.begun(begun);
        // A callback that panicked has given the reign up.
        if self.leading.is_some() {
            let begun = begin("on_elected", self.callbacks.elected.as_ref(), term);
            self.reign = self.begun(begun);
        }
    }

    /// What is still running of the election is dropped, so that the loss is not told late.
    fn lost(&mut self, term: Term) {
        (self.leading, self.losing) = (None, Some(Losing { term, returns: true }));
        let begun = begin("on_change", self.callbacks.change.as_ref(), None);
        self.change = self.begun(begun);
        if self.faults.has(Fault::ElectedGoesOn) && self.reign.is_some() {
            self.change = self.reign.take();
        }
        if self.faults.has(Fault::LostTwice) {
            drop(begin("on_lost", self.callbacks.lost.as_ref(), term));
        }
        let told = self.callbacks.lost.as_ref().filter(|_| !self.faults.has(Fault::LostUntold));
        let begun = begin("on_lost", told, term);
        self.keep_returning(begun.is_ok());
        self.reign = self.begun(begun);
    }

    /// An `on_lost` that panics or is dropped says nothing about those who were told (I8).
    fn keep_returning(&mut self, fine: bool) {
        if let Some(losing) = &mut self.losing {
            losing.returns &= fine;
        }
    }

    fn begun(&mut self, begun: Result<Option<Guarded>, Error>) -> Option<Guarded> {
        match begun {
            Ok(rest) => rest,
            Err(error) => {
                self.told(Err(error));
                None
            }
        }
    }

    /// A panic in user code never leaves leadership held silently.
    fn told(&mut self, ended: Result<(), Error>) {
        let Err(error) = ended else { return };
        if let Some(term) = self.leading.take() {
            tracing::error!(%term, %error, "a callback failed; resigning");
            self.command(Command::Resign { id: self.id, term: Some(term), done: None });
        }
        self.report(error);
    }

    fn report(&mut self, error: Error) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push_back(error);
        } else {
            tracing::warn!(%error, "on_error is too slow to be told");
        }
    }

    fn next_error(&mut self) {
        while self.error.is_none()
            && let Some(error) = self.errors.pop_front()
        {
            match begin("on_error", self.callbacks.error.as_ref(), error) {
                Ok(rest) => self.error = rest,
                Err(error) => tracing::error!(%error, "a callback failed"),
            }
        }
    }

    fn finish_losing(&mut self) {
        if self.reign.is_none()
            && self.change.is_none()
            && let Some(Losing { term, returns }) = self.losing.take()
        {
            self.command(Command::RelayDone { id: self.id, term, returned: returns });
        }
    }

    fn command(&self, command: Command) {
        if let Some(commands) = self.commands.upgrade() {
            let _gone = commands.send(command);
        }
    }
}

async fn rest_of(callback: &mut Option<Guarded>) -> Result<(), Error> {
    match callback {
        Some(rest) => rest.await,
        None => std::future::pending().await,
    }
}
