//! How the model moves.

use tenure_core::{Action, Input, Machine, Op, Outcome, Reason, Time, Timing};

use super::judge::Ghost;
use super::{CALM_TICKS, Ending, Flight, Node, State, Step, TICK_NS, TTL_TICKS, World};
use crate::sabotage::{self, Sabotage};
use crate::store::Shelf;

/// Where terms follow the clock, this many can be issued in a tick. More are not, in any course.
const TERMS_PER_TICK: u64 = 16;

impl World {
    pub(super) fn machine_timing(&self) -> Timing {
        self.settings(0).timing
    }

    /// All candidates campaign at once.
    pub(super) fn start(&self) -> State {
        let node = |index| Node {
            machine: Machine::new(self.settings(index)),
            clock: 1,
            frozen: false,
            flight: None,
            wake: None,
            winding_up: false,
            has_read: false,
            observes: false,
            relied_upon: false,
            ending: None,
        };
        let mut state = State {
            now: 0,
            shelf: if self.scope.forgets {
                Shelf::forgetful(TICK_NS / TERMS_PER_TICK)
            } else {
                Shelf::default()
            },
            nodes: (0..self.bounds.candidates).map(node).collect(),
            late: Vec::new(),
            stepped: 0,
            calm: 0,
            faults_left: self.bounds.faults,
            commands_left: self.bounds.commands,
            ghost: Ghost::new(self.bounds.candidates),
        };
        for index in 0..self.bounds.candidates {
            self.give(&mut state, index, Input::Campaign, None);
        }
        state
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        if self.scope.live {
            let quiet = matches!(step, Step::Tick | Step::Serve(_) | Step::Wake(_));
            let passes = u64::from(step == Step::Tick);
            let calm = (state.calm + passes).min(CALM_TICKS + 1);
            state.calm = if quiet && state.is_calm() { calm } else { 0 };
        }
        match step {
            Step::Tick => state.now += 1,
            Step::Serve(index) => {
                self.arrive(state, index);
                self.answer(state, index);
            }
            Step::Arrive(index) => self.arrive(state, index),
            Step::Answer(index) => self.answer(state, index),
            Step::GiveUp(index) => self.give_up(state, index),
            Step::Late(which) => {
                let op = state.late.remove(which);
                self.apply(state, &op);
            }
            Step::Thaw(index) => state.nodes[index].frozen = false,
            Step::Wake(index) => self.give(state, index, Input::Tick, None),
            Step::Drained(index) => {
                state.nodes[index].winding_up = false;
                self.settle(state, index);
            }
            Step::Campaign(index) => self.campaign(state, index),
            Step::Rely(index) => {
                state.nodes[index].relied_upon = true;
                state.ghost.told(index);
            }
            Step::Done(index) => {
                state.nodes[index].relied_upon = false;
                state.ghost.done(index);
                self.settle(state, index);
            }
            Step::Ask => {
                state.commands_left -= 1;
                let election = self.settings(0).election;
                self.apply(state, &Op::Ask { election, term: None });
            }
            Step::Resign(index) => self.command(state, index, Input::Resign),
            Step::Withdraw(index) => self.command(state, index, Input::Withdraw),
            Step::Hint(index) => self.command(state, index, Input::Hint),
            Step::Observe(index) => {
                state.nodes[index].observes = true;
                self.command(state, index, Input::Observe);
            }
            fault => self.fault(state, fault),
        }
    }

    /// What goes wrong; each costs one of the faults that are left.
    fn fault(&self, state: &mut State, fault: Step) {
        state.faults_left -= 1;
        match fault {
            Step::Lag(index) => {
                state.now += 1;
                state.nodes[index].clock -= 1;
            }
            Step::Lead(index) => {
                state.now += 1;
                state.nodes[index].clock += 1;
            }
            Step::Slow(index) => {
                if let Some(flight) = &mut state.nodes[index].flight {
                    flight.slow = true;
                }
            }
            Step::Double(index) => {
                let op = state.nodes[index].flight.as_ref().map(|flight| flight.op.clone());
                state.late.extend(op);
            }
            Step::Freeze(index) => state.nodes[index].frozen = true,
            Step::Restart => self.restart(state),
            Step::Free => {
                let freed = state.shelf.holder(state.store_now()).map(|(_, term)| term);
                state.ghost.freed.extend(freed.map(|term| (term, state.now)));
                state.shelf.lose_connection();
            }
            Step::Forget => {
                let (now, settle) = (state.store_now(), self.machine_timing().ttl);
                state.shelf.lose_memory(now, settle);
                self.restart(state);
            }
            Step::StepAhead => state.stepped += i64::from(TTL_TICKS),
            Step::StepBack => state.stepped -= i64::from(TTL_TICKS / 2),
            other => unreachable!("{other:?} is no fault"),
        }
    }

    /// Takes part again, where the scope says so by a machine that is built from its past.
    fn campaign(&self, state: &mut State, index: usize) {
        let node = &mut state.nodes[index];
        node.observes = false;
        if self.scope.resumes && node.machine.is_out() {
            let settings = self.settings(index);
            node.machine = match self.sabotage {
                Some(Sabotage::ForgetsPast) => Machine::new(settings),
                _ => Machine::resume(settings, node.machine.past()),
            };
            state.ghost.built_again(index);
        }
        self.give(state, index, Input::Campaign, None);
    }

    /// What the driver makes of the end of a reign (I8): the machine is told once no work is left
    /// and everybody who was told "you lead" is done, or the time for that is over.
    fn settle(&self, state: &mut State, index: usize) {
        let node = &mut state.nodes[index];
        let Some(Ending { reason, aborted }) = node.ending else { return };
        let heeded = node.relied_upon && self.sabotage != Some(Sabotage::ForgetsTold);
        if node.winding_up || (heeded && !aborted) {
            return;
        }
        let in_order = matches!(reason, Reason::Resigned | Reason::Asked);
        let input = if heeded && !in_order { Input::RunOut } else { Input::Drained };
        (node.ending, node.relied_upon) = (None, false);
        self.give(state, index, input, None);
    }

    fn command(&self, state: &mut State, index: usize, input: Input) {
        state.commands_left -= 1;
        self.give(state, index, input, None);
    }

    fn arrive(&self, state: &mut State, index: usize) {
        let Some(op) = state.nodes[index].flight.as_ref().map(|flight| flight.op.clone()) else {
            return;
        };
        let outcome = self.apply(state, &op);
        if let Some(flight) = &mut state.nodes[index].flight {
            flight.answer = Some(outcome);
        }
    }

    fn apply(&self, state: &mut State, op: &Op) -> Outcome {
        let now = state.store_now();
        let before = state.shelf.holder(now).map(|(who, term)| (who.as_str().to_owned(), term));
        let mut outcome = state.shelf.apply(now, op, self.store_fault);
        match &mut outcome {
            Outcome::Granted(grant) => {
                state.ghost.granted(op, before);
                // Where the store's clock does not step, telling it would only split states.
                grant.store_clock = grant.store_clock.filter(|_| self.scope.steps);
            }
            Outcome::Refused(sight) | Outcome::Seen(sight) => {
                sight.store_clock = sight.store_clock.filter(|_| self.scope.steps);
            }
            Outcome::Unknown => {}
        }
        outcome
    }

    fn answer(&self, state: &mut State, index: usize) {
        if let Some(Flight { sent_at, op, answer: Some(outcome), .. }) =
            state.nodes[index].flight.take()
        {
            self.give(state, index, Input::Reply { sent_at, outcome }, Some(&op));
        }
    }

    /// The candidate calls the outcome unknown. If the request has not arrived, it still may.
    fn give_up(&self, state: &mut State, index: usize) {
        let Some(Flight { sent_at, op, answer, slow }) = state.nodes[index].flight.take() else {
            return;
        };
        state.faults_left -= u8::from(!slow);
        if answer.is_none() {
            state.late.push(op.clone());
        }
        let outcome = Outcome::Unknown;
        self.give(state, index, Input::Reply { sent_at, outcome }, Some(&op));
    }

    fn restart(&self, state: &mut State) {
        state.late.clear();
        for index in 0..state.nodes.len() {
            if state.nodes[index].frozen {
                continue;
            }
            if let Some(Flight { sent_at, op, .. }) = state.nodes[index].flight.take() {
                let outcome = Outcome::Unknown;
                self.give(state, index, Input::Reply { sent_at, outcome }, Some(&op));
            }
        }
    }

    /// Hands one input to a machine and does what a driver does with the actions.
    fn give(&self, state: &mut State, index: usize, input: Input, answers: Option<&Op>) {
        let now = state.local(index);
        let node = &mut state.nodes[index];
        let answered = !matches!(input, Input::Reply { outcome: Outcome::Unknown, .. });
        node.has_read |= self.scope.steps && answers.is_some() && answered;
        let actions = sabotage::handle(self.sabotage, &mut node.machine, now, input.clone());
        for action in &actions {
            match action {
                Action::Send(op) => {
                    state.ghost.sends(node.flight.is_some());
                    let (op, sent_at) = (op.clone(), now);
                    node.flight = Some(Flight { sent_at, op, answer: None, slow: false });
                }
                Action::StepDown { reason, .. } => {
                    node.winding_up = true;
                    node.ending = Some(Ending { reason: *reason, aborted: false });
                }
                Action::Abort { .. } => {
                    node.ending = node.ending.map(|ending| Ending { aborted: true, ..ending });
                }
                Action::Wake { from, to, .. } => node.wake = Some((*from, *to)),
                Action::Sleep => node.wake = None,
                _ => {}
            }
        }
        state.ghost.call(self, index, now, &input, answers, &actions);
        let forget = |(from, to): (Time, Time)| (from.max(now), to.max(now));
        state.nodes[index].wake = state.nodes[index].wake.map(forget);
        if self.scope.relies {
            self.settle(state, index);
        }
    }
}
