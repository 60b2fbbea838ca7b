//! Vectors for the small engines of the drop-ins, which are written in other languages.
//!
//! A vector is a story: what happened to one candidate and when, and what an engine that keeps
//! tenure's rules does at each step. [`engine`] is the reference, over the same
//! [`Machine`](tenure_core::Machine) that runs in production. The stories are drawn by seed. Some
//! are told by an engine that is wrong on purpose: there, the last step is not what a right engine
//! does.
//!
//! All instants are whole milliseconds, so that engines which count in floating point agree.

pub mod engine;
mod json;
mod story;

use serde_json::{Value, json};

use self::engine::Fault;
pub use self::story::{Step, Story, tell};

/// How many stories are written.
pub const STORIES: u64 = 220;

/// The whole file, one story a line.
///
/// # Panics
/// If a fault goes unnoticed: then the stories are too few.
pub fn write() -> String {
    let mut lines: Vec<String> = Vec::new();
    lines.extend((0..STORIES).map(|seed| story_json(&tell(seed), None).to_string()));
    for fault in Fault::ALL {
        let told = (0..STORIES).find_map(|seed| story::tell_wrongly(&tell(seed), fault));
        let told = told.unwrap_or_else(|| panic!("no story notices {fault:?}"));
        lines.push(story_json(&told, Some(fault)).to_string());
    }
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn story_json(story: &Story, fault: Option<Fault>) -> Value {
    let setup = &story.setup;
    let timing = setup.timing;
    let mut told = json!({
        "name": format!("seed {}", story.seed),
        "ttl": ms(timing.ttl), "renew_every": ms(timing.renew_every),
        "margin": ms(timing.margin), "drain": ms(timing.drain), "poll": ms(setup.poll),
        "fail_closed": setup.fail_closed,
        "become": setup.has_become, "lose": setup.has_lose,
        "steps": story.steps.iter().map(Step::json).collect::<Vec<Value>>(),
    });
    if let Some(fault) = fault {
        told["fault"] = json!(fault.name());
    }
    told
}

/// Whole milliseconds.
pub(crate) fn ms(span: std::time::Duration) -> u64 {
    debug_assert_eq!(span.subsec_nanos() % 1_000_000, 0, "{span:?} is not whole milliseconds");
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
