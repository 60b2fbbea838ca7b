//! Processes: what a driver does for its machines, and what work does under a leader.

use tenure_core::{Action, Input, Machine, Op, Outcome, Pick, Term, Time};

use super::{Delivery, Event, Sent, World};
use crate::check::{Call, Violation};
use crate::plan::{Class, WakeAt, nanos};
use crate::sabotage;
use crate::transcript::{show_action, show_input};

/// One process.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Counts its incarnations.
    pub(super) life: u32,
    pub(super) up: bool,
    pub(super) frozen: bool,
    /// What came while it was frozen.
    pub(super) inbox: Vec<Delivery>,
    pub(super) entrants: Vec<Entrant>,
    /// Elections whose ops wait for the next batch.
    pub(super) outbox: Vec<usize>,
    /// Nothing of it reaches the store.
    pub(super) cut_up: bool,
    /// Nothing of the store reaches it.
    pub(super) cut_down: bool,
}

/// One machine and what its driver keeps for it.
#[derive(Debug)]
pub(super) struct Entrant {
    pub(super) machine: Machine,
    wake_id: u64,
    flight: Option<Flight>,
    /// The work that runs, by the number of the action that began it.
    pub(super) work: Option<(u64, Term)>,
    /// The work has been told to stop.
    told: bool,
    /// An acquire came to an unknown end and nothing was led since.
    in_doubt: bool,
    /// An answer of the store has been seen.
    pub(super) has_read: bool,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    sent_at: Time,
    op: Op,
}

impl Entrant {
    pub(super) fn new(machine: Machine) -> Entrant {
        Entrant {
            machine,
            wake_id: 0,
            flight: None,
            work: None,
            told: false,
            in_doubt: false,
            has_read: false,
        }
    }
}

impl World {
    pub(super) fn deliver(
        &mut self,
        node: usize,
        life: u32,
        what: Delivery,
    ) -> Result<(), Violation> {
        let process = &mut self.nodes[node];
        if !process.up || process.life != life {
            return Ok(());
        }
        if process.frozen {
            process.inbox.push(what);
            return Ok(());
        }
        match what {
            Delivery::Wake { election, id } if process.entrants[election].wake_id == id => {
                self.input(node, election, Input::Tick)
            }
            Delivery::Wake { .. } => Ok(()),
            Delivery::Reply { items } => {
                for (election, flight, outcome) in items {
                    self.reply(node, election, flight, outcome)?;
                }
                Ok(())
            }
            Delivery::Hint { election } => self.input(node, election, Input::Hint),
            Delivery::Command { mut elections, input } => {
                elections.try_for_each(|election| self.input(node, election, input.clone()))
            }
            Delivery::Drained { election, work } => {
                let entrant = &mut process.entrants[election];
                if entrant.work.is_none_or(|(id, _)| id != work) || !entrant.told {
                    return Ok(());
                }
                entrant.work = None;
                self.input(node, election, Input::Drained)
            }
        }
    }

    /// Answers the request under way; answers to older ones come too late to matter.
    fn reply(
        &mut self,
        node: usize,
        election: usize,
        flight: u64,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        match &self.nodes[node].entrants[election].flight {
            Some(Flight { id, sent_at, .. }) if *id == flight => {
                let sent_at = *sent_at;
                self.input(node, election, Input::Reply { sent_at, outcome })
            }
            _ => Ok(()),
        }
    }

    fn input(&mut self, node: usize, election: usize, input: Input) -> Result<(), Violation> {
        let now = self.plan.clocks[node].at(self.now);
        let entrant = &mut self.nodes[node].entrants[election];
        let answers = match &input {
            Input::Reply { .. } => entrant.flight.take().map(|flight| flight.op),
            _ => None,
        };
        let fault = self.options.sabotage;
        let actions = sabotage::handle(fault, &mut entrant.machine, now, input.clone());
        self.tell(|| {
            let shown: Vec<String> = actions.iter().map(show_action).collect();
            format!("c{node} e{election} {} -> {}", show_input(&input), shown.join(", "))
        });
        self.note(node, election, &input, answers.as_ref());
        let (at, actions) = (self.now, &actions[..]);
        let answers = answers.as_ref();
        self.checker.call(&Call { at, node, election, input: &input, actions, answers })?;
        for action in actions {
            self.act(node, election, action);
        }
        Ok(())
    }

    fn act(&mut self, node: usize, election: usize, action: &Action) {
        self.record_action(node, election, action);
        self.count += 1;
        let id = self.count;
        let entrant = &mut self.nodes[node].entrants[election];
        match action {
            Action::Send(op) => {
                entrant.flight = Some(Flight { id, sent_at: Time::ZERO, op: op.clone() });
                self.nodes[node].outbox.push(election);
                if self.nodes[node].outbox.len() == 1 {
                    let life = self.nodes[node].life;
                    self.at(self.now, Event::Flush { node, life });
                }
            }
            Action::Lead { term, .. } => {
                entrant.work = Some((id, *term));
                entrant.told = false;
                self.checker.seen.healed += u64::from(std::mem::take(&mut entrant.in_doubt));
            }
            Action::StepDown { .. } => {
                entrant.told = true;
                self.schedule_end_of_work(node, election, false);
            }
            Action::Abort { .. } => self.schedule_end_of_work(node, election, true),
            Action::Wake { from, to, pick } => {
                entrant.wake_id = id;
                let at = self.pick_wake(node, *from, *to, *pick);
                self.give(node, at, Delivery::Wake { election, id });
            }
            Action::Sleep => entrant.wake_id = id,
            _ => {}
        }
    }

    fn pick_wake(&mut self, node: usize, from: Time, to: Time, pick: Pick) -> u64 {
        let clock = self.plan.clocks[node];
        let (from, to) = (clock.when(from).max(self.now), clock.when(to).max(self.now));
        let at = match (self.plan.wake_at, pick) {
            (WakeAt::Early, _) => from,
            (WakeAt::Late, _) | (WakeAt::Random, Pick::Late) => to,
            (WakeAt::Random, Pick::Random) => self.rng.u64(from..=to),
        };
        if self.chance(self.weather.late_wake) {
            return at + self.rng.u64(..self.plan.ttl_max_ns() / 2);
        }
        at
    }

    /// Decides how long the work of a reign takes to end, once told or once aborted.
    fn schedule_end_of_work(&mut self, node: usize, election: usize, by_force: bool) {
        let Some((work, _)) = self.nodes[node].entrants[election].work else { return };
        let timing = self.plan.timings[node];
        let (drain, ttl) = (nanos(timing.drain), nanos(timing.ttl));
        let on_time = self.options.is_off(Class::LateWork);
        let takes = match self.rng.u32(..10) {
            _ if self.calm => self.plan.way_max_ns,
            0..=4 => self.rng.u64(..=drain / 2),
            _ if on_time => self.rng.u64(..=drain),
            5..=6 => self.rng.u64(..=drain * 2),
            7..=8 => self.rng.u64(..=ttl * 3),
            // Not before it is ended by force; by force, not before the weather is calm.
            _ if by_force => self.plan.quiet_at.saturating_sub(self.now),
            _ => return,
        };
        self.give(node, self.now + takes, Delivery::Drained { election, work });
    }

    /// Sends what has gathered as one batch. The stamp is taken before anything leaves.
    pub(super) fn flush(&mut self, node: usize, life: u32) {
        let now = self.plan.clocks[node].at(self.now);
        let process = &mut self.nodes[node];
        if !process.up || process.life != life {
            return;
        }
        let mut ops = Vec::new();
        for election in std::mem::take(&mut process.outbox) {
            if let Some(flight) = &mut process.entrants[election].flight {
                flight.sent_at = now;
                ops.push(Sent { election, flight: flight.id, op: flight.op.clone() });
            }
        }
        self.record_sent(node, &ops);
        self.send(node, ops);
    }

    /// Keeps what later decisions of the world need.
    fn note(&mut self, node: usize, election: usize, input: &Input, answers: Option<&Op>) {
        let Input::Reply { sent_at, outcome } = input else { return };
        let entrant = &mut self.nodes[node].entrants[election];
        entrant.has_read |= *outcome != Outcome::Unknown;
        if let Some(Op::Acquire { .. }) = answers {
            entrant.in_doubt |= *outcome == Outcome::Unknown;
        }
        self.record_reply(node, election, answers, *sent_at, outcome);
    }
}
