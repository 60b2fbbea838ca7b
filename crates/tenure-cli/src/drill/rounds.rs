//! One fault after the other, each when somebody leads and works.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{BootClock, Name, Store, Term, Time, Timing};
use tenure_core::{Op, Reply};

use super::fleet::{Fleet, Halt, Told};
use super::ground::Ground;
use super::options::Extent;
use super::plan::{Fault, Plan, Step};
use super::progress::Progress;
use super::wall_clock::WallClock;
use crate::exit::Failure;

/// How long to try to freeze a leader between two of its writes.
const FREEZE_TRIES: usize = 200;

/// What was done to a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) fault: Fault,
    pub(crate) process: usize,
    pub(crate) lane: usize,
    /// The term that it led.
    pub(crate) term: u64,
    /// Just before the fault.
    pub(crate) at: Time,
    /// When it went on, if it had been frozen.
    pub(crate) thawed: Option<Time>,
}

/// All that a drill works with.
pub(crate) struct Scene<'a> {
    pub(crate) election: &'a Name,
    pub(crate) timing: Timing,
    pub(crate) candidates: usize,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ground: &'a dyn Ground,
    pub(crate) fleet: Fleet,
    pub(crate) clock: Option<WallClock>,
    pub(crate) rounds: Vec<Round>,
    pub(crate) progress: Progress,
}

impl Scene<'_> {
    /// Starts the candidates and goes through the plan.
    pub(crate) async fn run(&mut self, plan: Plan, extent: Extent) -> Result<(), Halt> {
        let began = BootClock::time();
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
                Extent::For(time) => BootClock::time() >= began + time,
            };
            if is_over {
                break;
            }
            self.progress.show(began, extent, self.rounds.len(), step.fault);
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
        let leader = self.leader().await?;
        let Told { process, lane, term, .. } = leader;
        let at = match step.fault {
            Fault::Kill => self.fleet.kill(process)?,
            Fault::Freeze => self.freeze(process).await?,
            Fault::Resign => self.ask_to_resign(term).await?,
            Fault::Clock => match &mut self.clock {
                Some(clock) => clock.step()?,
                None => return Ok(()),
            },
            other => {
                let sentence = format!("the fault {} is not built in", other.name());
                return Err(Failure::usage(sentence).into());
            }
        };
        let fault = step.fault;
        self.rounds.push(Round { fault, process, lane, term, at, thawed: None });
        if fault == Fault::Clock {
            // Longer than a lease lasts: it is renewed meanwhile, or lost.
            return self.fleet.listen(self.timing.ttl + self.timing.renew_every).await;
        }
        let what = format!("a successor after a {}", fault.name());
        self.works(&what, term + 1).await?;
        match fault {
            Fault::Kill => self.fleet.start(lane)?,
            Fault::Freeze => self.thaw(process, term).await?,
            _ => {}
        }
        Ok(())
    }

    /// Who leads and has begun to work.
    async fn leader(&mut self) -> Result<Told, Halt> {
        self.works("a leader that works", 0).await
    }

    /// Waits until the latest leader, of at least this term, works.
    async fn works(&mut self, what: &str, least: u64) -> Result<Told, Halt> {
        let limit = self.limit();
        self.fleet
            .wait(what, limit, |told| {
                let latest =
                    told.iter().filter(|told| told.is("elected")).max_by_key(|t| t.term)?;
                let works = |told: &&Told| told.is("working") && told.term == latest.term;
                let over = |told: &Told| told.is("draining") && told.term == latest.term;
                let works = told.iter().rev().find(works)?;
                (works.term >= least && !told.iter().any(over)).then(|| works.clone())
            })
            .await
    }

    /// Stops a process between two of its writes.
    async fn freeze(&mut self, process: usize) -> Result<Time, Halt> {
        for _ in 0..FREEZE_TRIES {
            let at = self.fleet.signal(process, Signal::STOP)?;
            if self.ground.is_free() {
                return Ok(at);
            }
            self.fleet.signal(process, Signal::CONT)?;
            self.fleet.listen(Duration::from_millis(7)).await?;
        }
        Err(Halt::Found("the leader was always in the middle of a write".to_owned()))
    }

    /// Lets it go on in the middle of the reign of another, and waits until it knows.
    async fn thaw(&mut self, process: usize, term: u64) -> Result<(), Halt> {
        let at = self.fleet.signal(process, Signal::CONT)?;
        if let Some(round) = self.rounds.last_mut() {
            round.thawed = Some(at);
        }
        let own = |told: &[Told], events: &[&str]| {
            let is_own = |told: &&Told| told.process == process && told.term == term;
            told.iter().filter(is_own).any(|told| events.contains(&told.event.as_str()))
        };
        let limit = self.limit();
        let is_over = |told: &[Told]| own(told, &["stepped_down"]).then_some(());
        self.fleet.wait("the end of a reign that was frozen", limit, is_over).await?;
        // Unless it was just winding up when it was frozen, it had a write in hand.
        let stopped = |told: &[Told]| own(told, &["write_refused", "write_withheld"]).then_some(());
        match self.fleet.wait("a stale write", Duration::from_secs(2), stopped).await {
            Err(Halt::Found(_)) => Ok(()),
            other => other,
        }
    }

    /// Asks as `tenure resign` does.
    async fn ask_to_resign(&mut self, term: u64) -> Result<Time, Halt> {
        let (election, term) = (self.election.clone(), Term::new(term));
        let at = BootClock::time();
        for reply in self.store.apply(&[Op::Ask { election, term }]).await {
            if let Reply::Unknown(error) = reply {
                return Err(Failure::from(error).into());
            }
        }
        Ok(at)
    }
}
