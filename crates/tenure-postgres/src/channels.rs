//! Messages: plain NOTIFY for notices, a table for posts.
//!
//! The decisions about posts are made by functions in the database; this owns the words. Messages
//! have a connection of their own, on which they are sent, taken and heard, and which the ledger
//! shares: a renewal never waits behind one.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Acknowledged, BoxFuture, ChannelBacklog, Channels, DeadLetter, Delivery, Error, ErrorKind,
    Inbox, Limits, Name, Post, Posted, Taken, Term,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::clock::now;
use crate::config::PostgresConfig;
use crate::connector::Connector;
use crate::error;
use crate::fence::STALE;
use crate::inbox::Inboxes;
use crate::listener::NotifyListener;
use crate::notices::NoticeSender;

/// NOTIFY takes less than 8,000 bytes, and the name of a channel is an identifier.
const NOTICE_BYTES: usize = 7_999;
const CHANNEL_BYTES: usize = 63;

/// How long a post waits for those of others that are not committed (M3).
const POST_WAIT: Duration = Duration::from_secs(2);

/// A statement's values with their types.
type Values<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The messages of one database: the stores of both kinds share it.
pub(crate) struct PostgresChannels {
    config: Arc<PostgresConfig>,
    connector: Arc<Connector>,
    /// The one of the elections, for what this process tells itself.
    elections: Arc<Connector>,
    listener: Arc<NotifyListener>,
    notices: Arc<NoticeSender>,
    inboxes: Arc<Inboxes>,
}

impl PostgresChannels {
    /// Sends, takes and hears on this connection. Nothing is connected before it is used.
    pub(crate) fn new(
        config: Arc<PostgresConfig>,
        connector: Arc<Connector>,
        elections: Arc<Connector>,
    ) -> PostgresChannels {
        let listener = Arc::new(NotifyListener::new(config.clone(), connector.clone()));
        // Each inbox that is opened finds it out.
        listener.assume_direct();
        let notices = Arc::new(NoticeSender::new(connector.clone()));
        let inboxes = Inboxes::new(config.clone(), listener.clone());
        PostgresChannels { config, connector, elections, listener, notices, inboxes }
    }

    async fn query(&self, template: &str, values: &Values<'_>) -> Result<Vec<Row>, Error> {
        let sql = self.config.names.render(template);
        self.connector.query(&sql, values).await
    }

    /// Tells leaders that something was posted; a lost hint costs time only (I5).
    async fn wake(&self, election: &str) {
        let channel = self.config.names.posts_channel();
        let values: &Values<'_> = &[(&channel, Type::TEXT), (&election, Type::TEXT)];
        if let Err(error) = self.connector.query(include_str!("sql/notify.sql"), values).await {
            tracing::debug!(%error, "the leader could not be told of a post; it looks by itself");
        }
    }

    async fn post_all(&self, election: &Name, posts: &[Post]) -> Result<Vec<Posted>, Error> {
        let election = election.as_str();
        let channels: Vec<&str> = posts.iter().map(|post| &*post.channel).collect();
        let payloads: Vec<&str> = posts.iter().map(|post| &*post.payload).collect();
        let keys: Vec<&str> = posts.iter().map(|post| &*post.key).collect();
        let values: &Values<'_> = &[
            (&election, Type::TEXT),
            (&channels, Type::TEXT_ARRAY),
            (&payloads, Type::TEXT_ARRAY),
            (&keys, Type::TEXT_ARRAY),
        ];
        // The wake-up is sent right behind, on the same session: it comes after the commit (M2).
        let sql = self.config.names.render(include_str!("sql/post.sql"));
        let began = now();
        let rows = loop {
            let (rows, ()) = tokio::join!(self.connector.query(&sql, values), self.wake(election));
            match rows {
                Err(error) if error::is_locked(&error) && began.elapsed() < POST_WAIT => {}
                rows => break rows?,
            }
        };
        if rows.len() != posts.len() {
            return Err(odd());
        }
        rows.iter().map(|row| Ok(Posted { id: number(row, 1)?, is_new: get(row, 2)? })).collect()
    }

    async fn take_head(
        &self,
        election: &Name,
        term: Term,
        channel: &str,
        tries: u32,
    ) -> Result<Taken, Error> {
        let (election, term) = (election.as_str(), column(term.get()));
        let tries = i32::try_from(tries).unwrap_or(i32::MAX);
        let values: &Values<'_> = &[
            (&election, Type::TEXT),
            (&term, Type::INT8),
            (&channel, Type::TEXT),
            (&tries, Type::INT4),
        ];
        let rows = match self.query(include_str!("sql/take.sql"), values).await {
            Err(error) if is_stale(&error) => return Ok(Taken::Stale),
            rows => rows?,
        };
        let Some(row) = rows.first() else { return Ok(Taken::Empty) };
        let count: i32 = get(row, 3)?;
        Ok(Taken::Message(Delivery {
            id: number(row, 0)?,
            key: get(row, 1)?,
            payload: get(row, 2)?,
            count: count.unsigned_abs(),
        }))
    }

    /// How many rows, or which number in the first of them.
    async fn count(&self, template: &str, election: &Name, ids: &[u64]) -> Result<u64, Error> {
        let election = election.as_str();
        let ids: Vec<i64> = ids.iter().map(|id| column(*id)).collect();
        let values: &Values<'_> = &[(&election, Type::TEXT), (&ids, Type::INT8_ARRAY)];
        let rows = self.query(template, values).await?;
        if template.contains("RETURNING") {
            return Ok(rows.len() as u64);
        }
        rows.first().map_or_else(|| Err(odd()), |row| number(row, 0))
    }
}

impl Channels for PostgresChannels {
    fn limits(&self) -> Limits {
        let mut limits = Limits::new(error::STORE);
        limits.channel_bytes = CHANNEL_BYTES;
        limits.notice_bytes = NOTICE_BYTES;
        limits
    }

    fn notify<'a>(
        &'a self,
        _election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let sent = self.notices.send(channel, payload).await;
            sent.map_err(|error| error.during("notify"))
        })
    }

    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        Box::pin(async move {
            if posts.is_empty() {
                return Ok(Vec::new());
            }
            self.post_all(election, posts).await.map_err(|error| error.during("post"))
        })
    }

    fn listen<'a>(
        &'a self,
        election: &'a Name,
        _term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        Box::pin(async move {
            let inbox = self.inboxes.listen(election, channels, &self.elections).await;
            inbox.map_err(|error| error.during("listen"))
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
            let taken = self.take_head(election, term, channel, tries).await;
            taken.map_err(|error| error.during("take"))
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
            let (election, term, id) = (election.as_str(), column(term.get()), column(id));
            let values: &Values<'_> = &[
                (&election, Type::TEXT),
                (&term, Type::INT8),
                (&channel, Type::TEXT),
                (&id, Type::INT8),
            ];
            match self.query(include_str!("sql/acknowledge.sql"), values).await {
                Err(error) if is_stale(&error) => Ok(Acknowledged::Stale),
                Err(error) => Err(error.during("acknowledge")),
                Ok(rows) => match rows.first().map(|row| get::<bool>(row, 0)) {
                    Some(Ok(true)) => Ok(Acknowledged::Done),
                    Some(Ok(false)) => Ok(Acknowledged::Gone),
                    _ => Err(odd().during("acknowledge")),
                },
            }
        })
    }

    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>> {
        Box::pin(async move {
            let election = election.as_str();
            let values: &Values<'_> = &[(&election, Type::TEXT)];
            let rows = self.query(include_str!("sql/backlog.sql"), values).await;
            let rows = rows.map_err(|error| error.during("backlog"))?;
            let one = |row: &Row| {
                let oldest: Option<i64> = get(row, 3)?;
                Ok(ChannelBacklog {
                    channel: get(row, 0)?,
                    waiting: number(row, 1)?,
                    dead: number(row, 2)?,
                    oldest: oldest.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
                })
            };
            rows.iter().map(one).collect()
        })
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        Box::pin(async move {
            let election = election.as_str();
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let values: &Values<'_> =
                &[(&election, Type::TEXT), (&channel, Type::TEXT), (&limit, Type::INT8)];
            let rows = self.query(include_str!("sql/dead_letters.sql"), values).await;
            let rows = rows.map_err(|error| error.during("list"))?;
            let letter = |row: &Row| {
                let deliveries: i32 = get(row, 4)?;
                Ok(DeadLetter {
                    id: number(row, 0)?,
                    channel: get(row, 1)?,
                    key: get(row, 2)?,
                    payload: get(row, 3)?,
                    deliveries: deliveries.unsigned_abs(),
                })
            };
            rows.iter().map(letter).collect()
        })
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let (count, ()) = tokio::join!(
                self.count(include_str!("sql/replay.sql"), election, ids),
                self.wake(election.as_str()),
            );
            count.map_err(|error| error.during("replay"))
        })
    }

    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let count = self.count(include_str!("sql/discard.sql"), election, ids).await;
            count.map_err(|error| error.during("discard"))
        })
    }
}

impl Drop for PostgresChannels {
    fn drop(&mut self) {
        self.listener.close();
    }
}

/// Whether the fence has refused the term.
fn is_stale(error: &Error) -> bool {
    error::code(error) == Some(STALE)
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, Error> {
    row.try_get(index).map_err(|error| odd().caused_by(error))
}

fn number(row: &Row, index: usize) -> Result<u64, Error> {
    u64::try_from(get::<i64>(row, index)?).map_err(|_| odd())
}

fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn odd() -> Error {
    error::new(ErrorKind::Corrupt, "a function of tenure answers in another shape; update tenure")
}
