//! What a leader hears: rows behind a cursor, read when a file notification says so.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tenure_core::{Arrival, Error, Hints, Inbox, Name};

use crate::mail::{Cursor, Mail, Read};
use crate::worker::{Answer, locked};

/// Rung by the watcher when files for this election appear.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Rung>);

#[derive(Debug, Default)]
struct Rung {
    notices: bool,
    posts: bool,
    gone: bool,
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
            let mut rung = locked(&self.0);
            rung.notices |= matches!(ring, Ring::Notice | Ring::Any);
            rung.posts |= matches!(ring, Ring::Post | Ring::Any);
            rung.gone |= ring == Ring::Gone;
            rung.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was rung for notices, for posts, and for the last time.
    fn answer(&self, cx: &mut Context<'_>) -> (bool, bool, bool) {
        let mut rung = locked(&self.0);
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
            None => {}
        }
    }

    /// The rows stay; the next ring reads them, if they are still there.
    fn could_not_read(&mut self, error: &Error) {
        tracing::warn!(election = %self.election, %error, "notices can't be read for now");
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
