//! The calm end of a run: trouble is over, so somebody must lead, and go on leading.

use tenure_core::Input;

use super::{Delivery, Event, World};
use crate::check::Violation;
use crate::plan::{Steps, Weather};

/// What happens in the tail.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tail {
    /// Trouble ends.
    Quiet,
    /// By now every election has a leader.
    Settled,
    /// The leaders resign; successors are to follow at once, by hints.
    HandOver,
    /// By now they have followed.
    End,
}

/// In how many elections the hand-over is tried.
const HANDOVERS_MAX: usize = 3;

impl World {
    pub(super) fn tail(&mut self, tail: Tail) -> Result<(), Violation> {
        self.tell(|| format!("tail {tail:?}"));
        // Wild steps may have set the clock back, and a lease lasts as much longer.
        let promised = self.plan.steps != Steps::Wild;
        let ttl = self.plan.ttl_max_ns();
        match tail {
            Tail::Quiet => {
                self.quiet()?;
                // A lease to run out (1 ttl), a step that makes wait (1 ttl), backing off and
                // stepping back (2/3 ttl), clocks that are off.
                self.at(self.now + ttl / 10 * 32, Event::Tail(Tail::Settled));
            }
            Tail::Settled => {
                if promised {
                    self.every_election_is_led()?;
                    self.checker.calm_from(self.now);
                }
                self.at(self.now + ttl * 2, Event::Tail(Tail::HandOver));
            }
            Tail::HandOver => {
                if promised {
                    self.every_election_is_led()?;
                    self.resign_leaders();
                }
                let soon = self.plan.way_max_ns * 16;
                self.at(self.now + soon, Event::Tail(Tail::End));
            }
            Tail::End => self.successors_lead()?,
        }
        Ok(())
    }

    fn quiet(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.weather = Weather::default();
        self.store_up = true;
        self.slow_until = 0;
        self.clear_network();
        for node in 0..self.nodes.len() {
            (self.nodes[node].cut_up, self.nodes[node].cut_down) = (false, false);
            self.restart(node);
            self.thaw(node)?;
            let (elections, input) = (0..self.plan.elections, Input::Campaign);
            self.give(node, self.now, Delivery::Command { elections, input });
            self.end_work(node);
        }
        Ok(())
    }

    /// Work that would not end ends now, if it was told to.
    fn end_work(&mut self, node: usize) {
        for election in 0..self.plan.elections {
            if let Some((work, _)) = self.nodes[node].entrants[election].work {
                self.give(node, self.now, Delivery::Drained { election, work });
            }
        }
    }

    fn every_election_is_led(&self) -> Result<(), Violation> {
        match (0..self.plan.elections).find(|election| self.leader(*election).is_none()) {
            Some(election) => self.dead(format!("nobody leads e{election}, though all is calm")),
            None => Ok(()),
        }
    }

    /// Who leads, by its own machine and by its own clock.
    fn leader(&self, election: usize) -> Option<usize> {
        let mut trusting = self.checker.trusting(election, self.now);
        let leader = trusting.find(|(node, term)| {
            self.nodes[*node].entrants[election].machine.leading() == Some(*term)
        });
        leader.map(|(node, _)| node)
    }

    fn resign_leaders(&mut self) {
        if self.nodes.len() < 2 {
            return;
        }
        for election in 0..self.plan.elections.min(HANDOVERS_MAX) {
            if let Some(node) = self.leader(election) {
                self.resigned.push((election, node));
                let (elections, input) = (election..election + 1, Input::Resign);
                self.give(node, self.now, Delivery::Command { elections, input });
            }
        }
    }

    fn successors_lead(&self) -> Result<(), Violation> {
        for (election, former) in &self.resigned {
            let leader = self.leader(*election);
            if leader.is_none() || leader == Some(*former) {
                return self.dead(format!(
                    "c{former} resigned from e{election}, and {leader:?} leads soon after"
                ));
            }
        }
        Ok(())
    }

    fn dead<T>(&self, sentence: String) -> Result<T, Violation> {
        Err(Violation { at: self.now, rule: "live", sentence })
    }
}
