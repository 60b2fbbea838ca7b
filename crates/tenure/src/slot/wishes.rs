//! What those who hold handles want of an election, and telling them when it is done.

use tenure_core::{Error, Input, Op, Outcome, Term, Time};

use super::{Done, Io, Slot, Wish};
use crate::Event;
use crate::sabotage::Fault;

/// What a call is an attempt at, seen from those who wait for the first one.
#[derive(Clone, Copy)]
pub(super) enum Attempt {
    /// A lease that is held, or was: nobody waits for that.
    None,
    Look,
    Acquire,
}

impl Attempt {
    pub(super) fn of(op: &Op) -> Attempt {
        match op {
            Op::Acquire { .. } => Attempt::Acquire,
            Op::Read { .. } => Attempt::Look,
            _ => Attempt::None,
        }
    }

    /// The most that was attempted with this answer. A look at a lease that is held, or one that
    /// failed, is as good as an acquire that is refused or fails; one at a vacant lease is followed
    /// by an acquire.
    pub(super) fn comes_to(self, outcome: &Outcome) -> Wish {
        match (self, outcome) {
            (Attempt::None, _) => Wish::Rest,
            (Attempt::Look, Outcome::Seen(sight)) if sight.lease.is_none() => Wish::Observe,
            (Attempt::Look | Attempt::Acquire, _) => Wish::Campaign,
        }
    }
}

impl Slot {
    /// Campaigns or withdraws, as those who hold handles want.
    pub(crate) fn follow_wishes(&mut self, now: Time, io: &mut Io<'_>) {
        let claimed = self.reign.as_ref().is_some_and(|ongoing| {
            ongoing.reason.is_none() && ongoing.reign.is_claimed() && !ongoing.tenure_ended
        });
        let wish = match () {
            () if self.removed => Wish::Rest,
            () if self.started || self.waiters > 0 || claimed => Wish::Campaign,
            () if self.observing => Wish::Observe,
            () => Wish::Rest,
        };
        if wish == self.wish || self.is_claimed_meanwhile(wish) {
            return;
        }
        self.wish = wish;
        self.attempted = self.attempted.min(wish);
        self.meter.takes_part(wish == Wish::Campaign);
        let input = match wish {
            Wish::Rest => Input::Withdraw,
            Wish::Observe => Input::Observe,
            Wish::Campaign => {
                self.tell(&Event::Campaigning);
                // A withdrawal that is taken back before there was anything to give back has no end
                // that could be waited for. A reign that winds up does so all the same.
                if self.machine.ending().is_none() {
                    self.finish_vacating(Ok(()));
                }
                Input::Campaign
            }
        };
        self.handle(now, input, io);
    }

    /// Whether a reign that nobody wanted was claimed just now. If not, nobody can any more: who
    /// campaigns from here on waits for the next one, instead of getting one that is given back.
    fn is_claimed_meanwhile(&self, wish: Wish) -> bool {
        let withdraws = wish < Wish::Campaign && !self.removed;
        let ongoing = self.reign.as_ref().filter(|_| withdraws);
        ongoing.is_some_and(|ongoing| {
            ongoing.reason.is_none() && !ongoing.tenure_ended && !ongoing.reign.deny_claims()
        })
    }

    pub(crate) fn start(&mut self, now: Time, done: Done, io: &mut Io<'_>) {
        self.started = true;
        self.first_attempt(now, Wish::Campaign, done, io);
    }

    pub(crate) fn observe(&mut self, now: Time, done: Done, io: &mut Io<'_>) {
        self.observing = true;
        self.first_attempt(now, Wish::Observe, done, io);
    }

    fn first_attempt(&mut self, now: Time, wish: Wish, done: Done, io: &mut Io<'_>) {
        if self.wish >= wish && self.attempted >= wish {
            self.announcer.done(done, Ok(()));
            return;
        }
        self.first_reply.push((wish, done));
        self.follow_wishes(now, io);
        if self.overrun().is_some() && !self.shared.faults.has(Fault::ForgetsFirstReply) {
            // The attempt comes when the work of the last reign has ended, if it ever does.
            self.answer_first(Wish::Campaign, None);
        }
    }

    /// Tells those who wait for the first attempt at something up to this.
    pub(super) fn answer_first(&mut self, attempted: Wish, error: Option<&Error>) {
        self.attempted = self.attempted.max(attempted.min(self.wish));
        for (_, done) in self.first_reply.extract_if(.., |(wish, _)| *wish <= attempted) {
            let result = match error {
                Some(error) if !error.is_retryable() => Err(error.clone()),
                _ => Ok(()),
            };
            self.announcer.done(done, result);
        }
    }

    /// Somebody waits to lead. Who entered before the last stop has been told to go.
    pub(crate) fn enter(&mut self, now: Time, stops: u64, io: &mut Io<'_>) {
        if stops == self.stops() {
            self.waiters += 1;
            self.follow_wishes(now, io);
        }
    }

    pub(crate) fn exit(&mut self, now: Time, stops: u64, io: &mut Io<'_>) {
        if stops == self.stops() {
            self.waiters = self.waiters.saturating_sub(1);
            self.follow_wishes(now, io);
        }
    }

    fn stops(&self) -> u64 {
        self.shared.status.borrow().stops
    }

    pub(crate) fn stop(&mut self, now: Time, done: Done, io: &mut Io<'_>) {
        self.started = false;
        self.observing = false;
        self.waiters = 0;
        let stops = u64::from(!self.shared.faults.has(Fault::StopForgetsCampaign));
        self.change_status(|status| status.stops += stops);
        let idle = self.wish == Wish::Rest && self.machine.is_out();
        // There will be no attempt.
        self.answer_first(Wish::Campaign, None);
        (self.wish, self.attempted) = (Wish::Rest, Wish::Rest);
        self.meter.takes_part(false);
        if idle {
            self.announcer.done(done, Ok(()));
            return;
        }
        self.vacated.push(done);
        self.handle(now, Input::Withdraw, io);
        self.give_up_on_overrun();
    }

    pub(crate) fn resign(
        &mut self,
        now: Time,
        term: Option<Term>,
        done: Option<Done>,
        io: &mut Io<'_>,
    ) {
        let present = self.machine.leading().or(self.machine.ending());
        if present.is_none() || (term.is_some() && term != present) {
            if let Some(done) = done {
                self.announcer.done(done, Ok(()));
            }
            return;
        }
        self.vacated.extend(done);
        self.handle(now, Input::Resign, io);
        self.give_up_on_overrun();
    }
}

#[cfg(test)]
mod tests;
