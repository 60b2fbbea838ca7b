//! The world of one run: true time, processes, a network, one store.

mod incidents;
mod net;
mod node;
mod record;
mod tail;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use tenure_core::{CandidateId, Input, Machine, Name, Op, Outcome, Settings, Time};
use tenure_history::History;

use crate::check::{Checker, Promised, Seen, Violation};
use crate::plan::{Options, Plan, Steps, Weather};
use crate::sabotage::Sabotage;
use crate::store::Shelf;
use incidents::Incident;
use node::{Entrant, Node};
use tail::Tail;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// The first broken promise, if any.
    pub violation: Option<Violation>,
    /// What happened, counted.
    pub seen: Seen,
    /// What happened, told; empty unless asked for.
    pub transcript: String,
}

/// Runs one seed.
pub fn run(options: &Options) -> Run {
    let mut world = World::new(options);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let violation = match ended {
        Ok(result) => result.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().map(ToString::to_string);
            let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
            let sentence = words.unwrap_or_else(|| "without a word".into());
            Some(Violation { at: world.now, rule: "panic", sentence })
        }
    };
    if let Some(violation) = &violation {
        world.tell(|| format!("BROKEN {violation}"));
    }
    let transcript = world.log.take().unwrap_or_default();
    Run { violation, seen: world.checker.seen, transcript }
}

/// What is to happen at some true time.
#[derive(Debug)]
enum Event {
    /// Something reaches a process of this incarnation.
    ToNode { node: usize, life: u32, what: Delivery },
    /// A driver sends what has gathered.
    Flush { node: usize, life: u32 },
    /// A request reaches the store.
    Arrive { node: usize, life: u32, ops: Vec<Sent> },
    /// Trouble.
    Incident(Incident),
    /// The calm end of the run.
    Tail(Tail),
}

/// One op on its way: its election, its number, itself.
#[derive(Clone, Debug)]
struct Sent {
    election: usize,
    flight: u64,
    op: Op,
}

/// What can reach a process.
#[derive(Clone, Debug)]
enum Delivery {
    Wake { election: usize, id: u64 },
    Reply { items: Vec<(usize, u64, Outcome)> },
    Hint { election: usize },
    Command { elections: std::ops::Range<usize>, input: Input },
    Drained { election: usize, work: u64 },
}

struct World {
    options: Options,
    plan: Plan,
    rng: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    /// Numbers events, flights and wakes: the order of what happens at the same instant.
    count: u64,
    nodes: Vec<Node>,
    names: Vec<Name>,
    shelves: Vec<Shelf>,
    /// The highest acquire that a release has overtaken, by election and candidate (C2).
    released: BTreeMap<(usize, CandidateId), u64>,
    /// By how much the store's clock was stepped, in all.
    stepped_ns: i64,
    store_up: bool,
    slow_until: u64,
    weather: Weather,
    calm: bool,
    checker: Checker,
    log: Option<String>,
    history: Option<History>,
    /// Who was made to resign in the tail, by election.
    resigned: Vec<(usize, usize)>,
}

impl World {
    fn new(options: &Options) -> World {
        let plan = Plan::draw(options);
        let (clocks, timings) = (plan.clocks.clone(), plan.timings.clone());
        let stopped = clocks.iter().filter(|clock| clock.stops()).count();
        let promised = Promised {
            one_leader: plan.steps != Steps::Wild && stopped == 0,
            whole_leases: matches!(plan.steps, Steps::None | Steps::Small) && stopped == 0,
            fail_closed: plan.fail_closed,
        };
        let mut checker = Checker::new(clocks, timings, plan.elections, promised);
        checker.seen.stopped_clocks = stopped as u64;
        let names = (0..plan.elections).map(|e| name(&format!("e{e}"))).collect();
        // A second opinion on a part of the runs: its axis of time is the true one.
        let second_opinion = plan.clocks_are_true() && plan.elections < 9;
        let mut world = World {
            rng: Rng::with_seed(options.seed ^ 0x7e57_ab1e_5eed),
            now: 0,
            queue: BTreeMap::new(),
            count: 0,
            nodes: Vec::new(),
            names,
            shelves: vec![Shelf::default(); plan.elections],
            released: BTreeMap::new(),
            stepped_ns: 0,
            store_up: true,
            slow_until: 0,
            weather: plan.weather,
            calm: false,
            checker,
            log: options.record.then(String::new),
            history: second_opinion.then(History::new),
            resigned: Vec::new(),
            options: options.clone(),
            plan,
        };
        world.nodes = (0..world.plan.clocks.len()).map(|_| Node::default()).collect();
        for node in 0..world.nodes.len() {
            world.boot(node);
        }
        world
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.tell_plan();
        self.schedule_start();
        self.schedule_incidents();
        self.at(self.plan.quiet_at, Event::Tail(Tail::Quiet));
        while let Some(((at, _), event)) = self.queue.pop_first() {
            debug_assert!(at >= self.now, "true time does not go back");
            self.now = at;
            match event {
                Event::ToNode { node, life, what } => self.deliver(node, life, what)?,
                Event::Flush { node, life } => self.flush(node, life),
                Event::Arrive { node, life, ops } => self.arrive(node, life, ops)?,
                Event::Incident(incident) => self.incident(incident)?,
                Event::Tail(Tail::End) => {
                    self.tail(Tail::End)?;
                    return self.second_opinion();
                }
                Event::Tail(tail) => self.tail(tail)?,
            }
        }
        Ok(())
    }

    fn schedule_start(&mut self) {
        let spread = self.plan.ttl_max_ns() / 10;
        let all = 0..self.plan.elections;
        for node in 0..self.nodes.len() {
            let at = self.rng.u64(..=spread);
            let input = if self.rng.u32(..8) == 0 { Input::Observe } else { Input::Campaign };
            self.give(node, at, Delivery::Command { elections: all.clone(), input });
        }
    }

    /// Starts a process: a new incarnation that knows nothing.
    fn boot(&mut self, node: usize) {
        let life = self.nodes[node].life + 1;
        let label = format!("c{node}");
        let candidate = CandidateId::new(&label, u128::from(life)).expect("a short label");
        let entrants = self.names.iter().map(|election| {
            let timing = self.plan.timings[node];
            let mut settings = Settings::new(election.clone(), candidate.clone(), timing);
            let closed = self.options.sabotage != Some(Sabotage::StaysOpen);
            settings.fail_closed = self.plan.fail_closed && closed;
            settings.sabotage = self.options.sabotage.and_then(Sabotage::inside);
            Entrant::new(Machine::new(settings))
        });
        let entrants = entrants.collect();
        self.nodes[node] = Node { life, up: true, entrants, ..Node::default() };
    }

    /// What the store's clock shows.
    fn store_now(&self) -> Time {
        let shown = self.plan.store_clock.at(self.now).as_nanos();
        Time::from_nanos(shown.saturating_add_signed(self.stepped_ns))
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.queue.insert((at.max(self.now), self.count), event);
    }

    fn give(&mut self, node: usize, at: u64, what: Delivery) {
        let life = self.nodes[node].life;
        self.at(at, Event::ToNode { node, life, what });
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.u32(..1_000) < per_mille
    }

    /// Writes a line of the transcript, if there is one.
    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            let micros = self.now / 1_000;
            let stamp = format!("{:>5}.{:06} ", micros / 1_000_000, micros % 1_000_000);
            log.push_str(&stamp);
            log.push_str(&line());
            log.push('\n');
        }
    }

    fn tell_plan(&mut self) {
        let (seed, plan) = (self.options.seed, self.plan.clone());
        self.tell(|| {
            format!(
                "seed {seed}: {} candidates, {} elections, steps {:?}, wake {:?}, patience {}",
                plan.clocks.len(),
                plan.elections,
                plan.steps,
                plan.wake_at,
                plan.patience
            )
        });
        for (node, timing) in plan.timings.iter().enumerate() {
            self.tell(|| format!("c{node}: {timing:?} {:?}", plan.clocks[node]));
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a short name")
}
