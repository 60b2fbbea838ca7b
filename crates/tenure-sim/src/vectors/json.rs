//! How events and actions are written in the file.

use serde_json::{Value, json};
use tenure_core::Time;

use super::engine::{Act, Event};
use super::ms;

/// Milliseconds of the axis.
pub(super) fn at(time: Time) -> u64 {
    ms(time - Time::ZERO)
}

impl Event {
    /// As the file has it.
    pub(super) fn json(self) -> Value {
        match self {
            Event::Start => json!(["start"]),
            Event::Stop => json!(["stop"]),
            Event::Tick => json!(["tick"]),
            Event::Granted { sent_at, term } => json!(["granted", at(sent_at), term]),
            Event::Refused { sent_at, remaining } => {
                json!(["refused", at(sent_at), remaining.map(ms)])
            }
            Event::Unknown { sent_at } => json!(["unknown", at(sent_at)]),
            Event::Ask => json!(["ask"]),
            Event::Begin => json!(["begin"]),
            Event::End => json!(["end"]),
        }
    }
}

impl Act {
    /// As the file has it.
    pub(super) fn json(&self) -> Value {
        match self {
            Act::Acquire { seq, above } => json!(["acquire", seq, above]),
            Act::Renew { term } => json!(["renew", term]),
            Act::Release { term, seq } => json!(["release", term, seq]),
            Act::Lead { extends, term, step_down_at, until } => {
                let word = if *extends { "extend" } else { "lead" };
                json!([word, term, at(*step_down_at), at(*until)])
            }
            Act::StepDown { term, reason, until } => {
                json!(["step_down", term, reason, at(*until)])
            }
            Act::Overdue { term } => json!(["overdue", term]),
            Act::Vacated { term, released } => json!(["vacated", term, released]),
            Act::Answer(yes) => json!(["answer", yes]),
            Act::Wake(from, to) => json!(["wake", at(*from), at(*to)]),
            Act::Sleep => json!(["sleep"]),
        }
    }
}
