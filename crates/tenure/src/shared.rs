//! What the driver writes and the handles read: no locks and no I/O on the hot path.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tenure_core::sync::lock;
use tenure_core::{CandidateId, Metadata, Name, Outcome, Term, Time, Timing};
use tenure_fork::Origin;

use crate::channels::Counts;
use crate::clock::AnyClock;
use crate::feed::FeedQueue;
use crate::lead_word::LeadWord;
pub(crate) use crate::phase::Phase;
use crate::phase::Phases;
use crate::pulse::Pulses;
use crate::reign_words::{ReignWords, reign_meant};
use crate::sabotage::{Fault, Faults};
use crate::watched::Watched;
use crate::{Event, Leader};

/// The state of one election that handles look at.
pub(crate) struct Shared {
    pub(crate) election: Name,
    pub(crate) candidate: CandidateId,
    pub(crate) timing: Timing,
    pub(crate) clock: AnyClock,
    /// The process that it belongs to: in a forked child nobody drives it (L3).
    pub(crate) origin: Origin,
    /// Whose metrics these are: see [`Runtime::process`](crate::runtime::Runtime::process).
    pub(crate) process: u64,
    pub(crate) metadata: Option<Metadata>,
    /// Count this election by its own name, too.
    pub(crate) per_election_metrics: bool,
    /// Unregistered answers do not hold the lease: the static form of "done" (I8).
    pub(crate) at_once: bool,
    pub(crate) faults: Faults,
    /// The whole of `is_leader()`.
    pub(crate) lead: LeadWord,
    /// Changed by the driver without waking anybody; the announcer wakes those who wait.
    pub(crate) status: Watched<Status>,
    /// The announcer knows already that the status has changed.
    pub(crate) status_queued: AtomicBool,
    pub(crate) pulses: Pulses,
    /// Those without whom no lease is taken either.
    pub(crate) vouching: Pulses,
    pub(crate) counts: Counts,
    /// The announcer knows already that there is something to read.
    pub(crate) feeds_queued: AtomicBool,
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

/// One that reads what happens.
struct Feed {
    queue: Weak<FeedQueue>,
    /// Those who read it may act on it, so a reign that it tells of is relied upon (I8).
    vouches: bool,
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
            process: 0,
            metadata: None,
            per_election_metrics: false,
            at_once: false,
            faults: Faults::default(),
            lead: LeadWord::new(),
            status: Watched::new(Status::default()),
            status_queued: AtomicBool::new(false),
            pulses: Pulses::default(),
            vouching: Pulses::default(),
            counts: Counts::default(),
            feeds_queued: AtomicBool::new(false),
            feeds: Mutex::default(),
        }
    }

    /// Whether this is the process that it belongs to; asked before any lock is taken.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here() || self.faults.has(Fault::ChildBelieved)
    }

    /// Until when the lease of this reign may be trusted here.
    #[inline]
    pub(crate) fn trust_until(&self, reign: &Reign) -> Time {
        if self.is_here() { reign.trust_until() } else { Time::ZERO }
    }

    /// The instant that a deadline is compared with: in a forked child it is past all of them.
    #[inline]
    fn now_here(&self) -> u64 {
        if self.is_here() { self.clock.now().as_nanos() } else { u64::MAX }
    }

    /// May new work be started? The answer is relied upon from then on (I8). One load, and while
    /// leading one clock read and the load that tells a forked child: true only if all agree.
    #[inline]
    pub(crate) fn vouch(&self) -> bool {
        if self.faults.has(Fault::AnswersUnnoted) {
            return self.leads();
        }
        self.lead.vouch(|| self.now_here())
    }

    /// The same for those who only show it, or who are registered as work.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        if self.faults.has(Fault::PeekVouches) {
            return self.lead.vouch(|| self.now_here());
        }
        self.lead.peek(|| self.now_here())
    }

    /// The reign that is on, if `leads` says so of it, and not of the one before or after it.
    pub(crate) fn reign_if(&self, leads: impl Fn() -> bool) -> Option<Arc<Reign>> {
        if !self.is_here() {
            return None;
        }
        reign_meant(|| self.status.borrow().reign.clone(), leads)
    }

    pub(crate) fn term(&self) -> Option<Term> {
        self.reign_if(|| self.vouch()).map(|reign| reign.term)
    }

    pub(crate) fn peek_term(&self) -> Option<Term> {
        self.reign_if(|| self.leads()).map(|reign| reign.term)
    }

    /// Everybody who was told in this reign is done, if it is on. `false` if it is not.
    pub(crate) fn done(&self, term: Term) -> bool {
        self.is_here()
            && self
                .lead
                .done(|| self.status.borrow().reign.as_ref().is_some_and(|r| r.term == term))
    }

    /// A lease that is still in the same hands lasts as long as the store told now, asked at this
    /// instant. Nobody is woken, because nothing has changed hands.
    pub(crate) fn saw(&self, asked_at: Time, outcome: &Outcome) {
        let (Outcome::Refused(sight) | Outcome::Seen(sight)) = outcome else { return };
        let Some(lease) = &sight.lease else { return };
        self.status.set_silently(|status| {
            if let Some((leader, seen_at)) = &mut status.leader
                && (&leader.holder, leader.term) == (&lease.holder, lease.term)
            {
                (leader.remaining, *seen_at) = (lease.remaining, asked_at);
            }
        });
    }

    /// A feed of what happens from now on. One that `vouches` makes a reign that it tells of relied
    /// upon.
    pub(crate) fn subscribe(&self, vouches: bool) -> Arc<FeedQueue> {
        let queue = Arc::new(FeedQueue::default());
        if self.is_here() {
            self.feeds().push(Feed { queue: Arc::downgrade(&queue), vouches });
        }
        queue
    }

    /// Queues an event for everybody who reads, and says whether one of them may act on it. Wakes
    /// nobody: see [`wake_feeds`](Shared::wake_feeds).
    pub(crate) fn emit(&self, at: Time, event: &Event) -> bool {
        if self.faults.has(Fault::FeedLosesLoss) && matches!(event, Event::Draining { .. }) {
            return false;
        }
        let mut acts = false;
        self.feeds().retain(|feed| {
            let Some(queue) = feed.queue.upgrade() else { return false };
            queue.push(at, event);
            acts |= feed.vouches;
            true
        });
        acts
    }

    /// Nothing happens any more. Wakes nobody.
    pub(crate) fn close_feeds(&self) {
        self.readers().iter().for_each(|queue| queue.close());
    }

    /// Wakes everybody who reads. Never called by the driver (L2).
    pub(crate) fn wake_feeds(&self) {
        // Without the lock: a reader that is woken may subscribe.
        self.readers().iter().for_each(|queue| queue.wake());
    }

    fn readers(&self) -> Vec<Arc<FeedQueue>> {
        self.feeds().iter().filter_map(|feed| feed.queue.upgrade()).collect()
    }

    // A std mutex: it is held for a look at a list, never while somebody is woken.
    fn feeds(&self) -> MutexGuard<'_, Vec<Feed>> {
        lock(&self.feeds)
    }
}

/// One reign, shared by the driver and the handle that the work holds.
pub(crate) struct Reign {
    pub(crate) term: Term,
    pub(crate) began: Time,
    words: ReignWords,
    /// Changed without waking anybody; the announcer wakes those who wait.
    pub(crate) phase: Watched<Phase>,
    /// When trust ends, for those who must pass the deadline on. Changed as `phase` is.
    pub(crate) deadline: Watched<Time>,
    /// The announcer knows already that the deadline has moved.
    pub(crate) deadline_queued: AtomicBool,
}

/// Wakes nobody.
impl Phases for Watched<Phase> {
    fn change<R>(&self, change: impl FnOnce(&mut Phase) -> R) -> R {
        self.set_silently(change)
    }
}

impl Reign {
    pub(crate) fn new(term: Term, began: Time, until: Time) -> Reign {
        Reign {
            term,
            began,
            words: ReignWords::new(until.as_nanos()),
            phase: Watched::new(Phase::Leading),
            deadline: Watched::new(until),
            deadline_queued: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn trust_until(&self) -> Time {
        Time::from_nanos(self.words.trust_until())
    }

    pub(crate) fn set_trust_until(&self, until: Time) {
        self.words.set_trust_until(until.as_nanos());
        self.deadline.set_silently(|deadline| *deadline = until);
    }

    /// Trust has ended; says whether anybody is to be told, to the first that notices it.
    pub(crate) fn advance_to_end(&self) -> bool {
        self.phase.advance_to_end()
    }

    /// Goes on to `phase`, unless it is there or further already; says whether it went.
    pub(crate) fn advance(&self, phase: Phase) -> bool {
        self.phase.advance(phase)
    }

    /// The last instant that trust was to end at, even after it was ended.
    pub(crate) fn trust_ended(&self) -> Time {
        Time::from_nanos(self.words.trust_ended())
    }

    /// Takes the one handle of this reign and works under it; `false` if it is taken or the reign
    /// is over.
    pub(crate) fn claim(&self) -> bool {
        self.words.claim()
    }

    pub(crate) fn deny_claims(&self) -> bool {
        self.words.deny_claims()
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.words.is_claimed()
    }

    /// Begins to work under this reign; `false` if it is over.
    pub(crate) fn enter(&self) -> bool {
        self.words.enter()
    }

    /// Ends one work; `true` if it was the last of a reign that is over.
    pub(crate) fn exit(&self) -> bool {
        self.words.exit()
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Over(_))
    }

    /// Lets nobody work under it any more.
    pub(crate) fn close(&self) {
        self.words.close();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.words.is_open()
    }

    pub(crate) fn has_work(&self) -> bool {
        self.words.has_work()
    }
}
