//! The driver: one thread that carries any number of elections over one store.
//!
//! It owns the machines, the timer and the calls to the store. User code never runs here, so a
//! blocked program neither delays a renewal nor is waited for. It stamps `sent_at` before a call
//! leaves, groups the ops of many elections into one call, and never drops a call to meet a timer:
//! it turns silence into an unknown outcome, steps down if it must, and lets the call finish.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tenure_core::{
    BoxFuture, Error, Hint, Hints, Input, Machine, Name, Op, Past, Reply, Store, Time,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};

use crate::clock::AnyClock;
use crate::command::{Command, Names, NewSlot};
use crate::schedule::Schedule;
use crate::slot::{Io, Slot};
use crate::telling::{miscounted, silent, store_panicked, too_many_calls};

/// How many calls are made at a time; what does not fit waits, unstamped, for one to end.
const CALLS_AT_ONCE: usize = 8;
/// How many calls that nobody waits for may hang before no more are made.
const HANGING_MAX: usize = 16;
/// Marks the schedule's keys that stand for a slot's patience, not for its machine.
pub(crate) const PATIENCE: u64 = 1 << 63;
/// Marks those that stand for how long a slot waits for its office to listen.
pub(crate) const LISTENING: u64 = 1 << 62;
/// How many commands are taken before timers and replies get their turn.
const COMMANDS_AT_ONCE: usize = 1024;

pub(crate) struct Driver {
    store: Arc<dyn Store>,
    batch_limit: usize,
    clock: AnyClock,
    commands: mpsc::UnboundedReceiver<Command>,
    names: Names,
    slots: HashMap<u64, Slot>,
    by_name: HashMap<Name, u64>,
    past: HashMap<Name, Past>,
    schedule: Schedule,
    rng: fastrand::Rng,
    sends: Vec<(u64, Op)>,
    calls: JoinSet<Vec<Reply>>,
    waiting: HashMap<Id, Call>,
    hints: Option<Box<dyn Hints>>,
    tickets: u64,
}

/// A call under way.
struct Call {
    sent_at: Time,
    times_out_at: Time,
    callers: Vec<Caller>,
}

enum Caller {
    Slot { id: u64, ticket: u64 },
    Handle(oneshot::Sender<Reply>),
}

impl Driver {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: AnyClock,
        commands: mpsc::UnboundedReceiver<Command>,
        names: Names,
    ) -> Driver {
        let batch_limit = store.info().batch_limit.max(1);
        let hints = Some(store.hints());
        Driver {
            store,
            batch_limit,
            clock,
            commands,
            names,
            slots: HashMap::new(),
            by_name: HashMap::new(),
            past: HashMap::new(),
            schedule: Schedule::default(),
            rng: fastrand::Rng::new(),
            sends: Vec::new(),
            calls: JoinSet::new(),
            waiting: HashMap::new(),
            hints,
            tickets: 0,
        }
    }

    /// Runs until every handle is gone and everything held has been given back.
    pub(crate) async fn run(mut self) {
        let mut orphaned = false;
        let mut sleep: (Time, BoxFuture<'static, ()>) =
            (Time::MAX, self.clock.sleep_until(Time::MAX));
        loop {
            self.wake_due();
            self.flush();
            if orphaned && self.slots.is_empty() {
                return;
            }
            let next = self.next_wake();
            if next != sleep.0 {
                sleep = (next, self.clock.sleep_until(next));
            }
            tokio::select! {
                command = self.commands.recv(), if !orphaned => match command {
                    Some(command) => self.take_commands(command),
                    None => {
                        orphaned = true;
                        self.remove_all();
                    }
                },
                Some(ended) = self.calls.join_next_with_id() => match ended {
                    Ok((id, replies)) => self.call_ended(id, Ok(replies)),
                    Err(error) => self.call_ended(error.id(), Err(store_panicked())),
                },
                hint = next_hint(&mut self.hints) => self.hinted(&hint),
                () = &mut sleep.1 => sleep = (Time::MAX, self.clock.sleep_until(Time::MAX)),
            }
        }
    }

    fn next_wake(&self) -> Time {
        let timeouts = self.waiting.values().map(|call| call.times_out_at);
        timeouts.chain(self.schedule.next()).min().unwrap_or(Time::MAX)
    }

    fn wake_due(&mut self) {
        let now = self.clock.now();
        let late: Vec<Id> = self
            .waiting
            .iter()
            .filter(|(_, call)| call.times_out_at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            // The call itself goes on; nobody waits for its answer any more.
            if let Some(call) = self.waiting.remove(&id) {
                self.answer(call, Err(silent()));
            }
        }
        for id in self.schedule.due(now) {
            if id & PATIENCE != 0 {
                self.with_slot(id & !PATIENCE, |slot, io| slot.patience_is_over(now, io));
            } else if id & LISTENING != 0 {
                self.with_slot(id & !LISTENING, |slot, io| slot.listening_is_overdue(now, io));
            } else {
                self.with_slot(id, |slot, io| slot.handle(now, Input::Tick, io));
            }
        }
    }

    /// Sends what has gathered, as few calls as the store allows.
    fn flush(&mut self) {
        while !self.sends.is_empty() && self.waiting.len() < CALLS_AT_ONCE {
            let rest = self.sends.split_off(self.sends.len().min(self.batch_limit));
            let batch = std::mem::replace(&mut self.sends, rest);
            let timeout = batch.iter().map(|(id, _)| self.timeout_of(*id)).min();
            let mut callers = Vec::with_capacity(batch.len());
            let mut ops = Vec::with_capacity(batch.len());
            for (id, op) in batch {
                self.tickets += 1;
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.ticket = Some(self.tickets);
                }
                callers.push(Caller::Slot { id, ticket: self.tickets });
                ops.push(op);
            }
            self.call(ops, callers, timeout.unwrap_or_default());
        }
    }

    fn timeout_of(&self, id: u64) -> Duration {
        self.slots.get(&id).map_or(Duration::MAX, |slot| slot.shared().timing.call_timeout())
    }

    fn call(&mut self, ops: Vec<Op>, callers: Vec<Caller>, timeout: Duration) {
        let sent_at = self.clock.now();
        let call = Call { sent_at, times_out_at: sent_at + timeout, callers };
        if self.calls.len() >= self.waiting.len() + HANGING_MAX {
            self.answer(call, Err(too_many_calls(HANGING_MAX)));
            return;
        }
        let store = self.store.clone();
        let task = self.calls.spawn(async move { store.apply(&ops).await });
        self.waiting.insert(task.id(), call);
    }

    fn call_ended(&mut self, id: Id, replies: Result<Vec<Reply>, Error>) {
        if let Some(call) = self.waiting.remove(&id) {
            self.answer(call, replies);
        }
    }

    fn answer(&mut self, call: Call, replies: Result<Vec<Reply>, Error>) {
        let now = self.clock.now();
        let mut replies = match replies {
            Ok(replies) if replies.len() == call.callers.len() => Ok(replies.into_iter()),
            Ok(replies) => Err(miscounted(call.callers.len(), replies.len())),
            Err(error) => Err(error),
        };
        for caller in call.callers {
            let reply = match &mut replies {
                Ok(replies) => replies.next().unwrap_or_else(|| Reply::Unknown(silent())),
                Err(error) => Reply::Unknown(error.clone()),
            };
            match caller {
                Caller::Handle(done) => {
                    let _gone = done.send(reply);
                }
                Caller::Slot { id, ticket } => self.with_slot(id, |slot, io| {
                    if slot.ticket == Some(ticket) {
                        slot.reply(now, call.sent_at, reply, io);
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
            self.take(command);
            next = self.commands.try_recv().ok();
        }
        if let Some(command) = next {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Add(new) => self.add(*new),
            Command::Start { id, done } => self.with_slot(id, |s, io| s.start(now, done, io)),
            Command::Observe { id, done } => self.with_slot(id, |s, io| s.observe(now, done, io)),
            Command::Stop { id, done } => self.with_slot(id, |s, io| s.stop(now, done, io)),
            Command::Resign { id, term, done } => {
                self.with_slot(id, |slot, io| slot.resign(now, term, done, io));
            }
            Command::Enter { id } => self.with_slot(id, |slot, io| {
                slot.waiters += 1;
                slot.follow_wishes(now, io);
            }),
            Command::Exit { id } => self.with_slot(id, |slot, io| {
                slot.waiters = slot.waiters.saturating_sub(1);
                slot.follow_wishes(now, io);
            }),
            Command::TenureEnded { id, term } => {
                self.with_slot(id, |slot, io| slot.tenure_ended(now, term, io));
            }
            Command::WorkEnded { id, term } => {
                self.with_slot(id, |slot, io| slot.work_ended(now, term, io));
            }
            Command::RelayDone { id, term } => {
                self.with_slot(id, |slot, io| slot.relay_done(now, term, io));
            }
            Command::Listening { id, term, done } => {
                self.with_slot(id, |slot, io| slot.listening(now, term, done, io));
            }
            Command::Remove { id } => self.with_slot(id, |slot, io| {
                slot.removed = true;
                slot.follow_wishes(now, io);
            }),
            Command::Sync { done } => {
                let _gone = done.send(());
            }
            Command::Apply { op, timeout, done } => {
                self.call(vec![op], vec![Caller::Handle(done)], timeout);
            }
        }
    }

    fn add(&mut self, new: NewSlot) {
        let name = new.settings.election.clone();
        let past = self.past.remove(&name).unwrap_or_default();
        let machine = Machine::resume(new.settings, past);
        self.by_name.insert(name, new.id);
        self.slots.insert(new.id, Slot::new(new.id, machine, new.shared, new.relay, new.office));
    }

    fn remove_all(&mut self) {
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
            self.past.insert(name.clone(), slot.machine().past());
            self.slots.remove(&id);
            self.schedule.clear(id);
            self.schedule.clear(id | PATIENCE);
            self.schedule.clear(id | LISTENING);
            self.by_name.remove(&name);
            self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
        }
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
