//! Which fault comes when. The same seed gives the same order and the same pauses.

use std::time::Duration;

/// What can be done to the leader, or to its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The process of the leader is killed with its witness, and another one started in its place.
    Kill,
    /// It is killed alone: its witness gives the lease back.
    Die,
    /// It is stopped until somebody else leads, then goes on.
    Freeze,
    /// It is asked to resign: a clean hand-over.
    Resign,
    /// Its connections are closed, and new ones too, until somebody else leads.
    Cut,
    /// What it sends, or is sent, does not arrive, until somebody else leads; then it does, late.
    Hole,
    /// Its connections are reset.
    Reset,
    /// What it sends and is sent arrives later.
    Delay,
    /// The store is restarted.
    Restart,
    /// The wall clock is stepped.
    Clock,
}

impl Fault {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Fault; 10] = [
        Fault::Kill,
        Fault::Die,
        Fault::Freeze,
        Fault::Resign,
        Fault::Cut,
        Fault::Hole,
        Fault::Reset,
        Fault::Delay,
        Fault::Restart,
        Fault::Clock,
    ];

    /// The fault of this name.
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Whether leadership may go on under it: then there is no gap.
    pub fn may_go_on(self) -> bool {
        matches!(self, Fault::Reset | Fault::Delay | Fault::Restart | Fault::Clock)
    }

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Die => "die",
            Fault::Freeze => "freeze",
            Fault::Resign => "resign",
            Fault::Cut => "cut",
            Fault::Hole => "hole",
            Fault::Reset => "reset",
            Fault::Delay => "delay",
            Fault::Restart => "restart",
            Fault::Clock => "clock",
        }
    }

    /// What it is, in half a sentence for people.
    pub fn description(self) -> &'static str {
        match self {
            Fault::Kill => {
                "The process of the leader is killed with its witness, and another one started in \
                 its place"
            }
            Fault::Die => "It is killed alone: its witness gives the lease back",
            Fault::Freeze => "It is stopped until somebody else leads, then goes on",
            Fault::Resign => "It is asked to resign: a clean hand-over",
            Fault::Cut => "Its connections are closed, and new ones too, until somebody else leads",
            Fault::Hole => {
                "What it sends, or is sent, does not arrive, until somebody else leads; then it \
                 does, late"
            }
            Fault::Reset => "Its connections are reset",
            Fault::Delay => "What it sends and is sent arrives later",
            Fault::Restart => "The store is restarted",
            Fault::Clock => "The wall clock is stepped",
        }
    }
}

/// One fault, and how long to wait before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub fault: Fault,
    /// How long to wait before it.
    pub pause: Duration,
    /// How often each fault has been there before: those that have several shapes take turns.
    pub turn: usize,
}

/// Faults without end: each turn has every one of them once, in an order of its own.
#[derive(Clone, Debug)]
pub struct Plan {
    faults: Vec<Fault>,
    turn: Vec<Fault>,
    turns: usize,
    rng: fastrand::Rng,
    renew_every: Duration,
}

impl Plan {
    /// A plan with these faults. Pauses differ by up to one `renew_every`, so that faults hit each
    /// moment between two renewals.
    pub fn new(seed: u64, faults: &[Fault], renew_every: Duration) -> Plan {
        let rng = fastrand::Rng::with_seed(seed);
        Plan { faults: faults.to_vec(), turn: Vec::new(), turns: 0, rng, renew_every }
    }
}

impl Iterator for Plan {
    type Item = Step;

    /// `None` only for a plan without faults.
    fn next(&mut self) -> Option<Step> {
        if self.turn.is_empty() {
            self.turn.clone_from(&self.faults);
            self.rng.shuffle(&mut self.turn);
            self.turns += 1;
        }
        let pause = self.renew_every.mul_f64(0.25 + self.rng.f64());
        let turn = self.turns - 1;
        self.turn.pop().map(|fault| Step { fault, pause, turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
        let faults = [Fault::Kill, Fault::Freeze, Fault::Resign];
        let steps = |seed| Plan::new(seed, &faults, SECOND).take(60).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
        for turn in steps(7).chunks(3) {
            let mut turn: Vec<Fault> = turn.iter().map(|step| step.fault).collect();
            turn.sort_unstable();
            assert_eq!(turn, faults);
        }
        assert!(steps(7).iter().all(|step| step.pause <= SECOND * 5 / 4));
        assert_eq!(Plan::new(7, &[], SECOND).next(), None);
    }
}
