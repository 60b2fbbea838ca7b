//! Feeds: what happens in an election, and the term that is led.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::sync::lock;
use tenure_core::{Term, Time};
use tenure_fork::Origin;
use tokio::sync::Notify;

use crate::Event;
use crate::clock::AnyClock;
use crate::shared::Shared;

/// How many events wait for a reader that is late.
const ROOM: usize = 1024;

/// What waits for one reader.
#[derive(Default)]
pub(crate) struct FeedQueue {
    // A std mutex: it is held while one event is moved, never across an await.
    waiting: Mutex<Waiting>,
    bell: Notify,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<(Time, Event)>,
    /// How many did not fit, since the last one that says so.
    missed: u64,
    closed: bool,
}

/// Why there is no event.
enum Nothing {
    Yet,
    AnyMore,
}

impl FeedQueue {
    /// A reader that is too late gets a count instead of a gap. Wakes nobody.
    pub(crate) fn push(&self, at: Time, event: &Event) {
        let mut waiting = self.waiting();
        // The count goes first, so that the reader knows where they are missing.
        if waiting.missed > 0 && waiting.events.len() < ROOM {
            let count = std::mem::take(&mut waiting.missed);
            waiting.events.push_back((at, Event::Missed { count }));
        }
        if waiting.events.len() < ROOM {
            waiting.events.push_back((at, event.clone()));
        } else {
            waiting.missed += 1;
        }
    }

    pub(crate) fn close(&self) {
        self.waiting().closed = true;
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        self.bell.notify_one();
    }

    /// What there is already. A reader that missed some and has read the rest is told so, without
    /// waiting for something to happen.
    fn take(&self, now: impl Fn() -> Time) -> Result<(Time, Event), Nothing> {
        let mut waiting = self.waiting();
        if let Some(next) = waiting.events.pop_front() {
            return Ok(next);
        }
        match std::mem::take(&mut waiting.missed) {
            0 if waiting.closed => Err(Nothing::AnyMore),
            0 => Err(Nothing::Yet),
            count => Ok((now(), Event::Missed { count })),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

/// What happens in one election, in order.
pub struct Events {
    queue: Arc<FeedQueue>,
    clock: AnyClock,
    origin: Origin,
}

impl Events {
    pub(crate) fn of(shared: &Shared, vouches: bool) -> Events {
        let (queue, clock) = (shared.subscribe(vouches), shared.clock.clone());
        Events { queue, clock, origin: shared.origin }
    }

    /// The next event; `None` once the election is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        Some(self.next_at().await?.1)
    }

    /// The next event and the instant at which it happened, on the candidate's clock; `None` once
    /// the election is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next_at(&mut self) -> Option<(Time, Event)> {
        loop {
            match self.take() {
                Ok(next) => return Some(next),
                Err(Nothing::AnyMore) => return None,
                Err(Nothing::Yet) => self.queue.bell.notified().await,
            }
        }
    }

    fn take(&self) -> Result<(Time, Event), Nothing> {
        if !self.origin.is_here() {
            // The driver is not there to send, and may hold the lock of what it has sent.
            return Err(Nothing::AnyMore);
        }
        self.queue.take(|| self.clock.now())
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The term that this instance leads, each time it changes.
pub struct Changes {
    events: Events,
    leading: Option<Term>,
    shared: Arc<Shared>,
    /// Events were missed: what they told is looked up once the rest has been read.
    missed: bool,
}

impl Changes {
    pub(crate) fn of(shared: Arc<Shared>) -> Changes {
        let events = Events::of(&shared, true);
        let leading = shared.peek_term();
        Changes { events, leading, shared, missed: false }
    }

    /// The next change: the term that began, or `None` at its end; the outer `None` once the
    /// election is gone. A reader that is far behind may be told of several as one.
    ///
    /// # Cancel safety
    /// Cancel safe: no change is lost.
    pub async fn next(&mut self) -> Option<Option<Term>> {
        loop {
            let now = match self.next_event().await? {
                Some(Event::Elected { term }) => Some(term),
                Some(Event::Draining { .. }) => None,
                Some(Event::Missed { .. }) => {
                    self.missed = true;
                    continue;
                }
                Some(_) => continue,
                None => self.shared.term(),
            };
            if now != self.leading {
                self.leading = now;
                return Some(now);
            }
        }
    }

    /// The next event; an inner `None` when all has been read after some were missed.
    async fn next_event(&mut self) -> Option<Option<Event>> {
        if self.missed {
            match self.events.take() {
                Ok((_, event)) => return Some(Some(event)),
                Err(Nothing::AnyMore) => return None,
                Err(Nothing::Yet) => {
                    self.missed = false;
                    return Some(None);
                }
            }
        }
        self.events.next().await.map(Some)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("leading", &self.leading).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{CandidateId, Name, Reason, Timing};

    use super::*;
    use crate::shared::Reign;

    fn shared() -> Arc<Shared> {
        let (name, candidate) = (Name::new("jobs").unwrap(), CandidateId::new("me", 1).unwrap());
        let timing = Timing::new(Duration::from_secs(3));
        let origin = Origin::here().unwrap();
        Arc::new(Shared::new(name, candidate, timing, AnyClock::Boot, origin))
    }

    fn lead(shared: &Shared, number: u64) -> Event {
        let term = Term::new(number).unwrap();
        let reign = Arc::new(Reign::new(term, Time::ZERO, Time::MAX));
        shared.lead.begin(u64::MAX, false);
        shared.status.set_silently(|status| status.reign = Some(reign));
        Event::Elected { term }
    }

    fn lose(shared: &Shared, number: u64) -> Event {
        shared.lead.end();
        shared.status.set_silently(|status| status.reign = None);
        let (term, reason) = (Term::new(number).unwrap(), Reason::Resigned);
        Event::Draining { term, reason, left: Duration::ZERO }
    }

    fn emit(shared: &Shared, event: &Event) {
        shared.emit(Time::ZERO, event);
        shared.wake_feeds();
    }

    /// Fills the feeds of those who do not read.
    fn flood(shared: &Shared) {
        for _ in 0..3_000 {
            emit(shared, &Event::StoreBack);
        }
    }

    #[tokio::test]
    async fn a_late_reader_is_told_how_many_it_missed_though_nothing_else_happens() {
        let shared = shared();
        let mut events = Events::of(&shared, true);
        flood(&shared);
        let mut read = 0;
        loop {
            match events.next().await.unwrap() {
                Event::StoreBack => read += 1,
                Event::Missed { count } => break assert_eq!(read + count, 3_000),
                other => panic!("{other:?}"),
            }
        }
        emit(&shared, &Event::StoreBack);
        assert!(matches!(events.next().await, Some(Event::StoreBack)), "and it is told once");
        shared.close_feeds();
        shared.wake_feeds();
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn changes_that_were_missed_are_made_up_for() {
        let shared = shared();
        emit(&shared, &lead(&shared, 1));
        let mut changes = Changes::of(shared.clone());
        flood(&shared);
        emit(&shared, &lose(&shared, 1));
        assert_eq!(changes.next().await, Some(None), "the loss did not fit");
        flood(&shared);
        emit(&shared, &lead(&shared, 2));
        emit(&shared, &lose(&shared, 2));
        emit(&shared, &lead(&shared, 3));
        assert_eq!(changes.next().await, Some(Term::new(3)), "several are told as one");
        emit(&shared, &lose(&shared, 3));
        assert_eq!(changes.next().await, Some(None), "and the rest as usual");
    }
}
