//! The model: every order of everything, within bounds that are stated.
//!
//! The real machine and the abstract store, time in ticks. A ttl of 6 ticks: renewed after 2,
//! stepped down from after 4, trusted for 5. One tick of margin pays for a clock that is one tick
//! off. Within its [`Bounds`] the model tries every interleaving of requests, answers, timers,
//! ends of work, faults and commands. Requests and answers are served within their tick unless a
//! fault is spent on them; commands and faults have a budget.

mod judge;
mod moves;
mod scope;
mod step;

use std::time::Duration;

use stateright::{Model, Property};
use tenure_core::{CandidateId, Machine, Name, Op, Outcome, Reason, Settings, Term, Time, Timing};

use crate::sabotage::Sabotage;
use crate::store::{Shelf, StoreFault};
use judge::Ghost;

pub use judge::GOAL;
pub use scope::{CALM_TICKS, Scope};

/// The length of a tick. Only its being much longer than a nanosecond matters.
const TICK_NS: u64 = 1_000_000;

/// How many ticks a lease lasts.
const TTL_TICKS: u32 = 6;

/// How far the model looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many candidates.
    pub candidates: usize,
    /// How many ticks of true time.
    pub ticks: u64,
    /// How many faults: a lost, late or doubled message, a freeze, a clock that is one tick off,
    /// a restart of the store, a step of its clock, a loss of its memory.
    pub faults: u8,
    /// How many commands: resign, ask, withdraw, observe, a hint for no reason.
    pub commands: u8,
}

/// A small world with every possible course.
#[derive(Clone, Debug)]
pub struct World {
    /// How far to look.
    pub bounds: Bounds,
    /// What more there is.
    pub scope: Scope,
    /// A fault of the candidates.
    pub sabotage: Option<Sabotage>,
    /// A fault of the store.
    pub store_fault: StoreFault,
    /// The store may free a lease at any time, as one does that binds leases to connections: a
    /// leader may not have noticed. I1 is not promised then; what is promised instead: nobody
    /// trusts a lease for longer than a ttl after it was freed, and the fence lets no write of its
    /// term pass after one of a later term.
    pub connection_bound: bool,
    /// Hold even such a store to I1, to see that the model can tell the two promises apart.
    pub strict: bool,
}

impl World {
    /// The world as it should be.
    pub fn new(bounds: Bounds) -> World {
        let (sabotage, store_fault) = (None, StoreFault::None);
        let scope = Scope::default();
        World { bounds, scope, sabotage, store_fault, connection_bound: false, strict: false }
    }
}

/// Everything at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    shelf: Shelf,
    nodes: Vec<Node>,
    /// Requests that nobody waits for any more; they may arrive at any time, or never.
    late: Vec<Op>,
    /// By how many ticks the store's clock was stepped, in all.
    stepped: i64,
    /// Ticks without any trouble, where that counts.
    calm: u64,
    faults_left: u8,
    commands_left: u8,
    ghost: Ghost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    machine: Machine,
    /// Ticks that its clock is ahead of true time, plus one.
    clock: u64,
    frozen: bool,
    flight: Option<Flight>,
    wake: Option<(Time, Time)>,
    /// Work that has been told to stop and has not ended.
    winding_up: bool,
    /// An answer of the store has been seen.
    has_read: bool,
    /// It observes, as far as it was told to.
    observes: bool,
    /// Somebody relies on the reign without being registered as work (I8).
    relied_upon: bool,
    /// A reign that was stepped down from, and whose lease is not given back yet.
    ending: Option<Ending>,
}

/// What a driver knows of a reign that was stepped down from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ending {
    reason: Reason,
    /// The drain is over, or trust is.
    aborted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    sent_at: Time,
    op: Op,
    answer: Option<Outcome>,
    /// It may take longer than a tick.
    slow: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A tick passes.
    Tick,
    /// A tick passes, and this clock misses it.
    Lag(usize),
    /// A tick passes, and this clock counts two.
    Lead(usize),
    /// A request is served and answered.
    Serve(usize),
    /// A request reaches the store; its answer takes its time.
    Arrive(usize),
    /// An answer arrives.
    Answer(usize),
    /// A request is slow.
    Slow(usize),
    /// A candidate waits no longer for its answer.
    GiveUp(usize),
    /// A request is on its way twice.
    Double(usize),
    /// A late request reaches the store.
    Late(usize),
    /// A timer fires.
    Wake(usize),
    /// Work that was told to stop has ended.
    Drained(usize),
    /// A process stands still.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
    /// The store restarts: what it has granted stays, what is under way is lost.
    Restart,
    /// The store frees the lease by itself.
    Free,
    /// The store restarts, and has forgotten everything.
    Forget,
    /// The store's clock steps ahead by a ttl.
    StepAhead,
    /// The store's clock is set back by half a ttl.
    StepBack,
    /// A leader resigns.
    Resign(usize),
    /// A candidate takes no further part.
    Withdraw(usize),
    /// It takes part again.
    Campaign(usize),
    /// A candidate only observes from now on.
    Observe(usize),
    /// Somebody is told "you lead".
    Rely(usize),
    /// Everybody who was told so is done.
    Done(usize),
    /// A hint comes for no reason.
    Hint(usize),
    /// Somebody asks whoever leads to resign.
    Ask,
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.ghost.broken.is_none() {
            self.possible(state, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        judge::properties(self)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= self.bounds.ticks
    }
}

impl World {
    fn settings(&self, index: usize) -> Settings {
        let tick = Duration::from_nanos(TICK_NS);
        let timing =
            Timing { ttl: tick * TTL_TICKS, renew_every: tick * 2, margin: tick, drain: tick };
        let election = Name::new("e").expect("a short name");
        let label = ["a", "b", "c", "d"][index];
        let candidate = CandidateId::new(label, 1).expect("a short label");
        let mut settings = Settings::new(election, candidate, timing);
        settings.sabotage = self.sabotage.and_then(Sabotage::inside);
        settings.fail_closed = self.scope.fail_closed && self.sabotage != Some(Sabotage::StaysOpen);
        settings.term_floor = self.floor(index);
        settings
    }

    fn floor(&self, index: usize) -> Option<Term> {
        self.scope.floor.filter(|_| index == 1)
    }
}

impl State {
    /// What a candidate's clock shows.
    fn local(&self, node: usize) -> Time {
        Time::from_nanos((self.now + self.nodes[node].clock) * TICK_NS)
    }

    fn store_now(&self) -> Time {
        Time::from_nanos(self.now.saturating_add_signed(self.stepped) * TICK_NS)
    }

    /// Whether nothing is wrong at this instant, save that work may take its time to end.
    fn is_calm(&self) -> bool {
        let well = |node: &Node| !node.frozen && node.flight.as_ref().is_none_or(|f| !f.slow);
        self.late.is_empty() && self.nodes.iter().all(well)
    }

    /// Whether somebody would lead if they could.
    fn somebody_is_willing(&self) -> bool {
        let willing = |node: &Node| !node.machine.is_out() && !node.observes && !node.winding_up;
        self.nodes.iter().any(willing)
    }

    /// For how many ticks somebody has trusted a lease that the store had freed.
    fn trusted_since_freed(&self) -> Option<u64> {
        let freed = &self.ghost.freed;
        let since = |term: Term| freed.iter().find(|(freed, _)| *freed == term);
        self.trusting().filter_map(since).map(|(_, at)| self.now - at).max()
    }

    /// How many trust themselves, or have somebody at work who was told that they lead (I8).
    fn at_work(&self) -> usize {
        let working = |node: &usize| {
            let (now, shadow) = (self.local(*node), &self.ghost.shadows[*node]);
            shadow.trust.is_some_and(|(_, until)| now < until) || shadow.works_until > now
        };
        (0..self.nodes.len()).filter(working).count()
    }

    /// Who trusts itself now, by its own clock.
    fn trusting(&self) -> impl Iterator<Item = Term> + '_ {
        (0..self.nodes.len()).filter_map(|node| match self.ghost.shadows[node].trust {
            Some((term, until)) if self.local(node) < until => Some(term),
            _ => None,
        })
    }
}
