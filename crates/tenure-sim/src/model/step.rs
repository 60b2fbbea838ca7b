//! How the model moves.

use tenure_core::{Action, Input, Op, Outcome, Time, Timing};

use super::judge::Ghost;
use super::{Flight, Node, State, Step, World};
use crate::sabotage;
use crate::store::Shelf;

impl World {
    pub(super) fn machine_timing(&self) -> Timing {
        self.machine(0).settings().timing
    }

    /// All candidates campaign at once.
    pub(super) fn start(&self) -> State {
        let node = |index| Node {
            machine: self.machine(index),
            clock: 1,
            frozen: false,
            flight: None,
            wake: None,
            winding_up: false,
        };
        let mut state = State {
            now: 0,
            shelf: Shelf::default(),
            nodes: (0..self.bounds.candidates).map(node).collect(),
            late: Vec::new(),
            faults_left: self.bounds.faults,
            commands_left: self.bounds.commands,
            ghost: Ghost::new(self.bounds.candidates),
        };
        for index in 0..self.bounds.candidates {
            self.give(&mut state, index, Input::Campaign, None);
        }
        state
    }

    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        let faults = state.faults_left > 0;
        for (index, node) in state.nodes.iter().enumerate() {
            self.possible_for(state, index, node, steps);
        }
        steps.extend((0..state.late.len()).map(Step::Late));
        if faults && state.nodes.iter().any(|node| node.flight.is_some()) {
            steps.push(Step::Restart);
        }
        if faults && self.connection_bound && state.shelf.holder(state.store_now()).is_some() {
            steps.push(Step::Free);
        }
        if state.commands_left > 0 && state.shelf.holder(state.store_now()).is_some() {
            steps.push(Step::Ask);
        }
        if state.now < self.bounds.ticks && self.may_tick(state) {
            steps.push(Step::Tick);
            for (index, node) in state.nodes.iter().enumerate() {
                if faults && node.clock == 1 {
                    steps.push(Step::Lag(index));
                    steps.push(Step::Lead(index));
                }
            }
        }
    }

    fn possible_for(&self, state: &State, index: usize, node: &Node, steps: &mut Vec<Step>) {
        let faults = state.faults_left > 0;
        if let Some(flight) = &node.flight {
            // All start alike, so that the first to be served may as well be the first.
            let served_first = index == 0 || state.shelf.last_term().is_some();
            match &flight.answer {
                None if served_first => {
                    if !node.frozen {
                        steps.push(Step::Serve(index));
                    }
                    if flight.slow || node.frozen {
                        steps.push(Step::Arrive(index));
                    }
                    if faults {
                        steps.push(Step::Double(index));
                    }
                }
                None => {}
                Some(_) if !node.frozen => steps.push(Step::Answer(index)),
                Some(_) => {}
            }
            if faults && !flight.slow {
                steps.push(Step::Slow(index));
            }
            if (flight.slow || faults) && !node.frozen {
                steps.push(Step::GiveUp(index));
            }
        }
        if node.frozen {
            steps.push(Step::Thaw(index));
            return;
        }
        let now = state.local(index);
        if node.wake.is_some_and(|(from, _)| now >= from) {
            steps.push(Step::Wake(index));
        }
        if node.winding_up {
            steps.push(Step::Drained(index));
        }
        if faults {
            steps.push(Step::Freeze(index));
        }
        if state.commands_left > 0 {
            let leads = node.machine.leading().is_some();
            steps.push(Step::Hint(index));
            steps.push(Step::Withdraw(index));
            if leads {
                steps.push(Step::Resign(index));
            }
        }
        if node.machine.is_out() {
            steps.push(Step::Campaign(index));
        }
    }

    /// A tick passes only when everybody who is awake has done what was due, and every request
    /// has been served that no fault was spent on.
    fn may_tick(&self, state: &State) -> bool {
        state.nodes.iter().enumerate().all(|(index, node)| {
            let now = state.local(index);
            let overdue = node.wake.is_some_and(|(_, to)| now >= to);
            let waiting = node.flight.as_ref().is_some_and(|flight| !flight.slow);
            node.frozen || (!overdue && !waiting)
        })
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => state.now += 1,
            Step::Lag(index) => {
                state.faults_left -= 1;
                state.now += 1;
                state.nodes[index].clock -= 1;
            }
            Step::Lead(index) => {
                state.faults_left -= 1;
                state.now += 1;
                state.nodes[index].clock += 1;
            }
            Step::Serve(index) => {
                self.arrive(state, index);
                self.answer(state, index);
            }
            Step::Arrive(index) => self.arrive(state, index),
            Step::Answer(index) => self.answer(state, index),
            Step::Slow(index) => {
                state.faults_left -= 1;
                if let Some(flight) = &mut state.nodes[index].flight {
                    flight.slow = true;
                }
            }
            Step::GiveUp(index) => self.give_up(state, index),
            Step::Double(index) => {
                state.faults_left -= 1;
                let op = state.nodes[index].flight.as_ref().map(|flight| flight.op.clone());
                state.late.extend(op);
            }
            Step::Late(which) => {
                let op = state.late.remove(which);
                self.apply(state, &op);
            }
            Step::Freeze(index) => {
                state.faults_left -= 1;
                state.nodes[index].frozen = true;
            }
            Step::Thaw(index) => state.nodes[index].frozen = false,
            Step::Restart => self.restart(state),
            Step::Free => {
                state.faults_left -= 1;
                let freed = state.shelf.holder(state.store_now()).map(|(_, term)| term);
                state.ghost.freed.extend(freed.map(|term| (term, state.now)));
                state.shelf.lose_connection();
            }
            Step::Ask => {
                state.commands_left -= 1;
                let election = self.machine(0).settings().election.clone();
                self.apply(state, &Op::Ask { election, term: None });
            }
            Step::Wake(index) => self.give(state, index, Input::Tick, None),
            Step::Drained(index) => {
                state.nodes[index].winding_up = false;
                self.give(state, index, Input::Drained, None);
            }
            Step::Campaign(index) => self.give(state, index, Input::Campaign, None),
            Step::Resign(index) => self.command(state, index, Input::Resign),
            Step::Withdraw(index) => self.command(state, index, Input::Withdraw),
            Step::Hint(index) => self.command(state, index, Input::Hint),
        }
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
            // The store's clock does not step here, and telling it would only split states.
            Outcome::Granted(grant) => {
                state.ghost.granted(op, before);
                grant.store_clock = None;
            }
            Outcome::Refused(sight) | Outcome::Seen(sight) => sight.store_clock = None,
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
        state.faults_left -= 1;
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
        let actions = sabotage::handle(self.sabotage, &mut node.machine, now, input.clone());
        for action in &actions {
            match action {
                Action::Send(op) => {
                    state.ghost.sends(node.flight.is_some());
                    let (op, sent_at) = (op.clone(), now);
                    node.flight = Some(Flight { sent_at, op, answer: None, slow: false });
                }
                Action::StepDown { .. } => node.winding_up = true,
                Action::Wake { from, to, .. } => node.wake = Some((*from, *to)),
                Action::Sleep => node.wake = None,
                _ => {}
            }
        }
        state.ghost.call(self, index, now, &input, answers, &actions);
        let forget = |(from, to): (Time, Time)| (from.max(now), to.max(now));
        state.nodes[index].wake = state.nodes[index].wake.map(forget);
    }
}
