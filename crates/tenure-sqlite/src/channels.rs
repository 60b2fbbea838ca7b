//! Messages in the store's file: rows, and files that say that there are some.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::{
    Acknowledged, BoxFuture, ChannelBacklog, Channels, DeadLetter, Error, ErrorKind, Inbox, Limits,
    Name, Post, Posted, Taken, Term,
};

use crate::error;
use crate::hints::announce_mail;
use crate::inbox::{Bell, Ring, SqliteInbox};
use crate::mail::Room;
use crate::store::SqliteStore;

/// Notices are kept for a minute, some thousand of them: so they are not long.
const NOTICE_BYTES: usize = 64 << 10;

impl Channels for SqliteStore {
    fn limits(&self) -> Limits {
        let mut limits = Limits::new(error::STORE);
        limits.notice_bytes = NOTICE_BYTES;
        limits
    }

    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let (name, channel, payload) = (election.clone(), channel.to_owned(), payload.to_owned());
        Box::pin(self.mail().ask("notify", move |room| {
            let hints = room.notify(&name, &channel, &payload)?;
            announce_mail(&hints, &name, Ring::Notice);
            Ok(())
        }))
    }

    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        let (name, posts) = (election.clone(), posts.to_vec());
        Box::pin(self.mail().ask("post", move |room| {
            let (posted, hints) = room.post(&name, &posts)?;
            announce_mail(&hints, &name, Ring::Post);
            Ok(posted)
        }))
    }

    fn listen<'a>(
        &'a self,
        election: &'a Name,
        _term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        Box::pin(async move {
            let bell = Arc::new(Bell::default());
            // Before the end is looked for, so that nothing behind it is missed.
            let Some(hints) = self.hub().listen_for_mail(election, &bell) else {
                let message = "files that appear can't be watched here, so nothing would be heard; \
                               raise fs.inotify.max_user_instances";
                return Err(error::new(ErrorKind::Unavailable, message).during("listen"));
            };
            let cursor = self.mail().ask("listen", |room| room.end_of_notices()).await?;
            let inbox = SqliteInbox {
                mail: self.mail().clone(),
                election: election.clone(),
                channels: channels.iter().cloned().collect(),
                bell,
                cursor,
                arrivals: VecDeque::new(),
                reading: None,
                _hints: hints,
            };
            Ok(Box::new(inbox) as Box<dyn Inbox>)
        })
    }

    fn take<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        tries: u32,
    ) -> BoxFuture<'a, Result<Taken, Error>> {
        let (name, channel) = (election.clone(), channel.to_owned());
        Box::pin(self.mail().ask("take", move |room| room.take(&name, term, &channel, tries)))
    }

    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>> {
        let (name, channel) = (election.clone(), channel.to_owned());
        let done = move |room: &mut Room| room.acknowledge(&name, term, &channel, id);
        Box::pin(self.mail().ask("acknowledge", done))
    }

    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>> {
        let name = election.clone();
        Box::pin(self.mail().ask("backlog", move |room| room.backlog(&name)))
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        let (name, channel) = (election.clone(), channel.map(str::to_owned));
        let letters = move |room: &mut Room| room.dead_letters(&name, channel.as_deref(), limit);
        Box::pin(self.mail().ask("list", letters))
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        let (name, ids) = (election.clone(), ids.to_vec());
        Box::pin(self.mail().ask("replay", move |room| {
            let (count, hints) = room.exhume(&name, &ids, true)?;
            announce_mail(&hints, &name, Ring::Post);
            Ok(count)
        }))
    }

    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        let (name, ids) = (election.clone(), ids.to_vec());
        Box::pin(self.mail().ask("discard", move |room| Ok(room.exhume(&name, &ids, false)?.0)))
    }
}
