//! `tenure post`: keeps a message until the leader has handled it.

use std::io;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tenure::{Messenger, Name, Post, Posted};
use tokio::sync::mpsc;

use super::{in_time, pause, payload};
use crate::exit::{Exit, Failure};
use crate::options::election_name;
use crate::output::{Output, boot_now};
use crate::store::StoreChoice;

/// How many lines of input are kept in one call.
const LINES_AT_ONCE: usize = 500;

/// How long a line waits for others at most.
const WAIT_MAX: Duration = Duration::from_millis(200);

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
    ///
    /// Lines are kept in groups of up to 500. None waits longer than 200 ms for others.
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
    let (mut lines, mut number) = (Lines::read()?, 0);
    loop {
        let batch = lines.next_batch().await?;
        if batch.is_empty() {
            return Ok(Exit::DONE);
        }
        let mut posts = Vec::with_capacity(batch.len());
        for (at, line) in batch {
            number += 1;
            let post = new_post(number, line);
            // Before any of its batch is kept, so that the line can be named.
            let checked = messenger.limits()?.check_post(&post);
            checked.map_err(|error| Failure::from(error).about(format!("line {at}")))?;
            posts.push(post);
        }
        tell.posted(&posts, &in_time(messenger.post_all(&posts)).await??);
    }
}

/// The lines of stdin that are not empty, each with its number.
struct Lines(mpsc::Receiver<io::Result<(usize, String)>>);

impl Lines {
    /// Begins to read. The thread ends with the input, or with the process.
    fn read() -> io::Result<Lines> {
        let (sender, lines) = mpsc::channel(LINES_AT_ONCE);
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            for (index, line) in io::stdin().lines().enumerate() {
                let line = line.map(|line| (index + 1, line));
                let is_empty = line.as_ref().is_ok_and(|(_, line)| line.trim().is_empty());
                if !is_empty && sender.blocking_send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Lines(lines))
    }

    /// As many as are there, but none waits for long; none at the end of the input.
    async fn next_batch(&mut self) -> io::Result<Vec<(usize, String)>> {
        let Some(first) = self.0.recv().await else { return Ok(Vec::new()) };
        let mut batch = vec![first?];
        let mut enough = std::pin::pin!(pause(WAIT_MAX));
        while batch.len() < LINES_AT_ONCE {
            tokio::select! {
                biased;
                line = self.0.recv() => match line {
                    Some(line) => batch.push(line?),
                    None => break,
                },
                () = &mut enough => break,
            }
        }
        Ok(batch)
    }
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
