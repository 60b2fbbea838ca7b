//! Messages. What is kept and what is handed out is decided by the scripts `lua/mail_*.lua`; this
//! owns the words.
//!
//! All of it is subject to what a Redis server may lose: none is lost only with AOF and without a
//! failover (M3).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{
    Acknowledged, BoxFuture, ChannelBacklog, Channels, DeadLetter, Delivery, Error, Inbox,
    KEY_MEMORY, Limits, Name, Post, Posted, Taken, Term,
};

use crate::error;
use crate::script::{Call, Kind};
use crate::store::RedisStore;

/// The keys of one election's messages.
pub(crate) struct MailKeys {
    lease: String,
    companion: String,
    stem: String,
}

impl MailKeys {
    pub(crate) fn new(store: &RedisStore, election: &Name) -> Result<MailKeys, Error> {
        let of = store.keys().of(election)?;
        let stem = format!("{}:mail", of.companion);
        Ok(MailKeys { lease: of.lease, companion: of.companion, stem })
    }

    /// What every script begins with, and the messages themselves.
    fn first(&self) -> Vec<String> {
        vec![self.lease.clone(), self.companion.clone(), self.stem.clone()]
    }

    /// The messages, their channels, and how the keys of each channel begin.
    pub(crate) fn all(&self) -> [String; 5] {
        [self.stem.clone(), self.channels(), self.waits(""), self.dead(""), self.known("")]
    }

    fn channels(&self) -> String {
        format!("{}:channels", self.stem)
    }

    fn waits(&self, channel: &str) -> String {
        format!("{}:waits:{channel}", self.stem)
    }

    fn dead(&self, channel: &str) -> String {
        format!("{}:dead:{channel}", self.stem)
    }

    fn known(&self, channel: &str) -> String {
        format!("{}:keys:{channel}", self.stem)
    }

    /// The length tells where the channel ends and the key begins.
    fn done(&self, channel: &str, key: &str) -> String {
        format!("{}:done:{}:{channel}:{key}", self.stem, channel.len())
    }
}

/// Requests for messages that have no answer yet. One whose answer is lost is made again under the
/// same number, so that it hands out nothing twice.
#[derive(Default)]
pub(crate) struct Takes(Mutex<HashMap<(Name, String), String>>);

/// How many requests this process has made.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

impl Takes {
    /// The number of the request: no other term has it, and no other request of this one.
    fn begin(&self, election: &Name, term: Term, channel: &str) -> String {
        let mut open = lock(&self.0);
        let request = open.entry((election.clone(), channel.to_owned())).or_default();
        if !request.starts_with(&format!("{term}:")) {
            *request = format!("{term}:{}", REQUESTS.fetch_add(1, Ordering::Relaxed));
        }
        request.clone()
    }

    fn answered(&self, election: &Name, channel: &str) {
        lock(&self.0).remove(&(election.clone(), channel.to_owned()));
    }
}

impl RedisStore {
    async fn exhume(&self, election: &Name, ids: &[u64], verb: &'static str) -> Result<u64, Error> {
        let of = MailKeys::new(self, election)?;
        let mut keys = of.first();
        keys.extend([of.waits(""), of.dead(""), of.known("")]);
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut args = vec![verb.to_owned()];
        args.extend(ids.iter().map(u64::to_string));
        args.push(self.keys().mail_channel(election));
        Words(self.words(Call::new(Kind::MailExhume, keys, args), verb).await?).number(0)
    }

    async fn post_all(&self, election: &Name, posts: &[Post]) -> Result<Vec<Posted>, Error> {
        let of = MailKeys::new(self, election)?;
        let mut keys = of.first();
        keys.push(of.channels());
        let mut args = vec![posts.len().to_string()];
        for Post { channel, payload, key } in posts {
            keys.extend([of.waits(channel), of.known(channel), of.done(channel, key)]);
            args.extend([channel.clone(), payload.clone(), key.clone()]);
        }
        args.push(self.keys().mail_channel(election));
        let words = Words(self.words(Call::new(Kind::MailPost, keys, args), "post").await?);
        if words.0.len() != posts.len() * 2 {
            return Err(error::odd_answer());
        }
        let posted = (0..posts.len()).map(|index| {
            Ok(Posted { id: words.number(index * 2)?, is_new: words.0[index * 2 + 1] == "1" })
        });
        posted.collect()
    }
}

/// The answer of a script.
struct Words(Vec<String>);

impl Words {
    fn word(&self, index: usize) -> Result<&str, Error> {
        self.0.get(index).map(String::as_str).ok_or_else(error::odd_answer)
    }

    fn number<T: std::str::FromStr>(&self, index: usize) -> Result<T, Error> {
        self.word(index)?.parse().map_err(|_| error::odd_answer())
    }

    /// Where each of so many parts begins.
    fn parts(&self, length: usize) -> impl Iterator<Item = usize> {
        (0..self.0.len() / length).map(move |part| part * length)
    }
}

impl Channels for RedisStore {
    fn limits(&self) -> Limits {
        Limits::new(error::STORE)
    }

    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let of = MailKeys::new(self, election)?;
            // The name of a channel has no line break in it.
            let message = format!("{channel}\n{payload}");
            let args = vec![message, self.keys().mail_channel(election)];
            let call = Call::new(Kind::MailNotify, vec![of.lease, of.companion], args);
            self.words(call, "notify").await.map(drop)
        })
    }

    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        Box::pin(async move {
            let posted = self.post_all(election, posts).await;
            posted.map_err(|error| error.in_store(error::STORE).during("post"))
        })
    }

    fn listen<'a>(
        &'a self,
        election: &'a Name,
        _term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        Box::pin(async move {
            self.keys().of(election)?;
            let told_on = self.keys().mail_channel(election);
            match self.subscriber().listen(told_on, channels).await {
                Ok(inbox) => Ok(Box::new(inbox) as Box<dyn Inbox>),
                Err(error) => Err(error.in_store(error::STORE).during("listen")),
            }
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
            let of = MailKeys::new(self, election)?;
            let mut keys = of.first();
            keys.extend([of.waits(channel), of.dead(channel)]);
            let request = self.takes().begin(election, term, channel);
            let args = vec![term.to_string(), tries.to_string(), request];
            let call = Call::new(Kind::MailTake, keys, args);
            let words = Words(self.words(call, "take").await?);
            self.takes().answered(election, channel);
            match words.word(0)? {
                "stale" => Ok(Taken::Stale),
                "empty" => Ok(Taken::Empty),
                _ => Ok(Taken::Message(Delivery {
                    id: words.number(1)?,
                    key: words.word(2)?.to_owned(),
                    payload: words.word(3)?.to_owned(),
                    count: words.number(4)?,
                })),
            }
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
            let of = MailKeys::new(self, election)?;
            let mut keys = of.first();
            keys.extend([of.waits(channel), of.known(channel), of.done(channel, "")]);
            let memory = KEY_MEMORY.as_millis().to_string();
            let args = vec![term.to_string(), id.to_string(), memory];
            let call = Call::new(Kind::MailAcknowledge, keys, args);
            let words = Words(self.words(call, "acknowledge").await?);
            match words.word(0)? {
                "stale" => Ok(Acknowledged::Stale),
                "gone" => Ok(Acknowledged::Gone),
                _ => Ok(Acknowledged::Done),
            }
        })
    }

    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>> {
        Box::pin(async move {
            let of = MailKeys::new(self, election)?;
            let mut keys = of.first();
            keys.extend([of.channels(), of.waits(""), of.dead("")]);
            let call = Call::new(Kind::MailBacklog, keys, Vec::new());
            let words = Words(self.words(call, "backlog").await?);
            let mut backlog = Vec::new();
            for at in words.parts(4) {
                let age = words.word(at + 3)?.parse().ok().map(Duration::from_millis);
                backlog.push(ChannelBacklog {
                    channel: words.word(at)?.to_owned(),
                    waiting: words.number(at + 1)?,
                    dead: words.number(at + 2)?,
                    oldest: age,
                });
            }
            backlog.sort_by(|a, b| a.channel.cmp(&b.channel));
            Ok(backlog)
        })
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        Box::pin(async move {
            let of = MailKeys::new(self, election)?;
            let mut keys = of.first();
            keys.extend([of.channels(), of.dead("")]);
            let limit = limit.min(1_000_000).to_string();
            let args = vec![channel.unwrap_or_default().to_owned(), limit];
            let call = Call::new(Kind::MailDead, keys, args);
            let words = Words(self.words(call, "list").await?);
            let letter = |at: usize| {
                Ok(DeadLetter {
                    id: words.number(at)?,
                    channel: words.word(at + 1)?.to_owned(),
                    key: words.word(at + 2)?.to_owned(),
                    payload: words.word(at + 3)?.to_owned(),
                    deliveries: words.number(at + 4)?,
                })
            };
            words.parts(5).map(letter).collect()
        })
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let count = self.exhume(election, ids, "replay").await;
            count.map_err(|error| error.in_store(error::STORE).during("replay"))
        })
    }

    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let count = self.exhume(election, ids, "discard").await;
            count.map_err(|error| error.in_store(error::STORE).during("discard"))
        })
    }
}
