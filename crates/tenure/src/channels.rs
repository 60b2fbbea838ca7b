//! Messages to the leader, as programs see them: handlers, and the handle that sends.

mod dispatcher;
mod handling;
mod meter;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::{
    BoxFuture, ChannelBacklog, Channels, ChannelsExt as _, DeadLetter, Error, ErrorKind, Limits,
    Name, Post, Posted, Reason, Store, Term,
};
use tenure_fork::Origin;

pub(crate) use self::dispatcher::{Dispatcher, Order, too_slow};
use self::handling::Handling;
pub(crate) use self::meter::describe as describe_metrics;
use crate::callback::{Callback, CallbackResult, callback};
use crate::candidate::{check_origin, origin};
use crate::{Election, ElectionBuilder};

/// How often a post is delivered before it is a dead letter, unless told otherwise.
const TRIES: u32 = 10;
/// How long the handler of a post may take, unless told otherwise.
const POST_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A message, as a handler gets it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// The channel that it came on.
    pub channel: String,
    /// The payload: JSON text.
    pub payload: String,
    /// The term that is led: the fencing token for whatever the handler writes.
    pub term: Term,
    /// Which attempt this is to have it handled: 1 for the first, and for a notice. The store
    /// counts, so that a new leader goes on counting.
    pub attempt: u32,
    /// The store's number of a post; `None` for a notice.
    pub id: Option<u64>,
    /// The sender's key of a post; `None` for a notice.
    pub key: Option<String>,
    reign: Handling,
}

impl Message {
    /// Waits until this instance steps down, and tells why: wind up then. A handler that has not
    /// ended when trust does is dropped; what it handled is a post that comes again.
    ///
    /// # Cancel safety
    /// Cancel safe: a later call is told of the loss again.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore, Message};
    /// # async fn ship(_: &Message) {}
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// let election = Election::builder("shop", Arc::new(MemoryStore::new()))
    ///     .on_post("orders", |message| async move {
    ///         tokio::select! {
    ///             () = ship(&message) => Ok(()),
    ///             reason = message.lost() => Err(format!("lost: {}", reason.as_str())),
    ///         }
    ///     })
    ///     .start()
    ///     .await?;
    /// # election.stop().await
    /// # }
    /// ```
    pub async fn lost(&self) -> Reason {
        self.reign.lost().await
    }

    /// May I still finish what I started? True until trust ends. One load and one clock read.
    pub fn is_current(&self) -> bool {
        self.reign.is_current()
    }
}

/// What became of the messages of one election here, since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageCounts {
    /// Handled to their end; posts were acknowledged too.
    pub handled: u64,
    /// Whose handler failed or panicked; of posts each delivery counts.
    pub failed: u64,
    /// Not JSON, so no handler saw them.
    pub skipped: u64,
    /// Notices that came faster than they were handled, or while the store was away. Of the latter
    /// nobody knows the number: each time counts as one.
    pub missed: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    handled: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    missed: AtomicU64,
}

type PostHandler = Arc<dyn Fn(Message) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The handlers of one election, by channel.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    notices: BTreeMap<String, Callback<Message>>,
    posts: BTreeMap<String, PostHandler>,
    tries: Option<u32>,
    timeout: Option<Duration>,
    /// Channels that were given two handlers of one kind.
    doubled: BTreeSet<String>,
}

impl Handlers {
    pub(crate) fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.posts.is_empty()
    }

    /// Checks them against what the store can carry.
    pub(crate) fn check(&self, store: &dyn Store) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        if let Some(channel) = self.doubled.first() {
            let message = format!("the channel {channel:?} has two handlers; keep one");
            return Err(Error::config(message));
        }
        if self.tries == Some(0) {
            return Err(Error::config("0 tries would handle no post at all; allow at least 1"));
        }
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::config("in no time no post can be handled; allow at least 1ms"));
        }
        let limits = carrier(store)?.limits();
        self.names().try_for_each(|channel| limits.check_channel(channel))
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let only_posts = self.posts.keys().filter(|name| !self.notices.contains_key(*name));
        self.notices.keys().chain(only_posts)
    }

    fn tries(&self) -> u32 {
        self.tries.unwrap_or(TRIES)
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(POST_TIMEOUT)
    }
}

impl ElectionBuilder {
    /// Handles the notices of a channel while this instance leads, one after the other. If the
    /// handler returns a future, the next notice waits for it; it is dropped when the time for
    /// winding up is over. A panic is counted and logged, and harms nothing else. A lease is not
    /// kept alive for a handler that blocks its thread, because that can't be told of a loss.
    ///
    /// With a handler, an instance listens *before* it is told that it leads: whatever is sent
    /// after that is heard. One that can't listen does not lead: see [`Event::ListenFailed`].
    ///
    /// [`Event::ListenFailed`]: crate::Event::ListenFailed
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Election, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
    /// let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    /// let election = Election::builder("cache", Arc::new(MemoryStore::new()))
    ///     .on_notify("refresh", move |message| told.send(message.payload).unwrap())
    ///     .start()
    ///     .await?;
    /// election.notify("refresh", r#"{"table": "prices"}"#).await?;
    /// assert_eq!(heard.recv().await.as_deref(), Some(r#"{"table": "prices"}"#));
    /// # Ok(()) }
    /// ```
    pub fn on_notify<K, R: CallbackResult<K>>(
        mut self,
        channel: impl Into<String>,
        handle: impl Fn(Message) -> R + Send + Sync + 'static,
    ) -> ElectionBuilder {
        let channel = channel.into();
        if self.handlers.notices.insert(channel.clone(), callback(handle)).is_some() {
            self.handlers.doubled.insert(channel);
        }
        self
    }

    /// Handles the posts of a channel while this instance leads, one after the other and in the
    /// order in which they were posted. One that was handled is acknowledged; one that failed,
    /// panicked or took longer than [`post_timeout`](ElectionBuilder::post_timeout) is delivered
    /// again after a pause, and is a dead letter after
    /// [`post_tries`](ElectionBuilder::post_tries).
    ///
    /// [`Message::lost`] tells a handler to wind up. As for notices, a lease is not kept alive for
    /// a handler that blocks its thread.
    ///
    /// A post may be handled more than once: by a leader that dies before it can acknowledge it,
    /// and then by its successor. [`Message::key`] tells; or acknowledge it in the transaction of
    /// its effect, where the store is a database and so is yours.
    pub fn on_post<F, E>(
        mut self,
        channel: impl Into<String>,
        handle: impl Fn(Message) -> F + Send + Sync + 'static,
    ) -> ElectionBuilder
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let channel = channel.into();
        let handler: PostHandler = Arc::new(move |message| {
            let handled = handle(message);
            Box::pin(async move { handled.await.map_err(|error| error.to_string()) })
        });
        if self.handlers.posts.insert(channel.clone(), handler).is_some() {
            self.handlers.doubled.insert(channel);
        }
        self
    }

    /// How often a post is delivered before it is a dead letter; 10 unless set.
    pub fn post_tries(mut self, tries: u32) -> ElectionBuilder {
        self.handlers.tries = Some(tries);
        self
    }

    /// How long the handler of a post may take; 5 minutes unless set. Then it is dropped, which
    /// counts as a failure: the post stays and is tried again. `Duration::MAX` sets no limit.
    pub fn post_timeout(mut self, timeout: Duration) -> ElectionBuilder {
        self.handlers.timeout = Some(timeout);
        self
    }
}

/// Sends messages to the leader of an election, without taking part in it.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure::{MemoryStore, Messenger};
///
/// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
/// let messenger = Messenger::new("shop", Arc::new(MemoryStore::new()))?;
/// messenger.notify("refresh", "{}").await?; // heard by nobody: nobody leads
/// let posted = messenger.post("orders", r#"{"number": 7}"#, "order-7").await?;
/// assert!(posted.is_new); // kept until a leader has handled it
/// assert!(!messenger.post("orders", r#"{"number": 7}"#, "order-7").await?.is_new);
/// assert_eq!(messenger.backlog().await?[0].waiting, 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Messenger {
    store: Arc<dyn Store>,
    election: Name,
    origin: Origin,
}

impl Messenger {
    /// A sender to the leader of this election.
    ///
    /// # Errors
    /// `Config` for a bad name, `Unsupported` if the store carries no messages.
    pub fn new(election: &str, store: Arc<dyn Store>) -> Result<Messenger, Error> {
        let election = Name::new(election)?;
        carrier(&*store)?;
        Ok(Messenger { store, election, origin: origin()? })
    }

    /// How long names and payloads may be in this store.
    pub fn limits(&self) -> Result<Limits, Error> {
        Ok(self.carrier()?.limits())
    }

    /// Sends JSON to the current leader: at most once, and lost if nobody leads.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may have been sent or not.
    ///
    /// # Errors
    /// `Config` if the payload is not JSON or too long (the limit is named), or there can't be
    /// such a channel; nothing is sent then. Else whatever kept the store from taking it.
    pub async fn notify(&self, channel: &str, json: &str) -> Result<(), Error> {
        self.carrier()?.send_notice(&self.election, channel, json).await
    }

    /// Keeps JSON until a leader has handled it. The key makes it safe to post again when nobody
    /// knows whether the first time has worked: a known key adds nothing. It is known while its
    /// message is kept and for 24 hours after it was acknowledged.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may have been kept or not. Post it again with
    /// the same key.
    ///
    /// # Errors
    /// As for [`notify`](Messenger::notify).
    pub async fn post(&self, channel: &str, json: &str, key: &str) -> Result<Posted, Error> {
        let post =
            Post { channel: channel.to_owned(), payload: json.to_owned(), key: key.to_owned() };
        let posted = self.post_all(std::slice::from_ref(&post)).await?;
        posted.first().copied().ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "the store gave no answer to a post; a bug in it")
        })
    }

    /// Keeps many at once, in their order, which is much faster. Up to the store's limit (1,000)
    /// they are kept all or none; more are split.
    ///
    /// # Cancel safety
    /// As for [`post`](Messenger::post).
    ///
    /// # Errors
    /// As for [`post`](Messenger::post). Everything is checked before anything is kept.
    pub async fn post_all(&self, posts: &[Post]) -> Result<Vec<Posted>, Error> {
        self.carrier()?.send_posts(&self.election, posts).await
    }

    /// How much waits and how much is dead, by channel.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn backlog(&self) -> Result<Vec<ChannelBacklog>, Error> {
        self.carrier()?.backlog(&self.election).await
    }

    /// The dead letters of a channel or of all, oldest first.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn dead_letters(
        &self,
        channel: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        self.carrier()?.dead_letters(&self.election, channel, limit).await
    }

    /// Puts dead letters back, at the end of their channels; how many there were of these.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may have been done or not; look and see.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn replay(&self, ids: &[u64]) -> Result<u64, Error> {
        self.carrier()?.replay(&self.election, ids).await
    }

    /// Removes dead letters for good, with their keys; how many there were of these.
    ///
    /// # Cancel safety
    /// As for [`replay`](Messenger::replay).
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn discard(&self, ids: &[u64]) -> Result<u64, Error> {
        self.carrier()?.discard(&self.election, ids).await
    }

    fn carrier(&self) -> Result<&dyn Channels, Error> {
        check_origin(self.origin)?;
        carrier(&*self.store)
    }
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messenger").field("election", &self.election).finish_non_exhaustive()
    }
}

impl Election {
    /// A sender to the leader of this election, whoever that is.
    ///
    /// # Errors
    /// `Unsupported` if the store carries no messages.
    pub fn messenger(&self) -> Result<Messenger, Error> {
        self.check_process()?;
        let store = self.candidate_handle().store().clone();
        carrier(&*store)?;
        let origin = self.candidate_handle().origin();
        Ok(Messenger { store, election: self.name().clone(), origin })
    }

    /// Sends JSON to the current leader: see [`Messenger::notify`].
    ///
    /// # Cancel safety
    /// As for [`Messenger::notify`].
    ///
    /// # Errors
    /// As for [`Messenger::notify`].
    pub async fn notify(&self, channel: &str, json: &str) -> Result<(), Error> {
        self.messenger()?.notify(channel, json).await
    }

    /// Keeps JSON until a leader has handled it: see [`Messenger::post`].
    ///
    /// # Cancel safety
    /// As for [`Messenger::post`].
    ///
    /// # Errors
    /// As for [`Messenger::post`].
    pub async fn post(&self, channel: &str, json: &str, key: &str) -> Result<Posted, Error> {
        self.messenger()?.post(channel, json, key).await
    }

    /// What became of the messages that came for this instance.
    pub fn message_counts(&self) -> MessageCounts {
        let counts = &self.shared().counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MessageCounts {
            handled: read(&counts.handled),
            failed: read(&counts.failed),
            skipped: read(&counts.skipped),
            missed: read(&counts.missed),
        }
    }
}

fn carrier(store: &dyn Store) -> Result<&dyn Channels, Error> {
    store.channels().ok_or_else(|| {
        let message = format!("the store {} carries no messages; use another", store.info().kind);
        Error::new(ErrorKind::Unsupported, message)
    })
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
