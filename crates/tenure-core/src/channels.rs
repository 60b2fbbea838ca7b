//! Messages to the leader: the contract for stores that carry them.
//!
//! A *notice* is heard by the leader of that moment, or by nobody. A *post* is kept until a
//! leader acknowledges it.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::{BoxFuture, Error, Name, Term};

/// How long at least a key is remembered after its message was acknowledged.
pub const KEY_MEMORY: Duration = Duration::from_secs(24 * 3600);

/// Carries messages to the leader.
///
/// # Contract
/// What implementors owe. `tenure-testkit` has a suite that checks it. Payloads, keys and channel
/// names are data, always bound, never spliced into a command. Callers have checked them against
/// [`limits`](Channels::limits), as [`ChannelsExt`] does.
///
/// - `notify`: those who listen now get it at most once; nothing is kept for later.
/// - `listen`: ends only once everything that is sent from now on will be seen, and the inbox
///   shows nothing from before (M1).
/// - `post`: durable before it returns, all of a batch or none. A channel's posts are numbered in
///   the order in which they become visible, across all senders (M3). A key that is known in this
///   election and channel adds nothing and is answered with the post that it belongs to. Keys are
///   known while their message is kept, and for [`KEY_MEMORY`] after it was acknowledged.
/// - `take`: the head of the channel, with its count of deliveries raised by one; always the
///   lowest number that is neither acknowledged nor dead. One that was delivered `tries` times is
///   made a dead letter instead, and the next is the head.
/// - `acknowledge`: takes a message off for good. Like `take` it names the term, and it changes
///   nothing unless that term's lease is held at the instant at which it is done.
/// - A dead letter that is replayed is the last of its channel and counts from 0 again.
///
/// # Cancel safety
/// `limits`, `listen`, `backlog` and `dead_letters` are cancel safe. The others are not: if the
/// future is dropped it may have been done or not; a post is made safe by its key, a take by the
/// next one, an acknowledgement by asking again.
pub trait Channels: Send + Sync {
    /// How long names and payloads may be here.
    fn limits(&self) -> Limits;

    /// Sends to the current leader: at most once, lost if nobody leads.
    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Keeps messages until the leader acknowledges them; one answer for each, in order.
    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>>;

    /// Starts to listen on behalf of the leader of this term.
    fn listen<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>>;

    /// Hands the head of a channel to the leader of this term.
    fn take<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        tries: u32,
    ) -> BoxFuture<'a, Result<Taken, Error>>;

    /// Takes a message that was handled off its channel.
    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>>;

    /// What waits and what is dead, for each channel that has any, in order of their names.
    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>>;

    /// The dead letters of one channel or of all, oldest first, at most `limit`.
    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>>;

    /// Puts dead letters back at the end of their channels; how many there were of these.
    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>>;

    /// Removes dead letters and their keys for good; how many there were of these.
    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>>;
}

/// What users of channels enjoy on top of the contract: calls that check what they are given before
/// they ask the store.
///
/// # Cancel safety
/// As for the calls of [`Channels`] that they make.
pub trait ChannelsExt: Channels {
    /// Sends JSON to the current leader: at most once, lost if nobody leads.
    ///
    /// # Errors
    /// `Config` if the payload is not JSON or too long (the limit is named), or there can't be such
    /// a channel; nothing is sent then. Else what kept the store from sending it.
    fn send_notice<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.limits().check_notice(channel, payload)?;
            self.notify(election, channel, payload).await
        })
    }

    /// Keeps messages until the leader acknowledges them; one answer for each, in order. Up to the
    /// store's limit of a batch they are kept all or none; more are split.
    ///
    /// # Errors
    /// `Config` if one of them can't be sent; nothing is kept then. Else what kept the store from
    /// taking them.
    fn send_posts<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        Box::pin(async move {
            let limits = self.limits();
            posts.iter().try_for_each(|post| limits.check_post(post))?;
            let mut posted = Vec::with_capacity(posts.len());
            for batch in posts.chunks(limits.batch.max(1)) {
                posted.extend(self.post(election, batch).await?);
            }
            Ok(posted)
        })
    }
}

impl<C: Channels + ?Sized> ChannelsExt for C {}

/// What arrives while leading.
pub trait Inbox: Send {
    /// The next arrival, as in `Stream`; `None` once listening has ended for good. It connects
    /// again by itself, and says [`Arrival::Gap`] then.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>>;
}

/// One thing that an [`Inbox`] has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrival {
    /// A notice came in. Anybody may have sent it: the payload need not be JSON.
    Notice {
        /// The channel.
        channel: String,
        /// The payload.
        payload: String,
    },
    /// Something was posted in this election. A hint, like others (I5).
    Posted,
    /// Notices may have been missed.
    Gap,
}

/// A message to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The channel.
    pub channel: String,
    /// The payload, JSON text.
    pub payload: String,
    /// The sender's idempotency key.
    pub key: String,
}

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The store's number of the message; it orders the messages of one channel.
    pub id: u64,
    /// Whether it is a new message; `false` if its key was known.
    pub is_new: bool,
}

/// What a leader gets when it takes the head of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// The next message.
    Message(Delivery),
    /// Nothing waits.
    Empty,
    /// The term that was named no longer holds.
    Stale,
}

/// A posted message, as it is handed to a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The store's number of the message.
    pub id: u64,
    /// The sender's idempotency key.
    pub key: String,
    /// The payload, JSON text.
    pub payload: String,
    /// How often it was delivered, this time included.
    pub count: u32,
}

/// The answer to an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acknowledged {
    /// The message is off its channel.
    Done,
    /// It was not there: acknowledged before, by the handler itself perhaps, or dead.
    Gone,
    /// The term that was named no longer holds, and nothing was changed.
    Stale,
}

/// How much waits in one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelBacklog {
    /// The channel.
    pub channel: String,
    /// How many wait.
    pub waiting: u64,
    /// How many are dead.
    pub dead: u64,
    /// How long the oldest that waits has done so, by the store's wall clock.
    pub oldest: Option<Duration>,
}

/// A message that no leader could handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The store's number of the message.
    pub id: u64,
    /// The channel.
    pub channel: String,
    /// The sender's idempotency key.
    pub key: String,
    /// The payload, JSON text.
    pub payload: String,
    /// How often it was delivered.
    pub deliveries: u32,
}

/// How long names and payloads may be in one store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The store, for sentences.
    pub store: &'static str,
    /// The longest name of a channel.
    pub channel_bytes: usize,
    /// The longest payload of a notice.
    pub notice_bytes: usize,
    /// The longest payload of a post.
    pub post_bytes: usize,
    /// The most posts in one batch.
    pub batch: usize,
}

impl Limits {
    /// The longest key, in bytes.
    pub const KEY_BYTES: usize = 255;

    /// What a store takes that has no limits of its own: names of 255 bytes, payloads of 1 MiB.
    pub fn new(store: &'static str) -> Limits {
        let mebibyte = 1 << 20;
        Limits {
            store,
            channel_bytes: 255,
            notice_bytes: mebibyte,
            post_bytes: mebibyte,
            batch: 1000,
        }
    }

    /// Checks the name of a channel.
    ///
    /// # Errors
    /// `Config` if it is empty or too long, or has a control character in it.
    pub fn check_channel(&self, channel: &str) -> Result<(), Error> {
        self.check_text("the name of a channel", channel, self.channel_bytes)
    }

    /// Checks a notice.
    ///
    /// # Errors
    /// `Config` if the payload is not JSON or too long, or the name of the channel can't be.
    pub fn check_notice(&self, channel: &str, payload: &str) -> Result<(), Error> {
        self.check_channel(channel)?;
        check_json(payload)?;
        if payload.len() <= self.notice_bytes {
            return Ok(());
        }
        Err(Error::config(format!(
            "the payload has {} bytes, and a notice on {} carries at most {}; post it instead, \
             which takes up to {}",
            payload.len(),
            self.store,
            self.notice_bytes,
            self.post_bytes
        )))
    }

    /// Checks a post.
    ///
    /// # Errors
    /// `Config` if the payload is not JSON or too long, or the channel or the key can't be.
    pub fn check_post(&self, post: &Post) -> Result<(), Error> {
        self.check_channel(&post.channel)?;
        self.check_text("the key of a post", &post.key, Limits::KEY_BYTES)?;
        check_json(&post.payload)?;
        if post.payload.len() <= self.post_bytes {
            return Ok(());
        }
        Err(Error::config(format!(
            "the payload has {} bytes, and a post on {} has at most {}; post a link to it instead",
            post.payload.len(),
            self.store,
            self.post_bytes
        )))
    }

    fn check_text(&self, what: &str, text: &str, max_bytes: usize) -> Result<(), Error> {
        if text.is_empty() {
            return Err(Error::config(format!("{what} is empty; give it 1 to {max_bytes} bytes")));
        }
        if text.len() > max_bytes {
            return Err(Error::config(format!(
                "{what} has {} bytes, and {} takes at most {max_bytes}; shorten it",
                text.len(),
                self.store
            )));
        }
        match text.chars().find(|letter| letter.is_control()) {
            Some(letter) => Err(Error::config(format!(
                "{what} contains the control character {letter:?}; remove it"
            ))),
            None => Ok(()),
        }
    }
}

/// Whether this text is JSON.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok()
}

fn check_json(payload: &str) -> Result<(), Error> {
    serde_json::from_str::<serde_json::Value>(payload).map(|_| ()).map_err(|error| {
        Error::config(format!(
            "the payload is not JSON: {error}; a text goes in double quotes, as in '\"now\"'"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn postgres() -> Limits {
        Limits { channel_bytes: 63, notice_bytes: 7999, ..Limits::new("postgres") }
    }

    fn post(channel: &str, payload: &str, key: &str) -> Post {
        Post { channel: channel.into(), payload: payload.into(), key: key.into() }
    }

    fn says(checked: Result<(), Error>) -> String {
        checked.expect_err("refused").message().to_owned()
    }

    #[test]
    fn a_notice_that_is_too_long_names_the_limit_and_points_to_post() {
        let fits = format!("\"{}\"", "x".repeat(7997));
        postgres().check_notice("c", &fits).unwrap();
        let text = says(postgres().check_notice("c", &format!("{fits} ")));
        assert!(text.contains("8000 bytes") && text.contains("at most 7999"), "{text}");
        assert!(text.contains("post it instead"), "{text}");
    }

    #[test]
    fn a_payload_that_is_not_json_is_refused_with_where_and_how() {
        for payload in ["", "refresh", "{\"a\":", "{} {}", "{'a': 1}", "\"a\nb\""] {
            let text = says(postgres().check_notice("c", payload));
            assert!(text.contains("not JSON") && text.contains("line"), "{payload}: {text}");
            assert!(!is_json(payload));
            says(postgres().check_post(&post("c", payload, "k")));
        }
        assert!(is_json("{\"a\": [1, \"\\u0000\"]}") && is_json("7"));
    }

    #[test]
    fn channels_and_keys_are_data_with_a_length() {
        for odd in ["it's \"quoted\"; NOTIFY x", "日本", "a b"] {
            postgres().check_channel(odd).unwrap();
        }
        postgres().check_channel(&"x".repeat(63)).unwrap();
        let text = says(postgres().check_channel(&"x".repeat(64)));
        assert!(text.contains("64 bytes, and postgres takes at most 63"), "{text}");
        assert!(says(postgres().check_channel("")).contains("is empty"));
        assert!(says(postgres().check_channel("a\0b")).contains("control character"));
        let long = "k".repeat(256);
        assert!(says(postgres().check_post(&post("c", "1", &long))).contains("at most 255"));
        let long = format!("\"{}\"", "x".repeat((1 << 20) - 1));
        let text = says(postgres().check_post(&post("c", &long, "k")));
        assert!(text.contains("1048577 bytes") && text.contains("at most 1048576"), "{text}");
    }
}
