//! What the driver writes and the handles read: no locks and no I/O on the hot path.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::{CandidateId, Metadata, Name, Outcome, Reason, Term, Time, Timing};
use tenure_fork::Origin;
use tokio::sync::{mpsc, watch};

use crate::channels::Counts;
use crate::clock::AnyClock;
use crate::pulse::Pulses;
use crate::{Event, Leader};

/// How many events a feed holds for a reader that is late.
const FEED_ROOM: usize = 1024;

/// The state of one election that handles look at.
pub(crate) struct Shared {
    pub(crate) election: Name,
    pub(crate) candidate: CandidateId,
    pub(crate) timing: Timing,
    pub(crate) clock: AnyClock,
    /// The process that it belongs to: in a forked child nobody drives it (L3).
    pub(crate) origin: Origin,
    pub(crate) metadata: Option<Metadata>,
    /// Count this election by its own name, too.
    pub(crate) per_election_metrics: bool,
    /// Until when new work may be started; 0 while following. The whole of `is_leader()`.
    start_until: AtomicU64,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) pulses: Pulses,
    pub(crate) counts: Counts,
    feeds: Mutex<Vec<Feed>>,
}

/// What changes seldom. Every change is a new value, so that no reader sees half of one.
#[derive(Clone, Default)]
pub(crate) struct Status {
    /// The reign that is on, from lead to step-down.
    pub(crate) reign: Option<Arc<Reign>>,
    /// The reign that was stepped down from and whose work has not ended.
    pub(crate) ending: Option<Arc<Reign>>,
    /// Who is seen to lead, if not this candidate, and when the store was asked that told so last.
    pub(crate) leader: Option<(Leader, Time)>,
    /// Whether the store answered last time; `None` before the first answer.
    pub(crate) store_answers: Option<bool>,
    /// How often the election was stopped.
    pub(crate) stops: u64,
    /// Nobody acts for this election any more.
    pub(crate) driver_gone: bool,
}

struct Feed {
    sender: mpsc::Sender<(Time, Event)>,
    /// How many did not fit, since the reader was last told.
    missed: Arc<AtomicU64>,
}

impl Shared {
    pub(crate) fn new(
        election: Name,
        candidate: CandidateId,
        timing: Timing,
        clock: AnyClock,
        origin: Origin,
    ) -> Shared {
        Shared {
            election,
            candidate,
            timing,
            clock,
            origin,
            metadata: None,
            per_election_metrics: false,
            start_until: AtomicU64::new(0),
            status: watch::Sender::new(Status::default()),
            pulses: Pulses::default(),
            counts: Counts::default(),
            feeds: Mutex::default(),
        }
    }

    /// Whether this is the process that it belongs to; asked before any lock is taken.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Until when the lease of this reign may be trusted here.
    #[inline]
    pub(crate) fn trust_until(&self, reign: &Reign) -> Time {
        if self.is_here() { reign.trust_until() } else { Time::ZERO }
    }

    /// One load, and while leading one clock read and a second load: true only if all agree.
    #[inline]
    pub(crate) fn is_leader(&self) -> bool {
        let until = self.start_until.load(Ordering::Acquire);
        until != 0 && self.is_here() && self.clock.now().as_nanos() < until
    }

    pub(crate) fn set_start_until(&self, until: Option<Time>) {
        self.start_until.store(until.map_or(0, Time::as_nanos), Ordering::Release);
    }

    pub(crate) fn term(&self) -> Option<Term> {
        if self.is_leader() { self.status.borrow().reign.as_ref().map(|r| r.term) } else { None }
    }

    /// A lease that is still in the same hands lasts as long as the store told now, asked at this
    /// instant. Nobody is woken, because nothing has changed hands.
    pub(crate) fn saw(&self, asked_at: Time, outcome: &Outcome) {
        let (Outcome::Refused(sight) | Outcome::Seen(sight)) = outcome else { return };
        let Some(lease) = &sight.lease else { return };
        self.status.send_if_modified(|status| {
            if let Some((leader, seen_at)) = &mut status.leader
                && (&leader.holder, leader.term) == (&lease.holder, lease.term)
            {
                (leader.remaining, *seen_at) = (lease.remaining, asked_at);
            }
            false
        });
    }

    /// A feed of what happens from now on, and the count of what did not fit into it.
    pub(crate) fn subscribe(&self) -> (mpsc::Receiver<(Time, Event)>, Arc<AtomicU64>) {
        let (sender, receiver) = mpsc::channel(FEED_ROOM);
        let missed = Arc::new(AtomicU64::new(0));
        if self.is_here() {
            self.feeds().push(Feed { sender, missed: missed.clone() });
        }
        (receiver, missed)
    }

    /// Tells everybody who listens. A reader that is too late gets a count instead of a gap.
    pub(crate) fn emit(&self, now: Time, event: &Event) {
        self.feeds().retain(|feed| {
            // The count goes first, so that the reader knows where they are missing.
            let missed = feed.missed.swap(0, Ordering::AcqRel);
            let gap = (missed > 0).then_some(Event::Missed { count: missed });
            let (mut left, mut open) = (missed + 1, true);
            for event in gap.iter().chain([event]) {
                match feed.sender.try_send((now, event.clone())) {
                    Ok(()) if matches!(event, Event::Missed { .. }) => left = 1,
                    Ok(()) => left = 0,
                    Err(mpsc::error::TrySendError::Full(_)) => break,
                    Err(mpsc::error::TrySendError::Closed(_)) => open = false,
                }
            }
            feed.missed.fetch_add(left, Ordering::AcqRel);
            open
        });
    }

    /// Nothing happens any more, and everybody who listens is told so.
    pub(crate) fn close_feeds(&self) {
        self.feeds().clear();
    }

    // A std mutex: it is held while events are queued, never across an await.
    fn feeds(&self) -> std::sync::MutexGuard<'_, Vec<Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reign, shared by the driver and the handle that the work holds.
pub(crate) struct Reign {
    pub(crate) term: Term,
    pub(crate) began: Time,
    /// When trust ended, if nothing moves it any more; for those who ask how late the work is.
    trust_ended: AtomicU64,
    /// Until when the lease may be trusted; 0 once trust has ended.
    trust_until: AtomicU64,
    /// Whether the one handle of this reign is taken.
    claimed: AtomicBool,
    /// How many work under this reign, and whether it takes no more.
    work: AtomicU32,
    pub(crate) phase: watch::Sender<Phase>,
    /// Counts extensions, for those who must pass the deadline on.
    pub(crate) deadline: watch::Sender<Time>,
}

/// How far a reign has got. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Leading,
    /// Work is told to stop.
    Draining(Reason),
    /// Trust has ended: work is ended by force.
    Over(Reason),
}

const CLOSED: u32 = 1 << 31;

impl Reign {
    pub(crate) fn new(term: Term, began: Time, until: Time) -> Reign {
        Reign {
            term,
            began,
            trust_ended: AtomicU64::new(until.as_nanos()),
            trust_until: AtomicU64::new(until.as_nanos()),
            claimed: AtomicBool::new(false),
            work: AtomicU32::new(0),
            phase: watch::Sender::new(Phase::Leading),
            deadline: watch::Sender::new(until),
        }
    }

    #[inline]
    pub(crate) fn trust_until(&self) -> Time {
        Time::from_nanos(self.trust_until.load(Ordering::Acquire))
    }

    pub(crate) fn set_trust_until(&self, until: Time) {
        self.trust_until.store(until.as_nanos(), Ordering::Release);
        if until != Time::ZERO {
            self.trust_ended.store(until.as_nanos(), Ordering::Release);
        }
        self.deadline.send_replace(until);
    }

    /// The last instant that trust was to end at, even after it was ended.
    pub(crate) fn trust_ended(&self) -> Time {
        Time::from_nanos(self.trust_ended.load(Ordering::Acquire))
    }

    /// Takes the one handle of this reign and works under it; `false` if it is taken or the reign
    /// is over.
    pub(crate) fn claim(&self) -> bool {
        // Claimed first: a claim that comes too late then leaves no work behind to wait for.
        !self.claimed.swap(true, Ordering::AcqRel) && self.enter()
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// Begins to work under this reign; `false` if it is over.
    pub(crate) fn enter(&self) -> bool {
        let more = |work: u32| (work & CLOSED == 0).then_some(work + 1);
        self.work.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Ends one work; `true` if it was the last of a reign that is over.
    pub(crate) fn exit(&self) -> bool {
        let before = self.work.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !CLOSED > 0, "who leaves has entered");
        before == CLOSED + 1
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Over(_))
    }

    /// Lets nobody work under it any more.
    pub(crate) fn close(&self) {
        self.work.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.work.load(Ordering::Acquire) & CLOSED == 0
    }

    pub(crate) fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire) & !CLOSED > 0
    }
}
