//! What a case on messages works with: a leader, and somebody who sends.

use std::future::poll_fn;
use std::sync::Arc;

use tenure_core::{
    Acknowledged, Arrival, Channels, Delivery, Inbox, Name, Post, Posted, Store, Taken, Term,
};

use crate::conformance::arena::{Arena, Player, Stop, ensure, granted, skip};
use crate::util::within;

/// More tries than any case needs.
pub(super) const MANY: u32 = 100;

/// A handle that can carry messages, and the election that they are about.
#[derive(Clone)]
pub(super) struct ChannelUser {
    store: Arc<dyn Store>,
    pub(super) election: Name,
}

impl ChannelUser {
    /// A handle of its own onto the data of this case, as another process would have. Skips if
    /// the store carries no messages.
    pub(super) async fn new(arena: &Arena<'_>) -> Result<ChannelUser, Stop> {
        let store = arena.another_handle().await?;
        if store.channels().is_none() {
            ensure!(!arena.info.channels, "info() claims channels, and there are none");
            return skip("the store carries no messages");
        }
        ensure!(arena.info.channels, "there are channels, and info() does not say so");
        Ok(ChannelUser { store, election: arena.election.clone() })
    }

    pub(super) fn on(&self, store: &Arc<dyn Store>) -> ChannelUser {
        ChannelUser { store: store.clone(), ..self.clone() }
    }

    pub(super) fn about(&self, election: &Name) -> ChannelUser {
        ChannelUser { election: election.clone(), ..self.clone() }
    }

    pub(super) fn channels(&self) -> Result<&dyn Channels, Stop> {
        self.store.channels().ok_or_else(|| Stop::Failed("the channels are gone".to_owned()))
    }

    pub(super) async fn notify(&self, channel: &str, payload: &str) -> Result<(), Stop> {
        Ok(self.channels()?.notify(&self.election, channel, payload).await?)
    }

    pub(super) async fn listen(&self, term: Term, names: &[&str]) -> Result<Box<dyn Inbox>, Stop> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(self.channels()?.listen(&self.election, term, &names).await?)
    }

    /// Posts one after the other: channel, payload, key.
    pub(super) async fn post(&self, posts: &[(&str, &str, &str)]) -> Result<Vec<Posted>, Stop> {
        let posts: Vec<Post> = posts
            .iter()
            .map(|(channel, payload, key)| Post {
                channel: (*channel).to_owned(),
                payload: (*payload).to_owned(),
                key: (*key).to_owned(),
            })
            .collect();
        let posted = self.channels()?.post(&self.election, &posts).await?;
        ensure!(posted.len() == posts.len(), "{} posts, {} answers", posts.len(), posted.len());
        Ok(posted)
    }

    pub(super) async fn take(&self, term: Term, channel: &str, tries: u32) -> Result<Taken, Stop> {
        Ok(self.channels()?.take(&self.election, term, channel, tries).await?)
    }

    /// The next message, which must be there.
    pub(super) async fn takes(&self, term: Term, channel: &str) -> Result<Delivery, Stop> {
        match self.take(term, channel, MANY).await? {
            Taken::Message(delivery) => Ok(delivery),
            other => Err(Stop::Failed(format!("a message waits in {channel}, but: {other:?}"))),
        }
    }

    pub(super) async fn acknowledge(
        &self,
        term: Term,
        channel: &str,
        id: u64,
    ) -> Result<Acknowledged, Stop> {
        Ok(self.channels()?.acknowledge(&self.election, term, channel, id).await?)
    }

    /// An acknowledgement that must count.
    pub(super) async fn handles(&self, term: Term, channel: &str) -> Result<Delivery, Stop> {
        let delivery = self.takes(term, channel).await?;
        let done = self.acknowledge(term, channel, delivery.id).await?;
        ensure!(done == Acknowledged::Done, "{delivery:?} could not be acknowledged: {done:?}");
        Ok(delivery)
    }

    pub(super) async fn is_empty(&self, term: Term, channel: &str) -> Result<(), Stop> {
        let taken = self.take(term, channel, MANY).await?;
        ensure!(taken == Taken::Empty, "nothing waits in {channel}, but: {taken:?}");
        Ok(())
    }
}

/// A leader of this case's election, on a handle of its own.
pub(super) async fn leader(arena: &Arena<'_>, label: &str) -> Result<(Player, Term), Stop> {
    let player = arena.player(label)?;
    let term = player.takes().await?.term;
    Ok((player, term))
}

/// Hands the election over to another candidate.
pub(super) async fn succeed(
    arena: &Arena<'_>,
    former: &Player,
    term: Term,
) -> Result<(Player, Term), Stop> {
    granted("a release", former.release(Some(term)).await)?;
    leader(arena, "the successor").await
}

/// The next notice, which must come before patience ends.
pub(super) async fn hears(
    arena: &Arena<'_>,
    inbox: &mut dyn Inbox,
) -> Result<(String, String), Stop> {
    let notice = async {
        loop {
            match poll_fn(|cx| inbox.poll_next(cx)).await {
                Some(Arrival::Notice { channel, payload }) => return Ok((channel, payload)),
                Some(_) => {}
                None => return Err(Stop::Failed("the inbox has ended".to_owned())),
            }
        }
    };
    match within(arena.subject.patience(), notice).await {
        Some(notice) => notice,
        None => Err(Stop::Failed("a notice did not arrive".to_owned())),
    }
}

/// A hint that something was posted, which must come before patience ends.
pub(super) async fn is_woken(arena: &Arena<'_>, inbox: &mut dyn Inbox) -> Result<(), Stop> {
    let posted = async {
        loop {
            match poll_fn(|cx| inbox.poll_next(cx)).await {
                Some(Arrival::Posted) => return Ok(()),
                Some(_) => {}
                None => return Err(Stop::Failed("the inbox has ended".to_owned())),
            }
        }
    };
    match within(arena.subject.patience(), posted).await {
        Some(posted) => posted,
        None => Err(Stop::Failed("nobody was told of a post".to_owned())),
    }
}
