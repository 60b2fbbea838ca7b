//! One fault after the other, each when somebody leads and works.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Clock, Name, Op, Reply, Store, Term, Time, Timing};

use crate::drill::{Extent, Host};
use crate::error::DrillError;
use crate::faketime::WallClock;
use crate::fleet::{CandidateEvent, Fleet, Halt};
use crate::ground::Ground;
use crate::plan::{Fault, Plan, Step};
use crate::progress::Progress;
use crate::proxy::{LinkState, Proxy};
use crate::record::Round;
use crate::restart;

/// How often a leader is asked again to resign that could not be asked.
const ASK_AGAIN: u32 = 3;

/// How long to try to freeze a leader between two of its writes.
const FREEZE_TRIES: usize = 200;

/// What a fault of the network does, and whether leadership can go on under it.
struct NetworkFault {
    /// What comes before it, until the next renewal.
    first: LinkState,
    state: LinkState,
    shape: &'static str,
    changes: bool,
}

/// All that a drill works with.
pub(crate) struct Runner<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) election: &'a Name,
    pub(crate) timing: Timing,
    pub(crate) candidates: usize,
    /// Whether the store's promise admits two leaders for a while.
    pub(crate) admits_overlap: bool,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ground: &'a dyn Ground,
    pub(crate) fleet: Fleet<'a>,
    /// Between the candidates and a store that is reached by a network.
    pub(crate) proxy: Option<Proxy>,
    pub(crate) wall_clock: Option<WallClock>,
    pub(crate) restart_cmd: Option<String>,
    pub(crate) rounds: Vec<Round>,
}

impl Runner<'_> {
    /// Starts the candidates and goes through the plan.
    pub(crate) async fn run(&mut self, plan: Plan, extent: Extent) -> Result<(), Halt> {
        let began = self.clock.now();
        for lane in 0..self.candidates {
            self.fleet.start(lane)?;
        }
        self.fleet
            .wait("a candidate that takes part", self.limit(), |told| {
                told.iter().find(|told| told.is("campaigning")).map(|_| ())
            })
            .await?;
        for step in plan {
            let is_over = match extent {
                Extent::Rounds(rounds) => self.rounds.len() >= rounds,
                Extent::For(time) => self.clock.now() >= began + time,
            };
            if is_over {
                break;
            }
            let (done, fault) = (self.rounds.len(), step.fault);
            let elapsed = self.clock.now() - began;
            self.host.progress(&Progress { done, extent, elapsed, fault });
            self.round(step).await?;
        }
        // The last leader shows that it works, too.
        self.leader().await?;
        self.fleet.listen(Duration::from_millis(200)).await
    }

    /// Far more than any change of hands may take.
    fn limit(&self) -> Duration {
        self.timing.ttl * 3 + Duration::from_secs(10)
    }

    async fn round(&mut self, step: Step) -> Result<(), Halt> {
        self.leader().await?;
        self.fleet.listen(step.pause).await?;
        // It may be another one by now.
        let CandidateEvent { process, lane, term, .. } = self.leader().await?;
        let fault = step.fault;
        let (mut shape, mut changes) = ("", !fault.may_go_on());
        let at = match fault {
            Fault::Kill => self.fleet.kill(process)?,
            Fault::Die => self.fleet.die(process)?,
            Fault::Freeze => self.freeze(process).await?,
            Fault::Resign => self.ask_to_resign(term).await?,
            Fault::Cut | Fault::Hole | Fault::Delay => {
                let network_fault = network_fault(step, self.timing.ttl);
                (shape, changes) = (network_fault.shape, network_fault.changes);
                if network_fault.first != LinkState::Open {
                    let since = self.proxy()?.set(lane, network_fault.first);
                    self.renews(fault, since, 1).await?;
                }
                self.proxy()?.set(lane, network_fault.state)
            }
            Fault::Reset => self.proxy()?.reset(lane),
            Fault::Restart => self.clock.now(),
            Fault::Clock => match &mut self.wall_clock {
                Some(wall_clock) => wall_clock.step(&*self.clock)?,
                None => return Ok(()),
            },
        };
        let over = None;
        self.rounds.push(Round { fault, shape, process, lane, term, at, changes, over });
        if changes {
            let what = format!("a successor after a {}", fault.name());
            self.works(&what, term + 1).await?;
        } else {
            self.goes_on(fault, at).await?;
        }
        self.undo(fault, process, lane)?;
        if !changes || matches!(fault, Fault::Kill | Fault::Die | Fault::Resign) {
            return Ok(());
        }
        self.knows_its_end(fault, process, term).await
    }

    fn proxy(&self) -> Result<&Proxy, DrillError> {
        let none = || DrillError::refused("there is no proxy to have faults in");
        self.proxy.as_ref().ok_or_else(none)
    }

    /// Waits until leadership has shown itself after a fault that it may survive.
    async fn goes_on(&mut self, fault: Fault, at: Time) -> Result<(), Halt> {
        let (since, renewals) = match fault {
            // Longer than a lease lasts: it is renewed meanwhile, or lost.
            Fault::Clock => {
                return self.fleet.listen(self.timing.ttl + self.timing.renew_every).await;
            }
            Fault::Restart => {
                if let Some(command) = &self.restart_cmd {
                    restart::run(command, &*self.clock, &mut self.fleet).await?;
                }
                let over = self.clock.now();
                if let Some(round) = self.rounds.last_mut() {
                    round.over = Some(over);
                }
                (over, 1)
            }
            Fault::Delay => (at, 2),
            _ => (at, 1),
        };
        self.renews(fault, since, renewals).await
    }

    /// Waits until the latest leader has renewed so often, or has just begun to work.
    async fn renews(&mut self, fault: Fault, since: Time, times: usize) -> Result<(), Halt> {
        let limit = self.limit();
        let renewed = |told: &[CandidateEvent]| {
            let latest = told.iter().filter(|t| t.is("elected")).max_by_key(|t| t.term)?;
            let own = |told: &&CandidateEvent| told.term == latest.term && told.at > since;
            let count = |event: &str| told.iter().filter(own).filter(|t| t.is(event)).count();
            (count("trusts") >= times || count("working") > 0).then_some(())
        };
        let what = format!("a leader that goes on after a {}", fault.name());
        self.fleet.wait(&what, limit, renewed).await
    }

    /// Undoes a fault that lasts.
    fn undo(&mut self, fault: Fault, process: usize, lane: usize) -> Result<(), Halt> {
        let over = match fault {
            Fault::Kill | Fault::Die => {
                self.fleet.start(lane)?;
                return Ok(());
            }
            // In the middle of the reign of another.
            Fault::Freeze => self.fleet.go_on(process)?,
            Fault::Cut | Fault::Hole | Fault::Delay => self.proxy()?.set(lane, LinkState::Open),
            _ => return Ok(()),
        };
        if let Some(round) = self.rounds.last_mut() {
            round.over = Some(over);
        }
        Ok(())
    }

    /// The leader, once it has begun to work.
    async fn leader(&mut self) -> Result<CandidateEvent, Halt> {
        self.works("a leader that works", 0).await
    }

    /// Waits until the latest leader, of at least this term, works.
    async fn works(&mut self, what: &str, least: u64) -> Result<CandidateEvent, Halt> {
        let limit = self.limit();
        self.fleet
            .wait(what, limit, |told| {
                let latest =
                    told.iter().filter(|told| told.is("elected")).max_by_key(|t| t.term)?;
                let works = |told: &&CandidateEvent| told.is("working") && told.term == latest.term;
                let over = |told: &CandidateEvent| told.is("draining") && told.term == latest.term;
                let works = told.iter().rev().find(works)?;
                (works.term >= least && !told.iter().any(over)).then(|| works.clone())
            })
            .await
    }

    /// Stops a process between two of its writes.
    async fn freeze(&mut self, process: usize) -> Result<Time, Halt> {
        for _ in 0..FREEZE_TRIES {
            let at = self.fleet.stop(process).await?;
            if self.ground.is_free() {
                return Ok(at);
            }
            self.fleet.go_on(process)?;
            self.fleet.listen(Duration::from_millis(7)).await?;
        }
        Err(Halt::Found("the leader was always in the middle of a write".to_owned()))
    }

    /// Waits until a former leader has told that its reign is over.
    async fn knows_its_end(&mut self, fault: Fault, process: usize, term: u64) -> Result<(), Halt> {
        let own = |told: &[CandidateEvent], events: &[&str]| {
            let is_own = |told: &&CandidateEvent| told.process == process && told.term == term;
            told.iter().filter(is_own).any(|told| events.contains(&told.event.as_str()))
        };
        let limit = self.limit();
        let is_over = |told: &[CandidateEvent]| own(told, &["stepped_down"]).then_some(());
        let what = format!("the end of a reign after a {}", fault.name());
        self.fleet.wait(&what, limit, is_over).await?;
        if fault != Fault::Freeze {
            return Ok(());
        }
        // Unless it was just winding up when it was frozen, it had a write in hand.
        let stopped =
            |told: &[CandidateEvent]| own(told, &["write_refused", "write_withheld"]).then_some(());
        match self.fleet.wait("a stale write", Duration::from_secs(2), stopped).await {
            Err(Halt::Found(_)) => Ok(()),
            other => other,
        }
    }

    /// Asks as `tenure resign` does.
    async fn ask_to_resign(&mut self, term: u64) -> Result<Time, Halt> {
        let op = Op::Ask { election: self.election.clone(), term: Term::new(term) };
        let mut again = ASK_AGAIN;
        loop {
            let at = self.clock.now();
            match self.store.apply(std::slice::from_ref(&op)).await.pop() {
                // The fault before may not be over for the leader.
                Some(Reply::Unknown(error)) if error.is_retryable() && again > 0 => again -= 1,
                Some(Reply::Unknown(error)) => return Err(DrillError::from(error).into()),
                _ => return Ok(at),
            }
        }
    }
}

/// What a fault of the network looks like this time.
fn network_fault(step: Step, ttl: Duration) -> NetworkFault {
    let held = |requests, replies, shape| {
        let state = LinkState::Held { requests, replies };
        NetworkFault { first: LinkState::Open, state, shape, changes: true }
    };
    let slow = |requests, replies| LinkState::Slow { requests, replies };
    match (step.fault, step.turn) {
        (Fault::Hole, turn) => match turn % 4 {
            0 => held(true, true, "both ways"),
            1 => held(false, true, "replies lost"),
            2 => held(true, false, "requests lost"),
            // The last answer is an old one: to count from its arrival would be to trust too long.
            _ => NetworkFault {
                first: slow(Duration::ZERO, ttl / 8),
                ..held(true, true, "slow, then both ways")
            },
        },
        // No answer comes in time, but each of them comes.
        (Fault::Delay, turn) if turn % 3 == 1 => {
            let (first, state) = (LinkState::Open, slow(ttl / 4, ttl / 4));
            NetworkFault { first, state, shape: "too much", changes: true }
        }
        // Well inside of what a call may take: leadership goes on.
        (Fault::Delay, _) => {
            let (first, state) = (LinkState::Open, slow(Duration::ZERO, ttl / 10));
            NetworkFault { first, state, shape: "some", changes: false }
        }
        _ => {
            NetworkFault { first: LinkState::Open, state: LinkState::Cut, shape: "", changes: true }
        }
    }
}
