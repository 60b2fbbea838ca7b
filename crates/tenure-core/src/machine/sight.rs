//! What is seen of others: who leads, when to look again, and what is odd about it.

use std::time::Duration;

use super::state::{LOOKS_MAX, State, Want, Window};
use super::{Action, Actions, Machine, Report};
use crate::timing::CLOCK_RATE_BOUND;
use crate::{Holder, Lease, Sight, Time};

/// One reading of the store's clock, and the local instants that it lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    store: Duration,
    sent_at: Time,
    got_at: Time,
}

/// Another incarnation of our own label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rival {
    holder: Holder,
    /// Its lease, as first seen, ends no later than this.
    ends_by: Time,
    reported: bool,
}

impl Machine {
    /// Takes in what the store says, and tells when to try next.
    pub(super) fn look(
        &mut self,
        now: Time,
        sent_at: Time,
        sight: Sight,
        out: &mut Actions,
    ) -> Window {
        let lease_ttl = sight.lease.as_ref().and_then(|lease| lease.ttl);
        let stepped = self.read_store_clock(now, sent_at, sight.store_clock, lease_ttl, out);
        let mine =
            sight.lease.as_ref().is_some_and(|lease| lease.holder.is(&self.settings.candidate));
        if !mine {
            let of_lease = sight.lease.as_ref().and_then(|lease| lease.term);
            self.seen = self.seen.max(sight.last_term).max(of_lease);
        }
        if lease_ttl.is_some() && !mine {
            self.rival_ttl = lease_ttl;
        }
        if let Some(left) = sight.settling {
            out.push(Action::Report(Report::Settling { left }));
        }
        if let Some(lease) = &sight.lease {
            self.watch_for_rival(now, sent_at, lease, out);
        }
        self.vacancies = match sight.lease {
            None => (self.vacancies + 1).min(LOOKS_MAX + 1),
            Some(_) => 0,
        };
        let next = self.next_try(now, &sight, stepped);
        self.observe(sight.lease, out);
        next
    }

    fn next_try(&self, now: Time, sight: &Sight, stepped_ahead: bool) -> Window {
        let timing = &self.settings.timing;
        let lease = sight.lease.as_ref().map(|lease| {
            let ttl = lease.ttl.unwrap_or(timing.ttl.max(lease.remaining));
            // A store's clock that jumped ahead makes `remaining` too short; one that was set
            // back makes it too long (W2).
            if stepped_ahead { ttl } else { lease.remaining.min(ttl) }
        });
        match lease.max(sight.settling) {
            Some(wait) => Window::spread(now + wait, timing),
            None if self.only_looks() => Window::soon(now, self.vacancies, timing),
            None => Window::backoff(now, 1, timing.renew_every),
        }
    }

    fn only_looks(&self) -> bool {
        let aside = matches!(self.state, State::Waiting { aside: Some(_), .. });
        aside || self.want == Want::Observe
    }

    fn observe(&mut self, lease: Option<Lease>, out: &mut Actions) {
        let leader = Some(lease.as_ref().map(|lease| (lease.holder.clone(), lease.term)));
        if leader != self.leader {
            self.leader = leader;
            out.push(Action::Observed(lease));
        }
    }

    /// Compares two readings of the store's clock with the local one; tells whether it jumped
    /// ahead by more than half a margin. If so, any lease counts as fresh: `lease_ttl` is the one
    /// that came with the reading, but who held it before the step may have chosen another (W2).
    pub(super) fn read_store_clock(
        &mut self,
        now: Time,
        sent_at: Time,
        store: Option<Duration>,
        lease_ttl: Option<Duration>,
        out: &mut Actions,
    ) -> bool {
        let Some(store) = store else { return false };
        let fresh = Reading { store, sent_at, got_at: now };
        let Some(old) = self.reading.replace(fresh) else { return false };
        let most = fresh.got_at - old.sent_at;
        let least = fresh.sent_at - old.got_at;
        let slack = self.settings.timing.margin / 2 + most / CLOCK_RATE_BOUND;
        let ahead = store.saturating_sub(old.store.saturating_add(most));
        let behind = old.store.saturating_add(least).saturating_sub(store);
        let by = ahead.max(behind);
        if by > slack {
            // When its lease was to end was told by another clock, so to speak.
            self.rival = None;
            out.push(Action::Report(Report::StoreClockStepped { by, ahead: ahead > behind }));
        }
        if ahead > slack {
            let ttl =
                self.settings.timing.ttl.max(lease_ttl.max(self.rival_ttl).unwrap_or_default());
            self.fresh_until = self.fresh_until.max(now + ttl);
        }
        ahead > slack
    }

    /// A lease of our own label whose end moves while we look was renewed by a live process.
    fn watch_for_rival(&mut self, now: Time, sent_at: Time, lease: &Lease, out: &mut Actions) {
        if !lease.holder.shares_label(&self.settings.candidate) {
            return;
        }
        match &mut self.rival {
            Some(rival) if rival.holder == lease.holder => {
                // A renewal moves the end by far more than clocks within their bounds do.
                let slack = self.settings.timing.margin;
                if !rival.reported && sent_at + lease.remaining > rival.ends_by + slack {
                    rival.reported = true;
                    let holder = lease.holder.clone();
                    out.push(Action::Report(Report::DuplicateLabel { holder }));
                }
            }
            _ => {
                let ends_by = now + lease.remaining;
                let holder = lease.holder.clone();
                self.rival = Some(Rival { holder, ends_by, reported: false });
            }
        }
    }
}
