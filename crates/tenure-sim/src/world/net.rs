//! The way to the store and back, and what happens there.

use tenure_core::{Op, Outcome};

use super::{Delivery, Event, Sent, World};
use crate::check::Violation;
use crate::plan::nanos;
use crate::transcript::{show_op, show_outcome};

impl World {
    /// A batch leaves a process: it may arrive, late, twice or never, and the driver stops
    /// waiting for it in time.
    pub(super) fn send(&mut self, node: usize, ops: Vec<Sent>) {
        let life = self.nodes[node].life;
        let clock = self.plan.clocks[node];
        let patience = self.plan.timings[node].call_timeout() * self.plan.patience;
        self.give(node, clock.when(clock.at(self.now) + patience), unknown(&ops));
        if self.chance(self.weather.reset) {
            let at = self.now + self.way();
            self.give(node, at, unknown(&ops));
        }
        if self.nodes[node].cut_up || self.chance(self.weather.lose) {
            self.tell(|| format!("c{node} loses a request of {} ops", ops.len()));
            return;
        }
        if self.chance(self.weather.double) {
            let at = self.now + self.delayed_way();
            self.at(at, Event::Arrive { node, life, ops: ops.clone() });
        }
        let at = self.now + self.delayed_way();
        self.at(at, Event::Arrive { node, life, ops });
    }

    /// A batch reaches the store.
    pub(super) fn arrive(
        &mut self,
        node: usize,
        life: u32,
        ops: Vec<Sent>,
    ) -> Result<(), Violation> {
        if !self.store_up {
            let at = self.now + self.way();
            if self.rng.bool() {
                self.at(at, Event::ToNode { node, life, what: unknown(&ops) });
            }
            return Ok(());
        }
        let mut items = Vec::with_capacity(ops.len());
        for Sent { election, flight, op } in ops {
            let fails = self.chance(self.weather.partial);
            if fails && self.rng.bool() {
                items.push((election, flight, Outcome::Unknown));
                continue;
            }
            let outcome = self.apply(node, election, &op)?;
            items.push((election, flight, if fails { Outcome::Unknown } else { outcome }));
        }
        if self.nodes[node].cut_down || self.chance(self.weather.lose) {
            self.tell(|| format!("c{node} loses a reply to {} ops", items.len()));
            return Ok(());
        }
        let mut at = self.now + self.delayed_way();
        if self.now < self.slow_until {
            at += self.rng.u64(..=self.plan.ttl_max_ns() / 4);
        }
        self.at(at, Event::ToNode { node, life, what: Delivery::Reply { items } });
        Ok(())
    }

    /// Carries out one op, and holds the store itself against I4.
    pub(super) fn apply(
        &mut self,
        node: usize,
        election: usize,
        op: &Op,
    ) -> Result<Outcome, Violation> {
        let now = self.store_now();
        let before = self.shelves[election].holder(now).map(|(who, term)| (who.clone(), term));
        let mut outcome = self.shelves[election].apply(now, op, self.options.store_fault);
        if !self.plan.tells_clock {
            match &mut outcome {
                Outcome::Granted(grant) => grant.store_clock = None,
                Outcome::Refused(sight) | Outcome::Seen(sight) => sight.store_clock = None,
                Outcome::Unknown => {}
            }
        }
        self.tell(|| {
            format!("store e{election} {} of c{node} -> {}", show_op(op), show_outcome(&outcome))
        });
        self.check_order(election, op, matches!(outcome, Outcome::Granted(_)))?;
        let Outcome::Granted(_) = outcome else { return Ok(outcome) };
        let exact = match op {
            Op::Renew { candidate, term, .. } | Op::Release { candidate, term: Some(term), .. } => {
                before == Some((candidate.clone(), *term))
            }
            _ => true,
        };
        if !exact {
            let verb = op.verb();
            let sentence = format!("e{election}: {verb} of c{node} granted, held: {before:?}");
            return Err(Violation { at: self.now, rule: "I4", sentence });
        }
        if let Op::Release { .. } | Op::Ask { .. } = op {
            self.hint_all(election);
        }
        Ok(outcome)
    }

    /// C2: no acquire is granted that a release has overtaken.
    fn check_order(&mut self, election: usize, op: &Op, granted: bool) -> Result<(), Violation> {
        match op {
            Op::Release { candidate, seq, .. } => {
                let released = self.released.entry((election, candidate.clone())).or_default();
                *released = (*released).max(*seq);
            }
            Op::Acquire { candidate, seq, .. } if granted => {
                let released = self.released.get(&(election, candidate.clone()));
                if released.is_some_and(|released| seq <= released) {
                    let sentence = format!("e{election}: acquire #{seq} of {candidate} revived");
                    return Err(Violation { at: self.now, rule: "C2", sentence });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn hint_all(&mut self, election: usize) {
        for node in 0..self.nodes.len() {
            let bad = self.chance(self.weather.hint);
            let fate = if bad { self.rng.u32(..3) } else { 3 };
            if fate == 0 || self.nodes[node].cut_down {
                continue;
            }
            let late = if fate == 1 { self.rng.u64(..self.plan.delay_max_ns) } else { 0 };
            for _ in 0..if fate == 2 { 2 } else { 1 } {
                let at = self.now + late + self.way();
                self.give(node, at, Delivery::Hint { election });
            }
        }
    }

    /// How long one way takes in fair weather.
    fn way(&mut self) -> u64 {
        self.rng.u64(..=self.plan.way_max_ns)
    }

    fn delayed_way(&mut self) -> u64 {
        let way = self.way();
        if !self.chance(self.weather.delay) {
            return way;
        }
        // Half of the delays are about as long as a driver waits, where it hurts most.
        let near = self.plan.timings.first().map_or(0, |timing| nanos(timing.call_timeout()) * 2);
        let most = if self.rng.bool() { near } else { self.plan.delay_max_ns };
        way + self.rng.u64(..=most)
    }

    /// Forgets the requests that are on their way.
    pub(super) fn clear_network(&mut self) {
        self.queue.retain(|_, event| !matches!(event, Event::Arrive { .. }));
    }
}

fn unknown(ops: &[Sent]) -> Delivery {
    let items = ops.iter().map(|sent| (sent.election, sent.flight, Outcome::Unknown));
    Delivery::Reply { items: items.collect() }
}
