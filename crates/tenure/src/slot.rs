//! One election inside the driver: its machine, and carrying out what the machine says.

mod listening;
mod ongoing;
mod wishes;

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::{
    Action, Actions, Error, Input, Machine, Op, Outcome, Past, Pick, Reason, Reply, Report, Term,
    Time,
};
use tokio::sync::{mpsc, oneshot};

use self::ongoing::Ongoing;
pub(crate) use self::ongoing::Promises;
use self::wishes::Attempt;
use crate::announcer::Announcer;
use crate::channels::Order;
use crate::command::NewSlot;
use crate::metrics::Meter;
use crate::relay::{Notice, ROOM_FOR_CHANGES};
use crate::sabotage::Fault;
use crate::schedule::{Schedule, Timer};
use crate::shared::{Phase, Reign, Shared, Status};
use crate::telemetry::Telemetry;
use crate::telling::{not_released, runtime_gone, still_running, unresponsive};
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
    announcer: Arc<Announcer>,
    telemetry: Telemetry,
    relay: Option<mpsc::Sender<Notice>>,
    /// What the callbacks say for those who were told that they lead.
    callbacks: Promises,
    /// Where messages come in, if there are handlers for any.
    dispatcher: Option<mpsc::UnboundedSender<Order>>,
    /// The reign that is announced once the dispatcher listens (M1).
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
    /// Those who wait for the first attempt at what they want.
    first_reply: Vec<(Wish, Done)>,
    /// What has been attempted since it was wanted.
    attempted: Wish,
    /// What the answer that is waited for will be an attempt at.
    attempting: Attempt,
    vacated: Vec<Done>,
    actions: Actions,
    meter: Meter,
}

/// What those who hold handles want, from little to much.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Rest,
    Observe,
    Campaign,
}

impl Slot {
    pub(crate) fn new(
        new: NewSlot,
        past: Past,
        announcer: Arc<Announcer>,
        telemetry: Telemetry,
    ) -> Slot {
        let NewSlot { id, settings, shared, relay, callbacks, dispatcher } = new;
        let meter = Meter::new(&shared, telemetry.clone());
        Slot {
            id,
            machine: Machine::resume(settings, past),
            shared,
            announcer,
            telemetry,
            relay,
            callbacks,
            dispatcher,
            pending: None,
            reign: None,
            started: false,
            waiters: 0,
            observing: false,
            wish: Wish::Rest,
            removed: false,
            ticket: None,
            first_reply: Vec::new(),
            attempted: Wish::Rest,
            attempting: Attempt::None,
            vacated: Vec::new(),
            actions: Actions::new(),
            meter,
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Feeds the machine and does what it says, until there is nothing left to say.
    pub(crate) fn handle(&mut self, now: Time, input: Input, io: &mut Io<'_>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut actions = std::mem::take(&mut self.actions);
            self.machine.handle(now, input, &mut actions);
            for action in actions.drain() {
                inputs.extend(self.shared.faults.answer(&action));
                self.act(now, action, io, &mut inputs);
            }
            self.actions = actions;
            inputs.extend(self.reign_has_ended());
        }
    }

    /// An answer from the store, or silence turned into one.
    pub(crate) fn reply(&mut self, now: Time, sent_at: Time, reply: Reply, io: &mut Io<'_>) {
        self.ticket = None;
        let (outcome, error) = reply.into_outcome();
        let (sent_at, outcome) = self.shared.faults.misread(now, sent_at, outcome);
        self.meter.replied(now, sent_at, &outcome);
        self.store_answered(error.as_ref());
        if let Some(error) = &error {
            self.unknown(error);
        }
        self.shared.saw(sent_at, &outcome);
        let attempted = self.attempting.comes_to(&outcome);
        self.handle(now, Input::Reply { sent_at, outcome }, io);
        // A lone instance leads when `start` returns: so that waits until it listens.
        if self.pending.is_none() {
            self.answer_first(attempted, error.as_ref());
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

    /// The callbacks of a reign that was stepped down from have ended. If `on_lost` has `returned`,
    /// that is "done" for the whole reign.
    pub(crate) fn relay_done(&mut self, now: Time, term: Term, returned: bool, io: &mut Io<'_>) {
        let answers = self.callbacks.answers;
        let forgets = self.shared.faults.has(Fault::ReleasesCutOff);
        let Some(ongoing) = self.ongoing(term) else { return };
        ongoing.awaits_relay = false;
        if answers {
            ongoing.relied_upon &= !returned;
            ongoing.cut_off = !returned && !forgets;
        }
        self.settle(now, io);
    }

    /// Everybody who was told "you lead" in this reign says that they are done. One that is on is
    /// no business of this: `Shared::done` has seen to it, and answers may have been given since.
    pub(crate) fn done(&mut self, now: Time, term: Term, io: &mut Io<'_>) {
        let Some(ongoing) = self.ongoing(term).filter(|ongoing| ongoing.reason.is_some()) else {
            return;
        };
        ongoing.relied_upon = false;
        self.settle(now, io);
    }

    /// Callers that wait for the end of a reign whose work does not end are told so.
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
            self.answer_first(Wish::Campaign, None);
        }
    }

    fn overrun(&self) -> Option<Term> {
        let ongoing = self.reign.as_ref().filter(|ongoing| ongoing.overrun)?;
        Some(ongoing.reign.term)
    }

    /// The driver's thread has panicked: nobody renews any more, so nobody may work on. Nothing of
    /// the user's is called from here, since it may have been what panicked.
    pub(crate) fn driver_is_gone(&self) {
        self.shared.lead.end();
        if let Some(ongoing) = &self.reign {
            ongoing.reign.close();
            ongoing.end(&self.announcer);
        }
        self.change_status(|status| {
            (status.reign, status.ending) = (None, None);
            status.driver_gone = true;
        });
        self.shared.close_feeds();
        self.announcer.feeds_changed(&self.shared);
    }

    fn settle(&mut self, now: Time, io: &mut Io<'_>) {
        if let Some(input) = self.reign_has_ended() {
            self.handle(now, input, io);
        }
    }

    fn change_status(&self, change: impl FnOnce(&mut Status)) {
        self.shared.status.set_silently(change);
        self.announcer.status_changed(&self.shared);
    }

    fn ongoing(&mut self, term: Term) -> Option<&mut Ongoing> {
        self.reign.as_mut().filter(|ongoing| ongoing.reign.term == term)
    }

    /// Whether a reign was stepped down from and nobody works for it or relies on it any more;
    /// forgets it then, and says what that means for its lease.
    fn reign_has_ended(&mut self) -> Option<Input> {
        let relay_is_gone = self.relay_is_gone();
        let faults = self.shared.faults;
        let verdict =
            self.reign.as_ref().and_then(|ongoing| ongoing.verdict(relay_is_gone, faults))?;
        self.tell_stepped_down();
        if let Some(ongoing) = self.reign.take() {
            ongoing.end(&self.announcer);
            self.change_status(|status| status.ending = None);
        }
        Some(verdict)
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
                io.schedule.set(Timer::Tick(self.id), from, Time::from_nanos(choice));
            }
            Action::Sleep => io.schedule.clear(Timer::Tick(self.id)),
        }
    }

    /// Hands an op to the next call, unless it would take or keep a lease for work that cannot be
    /// told to give it up.
    fn send(&mut self, now: Time, op: Op, io: &mut Io<'_>, inputs: &mut VecDeque<Input>) {
        let nobody_to_tell = self.relay_is_gone() || self.dispatcher_is_gone();
        let kept_back = match op {
            Op::Renew { .. } => {
                let silent = self.ring(now, &self.shared.pulses);
                let silent = silent.max(self.unvouched(now, Fault::RenewsUnvouched));
                let deaf = self.is_deaf(silent) && !self.shared.faults.has(Fault::SilenceUnheard);
                (deaf || nobody_to_tell).then(|| unresponsive(silent))
            }
            Op::Acquire { .. } if nobody_to_tell => Some(runtime_gone()),
            Op::Acquire { .. } => {
                let silent = self.unvouched(now, Fault::AcquiresUnvouched);
                self.is_deaf(silent).then(|| unresponsive(silent))
            }
            _ => None,
        };
        if let Some(error) = kept_back {
            self.unknown(&error);
            match op {
                Op::Renew { .. } => self.meter.renewal_failed(),
                _ => self.answer_first(Wish::Campaign, Some(&error)),
            }
            inputs.push_back(Input::Reply { sent_at: now, outcome: Outcome::Unknown });
            return;
        }
        self.meter.sent(now, &op, &self.shared);
        self.attempting = Attempt::of(&op);
        io.sends.push((self.id, op));
    }

    fn announce(&mut self, term: Term, step_down_at: Time, until: Time) {
        debug_assert!(self.reign.is_none(), "the work of the last reign has ended");
        // Before anybody can begin to work, so that no record shows work before its reign.
        let began = self.shared.clock.now();
        let reign = Arc::new(Reign::new(term, began, until));
        // Where unregistered answers are done as they are given, there is nothing to note.
        let relied = self.shared.at_once || self.callbacks.relies;
        self.shared.lead.begin(step_down_at.as_nanos(), relied);
        self.change_status(|status| {
            status.reign = Some(reign.clone());
            status.leader = None;
        });
        self.announcer.reign_begins(&reign);
        self.reign = Some(Ongoing::new(reign));
        self.meter.led(began, term, until);
        self.notice(Notice::Elected(term));
        if self.tell_at(began, &Event::Elected { term }) {
            self.shared.lead.rely();
        }
    }

    fn extend(&mut self, step_down_at: Time, until: Time) {
        let Some(ongoing) = &self.reign else { return };
        if !self.shared.faults.has(Fault::ForgetsDeadline) {
            ongoing.reign.set_trust_until(until);
            self.announcer.deadline_moved(&ongoing.reign);
        }
        if ongoing.reason.is_none() {
            self.shared.lead.extend(step_down_at.as_nanos());
            self.meter.extended(until);
        }
    }

    fn step_down(&mut self, now: Time, term: Term, reason: Reason, until: Time) {
        let faults = self.shared.faults;
        let kept = faults.has(Fault::KeepsLeadWord);
        let relied_upon = !kept && self.shared.lead.end() && !self.shared.at_once;
        self.change_status(|status| status.ending = status.reign.take());
        self.meter.stepped_down(now);
        let (relayed, announcer) = (self.relay.is_some(), self.announcer.clone());
        let Some(ongoing) = self.ongoing(term) else { return };
        ongoing.reign.set_trust_until(until);
        announcer.deadline_moved(&ongoing.reign);
        ongoing.reason = Some(reason);
        ongoing.relied_upon = relied_upon;
        ongoing.reign.close();
        ongoing.awaits_relay = relayed && !faults.has(Fault::IgnoresOnLost);
        if ongoing.reign.advance(Phase::Draining(reason)) {
            announcer.phase_changed(&ongoing.reign);
        }
        self.notice(Notice::Lost(term));
        let left = (until - now).min(self.shared.timing.drain);
        self.tell(&Event::Draining { term, reason, left });
    }

    /// Trust has ended. Whatever works on does so without a lease; it is told in every way.
    fn abort(&mut self, now: Time, io: &mut Io<'_>) {
        let patience = now + self.shared.timing.call_timeout();
        io.schedule.set(Timer::Overrun(self.id), patience, patience);
        if let Some(ongoing) = &mut self.reign {
            ongoing.aborted = true;
            ongoing.end(&self.announcer);
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
        self.change_status(|status| status.leader = seen);
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
        self.change_status(|status| status.store_answers = now);
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
            self.announcer.done(done, result.clone());
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

    /// Logs an event and tells those who read; says whether one of them may act on it.
    fn tell_at(&self, at: Time, event: &Event) -> bool {
        self.telemetry.event(&self.shared, event);
        let acts = self.shared.emit(at, event);
        self.announcer.feeds_changed(&self.shared);
        acts
    }
}
