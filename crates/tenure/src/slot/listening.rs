//! Between the grant and the news of it: the leader listens before it is told that it leads (M1).
//!
//! The machine leads already, and renews; nobody else knows yet. If listening fails or takes too
//! long, the lease is given back, and nobody was told.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::{Action, Error, Input, Term, Time};

use super::{Io, Slot, Wish};
use crate::Event;
use crate::channels::{Order, too_slow};
use crate::pulse::Pulses;
use crate::relay::Notice;
use crate::sabotage::Fault;
use crate::schedule::Timer;

/// A reign that nobody knows of yet.
pub(super) struct Pending {
    pub(super) term: Term,
    pub(super) step_down_at: Time,
    pub(super) until: Time,
}

impl Slot {
    /// Rings these bells, and tells how long one of them has not been answered.
    pub(super) fn ring(&self, now: Time, pulses: &Pulses) -> Duration {
        let (silent, rung) = pulses.ring(now);
        self.announcer.ring(rung);
        silent
    }

    /// The same for those without whom no lease is kept or taken.
    pub(super) fn unvouched(&self, now: Time, fault: Fault) -> Duration {
        let silent = self.ring(now, &self.shared.vouching);
        if self.shared.faults.has(fault) { Duration::ZERO } else { silent }
    }

    pub(super) fn is_deaf(&self, silent: Duration) -> bool {
        silent >= self.shared.timing.renew_every / 2
    }

    /// Announces the reign, or has the dispatcher listen first.
    pub(super) fn lead(
        &mut self,
        now: Time,
        (term, step_down_at, until): (Term, Time, Time),
        io: &mut Io<'_>,
    ) {
        let Some(dispatcher) = &self.dispatcher else {
            return self.announce(term, step_down_at, until);
        };
        let _gone = dispatcher.send(Order::Listen(term));
        if self.shared.faults.has(Fault::LeadsBeforeListening) {
            return self.announce(term, step_down_at, until);
        }
        self.pending = Some(Pending { term, step_down_at, until });
        let overdue = now + self.shared.timing.call_timeout();
        io.schedule.set(Timer::Listening(self.id), overdue, overdue);
    }

    /// The dispatcher listens, or can't.
    pub(crate) fn listening(
        &mut self,
        now: Time,
        term: Term,
        done: Result<(), Error>,
        io: &mut Io<'_>,
    ) {
        // If this process stood still meanwhile, the reign is over before anybody heard of it.
        self.handle(now, Input::Tick, io);
        if let (true, Some(dispatcher), Some(ongoing)) = (
            self.shared.faults.has(Fault::LeadsBeforeListening),
            &self.dispatcher,
            self.reign.as_ref().filter(|ongoing| ongoing.reign.term == term),
        ) {
            let _gone = dispatcher.send(Order::Lead(ongoing.reign.clone()));
        }
        let Some(pending) = self.pending.take_if(|pending| pending.term == term) else { return };
        io.schedule.clear(Timer::Listening(self.id));
        let failed = match done {
            Ok(()) => {
                self.announce(term, pending.step_down_at, pending.until);
                if let (Some(dispatcher), Some(ongoing)) = (&self.dispatcher, &self.reign) {
                    let _gone = dispatcher.send(Order::Lead(ongoing.reign.clone()));
                }
                None
            }
            Err(error) => {
                // Put back for the step-down, which then finds that nobody has been told.
                self.pending = Some(pending);
                self.tell(&Event::ListenFailed { term, error: error.clone() });
                self.notice_error(Notice::Error(error.clone()));
                self.handle(now, Input::Resign, io);
                Some(error)
            }
        };
        self.answer_first(Wish::Campaign, failed.as_ref());
    }

    pub(crate) fn listening_is_overdue(&mut self, now: Time, io: &mut Io<'_>) {
        if let Some(term) = self.pending.as_ref().map(|pending| pending.term) {
            let waited = self.shared.timing.call_timeout();
            self.listening(now, term, Err(too_slow(waited)), io);
        }
    }

    /// Whether this ends or moves a reign that nobody knows of; then there is nobody to tell.
    pub(super) fn acts_unseen(
        &mut self,
        action: &Action,
        io: &mut Io<'_>,
        inputs: &mut VecDeque<Input>,
    ) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        match action {
            Action::Extend { step_down_at, until, .. } => {
                (pending.step_down_at, pending.until) = (*step_down_at, *until);
                true
            }
            Action::StepDown { term, .. } if *term == pending.term => {
                self.pending = None;
                io.schedule.clear(Timer::Listening(self.id));
                if let Some(dispatcher) = &self.dispatcher {
                    let _gone = dispatcher.send(Order::Forget);
                }
                inputs.push_back(Input::Drained);
                true
            }
            _ => false,
        }
    }

    /// The runtime of the handlers has ended: nobody can be told any more.
    pub(super) fn dispatcher_is_gone(&self) -> bool {
        self.dispatcher.as_ref().is_some_and(tokio::sync::mpsc::UnboundedSender::is_closed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tenure_core::{CandidateId, Grant, Name, Past, Reply, Settings, Timing};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::announcer::Announcer;
    use crate::clock::AnyClock;
    use crate::command::NewSlot;
    use crate::runtime::{Runtime, Threads};
    use crate::schedule::Schedule;
    use crate::shared::Shared;
    use crate::slot::Promises;
    use crate::telemetry::Telemetry;

    /// The process stood still between the grant and the news that its dispatcher listens.
    #[test]
    fn a_reign_that_is_over_before_anybody_heard_of_it_is_never_announced() {
        for (stood_still, is_announced) in [(Duration::ZERO, true), (Duration::from_secs(5), false)]
        {
            let (name, timing) = (Name::new("jobs").unwrap(), Timing::new(Duration::from_secs(3)));
            let id = CandidateId::new("me", 1).unwrap();
            let shared = Shared::new(
                name.clone(),
                id.clone(),
                timing,
                AnyClock::Boot,
                tenure_fork::Origin::here().unwrap(),
            );
            let shared = Arc::new(shared);
            let settings = Settings::new(name, id, timing);
            let (dispatcher, mut orders) = mpsc::unbounded_channel();
            let runtime: Arc<dyn Runtime> = Arc::new(Threads);
            let announcer = Announcer::start(AnyClock::Boot, &runtime).unwrap();
            let new = NewSlot {
                id: 1,
                settings,
                shared: shared.clone(),
                relay: None,
                callbacks: Promises::default(),
                dispatcher: Some(dispatcher),
            };
            let telemetry = Telemetry::start(&*runtime).unwrap();
            let mut slot = Slot::new(new, Past::default(), announcer, telemetry);
            let (mut schedule, mut sends) = (Schedule::default(), Vec::new());
            let mut rng = fastrand::Rng::with_seed(1);
            let mut io = Io { schedule: &mut schedule, rng: &mut rng, sends: &mut sends };
            let sent_at = shared.clock.now();
            let term = Term::new(1).unwrap();
            slot.start(sent_at, oneshot::channel().0, &mut io);
            slot.reply(sent_at, sent_at, Reply::Granted(Grant::new(term)), &mut io);
            assert!(matches!(orders.try_recv(), Ok(Order::Listen(_))));
            slot.listening(sent_at + stood_still, term, Ok(()), &mut io);
            assert_eq!(shared.status.borrow().reign.is_some(), is_announced);
        }
    }
}
