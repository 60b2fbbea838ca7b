//! Carries the news to user code, on the user's own runtime.
//!
//! It must never hold up the driver: news are queued, callbacks run here, one after the other. It
//! answers the bell (see `pulse`) while it waits, so that a callback that blocks its thread is
//! noticed and the lease is not kept alive for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::{Error, Term};
use tokio::sync::mpsc;

use crate::callback::{Callbacks, Guarded, begin};
use crate::command::{Command, WeakCommands};
use crate::pulse::Pulse;
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

pub(crate) struct Relay {
    callbacks: Callbacks,
    notices: mpsc::Receiver<Notice>,
    set_aside: VecDeque<Notice>,
    pulse: Arc<Pulse>,
    commands: WeakCommands,
    id: u64,
}

impl Relay {
    pub(crate) fn new(
        callbacks: Callbacks,
        notices: mpsc::Receiver<Notice>,
        shared: &Shared,
        commands: WeakCommands,
        id: u64,
    ) -> Relay {
        let pulse = shared.pulses.listen();
        Relay { callbacks, notices, set_aside: VecDeque::new(), pulse, commands, id }
    }

    pub(crate) async fn run(mut self) {
        let mut elected: Option<(Term, Guarded)> = None;
        loop {
            let notice = match self.set_aside.pop_front() {
                Some(notice) => Some(notice),
                None => self.next_notice(&mut elected).await,
            };
            match notice {
                None => return,
                Some(Notice::Elected(term)) => elected = self.elected(term).await,
                Some(Notice::Lost(term)) => {
                    // Still running: dropped, so that the loss is not told late.
                    elected = None;
                    self.lost(term).await;
                }
                Some(Notice::Abort) => {}
                Some(Notice::Error(error)) => self.error(error).await,
            }
        }
    }

    /// Waits for news while the elected callback goes on and the bell is answered.
    async fn next_notice(&mut self, elected: &mut Option<(Term, Guarded)>) -> Option<Notice> {
        loop {
            let pulse = self.pulse.clone();
            tokio::select! {
                notice = self.notices.recv() => return notice,
                (term, ended) = finish(elected) => {
                    *elected = None;
                    if let Err(error) = ended {
                        self.give_up(term, error).await;
                    }
                }
                () = pulse.answer() => {}
            }
        }
    }

    async fn elected(&mut self, term: Term) -> Option<(Term, Guarded)> {
        let changed = begin("on_change", self.callbacks.change.as_ref(), Some(term));
        let result = self.finish_now(changed).await;
        if let Err(error) = result {
            self.give_up(term, error).await;
            return None;
        }
        match begin("on_elected", self.callbacks.elected.as_ref(), term) {
            Ok(rest) => rest.map(|rest| (term, rest)),
            Err(error) => {
                self.give_up(term, error).await;
                None
            }
        }
    }

    async fn lost(&mut self, term: Term) {
        let changed = begin("on_change", self.callbacks.change.as_ref(), None);
        if let Err(error) = self.finish_now(changed).await {
            self.error(error).await;
        }
        let lost = begin("on_lost", self.callbacks.lost.as_ref(), term);
        if let Err(error) = self.finish_now(lost).await {
            self.error(error).await;
        }
        self.command(Command::RelayDone { id: self.id, term });
    }

    async fn error(&mut self, error: Error) {
        let told = begin("on_error", self.callbacks.error.as_ref(), error);
        if let Err(error) = self.finish_now(told).await {
            tracing::error!(%error, "a callback failed");
        }
    }

    /// A panic in user code never leaves leadership held silently.
    async fn give_up(&mut self, term: Term, error: Error) {
        tracing::error!(%term, %error, "a callback failed; resigning");
        self.command(Command::Resign { id: self.id, term: Some(term), done: None });
        self.error(error).await;
    }

    /// Runs the rest of a callback to its end, or until the time for winding up is over.
    async fn finish_now(&mut self, begun: Result<Option<Guarded>, Error>) -> Result<(), Error> {
        let Some(mut rest) = begun? else { return Ok(()) };
        loop {
            let pulse = self.pulse.clone();
            tokio::select! {
                ended = &mut rest => return ended,
                notice = self.notices.recv() => match notice {
                    None | Some(Notice::Abort) => return Ok(()),
                    // A loss that comes while on_change(Some) hangs must not wait for it.
                    Some(notice @ Notice::Lost(_)) => {
                        self.set_aside.push_back(notice);
                        return Ok(());
                    }
                    Some(notice) => self.set_aside.push_back(notice),
                },
                () = pulse.answer() => {}
            }
        }
    }

    fn command(&self, command: Command) {
        if let Some(commands) = self.commands.upgrade() {
            let _gone = commands.send(command);
        }
    }
}

async fn finish(elected: &mut Option<(Term, Guarded)>) -> (Term, Result<(), Error>) {
    match elected {
        Some((term, rest)) => {
            let term = *term;
            (term, rest.await)
        }
        None => std::future::pending().await,
    }
}
