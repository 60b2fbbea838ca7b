//! The driver's sentences: what it logs, and the errors of its own making.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, Term, show_duration};
use tracing::Level;

use crate::Event;
use crate::shared::Shared;

pub(crate) fn silent() -> Error {
    Error::new(ErrorKind::Unavailable, "the store does not answer; it is asked again")
}

pub(crate) fn store_panicked() -> Error {
    Error::new(ErrorKind::Corrupt, "the store panicked; this is a bug in it")
}

pub(crate) fn miscounted(asked: usize, answered: usize) -> Error {
    let message = format!("the store answered {answered} of {asked} ops; this is a bug in it");
    Error::new(ErrorKind::Corrupt, message)
}

pub(crate) fn not_released(term: Term) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the lease of term {term} could not be released; it runs out by itself"),
    )
}

pub(crate) fn still_running(term: Term) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the work of term {term} still runs; its lease is left to run out by itself"),
    )
}

pub(crate) fn unresponsive(silent: Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the program has not listened for {}; no lease is taken or renewed until it does: \
             move blocking work off the task that waits for the loss of leadership",
            show_duration(silent)
        ),
    )
}

pub(crate) fn runtime_gone() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the runtime of the callbacks or handlers has ended, so this instance does not campaign",
    )
}

/// How much an event matters to people.
pub(crate) fn level(event: &Event) -> Level {
    match event {
        Event::Elected { .. } | Event::SteppedDown { .. } => Level::INFO,
        Event::RenewalFailed { .. }
        | Event::ListenFailed { .. }
        | Event::StoreLost { .. }
        | Event::StoreClockStepped { .. }
        | Event::DuplicateLabel { .. }
        | Event::TermFell { .. } => Level::WARN,
        _ => Level::DEBUG,
    }
}

/// The driver logs what the machine found; one vocabulary for all.
pub(crate) fn log(shared: &Shared, event: &Event) {
    let (election, candidate) = (shared.election.as_str(), shared.candidate.as_str());
    let name = event.name();
    match event {
        Event::Elected { term } => {
            tracing::info!(election, candidate, %term, "{name}");
        }
        Event::SteppedDown { term, reason } => {
            tracing::info!(election, candidate, %term, reason = reason.as_str(), "{name}");
        }
        Event::RenewalFailed { term, error } | Event::ListenFailed { term, error } => {
            tracing::warn!(election, candidate, %term, %error, "{name}");
        }
        Event::StoreLost { error } => tracing::warn!(election, candidate, %error, "{name}"),
        Event::StoreClockStepped { .. } | Event::DuplicateLabel { .. } | Event::TermFell { .. } => {
            tracing::warn!(election, candidate, ?event, "{name}");
        }
        _ => tracing::debug!(election, candidate, ?event, "{name}"),
    }
}
