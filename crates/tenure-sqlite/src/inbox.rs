//! What a leader hears: rows behind a cursor, read when a file notification says so.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{Arrival, Error, Hints, Inbox, Name};

use crate::mail::{Cursor, Mail, Read};
use crate::worker::{Answer, thread_ended};

/// How long after a failure the notices are read again.
const AGAIN: Duration = Duration::from_millis(100);

/// Rung by the watcher when files for this election appear.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Rung>);

#[derive(Debug, Default)]
struct Rung {
    notices: bool,
    posts: bool,
    gone: bool,
    /// A ring is on its way, because what the last one was for could not be read.
    again: bool,
    waker: Option<Waker>,
}

/// What a bell is rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    Notice,
    Post,
    /// Both may be.
    Any,
    /// It will never be rung again.
    Gone,
}

impl Bell {
    pub(crate) fn ring(&self, ring: Ring) {
        let waker = {
            let mut rung = lock(&self.0);
            rung.notices |= matches!(ring, Ring::Notice | Ring::Any);
            rung.posts |= matches!(ring, Ring::Post | Ring::Any);
            rung.gone |= ring == Ring::Gone;
            rung.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Rings for notices in a while.
    fn ring_again(self: &Arc<Bell>) {
        if std::mem::replace(&mut lock(&self.0).again, true) {
            return;
        }
        let bell = Arc::downgrade(self);
        let ring = move || {
            thread::sleep(AGAIN);
            let Some(bell) = bell.upgrade() else { return };
            lock(&bell.0).again = false;
            bell.ring(Ring::Notice);
        };
        if thread::Builder::new().name("tenure-again".to_owned()).spawn(ring).is_err() {
            // The next sender rings.
            lock(&self.0).again = false;
        }
    }

    /// Whether it was rung for notices, for posts, and for the last time.
    fn answer(&self, cx: &mut Context<'_>) -> (bool, bool, bool) {
        let mut rung = lock(&self.0);
        let answer = (rung.notices, rung.posts, rung.gone);
        (rung.notices, rung.posts) = (false, false);
        rung.waker = Some(cx.waker().clone());
        answer
    }
}

/// One inbox.
pub(crate) struct SqliteInbox {
    pub(crate) mail: Arc<Mail>,
    pub(crate) election: Name,
    pub(crate) channels: HashSet<String>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) cursor: Cursor,
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) reading: Option<Answer<Result<Read, Error>>>,
    /// Keeps the watcher at work.
    pub(crate) _hints: Box<dyn Hints>,
}

impl SqliteInbox {
    fn read(&mut self) {
        let (election, cursor) = (self.election.clone(), self.cursor);
        match self.mail.send(move |room| room.notices(&election, cursor)) {
            Ok(answer) => self.reading = Some(answer),
            Err(error) => self.could_not_read(&error),
        }
    }

    fn has_read(&mut self, read: Option<Result<Read, Error>>) {
        match read {
            Some(Ok(read)) => {
                self.cursor = read.cursor;
                if read.gap {
                    self.arrivals.push_back(Arrival::Gap);
                }
                let ours =
                    read.notices.into_iter().filter(|(name, _)| self.channels.contains(name));
                let notices = ours.map(|(channel, payload)| Arrival::Notice { channel, payload });
                self.arrivals.extend(notices);
                if read.more {
                    self.read();
                }
            }
            Some(Err(error)) => self.could_not_read(&error),
            None => self.could_not_read(&thread_ended()),
        }
    }

    /// The rows stay, and are read in a while. If they are gone by then, there is a mark.
    fn could_not_read(&mut self, error: &Error) {
        tracing::warn!(election = %self.election, %error, "notices can't be read for now");
        self.bell.ring_again();
    }
}

impl Inbox for SqliteInbox {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        loop {
            if let Some(arrival) = self.arrivals.pop_front() {
                return Poll::Ready(Some(arrival));
            }
            if let Some(reading) = &mut self.reading {
                let Poll::Ready(read) = Pin::new(reading).poll(cx) else { return Poll::Pending };
                self.reading = None;
                self.has_read(read);
                continue;
            }
            match self.bell.answer(cx) {
                (_, _, true) => return Poll::Ready(None),
                (false, false, _) => return Poll::Pending,
                (notices, posts, _) => {
                    if posts {
                        self.arrivals.push_back(Arrival::Posted);
                    }
                    if notices {
                        self.read();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tenure_core::NoHints;
    use tokio::time::timeout;

    use super::*;
    use crate::config::SqliteConfig;
    use crate::host::Host;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn notices_that_could_not_be_read_are_read_again_without_another_ring() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let mail = Arc::new(Mail::new(SqliteConfig::new(&path), Host::detect().unwrap()));
        let election = Name::new("e").unwrap();
        let mut inbox = SqliteInbox {
            cursor: mail.ask("listen", |room| room.end_of_notices()).await.unwrap(),
            mail: mail.clone(),
            election: election.clone(),
            channels: HashSet::from(["c".to_owned()]),
            bell: Arc::default(),
            arrivals: VecDeque::new(),
            reading: None,
            _hints: Box::new(NoHints),
        };
        mail.ask("notify", move |room| room.notify(&election, "c", "1")).await.unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("ALTER TABLE notice RENAME TO away").unwrap();
        let bell = inbox.bell.clone();
        bell.ring(Ring::Notice);
        let failed = poll_fn(|cx| {
            assert!(inbox.poll_next(cx).is_pending());
            if lock(&bell.0).again { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(PATIENCE, failed).await.expect("a failure that is noticed");
        db.execute_batch("ALTER TABLE away RENAME TO notice").unwrap();
        let heard = timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await;
        let notice = Arrival::Notice { channel: "c".to_owned(), payload: "1".to_owned() };
        assert_eq!(heard.expect("it is read again"), Some(notice));
    }
}
