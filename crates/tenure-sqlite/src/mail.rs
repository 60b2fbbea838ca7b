//! The thread that keeps messages, on a connection of its own: renewals never wait behind it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tenure_core::sync::lock;
use tenure_core::{
    Acknowledged, ChannelBacklog, DeadLetter, Delivery, Error, ErrorKind, KEY_MEMORY, Name, Post,
    Posted, Taken, Term,
};

use crate::config::SqliteConfig;
use crate::db::{self, Db, OPEN_TIMEOUT};
use crate::error;
use crate::host::Host;
use crate::lease::unix_ms;
use crate::worker::{Answer, answered, promise, thread_ended};

/// How many calls may wait for the file.
const QUEUE_MAX: usize = 4_096;

/// How many notices are kept, and how long.
const NOTICES_MAX: i64 = 4_096;
const NOTICE_MEMORY: Duration = Duration::from_secs(60);
/// How long it is known that there were some.
const MARK_MEMORY: Duration = Duration::from_secs(3600);
/// Old ones are looked for once in so many.
const NOTICES_TRIM: i64 = 64;
/// How many an inbox reads at once, as the statement says.
const READ_MAX: usize = 256;

/// The way to the thread, which is started by the first call.
#[derive(Debug)]
pub(crate) struct Mail {
    config: SqliteConfig,
    host: Host,
    jobs: Mutex<Option<SyncSender<Job>>>,
}

type Job = Box<dyn FnOnce(&mut Room) + Send>;

impl Mail {
    pub(crate) fn new(config: SqliteConfig, host: Host) -> Mail {
        Mail { config, host, jobs: Mutex::default() }
    }

    /// Has the thread do this. It is done even if the answer is no longer waited for.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        act: impl FnOnce(&mut Room) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        answered(self.send(act), what).await
    }

    pub(crate) fn send<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Room) -> Result<T, Error> + Send + 'static,
    ) -> Result<Answer<Result<T, Error>>, Error> {
        let (answer, promised) = promise();
        let job: Job = Box::new(move |room| answer.keep(act(room)));
        self.jobs()?.try_send(job).map_err(|failure| match failure {
            TrySendError::Full(_) => error::new(
                ErrorKind::Unavailable,
                format!("{QUEUE_MAX} messages wait for the file already; send more slowly"),
            ),
            TrySendError::Disconnected(_) => thread_ended(),
        })?;
        Ok(promised)
    }

    fn jobs(&self) -> Result<SyncSender<Job>, Error> {
        let mut jobs = lock(&self.jobs);
        if let Some(jobs) = &*jobs {
            return Ok(jobs.clone());
        }
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let (config, host) = (self.config.clone(), self.host.clone());
        let room = Room { config, host, db: None, generation: 0, is_durable: true };
        thread::Builder::new()
            .name("tenure-mail".to_owned())
            .spawn(move || room.run(&receiver))
            .map_err(|error| {
                let message = "the thread for messages can't be started; raise the limit";
                error::new(ErrorKind::Unavailable, message).caused_by(error)
            })?;
        *jobs = Some(sender.clone());
        Ok(sender)
    }
}

/// What the thread has: one connection, opened when it is needed.
pub(crate) struct Room {
    config: SqliteConfig,
    host: Host,
    db: Option<Db>,
    /// Counts how often the file was opened: numbers of notices are only good within one.
    generation: u64,
    /// Whether commits wait for the disk at present.
    is_durable: bool,
}

/// Where an inbox has read to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    generation: u64,
    id: i64,
}

/// What an inbox has read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) cursor: Cursor,
    /// The file is another one, or some were trimmed before they were read: some are missing.
    pub(crate) gap: bool,
    /// Channel and payload.
    pub(crate) notices: Vec<(String, String)>,
    pub(crate) more: bool,
}

impl Room {
    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            job(&mut self);
        }
    }

    /// Keeps a notice for whoever leads, for an instant; the directory to leave a file in.
    pub(crate) fn notify(
        &mut self,
        election: &Name,
        channel: &str,
        payload: &str,
    ) -> Result<PathBuf, Error> {
        // Not worth waiting for the disk: after a power loss nobody is there who could hear it.
        self.change(false, |conn, now_ns| {
            conn.prepare_cached(include_str!("sql/notice_add.sql"))?.execute((
                election.as_str(),
                channel,
                now_ns,
                payload,
            ))?;
            let id = conn.last_insert_rowid();
            if id % NOTICES_TRIM == 0 {
                trim_notices(conn, id, now_ns)?;
            }
            Ok(())
        })?;
        self.hints()
    }

    pub(crate) fn post(
        &mut self,
        election: &Name,
        posts: &[Post],
    ) -> Result<(Vec<Posted>, PathBuf), Error> {
        let posted = self
            .change(true, |conn, _| posts.iter().map(|post| add(conn, election, post)).collect())?;
        Ok((posted, self.hints()?))
    }

    pub(crate) fn take(
        &mut self,
        election: &Name,
        term: Term,
        channel: &str,
        tries: u32,
    ) -> Result<Taken, Error> {
        // A count that is lost with the power is no harm: it is delivered once more.
        self.change(false, |conn, now_ns| {
            if !leads(conn, election, term, now_ns)? {
                return Ok(Taken::Stale);
            }
            loop {
                let head = conn
                    .prepare_cached(include_str!("sql/message_head.sql"))?
                    .query_row((election.as_str(), channel), |row| {
                        let count: u32 = row.get(3)?;
                        let (key, payload) = (row.get(1)?, row.get(2)?);
                        Ok((row.get::<_, i64>(0)?, key, payload, count))
                    })
                    .optional()?;
                let Some((id, key, payload, count)) = head else { return Ok(Taken::Empty) };
                if count < tries {
                    conn.prepare_cached(include_str!("sql/message_deliver.sql"))?
                        .execute((id, column(term.get())))?;
                    let (id, count) = (id.unsigned_abs(), count + 1);
                    return Ok(Taken::Message(Delivery { id, key, payload, count }));
                }
                conn.prepare_cached(include_str!("sql/message_bury.sql"))?
                    .execute((id, unix_ms()))?;
            }
        })
    }

    pub(crate) fn acknowledge(
        &mut self,
        election: &Name,
        term: Term,
        channel: &str,
        id: u64,
    ) -> Result<Acknowledged, Error> {
        self.change(true, |conn, now_ns| {
            if !leads(conn, election, term, now_ns)? {
                return Ok(Acknowledged::Stale);
            }
            let now = unix_ms().unwrap_or(0);
            let ended = conn.prepare_cached(include_str!("sql/message_end.sql"))?.execute((
                column(id),
                election.as_str(),
                channel,
                now,
                column(term.get()),
            ))?;
            let old = now.saturating_sub(i64::try_from(KEY_MEMORY.as_millis()).unwrap_or(0));
            conn.prepare_cached(include_str!("sql/message_trim.sql"))?.execute([old])?;
            Ok(if ended == 1 { Acknowledged::Done } else { Acknowledged::Gone })
        })
    }

    pub(crate) fn backlog(&mut self, election: &Name) -> Result<Vec<ChannelBacklog>, Error> {
        self.look(|conn| {
            let now = unix_ms().unwrap_or(0);
            let mut rows = conn.prepare_cached(include_str!("sql/message_backlog.sql"))?;
            let rows = rows.query_map([election.as_str()], |row| {
                let oldest: Option<i64> = row.get(3)?;
                let age = |at: i64| Duration::from_millis(u64::try_from(now - at).unwrap_or(0));
                Ok(ChannelBacklog {
                    channel: row.get(0)?,
                    waiting: row.get::<_, i64>(1)?.unsigned_abs(),
                    dead: row.get::<_, i64>(2)?.unsigned_abs(),
                    oldest: oldest.map(age),
                })
            })?;
            rows.collect()
        })
    }

    pub(crate) fn dead_letters(
        &mut self,
        election: &Name,
        channel: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        self.look(|conn| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = conn.prepare_cached(include_str!("sql/message_dead.sql"))?;
            let rows = rows.query_map((election.as_str(), channel, limit), |row| {
                Ok(DeadLetter {
                    id: row.get::<_, i64>(0)?.unsigned_abs(),
                    channel: row.get(1)?,
                    key: row.get(2)?,
                    payload: row.get(3)?,
                    deliveries: row.get(4)?,
                })
            })?;
            rows.collect()
        })
    }

    /// Takes dead letters off, and puts them at the end of their channels if they are to be
    /// replayed; how many, and the directory to leave a file in.
    pub(crate) fn exhume(
        &mut self,
        election: &Name,
        ids: &[u64],
        replay: bool,
    ) -> Result<(u64, PathBuf), Error> {
        let mut ids: Vec<i64> = ids.iter().map(|id| column(*id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let count = self.change(true, |conn, _| {
            let mut count = 0;
            for id in &ids {
                let letter = conn
                    .prepare_cached(include_str!("sql/message_exhume.sql"))?
                    .query_row((id, election.as_str()), |row| {
                        let post =
                            Post { channel: row.get(0)?, key: row.get(1)?, payload: row.get(2)? };
                        Ok(post)
                    })
                    .optional()?;
                let Some(post) = letter else { continue };
                if replay {
                    add(conn, election, &post)?;
                }
                count += 1;
            }
            Ok(count)
        })?;
        Ok((count, self.hints()?))
    }

    /// The present end of the notices (M1), and the directory that files are left in.
    pub(crate) fn end_of_notices(&mut self) -> Result<Cursor, Error> {
        let id = self.look(last_notice)?;
        Ok(Cursor { generation: self.generation, id })
    }

    /// The notices behind the cursor.
    pub(crate) fn notices(&mut self, election: &Name, cursor: Cursor) -> Result<Read, Error> {
        let (last, rows) = self.look(|conn| {
            let mut rows = conn.prepare_cached(include_str!("sql/notice_read.sql"))?;
            let rows = rows.query_map((election.as_str(), cursor.id), |row| {
                Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?))
            })?;
            let rows: Vec<(i64, String, String)> = rows.collect::<rusqlite::Result<_>>()?;
            Ok((last_notice(conn)?, rows))
        })?;
        let generation = self.generation;
        if generation != cursor.generation {
            let cursor = Cursor { generation, id: last };
            return Ok(Read { cursor, gap: true, notices: Vec::new(), more: false });
        }
        let (id, more) = match rows.last() {
            Some(row) => (row.0, rows.len() == READ_MAX),
            None => (last, false),
        };
        let (kept, marks): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, channel, _)| !channel.is_empty());
        let notices = kept.into_iter().map(|(_, channel, payload)| (channel, payload)).collect();
        Ok(Read { cursor: Cursor { generation, id }, gap: !marks.is_empty(), notices, more })
    }

    fn hints(&mut self) -> Result<PathBuf, Error> {
        Ok(self.db()?.place.hints.clone())
    }

    fn look<T>(
        &mut self,
        act: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let db = self.db()?;
        let real = db.place.real.clone();
        let tx = db.look()?;
        act(&tx).map_err(|error| error::from_sqlite(&real, error))
    }

    /// One transaction that writes, at one instant; committed to the file that others use.
    fn change<T>(
        &mut self,
        durable: bool,
        act: impl FnOnce(&Connection, i64) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.db()?;
        let Room { host, db: Some(db), is_durable, .. } = self else { return Err(thread_ended()) };
        let real = db.place.real.clone();
        let broken = |error| error::from_sqlite(&real, error);
        if durable != *is_durable {
            let mode = if durable { "FULL" } else { "NORMAL" };
            db.conn.pragma_update(None, "synchronous", mode).map_err(broken)?;
            // From here on, whatever becomes of the transaction.
            *is_durable = durable;
        }
        let tx = db.change()?;
        let era = db::era(&tx, host, &real)?;
        db::enter(&tx, host, &era).map_err(broken)?;
        // The clock is read after the lock is held.
        let done = act(&tx, host.now_ns()).map_err(broken)?;
        tx.commit().map_err(broken)?;
        // What was committed to a file that is no longer there was kept by nobody (S4).
        match self.db.take_if(|db| db.is_moved()) {
            Some(db) => {
                let error = error::moved(&db.place.path);
                db.abandon();
                Err(error)
            }
            None => Ok(done),
        }
    }

    /// The connection; opened again if the file is another one by now.
    fn db(&mut self) -> Result<&mut Db, Error> {
        if let Some(db) = self.db.take_if(|db| db.is_moved() || db.is_snapshot()) {
            db.abandon();
        }
        if self.db.is_none() {
            let busy = self.config.busy_timeout;
            let db = Db::open_with(&self.config, &self.host, OPEN_TIMEOUT, busy)?;
            self.db = Some(db);
            self.generation += 1;
            self.is_durable = true;
        }
        self.db.as_mut().ok_or_else(thread_ended)
    }
}

fn add(conn: &Connection, election: &Name, post: &Post) -> rusqlite::Result<Posted> {
    let Post { channel, payload, key } = post;
    let election = election.as_str();
    let added: Option<i64> = conn
        .prepare_cached(include_str!("sql/message_post.sql"))?
        .query_row((election, channel, key, payload, unix_ms().unwrap_or(0)), |row| row.get(0))
        .optional()?;
    if let Some(id) = added {
        return Ok(Posted { id: id.unsigned_abs(), is_new: true });
    }
    let known: i64 = conn
        .prepare_cached(include_str!("sql/message_known.sql"))?
        .query_row((election, channel, key), |row| row.get(0))?;
    Ok(Posted { id: known.unsigned_abs(), is_new: false })
}

fn leads(conn: &Connection, election: &Name, term: Term, now_ns: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached(include_str!("sql/message_leads.sql"))?
        .query_row((election.as_str(), column(term.get()), now_ns), |row| row.get(0))
}

fn trim_notices(conn: &Connection, id: i64, now_ns: i64) -> rusqlite::Result<()> {
    let before = |span| now_ns.saturating_sub(nanos(span));
    let (last, old) = (id - NOTICES_MAX, before(NOTICE_MEMORY));
    conn.prepare_cached(include_str!("sql/notice_mark.sql"))?.execute((last, old))?;
    conn.prepare_cached(include_str!("sql/notice_trim.sql"))?.execute((
        last,
        old,
        before(MARK_MEMORY),
    ))?;
    Ok(())
}

fn last_notice(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(include_str!("sql/notice_last.sql"))?.query_row((), |row| row.get(0))
}

fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(path: PathBuf) -> Room {
        let config = SqliteConfig::new(path).with_busy_timeout(Duration::from_millis(1));
        let host = Host::detect().unwrap();
        Room { config, host, db: None, generation: 0, is_durable: true }
    }

    #[test]
    fn a_post_waits_for_the_disk_whatever_became_of_what_was_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let (mut room, election) = (room(path.clone()), Name::new("e").unwrap());
        let post = [Post { channel: "c".into(), payload: "1".into(), key: "k".into() }];
        room.post(&election, &post).unwrap();
        let other = Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(room.notify(&election, "c", "1").unwrap_err().is_retryable());
        other.execute_batch("ROLLBACK").unwrap();
        room.post(&election, &post).unwrap();
        let conn = &room.db.as_ref().unwrap().conn;
        let mode: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(mode, 2, "FULL");
    }
}
