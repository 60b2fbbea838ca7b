//! Trouble: what goes wrong, and when.

use fastrand::Rng;
use tenure_core::{Input, Op};

use super::{Delivery, Event, World};
use crate::check::Violation;
use crate::plan::{Class, Steps, pick};

/// One thing that goes wrong, or is put right.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    Freeze { node: usize, ns: u64 },
    Thaw { node: usize, life: u32 },
    Cut { node: usize, up: bool, down: bool },
    Heal { node: usize },
    Crash { node: usize, ns: u64 },
    Restart { node: usize },
    StoreDown { ns: u64 },
    StoreUp,
    Slow { ns: u64 },
    Step,
    Command { node: usize, election: usize, what: Command },
    Hint { node: usize, election: usize },
}

/// What people do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Campaign,
    Observe,
    Resign,
    Withdraw,
    Ask {
        exact: bool,
    },
    /// Withdraws, and campaigns again after this long.
    Bounce {
        ns: u64,
    },
}

impl World {
    pub(super) fn schedule_incidents(&mut self) {
        for class in Class::ALL {
            if self.options.is_off(class) || !self.applies(class) {
                continue;
            }
            let weight = match class {
                Class::Commands if self.plan.restless => 16,
                Class::Commands | Class::BadHints => 4,
                _ => 1,
            };
            // A stream of its own for each class: what one draws does not change another's.
            let mut rng = Rng::with_seed(self.options.seed ^ (class as u64 + 1) << 40);
            for _ in 0..rng.u32(..=self.plan.incidents * weight) {
                let at = rng.u64(..=self.plan.full_ns);
                if let Some(incident) = self.draw_incident(class, &mut rng) {
                    self.at(at, Event::Incident(incident));
                }
            }
        }
    }

    /// W2 covers a step only where every candidate has read the clock in time.
    fn applies(&self, class: Class) -> bool {
        match class {
            Class::Freeze | Class::Crash => self.plan.steps != Steps::Covered,
            Class::Steps => self.plan.steps != Steps::None,
            _ => true,
        }
    }

    fn draw_incident(&self, class: Class, rng: &mut Rng) -> Option<Incident> {
        let node = rng.usize(..self.nodes.len());
        let election = rng.usize(..self.plan.elections);
        let ns = rng.u64(..=self.plan.ttl_max_ns() * 2);
        Some(match class {
            Class::Freeze => Incident::Freeze { node, ns },
            Class::Partition => {
                let ways = [(true, true), (true, false), (false, true)];
                let (up, down) = *pick(rng, &ways);
                Incident::Cut { node, up, down }
            }
            Class::Crash => Incident::Crash { node, ns },
            Class::StoreDown => Incident::StoreDown { ns },
            Class::SlowStore => Incident::Slow { ns },
            Class::Steps => Incident::Step,
            Class::Commands => {
                let what = match rng.u32(..10) {
                    _ if self.plan.restless => Command::Bounce { ns: ns / 16 },
                    0..=1 => Command::Campaign,
                    2..=3 => Command::Resign,
                    4 => Command::Withdraw,
                    5 => Command::Observe,
                    6..=7 => Command::Bounce { ns: ns / 8 },
                    _ => Command::Ask { exact: rng.bool() },
                };
                Incident::Command { node, election, what }
            }
            Class::BadHints => Incident::Hint { node, election },
            _ => return None,
        })
    }

    pub(super) fn incident(&mut self, incident: Incident) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.tell(|| format!("incident {incident:?}"));
        let later = |world: &mut World, ns, incident| {
            world.at(world.now + ns, Event::Incident(incident));
        };
        match incident {
            Incident::Freeze { node, ns } => {
                self.nodes[node].frozen = true;
                let life = self.nodes[node].life;
                later(self, ns, Incident::Thaw { node, life });
            }
            Incident::Thaw { node, life } if self.nodes[node].life == life => self.thaw(node)?,
            Incident::Thaw { .. } => {}
            Incident::Cut { node, up, down } => {
                (self.nodes[node].cut_up, self.nodes[node].cut_down) = (up, down);
                let ns = self.rng.u64(..=self.plan.ttl_max_ns() * 2);
                later(self, ns, Incident::Heal { node });
            }
            Incident::Heal { node } => {
                (self.nodes[node].cut_up, self.nodes[node].cut_down) = (false, false);
            }
            Incident::Crash { node, ns } => {
                self.crash(node);
                later(self, ns, Incident::Restart { node });
            }
            Incident::Restart { node } => self.restart(node),
            Incident::StoreDown { ns } => {
                self.store_up = false;
                later(self, ns, Incident::StoreUp);
            }
            Incident::StoreUp => self.store_up = true,
            Incident::Slow { ns } => self.slow_until = self.now + ns,
            Incident::Step => self.step(),
            Incident::Command { node, election, what } => self.command(node, election, what)?,
            Incident::Hint { node, election } => {
                self.give(node, self.now, Delivery::Hint { election });
            }
        }
        Ok(())
    }

    /// Everything that came meanwhile is there at once, in no good order.
    pub(super) fn thaw(&mut self, node: usize) -> Result<(), Violation> {
        self.nodes[node].frozen = false;
        let mut inbox = std::mem::take(&mut self.nodes[node].inbox);
        self.rng.shuffle(&mut inbox);
        let life = self.nodes[node].life;
        inbox.into_iter().try_for_each(|what| self.deliver(node, life, what))
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].up {
            self.record_killed(node);
            self.nodes[node].up = false;
            self.checker.crashed(node);
        }
    }

    pub(super) fn restart(&mut self, node: usize) {
        if !self.nodes[node].up {
            self.boot(node);
            let (elections, input) = (0..self.plan.elections, Input::Campaign);
            self.give(node, self.now, Delivery::Command { elections, input });
        }
    }

    fn step(&mut self) {
        let ttl = i64::try_from(self.plan.ttl_max_ns()).unwrap_or(0);
        match self.plan.steps {
            Steps::None => {}
            Steps::Small => {
                let most = i64::try_from(self.plan.step_max_ns).unwrap_or(0);
                // Forth and back within the bound, to its very ends.
                self.stepped_ns = match self.rng.u32(..4) {
                    0 => 0,
                    1 => most,
                    _ => self.rng.i64(0..=most),
                };
            }
            Steps::Covered => {
                let mut entrants = self.nodes.iter().flat_map(|node| &node.entrants);
                if entrants.all(|entrant| entrant.has_read) {
                    self.stepped_ns += self.rng.i64(ttl..=4 * ttl);
                }
            }
            Steps::Wild => self.stepped_ns += self.rng.i64(-3 * ttl..=3 * ttl),
        }
        let shown = self.store_now();
        self.tell(|| format!("the store's clock shows {shown:?} now"));
    }

    fn command(&mut self, node: usize, election: usize, what: Command) -> Result<(), Violation> {
        let input = match what {
            Command::Campaign => Input::Campaign,
            Command::Observe => Input::Observe,
            Command::Resign => Input::Resign,
            Command::Withdraw => Input::Withdraw,
            Command::Bounce { ns } => {
                let (elections, input) = (election..election + 1, Input::Campaign);
                self.give(node, self.now + ns, Delivery::Command { elections, input });
                Input::Withdraw
            }
            Command::Ask { .. } if !self.store_up => return Ok(()),
            Command::Ask { exact } => {
                let held = self.shelves[election].holder(self.store_now());
                let term = held.map(|(_, term)| term).filter(|_| exact);
                let ask = Op::Ask { election: self.names[election].clone(), term };
                return self.apply(node, election, &ask).map(drop);
            }
        };
        let elections = election..election + 1;
        self.give(node, self.now, Delivery::Command { elections, input });
        Ok(())
    }
}
