//! `tenure dead-letters`: what no leader could handle.

use clap::Args;
use serde_json::{Value, json};
use tenure::{DeadLetter, Messenger, Name};

use super::in_time;
use crate::exit::{Exit, Failure};
use crate::options::election_name;
use crate::output::{Output, boot_now, printable};
use crate::store::StoreChoice;

/// Show the posts that no leader could handle, put them back, or remove them
///
/// A post whose handler failed too often (`listen --tries`) is set aside as a dead letter, so that
/// its channel can go on. Once the cause is fixed, put it back: it is the last of its channel
/// then. Exit code 1 if there are none, or if one that was named is not there.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LettersArgs {
    /// The election
    pub(crate) name: String,

    /// Only those with these numbers [default: all]
    #[arg(value_name = "NUMBER")]
    pub(crate) ids: Vec<u64>,

    /// Only those of this channel
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) channel: Option<String>,

    /// Put them back, at the end of their channels
    #[arg(long)]
    pub(crate) replay: bool,

    /// Remove them for good
    #[arg(long, conflicts_with = "replay")]
    pub(crate) discard: bool,

    /// How many at most, if none are named
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  tenure dead-letters shop
  tenure dead-letters shop --channel orders --replay
  tenure dead-letters shop 17 --discard";

/// Lists dead letters, and does with them what was asked for.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped they may have been moved or not.
pub(crate) async fn run(
    args: &LettersArgs,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let name = election_name(&args.name)?;
    let mut letters = Vec::new();
    if !choice.is_missing() {
        let opened = choice.open()?;
        let messenger = Messenger::new(name.as_str(), opened.store.clone())?;
        let channel = args.channel.as_deref();
        // Those that were named may come after any number of others.
        let limit = if args.ids.is_empty() { args.limit } else { usize::MAX };
        letters = in_time(messenger.dead_letters(channel, limit)).await??;
        letters.retain(|letter| args.ids.is_empty() || args.ids.contains(&letter.id));
        let ids: Vec<u64> = letters.iter().map(|letter| letter.id).collect();
        if args.replay {
            in_time(messenger.replay(&ids)).await??;
        } else if args.discard {
            in_time(messenger.discard(&ids)).await??;
        }
    }
    let event = match (args.replay, args.discard) {
        (true, _) => "replayed",
        (_, true) => "discarded",
        _ => "dead_letter",
    };
    for letter in &letters {
        show(letter, event, &name, out);
    }
    let is_found = |id: &u64| letters.iter().any(|letter| letter.id == *id);
    let missing: Vec<&u64> = args.ids.iter().filter(|id| !is_found(id)).collect();
    for id in &missing {
        out.warn(&format!("{name} has no dead letter {id}"));
    }
    if letters.is_empty() && missing.is_empty() {
        out.say(&format!("{name} has no such dead letters"));
        return Ok(Exit::NEGATIVE);
    }
    if event != "dead_letter" {
        out.say(&format!("{} {event}", letters.len()));
    }
    Ok(if missing.is_empty() { Exit::DONE } else { Exit::NEGATIVE })
}

fn show(letter: &DeadLetter, event: &str, name: &Name, out: &Output) {
    let DeadLetter { id, channel, key, payload, deliveries } = letter;
    if out.json {
        let fields = vec![
            ("candidate", Value::Null),
            ("term", Value::Null),
            ("channel", json!(channel)),
            ("id", json!(id)),
            ("key", json!(key)),
            ("deliveries", json!(deliveries)),
            ("payload", payload.parse().unwrap_or_default()),
        ];
        out.object(boot_now(), event, name, fields);
    } else {
        let text = [channel.as_str(), key, payload].map(printable);
        let [channel, key, payload] = text;
        out.data(&format!("{id}  {channel}  {key}  tried {deliveries} times  {payload}"));
    }
}
