//! The states of a candidacy, and when each wants to be woken.

use std::time::Duration;

use super::Pick;
use crate::{Term, Time, Timing};

/// What this candidate is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Want {
    Rest,
    Observe,
    Campaign,
}

/// How often, at most, the pause between two looks at a vacant lease doubles.
pub(super) const LOOKS_MAX: u32 = 9;

/// A span of instants, any of which will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Window {
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) pick: Pick,
}

impl Window {
    /// This very instant.
    pub(super) fn at(instant: Time) -> Window {
        Window { from: instant, to: instant, pick: Pick::Late }
    }

    /// From `from` on, spread over at most 50 ms, because every follower waits for the same one.
    pub(super) fn spread(from: Time, timing: &Timing) -> Window {
        let jitter = (timing.ttl / 20).min(Duration::from_millis(50));
        Window { from, to: from + jitter, pick: Pick::Random }
    }

    /// The time of the next renewal after one that was sent at `sent_at`.
    pub(super) fn renewal(sent_at: Time, timing: &Timing) -> Window {
        let to = sent_at + timing.renew_every;
        Window { from: to - timing.renew_every / 5, to, pick: Pick::Late }
    }

    /// The next try after `failures` unknown outcomes in a row, at most `longest` from now.
    pub(super) fn backoff(now: Time, failures: u32, longest: Duration) -> Window {
        let span = longest / 8 * (1 << failures.saturating_sub(1).min(3));
        Window { from: now + span / 2, to: now + span, pick: Pick::Random }
    }

    /// Soon: the lease was seen vacant `looks` times in a row, and is not likely to stay so. Later
    /// and later if it does.
    pub(super) fn soon(now: Time, looks: u32, timing: &Timing) -> Window {
        let span = Duration::from_millis(10) * (1 << looks.saturating_sub(1).min(LOOKS_MAX));
        let span = span.min(timing.renew_every / 8);
        Window { from: now + span / 2, to: now + span, pick: Pick::Random }
    }

    /// The same window, but over by `deadline`.
    pub(super) fn before(self, deadline: Time) -> Window {
        if self.from < deadline {
            Window { to: self.to.min(deadline), ..self }
        } else {
            Window::at(deadline)
        }
    }
}

/// Where a candidacy stands.
///
/// ```text
///              Campaign                Granted                 not renewed, deposed
///   Out ------------------> Waiting ------------> Leading ------------------------> Ending
///    ^                      ^  |  ^                  |                                 |
///    |                      |  |  +-- Held (W2) -----+ Resign, asked                   |
///    |            step back |  | Withdraw            v                                 |
///    |                      |  +---------------> Draining --(drain over)--> Ending     |
///    |                      |  |                    | Drained                         |
///    +----------------------+--+---- Releasing <----+-------- Drained ----------------+
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Takes no part.
    Out,
    /// Wants to look or to acquire, inside this window.
    Waiting {
        next: Window,
        /// Stepping back until then, after a resignation: looks who follows, asks for nothing.
        aside: Option<Time>,
    },
    /// Holds the lease but may not lead before `lead_from`, because the store's clock stepped and
    /// the former holder may still trust itself (W2).
    Held { term: Term, sent_at: Time, renew: Window, lead_from: Time },
    /// Leads.
    Leading { term: Term, sent_at: Time, renew: Window },
    /// Resigned: still renews while the work winds up, then releases.
    Draining { term: Term, sent_at: Time, renew: Window, drain_until: Time, aside: bool },
    /// Stepped down for good; renews no more, waits for the work to end.
    Ending {
        term: Term,
        /// When the last granted renewal was sent; only tells whether a release makes sense.
        sent_at: Time,
        /// When trust ends; nothing that arrives later moves it (I3).
        until: Time,
        aborted: bool,
        /// The lease may still be ours in the store.
        ours: bool,
        aside: bool,
    },
    /// Gives the lease back.
    Releasing { term: Option<Term>, next: Window, give_up_at: Time, aside: bool },
}

impl State {
    /// When this state wants to be woken; `busy` while a request is under way.
    pub(super) fn wake(&self, busy: bool, timing: &Timing) -> Option<Window> {
        match self {
            State::Out => None,
            State::Waiting { next, .. } => (!busy).then_some(*next),
            State::Held { sent_at, renew, lead_from, .. } => {
                let deadline = timing.step_down_at(*sent_at).min(*lead_from);
                Some(work_or_deadline(*renew, busy, deadline))
            }
            State::Leading { sent_at, renew, .. } => {
                Some(work_or_deadline(*renew, busy, timing.step_down_at(*sent_at)))
            }
            State::Draining { sent_at, renew, drain_until, .. } => {
                let deadline = timing.trust_ends_at(*sent_at).min(*drain_until);
                Some(work_or_deadline(*renew, busy, deadline))
            }
            State::Ending { until, aborted, .. } => (!aborted).then(|| Window::at(*until)),
            State::Releasing { next, .. } => (!busy).then_some(*next),
        }
    }
}

fn work_or_deadline(renew: Window, busy: bool, deadline: Time) -> Window {
    if busy { Window::at(deadline) } else { renew.before(deadline) }
}
