//! Messages to the leader: the contract for stores that carry them.

use std::task::{Context, Poll};

use crate::{BoxFuture, Error, Name, Term};

/// One message as the leader gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel it came on.
    pub channel: String,
    /// The payload, JSON text.
    pub payload: String,
    /// For a posted message: how it is acknowledged.
    pub receipt: Option<Receipt>,
}

impl Message {
    /// A message on a channel.
    pub fn new(
        channel: impl Into<String>,
        payload: impl Into<String>,
        receipt: Option<Receipt>,
    ) -> Message {
        Message { channel: channel.into(), payload: payload.into(), receipt }
    }
}

/// What a posted message is acknowledged by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The store's number of the message; it orders the messages of one channel.
    pub id: u64,
    /// The sender's idempotency key.
    pub key: String,
    /// How often it was delivered, this time included.
    pub delivery: u32,
}

/// Carries messages to whoever leads.
///
/// # Contract
/// Payloads and channel names are data, always bound, never spliced into a command. `listen`
/// returns only once everything sent from now on will be seen (M1). `acknowledge` names the term
/// and is refused if it is stale.
///
/// # Cancel safety
/// `listen` is cancel safe. The others are not: if the future is dropped it may have been done or
/// not; a post is made safe by its key, an acknowledgement by its receipt.
pub trait Channels: Send + Sync {
    /// The largest payload of a `notify`, in bytes.
    fn notify_limit_bytes(&self) -> usize;

    /// Sends to whoever leads now: at most once, lost if nobody does.
    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Keeps a message until the leader acknowledges it; the same key is kept once.
    fn post<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Starts to listen on behalf of the leader of this term.
    fn listen<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>>;

    /// Takes a posted message off the list; `false` if the term is stale.
    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        receipt: &'a Receipt,
    ) -> BoxFuture<'a, Result<bool, Error>>;
}

/// The messages that arrive while leading.
pub trait Inbox: Send {
    /// The next message, as in `Stream`; `None` once listening has ended.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>>;
}
