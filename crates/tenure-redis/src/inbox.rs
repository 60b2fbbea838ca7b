//! What a leader hears: the end of the store's subscription that one inbox holds.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tenure_core::{Arrival, Error, Inbox};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::subscriber::Subscriber;

/// How many bytes wait for a leader that does not look, as many as a server keeps for a client by
/// default (`client-output-buffer-limit pubsub`). What comes after that is missed.
const WAITING_MAX: usize = 32 * 1024 * 1024;

/// What an arrival takes beside its text, roughly.
const OVERHEAD: usize = 128;

/// One inbox.
pub(crate) struct RedisInbox {
    pub(crate) subscriber: Arc<Subscriber>,
    pub(crate) id: u64,
}

impl Inbox for RedisInbox {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let Ok(runtime) = Handle::try_current() else { return Poll::Ready(None) };
        let (subscriber, id) = (&self.subscriber, self.id);
        subscriber.poll_from(&runtime, cx, |cx| subscriber.poll_mailbox(id, cx))
    }
}

impl Drop for RedisInbox {
    fn drop(&mut self) {
        self.subscriber.close_mailbox(self.id);
    }
}

/// What waits for one inbox.
pub(crate) struct Mailbox {
    /// Where the messages of its election are told.
    pub(crate) told_on: String,
    /// The channels whose notices it wants.
    channels: HashSet<String>,
    /// Set while somebody waits until it listens.
    pub(crate) request: Option<Request>,
    arrivals: VecDeque<Arrival>,
    bytes: usize,
    waker: Option<Waker>,
}

/// Somebody waits until a mailbox is subscribed.
pub(crate) struct Request {
    /// Told as soon as somebody looks after it.
    pub(crate) seen: Option<oneshot::Sender<()>>,
    /// Told when it listens, or why it can't.
    pub(crate) done: oneshot::Sender<Result<(), Error>>,
}

impl Mailbox {
    pub(crate) fn new(told_on: String, channels: &[String]) -> Mailbox {
        Mailbox {
            told_on,
            channels: channels.iter().cloned().collect(),
            request: None,
            arrivals: VecDeque::new(),
            bytes: 0,
            waker: None,
        }
    }

    /// Puts in what a message says. Whom to wake.
    pub(crate) fn put_message(&mut self, message: &[u8]) -> Option<Waker> {
        let arrival = self.read(message)?;
        self.put(arrival)
    }

    /// Puts in an arrival, or that some were missed. Whom to wake.
    pub(crate) fn put(&mut self, arrival: Arrival) -> Option<Waker> {
        let fits = self.bytes + size(&arrival) <= WAITING_MAX;
        let arrival = if fits { arrival } else { Arrival::Gap };
        // A notice counts each time. The others say the same twice.
        let is_notice = matches!(arrival, Arrival::Notice { .. });
        if is_notice || self.arrivals.back() != Some(&arrival) {
            self.bytes += size(&arrival);
            self.arrivals.push_back(arrival);
        }
        self.waker.take()
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        match self.arrivals.pop_front() {
            Some(arrival) => {
                self.bytes -= size(&arrival);
                Poll::Ready(Some(arrival))
            }
            None => {
                self.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whom to wake so that it looks again.
    pub(crate) fn waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    fn read(&self, message: &[u8]) -> Option<Arrival> {
        if message.is_empty() {
            return Some(Arrival::Posted);
        }
        let message = String::from_utf8_lossy(message);
        let (channel, payload) = message.split_once('\n')?;
        let (channel, payload) = (channel.to_owned(), payload.to_owned());
        self.channels.contains(&channel).then_some(Arrival::Notice { channel, payload })
    }
}

fn size(arrival: &Arrival) -> usize {
    OVERHEAD
        + match arrival {
            Arrival::Notice { channel, payload } => channel.len() + payload.len(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(mailbox: &mut Mailbox) -> Option<Arrival> {
        match mailbox.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(arrival) => arrival,
            Poll::Pending => None,
        }
    }

    #[test]
    fn only_notices_of_its_own_channels_and_news_of_posts_arrive() {
        let mut mailbox = Mailbox::new("told".to_owned(), &["a".to_owned()]);
        for message in ["b\n1", "a\n2\n3", "", "", "a", "c", "a\n2\n3", "a\n2\n3"] {
            mailbox.put_message(message.as_bytes());
        }
        let notice =
            || Some(Arrival::Notice { channel: "a".to_owned(), payload: "2\n3".to_owned() });
        assert_eq!(take(&mut mailbox), notice());
        assert_eq!(take(&mut mailbox), Some(Arrival::Posted));
        assert_eq!(take(&mut mailbox), notice());
        assert_eq!(take(&mut mailbox), notice(), "a notice counts each time");
        assert_eq!(take(&mut mailbox), None);
    }

    #[test]
    fn a_leader_that_does_not_look_misses_notices_and_is_told_so() {
        let mut mailbox = Mailbox::new("told".to_owned(), &["a".to_owned()]);
        let message = format!("a\n{}", "x".repeat(1024 * 1024));
        for _ in 0..100 {
            mailbox.put_message(message.as_bytes());
        }
        assert!(mailbox.bytes <= WAITING_MAX + OVERHEAD, "{}", mailbox.bytes);
        let arrivals: Vec<Arrival> = std::iter::from_fn(|| take(&mut mailbox)).collect();
        assert_eq!(arrivals.len(), 32);
        assert_eq!(arrivals.last(), Some(&Arrival::Gap));
        assert_eq!(arrivals.iter().filter(|arrival| **arrival == Arrival::Gap).count(), 1);
        assert_eq!(mailbox.bytes, 0);
    }
}
