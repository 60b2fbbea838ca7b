//! What may happen next in the model.

use super::{Node, Scope, State, Step, World};

impl World {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        let faults = state.faults_left > 0;
        for (index, node) in state.nodes.iter().enumerate() {
            self.possible_for(state, index, node, steps);
        }
        steps.extend((0..state.late.len()).map(Step::Late));
        if faults && state.nodes.iter().any(|node| node.flight.is_some()) {
            steps.push(Step::Restart);
        }
        if faults && self.scope.forgets && state.shelf.last_term().is_some() {
            steps.push(Step::Forget);
        }
        if faults && self.scope.steps && state.nodes.iter().all(|node| node.has_read) {
            steps.extend([Step::StepAhead, Step::StepBack]);
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
            // All start alike, so that the first to be served may as well be the first; unless they
            // differ, or the store no longer knows whom it has served, or serves nobody.
            let Scope { forgets, live, floor, .. } = self.scope;
            let alike = !forgets && !live && floor.is_none();
            let served_first = index == 0 || !alike || state.shelf.last_term().is_some();
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
            if faults && !flight.slow && !self.scope.steps {
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
        if faults && !self.scope.steps {
            steps.push(Step::Freeze(index));
        }
        let leads = node.machine.leading().is_some();
        if node.relied_upon {
            steps.push(Step::Done(index));
        } else if self.scope.relies && leads {
            steps.push(Step::Rely(index));
        }
        if state.commands_left > 0 {
            steps.push(Step::Hint(index));
            steps.push(Step::Withdraw(index));
            if leads {
                steps.push(Step::Resign(index));
            }
            if self.scope.observes && !node.observes {
                steps.push(Step::Observe(index));
            }
        }
        if node.machine.is_out() || node.observes {
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
}
