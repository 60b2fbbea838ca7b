//! What those who hold handles want of an election, and telling them when it is done.

use tenure_core::{Input, Term, Time};

use super::{Done, Io, Slot, Wish};
use crate::Event;
use crate::sabotage::Fault;

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
        if wish == self.wish {
            return;
        }
        self.wish = wish;
        self.meter.takes_part(wish == Wish::Campaign);
        let input = match wish {
            Wish::Rest => Input::Withdraw,
            Wish::Observe => Input::Observe,
            Wish::Campaign => {
                self.tell(&Event::Campaigning);
                // A withdrawal that is taken back has no end that could be waited for.
                self.finish_vacating(Ok(()));
                Input::Campaign
            }
        };
        self.handle(now, input, io);
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
        if self.wish == wish && self.shared.status.borrow().store_answers.is_some() {
            self.announcer.done(done, Ok(()));
            return;
        }
        self.first_reply.push(done);
        self.follow_wishes(now, io);
        if self.overrun().is_some() && !self.shared.faults.has(Fault::ForgetsFirstReply) {
            // The attempt comes when the work of the last reign has ended, if it ever does.
            self.answer_first(None);
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
        self.wish = Wish::Rest;
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
