//! From the words of tenure to JSON, and back: plain values, which TypeScript gives types to.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Error, Event, Leader, Message, OnceRun, Term, Timing};
use tenure_cron::Run;

use crate::error::describe;

/// A leader.
pub(crate) fn leader(leader: &Leader) -> Value {
    // What is JSON already stays text: reading it here would lose the order of its keys.
    json!({
        "id": leader.holder.as_str(),
        "label": leader.holder.label(),
        "term": leader.term.map(Term::get),
        "remainingMs": millis(leader.remaining),
        "sinceUnixMs": leader.since_unix_ms,
        "metadata": leader.metadata.as_ref().map(|metadata| metadata.as_str()),
    })
}

/// An event: its name, and what there is to know of it.
pub(crate) fn event(event: &Event) -> Value {
    let rest = match event {
        Event::Elected { term } => json!({ "term": term.get() }),
        Event::ListenFailed { term, error } | Event::RenewalFailed { term, error } => {
            json!({ "term": term.get(), "error": describe(error) })
        }
        Event::Draining { term, reason, left } => {
            json!({ "term": term.get(), "reason": reason.as_str(), "leftMs": millis(*left) })
        }
        Event::SteppedDown { term, reason } => {
            json!({ "term": term.get(), "reason": reason.as_str() })
        }
        Event::LeaderChanged { leader: who } => json!({ "leader": who.as_ref().map(leader) }),
        Event::StoreLost { error } => json!({ "error": describe(error) }),
        Event::Settling { left } => json!({ "leftMs": millis(*left) }),
        Event::StoreClockStepped { by, ahead } => json!({ "byMs": millis(*by), "ahead": ahead }),
        Event::DuplicateLabel { holder } => json!({ "holder": holder.as_str() }),
        Event::TermFell { granted, least } => {
            json!({ "granted": granted.get(), "least": least.get() })
        }
        Event::Missed { count } => json!({ "count": count }),
        _ => json!({}),
    };
    json!({ "name": event.name(), "details": rest })
}

/// A message to the leader.
pub(crate) fn message(message: &Message) -> Value {
    json!({
        "channel": message.channel,
        "payload": message.payload,
        "term": message.term.get(),
        "attempt": message.attempt,
        "id": message.id,
        "key": message.key,
    })
}

/// One run of a job.
pub(crate) fn run(run: &Run) -> Value {
    json!({
        "job": run.job(),
        "scheduledUnixMs": run.scheduled_unix_ms(),
        "attempt": run.attempt(),
        "manual": run.is_manual(),
        "term": run.term().get(),
    })
}

/// One run of work that is done once, with the number of the call that it is made for.
pub(crate) fn once(run: &OnceRun, ticket: u32) -> Value {
    json!({
        "ticket": ticket,
        "key": run.key(),
        "attempt": run.attempt(),
        "term": run.term().get(),
    })
}

/// The durations of a lease.
pub(crate) fn timing(timing: &Timing) -> Value {
    json!({
        "ttlMs": millis(timing.ttl),
        "renewEveryMs": millis(timing.renew_every),
        "marginMs": millis(timing.margin),
        "drainMs": millis(timing.drain),
    })
}

/// A duration that JavaScript gave in milliseconds.
pub(crate) fn duration(what: &str, given: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(given / 1000.0)
        .map_err(|_| Error::config(format!("{what} is {given} ms; give a number from 0 to a day")))
}

/// A term that JavaScript gave.
pub(crate) fn term(number: f64) -> Result<Term, Error> {
    let most = Term::MAX.get();
    let term = (number.fract() == 0.0 && number >= 1.0).then_some(number);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked")]
    let term = term.and_then(|number| Term::new(number as u64));
    term.ok_or_else(|| Error::config(format!("{number} is no term; terms are from 1 to {most}")))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
