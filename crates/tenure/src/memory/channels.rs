//! Messages in memory: queues beside the leases, and inboxes that are told.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use tenure_core::sync::lock;
use tenure_core::{
    Acknowledged, Arrival, BoxFuture, ChannelBacklog, Channels, DeadLetter, Delivery, Error, Inbox,
    KEY_MEMORY, Limits, Name, Post, Posted, Taken, Term, Time,
};

use super::MemoryStore;

/// How many arrivals wait for one inbox; beyond that they are lost, and it is told so.
const ARRIVALS_MAX: usize = 10_000;

/// All that is kept for leaders.
#[derive(Default)]
pub(super) struct Mail {
    last_id: u64,
    boxes: HashMap<Name, BTreeMap<String, Queue>>,
    inboxes: Vec<Weak<Subscription>>,
}

/// One channel of one election.
#[derive(Default)]
struct Queue {
    waiting: BTreeMap<u64, Kept>,
    dead: BTreeMap<u64, Kept>,
    /// The keys that are known, with the number of their message.
    keys: HashMap<String, u64>,
    /// When which key was acknowledged, to forget the oldest first.
    done: VecDeque<(Time, String)>,
}

struct Kept {
    key: String,
    payload: String,
    posted: Time,
    deliveries: u32,
}

impl Mail {
    /// All that waits for the leaders of an election.
    pub(super) fn forget(&mut self, election: &Name) {
        self.boxes.remove(election);
    }

    fn queue(&mut self, election: &Name, channel: &str) -> &mut Queue {
        let queues = self.boxes.entry(election.clone()).or_default();
        queues.entry(channel.to_owned()).or_default()
    }

    fn post(&mut self, now: Time, election: &Name, post: &Post) -> Posted {
        let next = self.last_id + 1;
        let queue = self.queue(election, &post.channel);
        queue.forget_keys(now);
        if let Some(id) = queue.keys.get(&post.key) {
            return Posted { id: *id, is_new: false };
        }
        queue.keys.insert(post.key.clone(), next);
        let (key, payload) = (post.key.clone(), post.payload.clone());
        queue.waiting.insert(next, Kept { key, payload, posted: now, deliveries: 0 });
        self.last_id = next;
        Posted { id: next, is_new: true }
    }

    /// Dead letters that are among these, taken off.
    fn exhume(&mut self, election: &Name, ids: &[u64]) -> Vec<(String, Kept)> {
        let Some(queues) = self.boxes.get_mut(election) else { return Vec::new() };
        let mut found = BTreeMap::new();
        for (channel, queue) in queues {
            for id in ids {
                found.extend(queue.dead.remove(id).map(|kept| (*id, (channel.clone(), kept))));
            }
        }
        found.into_values().collect()
    }

    fn tell(&mut self, election: &Name, arrival: &Arrival) {
        self.inboxes.retain(|inbox| inbox.strong_count() > 0);
        for inbox in self.inboxes.iter().filter_map(Weak::upgrade) {
            let wanted = match arrival {
                Arrival::Notice { channel, .. } => inbox.channels.contains(channel),
                _ => true,
            };
            if inbox.election == *election && wanted {
                inbox.put(arrival.clone());
            }
        }
    }
}

impl Queue {
    fn forget_keys(&mut self, now: Time) {
        while let Some((at, _)) = self.done.front()
            && now - *at > KEY_MEMORY
        {
            let Some((_, key)) = self.done.pop_front() else { return };
            self.keys.remove(&key);
        }
    }

    fn take(&mut self, tries: u32) -> Option<Delivery> {
        loop {
            let mut head = self.waiting.first_entry()?;
            let id = *head.key();
            let kept = head.get_mut();
            if kept.deliveries < tries {
                kept.deliveries += 1;
                let (key, payload) = (kept.key.clone(), kept.payload.clone());
                return Some(Delivery { id, key, payload, count: kept.deliveries });
            }
            let kept = head.remove();
            self.dead.insert(id, kept);
        }
    }

    fn acknowledge(&mut self, now: Time, id: u64) -> bool {
        match self.waiting.remove(&id) {
            Some(kept) => {
                self.done.push_back((now, kept.key));
                true
            }
            None => false,
        }
    }
}

impl MemoryStore {
    /// Acts on the mail while this term's lease is held; `None` if it is not.
    fn under<T>(
        &self,
        election: &Name,
        term: Term,
        act: impl FnOnce(&mut Mail, Time) -> T,
    ) -> Option<T> {
        let mut leases = lock(&self.0.leases);
        let now = self.0.clock.now();
        let lease = leases.elections.get_mut(election).and_then(|known| known.held(now));
        lease.filter(|lease| lease.term == term)?;
        // Nobody is granted the next term before this is done: the leases are ours.
        Some(act(&mut lock(&self.0.mail), now))
    }
}

impl Channels for MemoryStore {
    fn limits(&self) -> Limits {
        Limits::new("memory")
    }

    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let (channel, payload) = (channel.to_owned(), payload.to_owned());
            lock(&self.0.mail).tell(election, &Arrival::Notice { channel, payload });
            Ok(())
        })
    }

    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        Box::pin(async move {
            let now = self.0.clock.now();
            let mut mail = lock(&self.0.mail);
            let posted = posts.iter().map(|post| mail.post(now, election, post)).collect();
            mail.tell(election, &Arrival::Posted);
            Ok(posted)
        })
    }

    fn listen<'a>(
        &'a self,
        election: &'a Name,
        _term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        Box::pin(async move {
            let (election, channels) = (election.clone(), channels.to_vec());
            let subscription =
                Arc::new(Subscription { election, channels, arrivals: Mutex::default() });
            lock(&self.0.mail).inboxes.push(Arc::downgrade(&subscription));
            Ok(Box::new(MemoryInbox(subscription)) as Box<dyn Inbox>)
        })
    }

    fn take<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        tries: u32,
    ) -> BoxFuture<'a, Result<Taken, Error>> {
        Box::pin(async move {
            let taken =
                self.under(election, term, |mail, _| mail.queue(election, channel).take(tries));
            Ok(match taken {
                None => Taken::Stale,
                Some(None) => Taken::Empty,
                Some(Some(delivery)) => Taken::Message(delivery),
            })
        })
    }

    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>> {
        Box::pin(async move {
            let done = self.under(election, term, |mail, now| {
                mail.queue(election, channel).acknowledge(now, id)
            });
            Ok(match done {
                None => Acknowledged::Stale,
                Some(true) => Acknowledged::Done,
                Some(false) => Acknowledged::Gone,
            })
        })
    }

    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>> {
        Box::pin(async move {
            let now = self.0.clock.now();
            let mail = lock(&self.0.mail);
            let queues = mail.boxes.get(election).into_iter().flatten();
            let backlog = queues.map(|(channel, queue)| ChannelBacklog {
                channel: channel.clone(),
                waiting: queue.waiting.len() as u64,
                dead: queue.dead.len() as u64,
                oldest: queue.waiting.values().map(|kept| now - kept.posted).max(),
            });
            Ok(backlog.filter(|one| one.waiting + one.dead > 0).collect())
        })
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        Box::pin(async move {
            let mail = lock(&self.0.mail);
            let queues = mail.boxes.get(election).into_iter().flatten();
            let wanted = queues.filter(|(name, _)| channel.is_none_or(|one| one == *name));
            let mut letters: Vec<DeadLetter> = wanted
                .flat_map(|(name, queue)| queue.dead.iter().map(move |dead| (name, dead)))
                .map(|(name, (id, kept))| DeadLetter {
                    id: *id,
                    channel: name.clone(),
                    key: kept.key.clone(),
                    payload: kept.payload.clone(),
                    deliveries: kept.deliveries,
                })
                .collect();
            letters.sort_by_key(|letter| letter.id);
            letters.truncate(limit);
            Ok(letters)
        })
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut mail = lock(&self.0.mail);
            let found = mail.exhume(election, ids);
            let count = found.len() as u64;
            for (channel, kept) in found {
                mail.last_id += 1;
                let id = mail.last_id;
                let queue = mail.queue(election, &channel);
                queue.keys.insert(kept.key.clone(), id);
                queue.waiting.insert(id, Kept { deliveries: 0, ..kept });
            }
            mail.tell(election, &Arrival::Posted);
            Ok(count)
        })
    }

    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut mail = lock(&self.0.mail);
            let found = mail.exhume(election, ids);
            for (channel, kept) in &found {
                mail.queue(election, channel).keys.remove(&kept.key);
            }
            Ok(found.len() as u64)
        })
    }
}

/// What one inbox wants, and what came for it.
struct Subscription {
    election: Name,
    channels: Vec<String>,
    arrivals: Mutex<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    queue: VecDeque<Arrival>,
    waker: Option<Waker>,
}

impl Subscription {
    fn put(&self, arrival: Arrival) {
        let mut arrivals = lock(&self.arrivals);
        match arrivals.queue.len() {
            len if len < ARRIVALS_MAX => arrivals.queue.push_back(arrival),
            ARRIVALS_MAX => arrivals.queue.push_back(Arrival::Gap),
            _ => {}
        }
        let waker = arrivals.waker.take();
        drop(arrivals);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct MemoryInbox(Arc<Subscription>);

impl Inbox for MemoryInbox {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let mut arrivals = lock(&self.0.arrivals);
        match arrivals.queue.pop_front() {
            Some(arrival) => Poll::Ready(Some(arrival)),
            None => {
                arrivals.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
