//! Feeds: what happens in an election, and the term that is led.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{Term, Time};
use tenure_fork::Origin;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use crate::Event;
use crate::clock::AnyClock;
use crate::shared::Shared;

/// What happens in one election, in order.
pub struct Events {
    receiver: mpsc::Receiver<(Time, Event)>,
    /// How many did not fit, since the last one that says so.
    missed: Arc<AtomicU64>,
    clock: AnyClock,
    origin: Origin,
}

impl Events {
    pub(crate) fn of(shared: &Shared) -> Events {
        let (receiver, missed) = shared.subscribe();
        Events { receiver, missed, clock: shared.clock.clone(), origin: shared.origin }
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
        match self.try_next_at() {
            Ok(next) => Some(next),
            Err(TryRecvError::Disconnected) => None,
            // Nobody is there who would send.
            Err(TryRecvError::Empty) if !self.origin.is_here() => None,
            Err(TryRecvError::Empty) => self.receiver.recv().await,
        }
    }

    /// What there is already. A reader that missed some and has read the rest is told so, without
    /// waiting for something to happen.
    fn try_next_at(&mut self) -> Result<(Time, Event), TryRecvError> {
        let empty = match self.receiver.try_recv() {
            Ok(next) => return Ok(next),
            Err(empty) => empty,
        };
        match self.missed.swap(0, Ordering::AcqRel) {
            0 => Err(empty),
            count => Ok((self.clock.now(), Event::Missed { count })),
        }
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
        let events = Events::of(&shared);
        Changes { events, leading: shared.term(), shared, missed: false }
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
            match self.events.try_next_at() {
                Ok((_, event)) => return Some(Some(event)),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {
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
        shared.set_start_until(Some(Time::MAX));
        shared.status.send_modify(|status| status.reign = Some(reign));
        Event::Elected { term }
    }

    fn lose(shared: &Shared, number: u64) -> Event {
        shared.set_start_until(None);
        shared.status.send_modify(|status| status.reign = None);
        let (term, reason) = (Term::new(number).unwrap(), Reason::Resigned);
        Event::Draining { term, reason, left: Duration::ZERO }
    }

    /// Fills the feeds of those who do not read.
    fn flood(shared: &Shared) {
        for _ in 0..3_000 {
            shared.emit(Time::ZERO, &Event::StoreBack);
        }
    }

    #[tokio::test]
    async fn a_late_reader_is_told_how_many_it_missed_though_nothing_else_happens() {
        let shared = shared();
        let mut events = Events::of(&shared);
        flood(&shared);
        let mut read = 0;
        loop {
            match events.next().await.unwrap() {
                Event::StoreBack => read += 1,
                Event::Missed { count } => break assert_eq!(read + count, 3_000),
                other => panic!("{other:?}"),
            }
        }
        shared.emit(Time::ZERO, &Event::StoreBack);
        assert!(matches!(events.next().await, Some(Event::StoreBack)), "and it is told once");
        shared.close_feeds();
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn changes_that_were_missed_are_made_up_for() {
        let shared = shared();
        shared.emit(Time::ZERO, &lead(&shared, 1));
        let mut changes = Changes::of(shared.clone());
        flood(&shared);
        shared.emit(Time::ZERO, &lose(&shared, 1));
        assert_eq!(changes.next().await, Some(None), "the loss did not fit");
        flood(&shared);
        shared.emit(Time::ZERO, &lead(&shared, 2));
        shared.emit(Time::ZERO, &lose(&shared, 2));
        shared.emit(Time::ZERO, &lead(&shared, 3));
        assert_eq!(changes.next().await, Some(Term::new(3)), "several are told as one");
        shared.emit(Time::ZERO, &lose(&shared, 3));
        assert_eq!(changes.next().await, Some(None), "and the rest as usual");
    }
}
