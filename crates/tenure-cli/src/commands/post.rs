//! `tenure post`: keeps a message until the leader has handled it.

use std::io;

use clap::Args;
use serde_json::{Value, json};
use tenure::{Messenger, Name, Post, Posted};

use super::{in_time, payload};
use crate::exit::{Exit, Failure};
use crate::options::election_name;
use crate::output::{Output, boot_now};
use crate::store::StoreChoice;

/// How many lines of input are kept in one call.
const LINES_AT_ONCE: usize = 500;

/// Give the leader something to do; kept until it is done
///
/// The payload is JSON, and `{}` if there is none. It is kept in the store until a leader has
/// handled and acknowledged it, in the order of its channel, over kills and failovers; so it may be
/// handled more than once. A key that is known already (for as long as its message is kept, and
/// for 24 hours after it was acknowledged) adds nothing: give one, and it is safe to post again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PostArgs {
    /// The election
    pub(crate) name: String,

    /// The channel
    pub(crate) channel: String,

    /// The payload; `-` reads it from stdin
    #[arg(value_name = "JSON|-", allow_hyphen_values = true)]
    pub(crate) payload: Option<String>,

    /// The idempotency key: 1 to 255 bytes [default: a random one]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Post each line of stdin as a message of its own; with --key, the keys are KEY-1, KEY-2, ...
    #[arg(long, conflicts_with = "payload")]
    pub(crate) lines: bool,
}

const EXAMPLES: &str = "\
Examples:
  tenure post shop orders '{\"number\": 7}' --key order-7
  tenure post shop orders - < order.json
  tenure post shop orders --lines --key import-2026-11 < orders.jsonl";

/// Posts one message, or one for each line.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped it may have been posted or not.
pub(crate) async fn run(
    args: &PostArgs,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let name = election_name(&args.name)?;
    let one = if args.lines { None } else { Some(payload(args.payload.as_deref())?) };
    let opened = choice.open()?;
    let messenger = Messenger::new(name.as_str(), opened.store.clone())?;
    let mut rng = fastrand::Rng::new();
    let mut key = |number: usize| match (&args.key, args.lines) {
        (Some(key), true) => format!("{key}-{number}"),
        (Some(key), false) => key.clone(),
        (None, _) => format!("{:032x}", rng.u128(..)),
    };
    let mut new_post = |number: usize, payload: String| Post {
        channel: args.channel.clone(),
        payload,
        key: key(number),
    };
    let tell = Teller { out, name: &name };
    if let Some(payload) = one {
        let posts = [new_post(1, payload)];
        tell.posted(&posts, &in_time(messenger.post_all(&posts)).await??);
        return Ok(Exit::DONE);
    }
    let mut posts = Vec::with_capacity(LINES_AT_ONCE);
    let mut number = 0;
    for (index, line) in io::stdin().lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        number += 1;
        let post = new_post(number, line);
        // Before any of its batch is kept, so that the line can be named.
        let checked = messenger.limits()?.check_post(&post);
        checked.map_err(|error| Failure::from(error).about(format!("line {}", index + 1)))?;
        posts.push(post);
        if posts.len() == LINES_AT_ONCE {
            tell.posted(&posts, &in_time(messenger.post_all(&posts)).await??);
            posts.clear();
        }
    }
    tell.posted(&posts, &in_time(messenger.post_all(&posts)).await??);
    Ok(Exit::DONE)
}

struct Teller<'a> {
    out: &'a Output,
    name: &'a Name,
}

impl Teller<'_> {
    fn posted(&self, posts: &[Post], posted: &[Posted]) {
        for (post, posted) in posts.iter().zip(posted) {
            if self.out.json {
                let fields = vec![
                    ("candidate", Value::Null),
                    ("term", Value::Null),
                    ("channel", json!(post.channel)),
                    ("id", json!(posted.id)),
                    ("key", json!(post.key)),
                    ("new", json!(posted.is_new)),
                ];
                self.out.object(boot_now(), "posted", self.name, fields);
            } else if !posted.is_new {
                self.out.say(&format!("the key {} is known, as number {}", post.key, posted.id));
            }
        }
    }
}
