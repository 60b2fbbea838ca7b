//! One election inside the driver: its machine, and carrying out what the machine says.

mod listening;
mod wishes;

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::{
    Action, Actions, Error, Input, Machine, Op, Outcome, Pick, Reason, Reply, Report, Term, Time,
};
use tokio::sync::{mpsc, oneshot};

use crate::channels::Order;
use crate::driver::PATIENCE;
use crate::metrics::Meter;
use crate::relay::{Notice, ROOM_FOR_CHANGES};
use crate::schedule::Schedule;
use crate::shared::{Phase, Reign, Shared};
use crate::telling::{log, not_released, still_running, unresponsive};
use crate::{Event, Leader};

pub(crate) type Done = oneshot::Sender<Result<(), Error>>;

/// What a slot writes to.
pub(crate) struct Io<'a> {
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) rng: &'a mut fastrand::Rng,
    pub(crate) sends: &'a mut Vec<(u64, Op)>,
}

pub(crate) struct Slot {
    id: u64,
    machine: Machine,
    shared: Arc<Shared>,
    relay: Option<mpsc::Sender<Notice>>,
    /// Where messages come in, if there are handlers for any.
    office: Option<mpsc::UnboundedSender<Order>>,
    /// The reign that is announced once the office listens (M1).
    pending: Option<listening::Pending>,
    /// The reign that is on, or whose work has not ended.
    reign: Option<Ongoing>,
    /// Somebody called `start`.
    started: bool,
    /// How many wait in `campaign`.
    waiters: u32,
    /// Somebody called `observe`.
    observing: bool,
    /// What the machine was told last.
    wish: Wish,
    pub(crate) removed: bool,
    /// Names the call that this slot waits for; answers to others are late ones.
    pub(crate) ticket: Option<u64>,
    first_reply: Vec<Done>,
    vacated: Vec<Done>,
    actions: Actions,
    meter: Meter,
}

/// What those who hold handles want.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Rest,
    Observe,
    Campaign,
}

struct Ongoing {
    reign: Arc<Reign>,
    /// Set at the step-down.
    reason: Option<Reason>,
    awaits_relay: bool,
    tenure_ended: bool,
    told: bool,
    /// The work was ended by force, and goes on all the same.
    overrun: bool,
}

impl Ongoing {
    /// Nobody trusts this reign any more.
    fn end(&self) {
        self.reign.set_trust_until(Time::ZERO);
        let reason = self.reason.unwrap_or(Reason::NotRenewed);
        self.reign.phase.send_replace(Phase::Over(reason));
    }
}

impl Slot {
    pub(crate) fn new(
        id: u64,
        machine: Machine,
        shared: Arc<Shared>,
        relay: Option<mpsc::Sender<Notice>>,
        office: Option<mpsc::UnboundedSender<Order>>,
    ) -> Slot {
        let meter = Meter::new(&shared);
        Slot {
            id,
            machine,
            shared,
            relay,
            office,
            pending: None,
            reign: None,
            started: false,
            waiters: 0,
            observing: false,
            wish: Wish::Rest,
            removed: false,
            ticket: None,
            first_reply: Vec::new(),
            vacated: Vec::new(),
            actions: Actions::new(),
            meter,
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Feeds the machine and does what it says, until there is nothing left to say.
    pub(crate) fn handle(&mut self, now: Time, input: Input, io: &mut Io<'_>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut actions = std::mem::take(&mut self.actions);
            self.machine.handle(now, input, &mut actions);
            for action in actions.drain() {
                self.act(now, action, io, &mut inputs);
            }
            self.actions = actions;
            if self.work_has_ended() {
                inputs.push_back(Input::Drained);
            }
        }
    }

    /// An answer from the store, or silence turned into one.
    pub(crate) fn reply(&mut self, now: Time, sent_at: Time, reply: Reply, io: &mut Io<'_>) {
        self.ticket = None;
        let (outcome, error) = reply.into_outcome();
        self.meter.replied(now, sent_at, &outcome);
        self.store_answered(error.as_ref());
        if let Some(error) = &error {
            self.unknown(error);
        }
        self.shared.saw(sent_at, &outcome);
        self.handle(now, Input::Reply { sent_at, outcome }, io);
        // A lone instance leads when `start` returns: so that waits until it listens.
        if self.pending.is_none() {
            self.answer_first(error.as_ref());
        }
    }

    fn answer_first(&mut self, error: Option<&Error>) {
        for done in self.first_reply.drain(..) {
            let _gone = done.send(match error {
                Some(error) if !error.is_retryable() => Err(error.clone()),
                _ => Ok(()),
            });
        }
    }

    /// The handle of a reign is gone: its work has ended, and with it the reign.
    pub(crate) fn tenure_ended(&mut self, now: Time, term: Term, io: &mut Io<'_>) {
        let Some(ongoing) = self.ongoing(term) else {
            // It was given back before its handle was known to be gone, which is no less a wish.
            return self.follow_wishes(now, io);
        };
        ongoing.tenure_ended = true;
        if ongoing.reason.is_none() && (self.started || self.waiters > 0) {
            self.handle(now, Input::Resign, io);
        } else {
            self.follow_wishes(now, io);
            self.settle(now, io);
        }
    }

    /// The last work of a reign that was stepped down from has ended.
    pub(crate) fn work_ended(&mut self, now: Time, term: Term, io: &mut Io<'_>) {
        if self.ongoing(term).is_some() {
            self.settle(now, io);
        }
    }

    pub(crate) fn relay_done(&mut self, now: Time, term: Term, io: &mut Io<'_>) {
        let Some(ongoing) = self.ongoing(term) else { return };
        ongoing.awaits_relay = false;
        self.settle(now, io);
    }

    /// Whoever waits for the end of a reign whose work does not end is told so.
    pub(crate) fn patience_is_over(&mut self, now: Time, io: &mut Io<'_>) {
        self.settle(now, io);
        // A later reign may have begun meanwhile: it has not been aborted.
        if let Some(ongoing) = self.reign.as_mut().filter(|ongoing| ongoing.reign.is_over()) {
            ongoing.overrun = true;
        }
        self.give_up_on_overrun();
    }

    /// Nobody waits for work that nothing ends: it may go on for ever.
    fn give_up_on_overrun(&mut self) {
        if let Some(term) = self.overrun() {
            self.finish_vacating(Err(still_running(term)));
            self.answer_first(None);
        }
    }

    fn overrun(&self) -> Option<Term> {
        let ongoing = self.reign.as_ref().filter(|ongoing| ongoing.overrun)?;
        Some(ongoing.reign.term)
    }

    /// The driver's thread has panicked: nobody renews any more, so nobody may work on. Nothing of
    /// the user's is called from here, since it may have been what panicked.
    pub(crate) fn driver_is_gone(&self) {
        self.shared.set_start_until(None);
        if let Some(ongoing) = &self.reign {
            ongoing.reign.close();
            ongoing.end();
        }
        self.shared.status.send_modify(|status| {
            (status.reign, status.ending) = (None, None);
            status.driver_gone = true;
        });
        self.shared.close_feeds();
    }

    fn settle(&mut self, now: Time, io: &mut Io<'_>) {
        if self.work_has_ended() {
            self.handle(now, Input::Drained, io);
        }
    }

    fn ongoing(&mut self, term: Term) -> Option<&mut Ongoing> {
        self.reign.as_mut().filter(|ongoing| ongoing.reign.term == term)
    }

    /// Whether the reign was stepped down from and nobody works for it any more; forgets it then.
    fn work_has_ended(&mut self) -> bool {
        let relay_is_gone = self.relay_is_gone();
        let ended = self.reign.as_ref().is_some_and(|ongoing| {
            let relaying = ongoing.awaits_relay && !relay_is_gone;
            ongoing.reason.is_some() && !ongoing.reign.has_work() && !relaying
        });
        if ended {
            self.tell_stepped_down();
            if let Some(ongoing) = self.reign.take() {
                ongoing.end();
                self.shared.status.send_modify(|status| status.ending = None);
            }
        }
        ended
    }

    fn act(&mut self, now: Time, action: Action, io: &mut Io<'_>, inputs: &mut VecDeque<Input>) {
        if self.acts_unseen(&action, io, inputs) {
            return;
        }
        match action {
            Action::Send(op) => self.send(now, op, io, inputs),
            Action::Lead { term, step_down_at, until } => {
                self.lead(now, (term, step_down_at, until), io);
            }
            Action::Extend { step_down_at, until, .. } => self.extend(step_down_at, until),
            Action::StepDown { term, reason, until } => self.step_down(now, term, reason, until),
            Action::Abort { .. } => self.abort(now, io),
            Action::Vacated { term, released } => self.finish_vacating(match term {
                Some(term) if !released => Err(not_released(term)),
                _ => Ok(()),
            }),
            Action::Observed(lease) => self.observed(lease.map(Leader::from)),
            Action::Report(report) => self.report(report),
            Action::Wake { from, to, pick } => {
                let choice = match pick {
                    Pick::Late => to.as_nanos(),
                    Pick::Random => io.rng.u64(from.as_nanos()..=to.as_nanos()),
                };
                io.schedule.set(self.id, from, Time::from_nanos(choice));
            }
            Action::Sleep => io.schedule.clear(self.id),
        }
    }

    /// Hands an op to the next call, unless it would keep a lease alive for work that cannot be
    /// told to give it up.
    fn send(&mut self, now: Time, op: Op, io: &mut Io<'_>, inputs: &mut VecDeque<Input>) {
        if let Op::Renew { .. } = op {
            let silent = self.shared.pulses.ring(now);
            let deaf = silent >= self.shared.timing.renew_every / 2;
            if deaf || self.relay_is_gone() || self.office_is_gone() {
                self.unknown(&unresponsive(silent));
                self.meter.renewal_failed();
                inputs.push_back(Input::Reply { sent_at: now, outcome: Outcome::Unknown });
                return;
            }
        }
        self.meter.sent(now, &op, &self.shared);
        io.sends.push((self.id, op));
    }

    fn announce(&mut self, term: Term, step_down_at: Time, until: Time) {
        debug_assert!(self.reign.is_none(), "the work of the last reign has ended");
        // Before anybody can begin to work, so that no record shows work before its reign.
        let began = self.shared.clock.now();
        let reign = Arc::new(Reign::new(term, began, until));
        self.shared.set_start_until(Some(step_down_at));
        self.shared.status.send_modify(|status| {
            status.reign = Some(reign.clone());
            status.leader = None;
        });
        self.reign = Some(Ongoing {
            reign,
            reason: None,
            awaits_relay: false,
            tenure_ended: false,
            told: false,
            overrun: false,
        });
        self.meter.led(began, term, until);
        self.notice(Notice::Elected(term));
        self.tell_at(began, &Event::Elected { term });
    }

    fn extend(&mut self, step_down_at: Time, until: Time) {
        let Some(ongoing) = &self.reign else { return };
        ongoing.reign.set_trust_until(until);
        if ongoing.reason.is_none() {
            self.shared.set_start_until(Some(step_down_at));
            self.meter.extended(until);
        }
    }

    fn step_down(&mut self, now: Time, term: Term, reason: Reason, until: Time) {
        self.shared.set_start_until(None);
        self.shared.status.send_modify(|status| status.ending = status.reign.take());
        self.meter.stepped_down(now);
        let relayed = self.relay.is_some();
        let Some(ongoing) = self.ongoing(term) else { return };
        ongoing.reign.set_trust_until(until);
        ongoing.reason = Some(reason);
        ongoing.reign.close();
        ongoing.awaits_relay = relayed;
        ongoing.reign.phase.send_replace(Phase::Draining(reason));
        self.notice(Notice::Lost(term));
        let left = (until - now).min(self.shared.timing.drain);
        self.tell(&Event::Draining { term, reason, left });
    }

    /// Trust has ended. Whatever works on does so without a lease; it is told in every way.
    fn abort(&mut self, now: Time, io: &mut Io<'_>) {
        let patience = now + self.shared.timing.call_timeout();
        io.schedule.set(self.id | PATIENCE, patience, patience);
        if let Some(ongoing) = &self.reign {
            ongoing.end();
            self.notice(Notice::Abort);
            self.tell_stepped_down();
        }
    }

    fn tell_stepped_down(&mut self) {
        let Some(ongoing) = &mut self.reign else { return };
        if let (Some(reason), false) = (ongoing.reason, ongoing.told) {
            ongoing.told = true;
            let event = Event::SteppedDown { term: ongoing.reign.term, reason };
            self.tell(&event);
        }
    }

    fn observed(&mut self, leader: Option<Leader>) {
        let seen = leader.clone().map(|leader| (leader, self.shared.clock.now()));
        self.shared.status.send_modify(|status| status.leader = seen);
        self.tell(&Event::LeaderChanged { leader });
    }

    fn report(&mut self, report: Report) {
        let event = match report {
            Report::Settling { left } => Event::Settling { left },
            Report::StoreClockStepped { by, ahead } => Event::StoreClockStepped { by, ahead },
            Report::DuplicateLabel { holder } => Event::DuplicateLabel { holder },
            Report::TermFell { granted, least } => Event::TermFell { granted, least },
            _ => return,
        };
        self.tell(&event);
    }

    fn store_answered(&mut self, error: Option<&Error>) {
        let before = self.shared.status.borrow().store_answers;
        let now = Some(error.is_none());
        if before == now {
            return;
        }
        self.shared.status.send_modify(|status| status.store_answers = now);
        match (before, error) {
            (_, Some(error)) => self.tell(&Event::StoreLost { error: error.clone() }),
            (Some(false), None) => self.tell(&Event::StoreBack),
            (_, None) => {}
        }
    }

    fn unknown(&mut self, error: &Error) {
        let held = self.machine.leading();
        if let (Some(term), None) = (held, &self.pending) {
            self.tell(&Event::RenewalFailed { term, error: error.clone() });
        }
        self.notice_error(Notice::Error(error.clone()));
    }

    fn notice_error(&self, notice: Notice) {
        if let Some(relay) = &self.relay
            && relay.capacity() > ROOM_FOR_CHANGES
        {
            let _full = relay.try_send(notice);
        }
    }

    fn finish_vacating(&mut self, result: Result<(), Error>) {
        for done in self.vacated.drain(..) {
            let _gone = done.send(result.clone());
        }
    }

    /// The runtime that the callbacks ran on has ended: nobody can be told any more.
    fn relay_is_gone(&self) -> bool {
        self.relay.as_ref().is_some_and(mpsc::Sender::is_closed)
    }

    fn notice(&self, notice: Notice) {
        if let Some(relay) = &self.relay {
            let sent = relay.try_send(notice);
            debug_assert!(!matches!(sent, Err(mpsc::error::TrySendError::Full(_))), "room is kept");
        }
    }

    fn tell(&self, event: &Event) {
        self.tell_at(self.shared.clock.now(), event);
    }

    fn tell_at(&self, at: Time, event: &Event) {
        log(&self.shared, event);
        self.shared.emit(at, event);
    }
}
