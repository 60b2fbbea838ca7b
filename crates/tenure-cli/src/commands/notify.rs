//! `tenure notify`: tells the leader, at most once.

use clap::Args;
use serde_json::{Value, json};
use tenure::Messenger;
use tenure_core::StoreExt as _;

use super::{in_time, payload};
use crate::exit::{Exit, Failure};
use crate::options::election_name;
use crate::output::{Output, boot_now};
use crate::store::StoreChoice;

/// Tell the leader something now; lost if nobody leads
///
/// The payload is JSON, and `{}` if there is none. The leader gets it at most once, if it listens;
/// see `post` for what must not be lost. On Postgres it is a plain NOTIFY on the channel's own
/// name, heard by everybody who listens to it there.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NotifyArgs {
    /// The election
    pub(crate) name: String,

    /// The channel
    pub(crate) channel: String,

    /// The payload; `-` reads it from stdin
    #[arg(value_name = "JSON|-", allow_hyphen_values = true)]
    pub(crate) payload: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  tenure notify cache refresh
  tenure notify cache refresh '{\"table\": \"prices\"}'
  jq -c .event event.json | tenure notify cache refresh -";

/// Sends, and says so if nobody seems to lead.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped it may have been sent or not.
pub(crate) async fn run(
    args: &NotifyArgs,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let name = election_name(&args.name)?;
    let payload = payload(args.payload.as_deref())?;
    let opened = choice.open()?;
    let messenger = Messenger::new(name.as_str(), opened.store.clone())?;
    in_time(messenger.notify(&args.channel, &payload)).await??;
    let leader = in_time(opened.store.read(&name)).await?.ok().map(|sight| sight.lease.is_some());
    if out.json {
        let fields = vec![
            ("candidate", Value::Null),
            ("term", Value::Null),
            ("channel", json!(args.channel)),
            ("led", json!(leader)),
        ];
        out.object(boot_now(), "notified", &name, fields);
    } else if leader == Some(false) {
        out.warn(&format!("nobody leads {name} now, so it was lost; `tenure post` keeps it"));
    }
    Ok(Exit::DONE)
}
