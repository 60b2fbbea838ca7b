//! The driver: one task, on a thread of its own, that carries any number of elections over one
//! store.
//!
//! It owns the machines and the timer; `calls` has the calls to the store. User code never runs
//! here (L2), so a blocked program neither delays a renewal nor is waited for: `announcer` calls
//! wakers, `telemetry` subscribers and recorders. Should it panic all the same (a store runs on
//! it), everybody who works is told.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;

use tenure_core::{BoxFuture, Hint, Hints, Input, Name, Op, Store, Time};
use tokio::sync::mpsc;

use crate::announcer::Announcer;
use crate::calls::{Answer, Caller, Calls};
use crate::clock::AnyClock;
use crate::command::{Command, Commands, NewSlot};
use crate::pasts::Pasts;
use crate::sabotage::{Fault, Faults};
use crate::schedule::{Schedule, Timer};
use crate::slot::{Io, Slot};
use crate::telemetry::Telemetry;

/// How many commands are taken before timers and replies get their turn.
const COMMANDS_AT_ONCE: usize = 1024;

pub(crate) struct Driver {
    clock: AnyClock,
    commands: mpsc::UnboundedReceiver<Command>,
    /// The driver's own end keeps the queue open: callbacks and handlers tell of their end also
    /// when every handle is gone.
    _open: Commands,
    /// The last handle is gone.
    retired: bool,
    announcer: Arc<Announcer>,
    telemetry: Telemetry,
    // Sorted, so that whatever is done for all of them has an order.
    slots: BTreeMap<u64, Slot>,
    by_name: HashMap<Name, u64>,
    /// Elections that begin when one of the same name, whose handles are gone, has ended; with what
    /// was asked of them meanwhile.
    parked: BTreeMap<Name, VecDeque<Parked>>,
    pasts: Pasts,
    schedule: Schedule,
    rng: fastrand::Rng,
    sends: Vec<(u64, Op)>,
    calls: Calls,
    hints: Option<Box<dyn Hints>>,
    tickets: u64,
    faults: Faults,
}

struct Parked {
    new: NewSlot,
    asked: Vec<Command>,
}

impl Driver {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: AnyClock,
        (open, commands): (Commands, mpsc::UnboundedReceiver<Command>),
        announcer: Arc<Announcer>,
        telemetry: Telemetry,
        rng: fastrand::Rng,
    ) -> Driver {
        let hints = Some(store.hints());
        Driver {
            calls: Calls::new(store),
            clock,
            commands,
            _open: open,
            retired: false,
            announcer,
            telemetry,
            slots: BTreeMap::new(),
            by_name: HashMap::new(),
            parked: BTreeMap::new(),
            pasts: Pasts::default(),
            schedule: Schedule::default(),
            rng,
            sends: Vec::new(),
            hints,
            tickets: 0,
            faults: Faults::default(),
        }
    }

    /// The same with faults on purpose.
    pub(crate) fn with(mut self, faults: Faults) -> Driver {
        self.faults = faults;
        self.calls.faults = faults;
        self
    }

    /// Runs until every handle is gone and everything held has been given back.
    pub(crate) async fn run(mut self) {
        let mut sleep: (Time, BoxFuture<'static, ()>) =
            (Time::MAX, self.clock.sleep_until(Time::MAX));
        loop {
            self.wake_due();
            self.flush();
            if self.retired && self.slots.is_empty() {
                return;
            }
            let next = self.next_wake();
            if next != sleep.0 {
                sleep = (next, self.clock.sleep_until(next));
            }
            tokio::select! {
                // What is due is done in every turn, before anything of this. Of answers there are
                // never more than calls. Hints come last: nothing depends on them (I5).
                biased;
                answers = self.calls.ended() => self.take_answers(answers),
                Some(command) = self.commands.recv() => self.take_commands(command),
                hint = next_hint(&mut self.hints) => self.hinted(&hint),
                // After the calls, so that nobody waits for a log line.
                never = self.telemetry.hand_over() => match never {},
                () = &mut sleep.1 => sleep = (Time::MAX, self.clock.sleep_until(Time::MAX)),
            }
        }
    }

    fn next_wake(&self) -> Time {
        self.calls.next_timeout().into_iter().chain(self.schedule.next()).min().unwrap_or(Time::MAX)
    }

    fn wake_due(&mut self) {
        let now = self.clock.now();
        let late = self.calls.silent(now);
        self.take_answers(late);
        for timer in self.schedule.due(now) {
            match timer {
                Timer::Tick(id) => self.with_slot(id, |s, io| s.handle(now, Input::Tick, io)),
                Timer::Listening(id) => {
                    self.with_slot(id, |slot, io| slot.listening_is_overdue(now, io));
                }
                Timer::Overrun(id) => {
                    self.with_slot(id, |slot, io| slot.patience_is_over(now, io));
                }
            }
        }
    }

    /// Hands over what has gathered, and sends it in as few calls as the store allows.
    fn flush(&mut self) {
        for (id, op) in std::mem::take(&mut self.sends) {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            self.tickets += 1;
            slot.ticket = Some(self.tickets);
            let caller = Caller::Slot { id, ticket: self.tickets };
            self.calls.add(op, caller, slot.shared().timing.call_timeout());
        }
        self.calls.flush(&self.clock);
    }

    fn take_answers(&mut self, answers: Vec<Answer>) {
        let now = self.clock.now();
        let old_too = self.faults.has(Fault::OldTicketBelieved);
        for Answer { caller, sent_at, reply } in answers {
            match caller {
                Caller::Handles(handles) => {
                    for done in handles {
                        self.announcer.reply(done, reply.clone());
                    }
                }
                Caller::Slot { id, ticket } => self.with_slot(id, |slot, io| {
                    if slot.ticket == Some(ticket) || old_too {
                        slot.reply(now, sent_at, reply, io);
                    }
                }),
            }
        }
    }

    fn hinted(&mut self, hint: &Hint) {
        let now = self.clock.now();
        let ids: Vec<u64> = match hint {
            Hint::Election(name) => self.by_name.get(name).copied().into_iter().collect(),
            _ => self.slots.keys().copied().collect(),
        };
        for id in ids {
            self.with_slot(id, |slot, io| slot.handle(now, Input::Hint, io));
        }
    }

    fn take_commands(&mut self, first: Command) {
        let mut next = Some(first);
        for _ in 0..COMMANDS_AT_ONCE {
            let Some(command) = next else { return };
            // A caller that waits for a turn gets a whole one: what is due comes before the next.
            let ends_turn = matches!(command, Command::Sync { .. });
            self.take(command);
            if ends_turn {
                return;
            }
            next = self.commands.try_recv().ok();
        }
        if let Some(command) = next {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        let now = self.clock.now();
        let Some(command) = self.keep_for_parked(command) else { return };
        match command {
            Command::Add(new) => self.add(*new),
            Command::Start { id, done } => self.with_slot(id, |s, io| s.start(now, done, io)),
            Command::Observe { id, done } => self.with_slot(id, |s, io| s.observe(now, done, io)),
            Command::Stop { id, done } => self.with_slot(id, |s, io| s.stop(now, done, io)),
            Command::Resign { id, term, done } => {
                self.with_slot(id, |slot, io| slot.resign(now, term, done, io));
            }
            Command::Enter { id, stops } => self.with_slot(id, |s, io| s.enter(now, stops, io)),
            Command::Exit { id, stops } => self.with_slot(id, |s, io| s.exit(now, stops, io)),
            Command::TenureEnded { id, term } => {
                self.with_slot(id, |slot, io| slot.tenure_ended(now, term, io));
            }
            Command::WorkEnded { id, term } => {
                self.with_slot(id, |slot, io| slot.work_ended(now, term, io));
            }
            Command::RelayDone { id, term, returned } => {
                self.with_slot(id, |slot, io| slot.relay_done(now, term, returned, io));
            }
            Command::Done { id, term } => self.with_slot(id, |s, io| s.done(now, term, io)),
            Command::Listening { id, term, done } => {
                self.with_slot(id, |slot, io| slot.listening(now, term, done, io));
            }
            Command::Remove { .. } if self.faults.has(Fault::KeepsRemoved) => {}
            Command::Remove { id } => self.with_slot(id, |slot, io| {
                slot.removed = true;
                slot.follow_wishes(now, io);
            }),
            Command::Retire => self.retire(),
            Command::Sync { done } => self.announcer.turn_taken(done),
            Command::Apply { op, timeout, done } => {
                self.calls.add(op, Caller::Handles(vec![done]), timeout);
            }
        }
    }

    /// Begins an election, or has it wait until the one before it of the same name has ended.
    fn add(&mut self, new: NewSlot) {
        let name = new.settings.election.clone();
        if self.by_name.contains_key(&name) {
            let parked = Parked { new, asked: Vec::new() };
            self.parked.entry(name).or_default().push_back(parked);
            return;
        }
        let id = new.id;
        let past = self.pasts.take(&name);
        self.by_name.insert(name, id);
        let (announcer, telemetry) = (self.announcer.clone(), self.telemetry.clone());
        self.slots.insert(id, Slot::new(new, past, announcer, telemetry));
    }

    /// Puts away what is asked of an election that has not begun.
    fn keep_for_parked(&mut self, command: Command) -> Option<Command> {
        if self.parked.is_empty() {
            return Some(command);
        }
        let id = command.election();
        let parked = self.parked.values_mut().flatten().find(|parked| Some(parked.new.id) == id);
        match parked {
            Some(parked) => parked.asked.push(command),
            None => return Some(command),
        }
        None
    }

    /// The election of this name has ended: the next one of it may begin.
    fn unpark(&mut self, name: &Name) {
        let Some(waiting) = self.parked.get_mut(name) else { return };
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.parked.remove(name);
        }
        if let Some(Parked { new, asked }) = next {
            self.add(new);
            let forgotten = self.faults.has(Fault::ForgetsParked);
            for command in asked.into_iter().filter(|_| !forgotten) {
                self.take(command);
            }
        }
    }

    fn retire(&mut self) {
        self.retired = true;
        // All handles are gone, so those that wait to begin have been removed themselves.
        let ids: Vec<u64> = self.slots.keys().copied().collect();
        for id in ids {
            self.take(Command::Remove { id });
        }
    }

    /// Lets a slot act, and forgets it once it is removed and holds nothing.
    fn with_slot(&mut self, id: u64, act: impl FnOnce(&mut Slot, &mut Io<'_>)) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let (schedule, rng, sends) = (&mut self.schedule, &mut self.rng, &mut self.sends);
        act(slot, &mut Io { schedule, rng, sends });
        if slot.removed && slot.machine().is_out() {
            let name = slot.shared().election.clone();
            self.pasts.keep(name.clone(), slot.machine().past());
            self.slots.remove(&id);
            Timer::all_of(id).into_iter().for_each(|timer| self.schedule.clear(timer));
            self.by_name.remove(&name);
            self.unpark(&name);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for slot in self.slots.values() {
            slot.driver_is_gone();
        }
        self.telemetry.flush();
    }
}

async fn next_hint(hints: &mut Option<Box<dyn Hints>>) -> Hint {
    if let Some(stream) = hints {
        if let Some(hint) = poll_fn(|cx| stream.poll_next(cx)).await {
            return hint;
        }
        *hints = None;
    }
    std::future::pending().await
}
