//! Where notices come in, for all leaders of this process.
//!
//! All inboxes hear on one session, and not on the one that renews: no flood of notices stands
//! before a renewal. When it breaks, another follows it, and each inbox is told that something may
//! be missing.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use tenure_core::sync::lock;
use tenure_core::{Arrival, Error, Inbox, Name};
use tokio::time::timeout;

use crate::config::PostgresConfig;
use crate::connector::Connector;
use crate::error;
use crate::listener::NotifyListener;
use crate::notifications::Subscriber;

/// How many arrivals wait for one inbox; beyond that they are lost, and it is told so.
const ARRIVALS_MAX: usize = 10_000;

/// All inboxes of one store.
pub(crate) struct Inboxes {
    config: Arc<PostgresConfig>,
    listener: Arc<NotifyListener>,
    /// The channel on which leaders are told that something was posted.
    posts: String,
    open: Mutex<Vec<Weak<OpenInbox>>>,
}

impl Inboxes {
    pub(crate) fn new(config: Arc<PostgresConfig>, listener: Arc<NotifyListener>) -> Arc<Inboxes> {
        let posts = config.names.posts_channel();
        let inboxes = Arc::new(Inboxes { config, listener, posts, open: Mutex::default() });
        let subscriber: Arc<dyn Subscriber> = inboxes.clone();
        inboxes.listener.notifications().subscribe(Arc::downgrade(&subscriber));
        inboxes
    }

    /// Opens an inbox. It is ready once this process has heard itself, behind everything that was
    /// sent before (M1). `sender` is another connection than the one that listens: behind a pooler
    /// in transaction mode they could be one session, and it would hear itself and nobody else.
    pub(crate) async fn listen(
        self: &Arc<Inboxes>,
        election: &Name,
        channels: &[String],
        sender: &Connector,
    ) -> Result<Box<dyn Inbox>, Error> {
        let open = Arc::new(OpenInbox {
            election: election.clone(),
            channels: channels.iter().cloned().collect(),
            hears: AtomicBool::new(false),
            arrivals: Mutex::default(),
        });
        lock(&self.open).push(Arc::downgrade(&open));
        let inbox = PostgresInbox { inboxes: self.clone(), open: open.clone() };
        let wanted = channels.iter().map(String::as_str).chain([&*self.posts]);
        let limit = self.config.connect_timeout + self.config.call_timeout;
        let hears = async {
            self.listener.until_listening(wanted).await?;
            let begin = move || open.hears.store(true, Ordering::Release);
            self.listener.hear_itself(sender, begin).await
        };
        match timeout(limit, hears).await {
            Ok(heard) => heard.map(|()| Box::new(inbox) as Box<dyn Inbox>),
            Err(_) => Err(error::timed_out(&self.config, "listening at", limit)),
        }
    }

    fn all(&self) -> Vec<Arc<OpenInbox>> {
        lock(&self.open).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Subscriber for Inboxes {
    fn channels(&self) -> Vec<String> {
        let all = self.all();
        let posts = (!all.is_empty()).then(|| self.posts.clone());
        all.iter().flat_map(|inbox| inbox.channels.iter().cloned()).chain(posts).collect()
    }

    fn hear(&self, channel: &str, payload: &str) {
        for inbox in self.all() {
            if inbox.channels.contains(channel) {
                inbox.put(|| {
                    let (channel, payload) = (channel.to_owned(), payload.to_owned());
                    Arrival::Notice { channel, payload }
                });
            } else if channel == self.posts && inbox.election.as_str() == payload {
                inbox.put(|| Arrival::Posted);
            }
        }
    }

    fn missed(&self) {
        self.all().iter().for_each(|inbox| inbox.put(|| Arrival::Gap));
    }
}

/// What one inbox wants, and what came for it.
struct OpenInbox {
    election: Name,
    channels: HashSet<String>,
    /// Set once this process has heard itself: before that, everything is dropped (M1).
    hears: AtomicBool,
    arrivals: Mutex<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    queue: VecDeque<Arrival>,
    waker: Option<Waker>,
}

impl OpenInbox {
    /// Puts an arrival in. It is not made if there is no room for it.
    fn put(&self, arrival: impl FnOnce() -> Arrival) {
        if !self.hears.load(Ordering::Acquire) {
            return;
        }
        let waker = {
            let mut arrivals = lock(&self.arrivals);
            let queue = &mut arrivals.queue;
            match queue.len() {
                length if length < ARRIVALS_MAX => {
                    let arrival = arrival();
                    // One hint says as much as many.
                    if arrival != Arrival::Posted || queue.back() != Some(&arrival) {
                        queue.push_back(arrival);
                    }
                }
                ARRIVALS_MAX => queue.push_back(Arrival::Gap),
                _ => {}
            }
            arrivals.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct PostgresInbox {
    inboxes: Arc<Inboxes>,
    open: Arc<OpenInbox>,
}

impl Inbox for PostgresInbox {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        {
            let mut arrivals = lock(&self.open.arrivals);
            if let Some(arrival) = arrivals.queue.pop_front() {
                return Poll::Ready(Some(arrival));
            }
            arrivals.waker = Some(cx.waker().clone());
        }
        self.inboxes.listener.start();
        Poll::Pending
    }
}

impl Drop for PostgresInbox {
    fn drop(&mut self) {
        let mine = Arc::downgrade(&self.open);
        lock(&self.inboxes.open).retain(|open| open.strong_count() > 0 && !open.ptr_eq(&mine));
        // What nobody else wants is not listened to any more.
        self.inboxes.listener.refresh();
    }
}
