//! A run: hosts with their programs, a storm, a calm tail, and the end of all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Candidate, Clock, Election, MemoryStore, Store, Time};
use tenure_core::sync::lock;
use tenure_core::{Expiry, Op};
use tenure_cron::Cron;
use tenure_testkit::FaultStore;
use tokio::sync::watch;

use super::executor::{LaneKind, Sim};
use super::host::{HostClock, HostRuntime, HostWall, Pause};
use super::judge::{Judge, Seen, Violation};
use super::plan::{HostPlan, Incident, Options, Plan, Program, Trouble};
use super::store::{Link, StoreClock, Watched, Weather};
use super::user::{Proc, callbacks, jobs, mail, meddle, waker, work};

/// The lives of all hosts in all runs, counted to tell them apart and for nothing else.
static PROCESSES: AtomicU64 = AtomicU64::new(1);

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// The first promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// How much happened.
    pub seen: Seen,
    /// Which task went on when, as one number.
    pub trace: u64,
    /// The same as text, if that was asked for.
    pub transcript: String,
}

/// Runs one seed.
pub fn run(options: &Options) -> Run {
    let plan = Plan::draw(options.seed);
    let judge = Judge::default();
    judge.book().lenient = plan.expiry == Expiry::Connection;
    let sim = Sim::new(options.seed, options.record, judge.clone());
    // There in every run: which lines are written at all depends on who could read them.
    let log = waker::hostile_log();
    waker::enter_world(Some(sim.clone()));
    if plan.slow_log {
        sim.log_to(log);
    }
    sim.note(|| format!("{plan:?}"));
    let world = World::new(sim.clone(), plan, options);
    let went = catch_unwind(AssertUnwindSafe(|| world.clone().go()));
    if went.is_err() {
        judge.broken(sim.now(), "panic", "the simulation itself panicked".to_owned());
    }
    world.bury();
    waker::enter_world(None);
    let (trace, steps, transcript) = sim.trace();
    let mut book = judge.book();
    book.seen.steps = steps;
    Run { violation: book.violation.clone(), seen: book.seen, trace, transcript }
}

/// All of it.
pub(super) struct World {
    pub(super) sim: Sim,
    pub(super) plan: Plan,
    pub(super) memory: MemoryStore,
    store_clock: StoreClock,
    /// By how much it stepped ahead in small steps: within what the margin of a lease pays for.
    crept: Mutex<Duration>,
    watched: Arc<Watched>,
    fault: Option<tenure::Fault>,
    pub(super) calm: Arc<AtomicBool>,
    pub(super) hosts: Mutex<Vec<HostState>>,
}

pub(super) struct HostState {
    pub(super) place: Place,
    lives: u32,
    /// The present life, if there is one.
    pub(super) life: Option<Life>,
}

/// What stays of a host over all its lives.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) id: usize,
    pub(super) clock: HostClock,
    wall: Arc<HostWall>,
    pub(super) link: Arc<Link>,
}

/// The handles of one process that the simulation keeps.
pub(super) struct Life {
    pub(super) proc: Arc<Proc>,
    pub(super) elections: Vec<Election>,
    pub(super) cron: Option<Cron>,
    /// For the callbacks of its first election, which may not hold it: it holds them.
    own: Option<Arc<Election>>,
    pub(super) over: watch::Sender<bool>,
}

impl World {
    fn new(sim: Sim, plan: Plan, options: &Options) -> Arc<World> {
        let inner = sim.truth().drifting(plan.store_ppm);
        let store_clock = StoreClock { inner, ahead_ns: Arc::default() };
        let truth = sim.truth().clone();
        let wall = move || i64::try_from(truth.now().as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let memory = MemoryStore::with_clock(Arc::new(store_clock.clone()));
        let memory = memory.with_wall(Arc::new(wall));
        let watched = Arc::new(Watched {
            sim: sim.clone(),
            memory: memory.clone(),
            clock: store_clock.clone(),
            expiry: plan.expiry,
            hosts: Mutex::default(),
            holders: Mutex::default(),
            forgetful: plan.more.forgetful,
            settles_until: Mutex::new(Time::ZERO),
            fault: options.store_fault,
        });
        let (fault, calm, hosts) = (options.fault, Arc::default(), Mutex::default());
        let crept = Mutex::default();
        let world = World { sim, plan, memory, store_clock, crept, watched, fault, calm, hosts };
        for (index, host) in world.plan.hosts.iter().enumerate() {
            let state = world.new_host(index, host);
            lock(&world.hosts).push(state);
        }
        Arc::new(world)
    }

    fn new_host(&self, index: usize, host: &HostPlan) -> HostState {
        let (sim, plan) = (&self.sim, &self.plan);
        let id = sim.add_host();
        let clock = HostClock::new(sim, id, host.ppm, host.ahead);
        let seed = plan.faults.seed ^ (index as u64 + 1).rotate_left(40);
        let faults = tenure_testkit::Faults { seed, ..plan.faults };
        let behind = FaultStore::new(self.watched.clone(), faults)
            .delayed_by(Arc::new(sim.truth().clone()), plan.timing.ttl / 2);
        let weather = Weather {
            way: Duration::from_millis(4),
            slow_one_in: plan.slow_one_in,
            longest: plan.timing.ttl,
            fails_one_in: plan.fails_one_in,
            cut_until: Time::ZERO,
        };
        let link = Link {
            sim: sim.clone(),
            host: id,
            behind: Arc::new(behind),
            renew_every: plan.timing.renew_every,
            weather: Mutex::new(weather),
            block_next: Mutex::default(),
            freeze_at_claim: Mutex::default(),
            transactions: plan.more.on,
        };
        let wall = HostWall { clock: sim.truth().clone(), ahead_ms: AtomicI64::new(0) };
        let place = Place { id, clock, wall: Arc::new(wall), link: Arc::new(link) };
        HostState { place, lives: 0, life: None }
    }

    /// The storm, the calm, and the end.
    fn go(self: Arc<World>) {
        for index in 0..self.plan.hosts.len() {
            self.begin_life(index);
        }
        for incident in self.plan.incidents.clone() {
            let world = self.clone();
            let at = self.sim.now() + incident.after;
            self.sim.spawn(0, "incident", async move {
                world.sim.truth().sleep_until(at).await;
                world.strike(incident).await;
            });
        }
        self.sim.run_until(self.sim.now() + self.plan.storm);
        self.calm_and_end();
    }

    /// A process begins on a host.
    pub(super) fn begin_life(&self, index: usize) {
        let (host, lives) = {
            let mut hosts = lock(&self.hosts);
            if hosts[index].life.is_some() {
                return;
            }
            hosts[index].lives += 1;
            (hosts[index].place.clone(), hosts[index].lives)
        };
        let label = format!("h{index}.{lives}");
        let plan = &self.plan.hosts[index];
        let lane = self.sim.add_lane(host.id, LaneKind::User, "user", plan.width);
        let (over, told) = watch::channel(false);
        let relied = plan.programs.iter().filter(|one| **one == Program::Polling).count();
        let proc = Arc::new(Proc {
            sim: self.sim.clone(),
            host: host.id,
            label: label.clone(),
            clock: host.clock.clone(),
            lane,
            timing: self.plan.timing,
            hostile: self.plan.hostile,
            more: self.plan.more,
            relies: plan.callbacks != Some(true) && relied < 2,
            calm: self.calm.clone(),
            over: told,
        });
        lock(&self.watched.hosts).push((label.clone(), host.clock.clone()));
        let runtime = HostRuntime {
            sim: self.sim.clone(),
            host: host.id,
            clock: host.clock.clone(),
            user: lane,
            fault: self.fault,
            process: PROCESSES.fetch_add(1, Ordering::Relaxed),
        };
        let candidate =
            Candidate::builder(host.link.clone()).label(label).runtime(Arc::new(runtime));
        let candidate = candidate.build().expect("the simulation has threads");
        let mut life =
            Life { proc: proc.clone(), elections: Vec::new(), cron: None, own: None, over };
        self.take_part(&candidate, &mut life, plan);
        self.begin_others(&candidate, &mut life, plan, &host);
        lock(&self.hosts)[index].life = Some(life);
    }

    /// The election that everybody takes part in.
    fn take_part(&self, candidate: &Candidate, life: &mut Life, plan: &HostPlan) {
        let proc = &life.proc;
        let mut builder = candidate.election("work").ttl(self.plan.timing.ttl);
        let own = callbacks::Own::default();
        if let Some(with_lost) = plan.callbacks {
            builder = callbacks::add(proc, "work", builder, with_lost, &own);
        }
        let election = builder.build().expect("the election is sound");
        life.own = own.is(&election);
        let proc = &life.proc;
        for program in &plan.programs {
            let (mine, other) = (proc.clone(), election.clone());
            macro_rules! run_again {
                ($name:literal, $program:path) => {
                    proc.run_again($name, move || $program(mine.clone(), other.clone()))
                };
            }
            match program {
                Program::Polling => proc.run("polling", work::polling(mine, other)),
                Program::Looking => proc.run("looking", work::looking(mine, other)),
                Program::Campaigning => run_again!("campaigning", work::campaigning),
                Program::Leading => run_again!("leading", work::leading),
                Program::LeadingEach => run_again!("leading_each", work::leading_each),
                Program::IfLeading => run_again!("if_leading", work::if_leading),
                Program::Reading => proc.run("reading", work::reading(mine, other)),
                Program::Following => proc.run("following", work::following(mine, other)),
                Program::Meddling => proc.run("meddling", meddle::meddling(mine, other)),
            }
        }
        if self.plan.more.forks {
            proc.run("forking", meddle::forking(proc.clone(), election.clone()));
        }
        life.elections.push(election);
    }

    /// The elections that only some runs have.
    fn begin_others(&self, candidate: &Candidate, life: &mut Life, plan: &HostPlan, host: &Place) {
        let (proc, ttl) = (life.proc.clone(), self.plan.timing.ttl);
        if self.plan.churn {
            proc.run("churning", meddle::churning(proc.clone(), candidate.clone()));
        }
        if self.plan.more.visits {
            let election = candidate.election("visit").ttl(ttl).build();
            let election = election.expect("the election is sound");
            proc.run("visiting", meddle::visiting(proc.clone(), election.clone()));
            life.elections.push(election);
        }
        if self.plan.more.vouches {
            let election = candidate.election("vouch").ttl(ttl).build();
            let election = election.expect("the election is sound");
            proc.run("vouching", work::vouching(proc.clone(), election.clone()));
            proc.run("vouch", starting(proc.clone(), election.clone()));
            life.elections.push(election);
        }
        if self.plan.mail {
            let heard = mail::Heard::default();
            let builder = mail::add(&proc, candidate.election("mail").ttl(ttl), &heard);
            let election = builder.build().expect("the election is sound");
            let listening = mail::listening(proc.clone(), election.clone(), heard);
            proc.run("listening", listening);
            proc.run("posting", mail::posting(proc.clone(), election.clone()));
            proc.run("mail", starting(proc.clone(), election.clone()));
            life.elections.push(election);
        }
        if self.plan.cron {
            let election = candidate.election("cron").ttl(ttl).build();
            let election = election.expect("the election is sound");
            let tells = proc.clone();
            let cron = Cron::builder(&election)
                .jobs(jobs::jobs(&proc, &host.link, plan.has_least || proc.is_calm()))
                .wall(host.wall.clone())
                .on_event(move |event| jobs::told(&tells, event))
                .build()
                .expect("the jobs are sound");
            proc.run("cron", jobs::firing(proc.clone(), cron.clone()));
            if self.plan.more.on {
                proc.run("triggering", jobs::triggering(proc.clone(), cron.clone()));
            }
            life.elections.push(election);
            life.cron = Some(cron);
        }
        if self.plan.once {
            let election = candidate.election("once").ttl(ttl).build();
            let election = election.expect("the election is sound");
            let keeping = jobs::keeping(proc.clone(), election.clone(), self.memory.clone());
            proc.run("once", keeping);
            life.elections.push(election);
        }
    }

    /// Something goes wrong.
    async fn strike(&self, incident: Incident) {
        if self.calm.load(Ordering::Relaxed) {
            return;
        }
        self.sim.note(|| format!("{incident:?}"));
        let index = incident.host;
        let Place { id, clock, link, wall } = lock(&self.hosts)[index].place.clone();
        match incident.kind {
            Trouble::Freeze(span) => self.sim.freeze(id, span),
            Trouble::Pause { reads, span, stale } => clock.plan(Pause { reads, span, stale }),
            Trouble::Kill(span) => {
                self.end_life(index, |_| true).await;
                self.wait(span).await;
                self.begin_life(index);
            }
            Trouble::EndRuntime(span) => {
                self.end_tasks(id, |kind| kind == LaneKind::User).await;
                self.wait(span).await;
                self.end_life(index, |_| true).await;
                self.begin_life(index);
            }
            Trouble::Cut(span) => {
                let until = self.sim.now() + span;
                lock(&link.weather).cut_until = until;
            }
            Trouble::BlockStore(span) => *lock(&link.block_next) = span,
            Trouble::StepStore(span) => {
                let mut crept = lock(&self.crept);
                let most = self.plan.timing.ttl * 3 / 100;
                if self.plan.expiry == Expiry::StoreClock && *crept + span <= most {
                    *crept += span;
                    self.store_clock.step(i64::try_from(span.as_nanos()).unwrap_or(0));
                }
            }
            Trouble::StepFar(by) => self.store_clock.step(by),
            Trouble::Forget => {
                self.sim.judge().book().seen.losses += 1;
                self.watched.lose_memory(self.plan.timing.ttl);
            }
            Trouble::PauseAtClaim(span) => *lock(&link.freeze_at_claim) = span,
            Trouble::StepWall(by) => drop(wall.ahead_ms.fetch_add(by, Ordering::Relaxed)),
            Trouble::Disconnect => self.disconnect(index).await,
        }
    }

    async fn wait(&self, span: Duration) {
        self.sim.truth().sleep_until(self.sim.now() + span).await;
    }

    /// Drops tasks of a host, once none of its code is on the stack.
    async fn end_tasks(&self, id: usize, wanted: impl Fn(LaneKind) -> bool + Copy) {
        while !self.sim.close(id, wanted) {
            self.wait(Duration::from_millis(7)).await;
        }
    }

    pub(super) async fn end_life(&self, index: usize, wanted: impl Fn(LaneKind) -> bool + Copy) {
        let id = lock(&self.hosts)[index].place.id;
        self.end_tasks(id, wanted).await;
        let life = lock(&self.hosts)[index].life.take();
        drop(life);
    }

    /// The server frees what a session holds, and its owner does not know.
    async fn disconnect(&self, index: usize) {
        let holders = lock(&self.watched.holders).clone();
        let host = format!("h{index}.");
        for (election, (candidate, term)) in holders {
            if candidate.label().starts_with(&host) {
                let op = Op::Release { election, candidate, term: Some(term), seq: 0 };
                let _freed = self.memory.apply(&[op]).await;
            }
        }
    }

    /// Drops all that is left, so that nothing of it outlives the run.
    fn bury(&self) {
        let lives: Vec<Option<Life>> =
            lock(&self.hosts).iter_mut().map(|host| host.life.take()).collect();
        drop(lives);
        for host in 0..=self.plan.hosts.len() {
            self.sim.close(host, |_| true);
        }
    }
}

/// Takes part for good.
async fn starting(proc: Arc<Proc>, election: Election) {
    loop {
        let _fails_if_useless = proc.call("start", election.start()).await;
        proc.sleep(proc.timing.ttl).await;
        if proc.one_in(4) && !proc.is_calm() {
            let _not_told = proc.call("resign", election.resign()).await;
        }
    }
}
