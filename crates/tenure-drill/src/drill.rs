//! One drill, from its preparation to its clean-up.

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Error, Expiry, Name, Secret, Store, Timing, show_duration};

use crate::error::DrillError;
use crate::faketime::WallClock;
use crate::fleet::{Fleet, Halt, label};
use crate::ground::{self, Ground, GroundKind, Site, find_ground};
use crate::judge::judge;
use crate::plan::{Fault, Plan};
use crate::progress::Progress;
use crate::proxy::Proxy;
use crate::record::{CutShort, Record};
use crate::report::Report;
use crate::rounds::Runner;
use crate::scratch::ScratchDir;
use crate::wall::WallTime;

/// How many candidates a drill takes. Fewer than two have nobody to hand over to; more than this is
/// no drill but a load test.
pub const CANDIDATES: RangeInclusive<usize> = 2..=50;

/// How long a drill goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// For so many faults.
    Rounds(usize),
    /// With faults for so long.
    For(Duration),
}

/// What a drill is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many processes take part, within [`CANDIDATES`].
    pub candidates: usize,
    /// How long it goes on.
    pub extent: Extent,
    /// What is done to the leaders. `None`: all that the store can have.
    pub faults: Option<Vec<Fault>>,
    /// The same seed gives the same faults in the same order.
    pub seed: u64,
    /// The shell command that restarts the store, if there is one.
    pub restart_cmd: Option<String>,
    /// The candidates' timing.
    pub timing: Timing,
}

impl Options {
    /// Five candidates, all faults, for a minute.
    pub fn new(timing: Timing) -> Options {
        Options {
            candidates: 5,
            extent: Extent::For(Duration::from_secs(60)),
            faults: None,
            seed: 0,
            restart_cmd: None,
            timing,
        }
    }
}

/// The store that a drill is done on.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its URL.
    pub url: Secret,
    /// Where it is, without secrets: this is what people are shown.
    pub address: String,
}

/// The part of one candidate.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'a> {
    /// What it calls itself.
    pub label: &'a str,
    /// Its own route to the store, with the drill's names in it. Not for arguments, which all users
    /// of the machine can read: there may be a password in it.
    pub url: &'a Secret,
    /// The election that it takes part in.
    pub election: &'a Name,
    /// How long its leases last.
    pub ttl: Duration,
    /// The drill's directory, for its [`Workload`](crate::Workload).
    pub directory: &'a Path,
}

/// What a drill asks of the program that runs it.
pub trait Host {
    /// The clock: one that all processes of the machine share, and that counts suspend.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Opens the store of this URL.
    ///
    /// # Errors
    /// What keeps it from being opened.
    fn open(&self, url: &Secret) -> Result<Arc<dyn Store>, Error>;

    /// The command that starts a candidate. It takes part, does the work of the store's
    /// [`Workload`](crate::Workload) while it leads, tells on stdout what happens (see
    /// [`fleet`](crate::fleet)), and ends when it gets SIGTERM.
    ///
    /// # Errors
    /// What keeps it from being started.
    fn candidate(&self, part: &Assignment<'_>) -> io::Result<Command>;

    /// A sentence for people.
    fn say(&self, _sentence: &str) {}

    /// A sentence about something that they should look at.
    fn warn(&self, _sentence: &str) {}

    /// A round begins.
    fn progress(&self, _progress: &Progress) {}
}

/// Somebody who may ask for the end of a drill.
pub trait Interrupt {
    /// Waits until the end is asked for. Tells the number of the signal that did.
    ///
    /// # Cancel safety
    /// Must be cancel safe: a wish for the end is not lost.
    fn asked(&mut self) -> BoxFuture<'_, i32>;
}

/// Nobody asks for the end.
#[derive(Clone, Copy, Debug)]
pub struct Uninterrupted;

impl Interrupt for Uninterrupted {
    fn asked(&mut self) -> BoxFuture<'_, i32> {
        Box::pin(std::future::pending())
    }
}

/// What came of a drill.
#[derive(Debug)]
pub struct Outcome {
    /// What was seen, and the verdict; `None` if the end was asked for before it began.
    pub report: Option<Report>,
    /// The number of the signal that asked for its end, if one did.
    pub signal: Option<i32>,
    /// What kept it from coming to its end, if something did.
    pub broken: Option<DrillError>,
    /// Whether the store is as it was found.
    pub is_clean: bool,
}

/// A drill that can begin. Nothing has been done to the store yet.
pub struct Drill<'a> {
    host: &'a dyn Host,
    clock: Arc<dyn Clock>,
    address: String,
    options: Options,
    election: Name,
    ground: Box<dyn Ground>,
    faults: Vec<Fault>,
    wall_clock: Option<WallClock>,
    directory: ScratchDir,
}

impl<'a> Drill<'a> {
    /// Sees whether this can be done; `grounds` are the kinds of store that drills can be had on.
    ///
    /// # Errors
    /// A sentence on what can't be, and why.
    pub fn new(
        host: &'a dyn Host,
        grounds: &[GroundKind],
        target: Target,
        options: Options,
    ) -> Result<Drill<'a>, DrillError> {
        let Target { url, address } = target;
        if !CANDIDATES.contains(&options.candidates) {
            let (least, most) = CANDIDATES.into_inner();
            return Err(DrillError::refused(format!("a drill takes {least} to {most} candidates")));
        }
        let (clock, directory) = (host.clock(), ScratchDir::new()?);
        let election = Name::new(format!("tenure-drill-{:08x}", fastrand::Rng::new().u32(..)))?;
        let kind = find_ground(grounds, &url)?;
        let ground = (kind.ground)(Site {
            url,
            election: election.clone(),
            ttl: options.timing.ttl,
            directory: directory.path().to_owned(),
            clock: clock.clone(),
        })?;
        let faults = faults(&options, &*ground)?;
        let steps = faults.contains(&Fault::Clock);
        let wall_clock = steps.then(|| WallClock::new(directory.path())).transpose()?;
        Ok(Drill { host, clock, address, options, election, ground, faults, wall_clock, directory })
    }

    /// The election of the drill.
    pub fn election(&self) -> &Name {
        &self.election
    }

    /// Does it, and leaves the store as it was found.
    ///
    /// # Errors
    /// It could not begin. What happens later is in the outcome, with all that was seen before.
    ///
    /// # Cancel safety
    /// Not cancel safe: the candidates are killed, and what they left stays in the store. Ask for
    /// the end by `interrupt`.
    pub async fn run(mut self, interrupt: &mut dyn Interrupt) -> Result<Outcome, DrillError> {
        let store = self.host.open(&self.ground.url())?;
        match self.begin(&*store, interrupt).await {
            Ok(None) => {}
            // Nothing was done to the store, or nearly nothing.
            not_begun => {
                let is_clean =
                    !self.ground.is_touched() || self.clean_up(BTreeSet::new(), interrupt).await;
                let signal = not_begun?;
                return Ok(Outcome { report: None, signal, broken: None, is_clean });
            }
        }
        let wall_clock = self.wall_clock.take();
        let (record, halted) = match self.perform(store, wall_clock, interrupt).await {
            Ok(done) => done,
            Err(error) => {
                self.clean_up(BTreeSet::new(), interrupt).await;
                return Err(error);
            }
        };
        let candidates = record.events.iter().map(|told| told.candidate.clone()).collect();
        let is_clean = self.clean_up(candidates, interrupt).await;
        let (found, signal, broken) = match halted {
            None => (None, None, None),
            Some(Halt::Found(sentence)) => (Some(sentence), None, None),
            Some(Halt::Asked(signal)) => (None, Some(signal), None),
            Some(Halt::Broken(error)) => (None, None, Some(error)),
        };
        let judgement = judge(&record, found);
        Ok(Outcome { report: Some(Report { record, judgement }), signal, broken, is_clean })
    }

    /// Gets the store ready. A signal, if one came before it was.
    async fn begin(
        &self,
        store: &dyn Store,
        interrupt: &mut dyn Interrupt,
    ) -> Result<Option<i32>, DrillError> {
        self.options.timing.check_store_minimum(store.info().min_ttl)?;
        self.host.say(&self.introduction());
        tokio::select! {
            biased;
            signal = interrupt.asked() => Ok(Some(signal)),
            ready = self.ground.prepare() => ready.map(|()| None),
        }
    }

    /// Goes through all rounds. Whatever happened, nobody takes part any more afterwards.
    async fn perform(
        &self,
        store: Arc<dyn Store>,
        wall_clock: Option<WallClock>,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(Record, Option<Halt>), DrillError> {
        let Drill { clock, options, election, ground, .. } = self;
        let ground = &**ground;
        let (timing, candidates) = (options.timing, options.candidates);
        let envs = wall_clock.as_ref().map(WallClock::envs).unwrap_or_default();
        let (proxy, urls) = routes(ground, clock, candidates)?;
        let launch = |lane: usize| {
            let mut command = self.candidate(lane, &urls)?;
            command.envs(envs.iter().cloned());
            Ok(command)
        };
        let mut runner = Runner {
            host: self.host,
            clock: clock.clone(),
            election,
            timing,
            candidates,
            admits_overlap: store.info().expiry == Expiry::Connection,
            store,
            ground,
            fleet: Fleet::new(clock.clone(), launch).with_interrupt(interrupt),
            proxy,
            wall_clock,
            restart_cmd: options.restart_cmd.clone(),
            rounds: Vec::new(),
        };
        let plan = Plan::new(options.seed, &self.faults, timing.renew_every);
        let began = clock.now();
        let mut halted = runner.run(plan, options.extent).await.err();
        let closed = clock.now();
        runner.fleet.finish(timing.drain + Duration::from_secs(5)).await;
        let ended = clock.now();
        // Without them the rest is still evidence.
        let rows = match ground.rows().await {
            Ok(rows) => Some(rows),
            Err(error) => {
                halted = halted.or(Some(Halt::Broken(error)));
                None
            }
        };
        let Runner { fleet, rounds, admits_overlap, .. } = runner;
        let record = Record {
            election: election.clone(),
            store: self.address.clone(),
            seed: options.seed,
            candidates,
            timing,
            admits_overlap,
            may_forget: ground.may_forget(),
            began,
            closed,
            ended,
            wall: WallTime::now(&**clock),
            cut_short: halted.as_ref().and_then(cut_short),
            events: fleet.events,
            killed: fleet.killed,
            rounds,
            acknowledged: fleet.acknowledged,
            rows,
        };
        Ok((record, halted))
    }

    fn candidate(&self, lane: usize, urls: &[Secret]) -> io::Result<Command> {
        self.host.candidate(&Assignment {
            label: &label(lane),
            url: urls.get(lane).ok_or(io::ErrorKind::NotFound)?,
            election: &self.election,
            ttl: self.options.timing.ttl,
            directory: self.directory.path(),
        })
    }

    /// Leaves the store as it was found; whether that could be done. Only a second wish for the end
    /// keeps it from that.
    async fn clean_up(&self, candidates: BTreeSet<String>, interrupt: &mut dyn Interrupt) -> bool {
        let Drill { host, clock, options, election, ground, .. } = self;
        let asked_twice = async {
            interrupt.asked().await;
            host.warn("the drill removes what it has made; once more, and it leaves it");
            interrupt.asked().await;
        };
        let why = tokio::select! {
            cleaned = ground::clean_up(&**ground, &candidates, &**clock, options.timing.ttl) => {
                match cleaned {
                    Ok(()) => return true,
                    Err(error) => error.to_string(),
                }
            }
            _ = asked_twice => "the clean-up was ended".to_owned(),
        };
        let leftovers = ground.leftovers();
        host.warn(&format!("things of {election} may be left in the store ({why}); {leftovers}"));
        false
    }

    fn introduction(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name()).collect();
        format!(
            "{} candidates on {} in the election {}, ttl {}, faults {}, seed {}",
            self.options.candidates,
            self.address,
            self.election,
            show_duration(self.options.timing.ttl),
            names.join(", "),
            self.options.seed
        )
    }
}

/// Whether a drill that was halted has shown nothing wrong, but did not come to its own end.
fn cut_short(halted: &Halt) -> Option<CutShort> {
    match halted {
        Halt::Found(_) => None,
        Halt::Asked(_) => Some(CutShort::Asked),
        Halt::Broken(_) => Some(CutShort::Broken),
    }
}

/// How each candidate gets to the store: through a proxy, where there is a network.
fn routes(
    ground: &dyn Ground,
    clock: &Arc<dyn Clock>,
    candidates: usize,
) -> Result<(Option<Proxy>, Vec<Secret>), DrillError> {
    let Some((route, hosts)) = ground.route().and_then(|route| Some((route, route.hosts()?)))
    else {
        return Ok((None, vec![ground.url(); candidates]));
    };
    let proxy = Proxy::start(clock.clone(), candidates, hosts)?;
    let urls = (0..candidates).map(|lane| route.url_through(proxy.addresses(lane))).collect();
    Ok((Some(proxy), urls))
}

/// What is to be done to the leaders: what was asked for, or all that the store can have.
fn faults(options: &Options, ground: &dyn Ground) -> Result<Vec<Fault>, DrillError> {
    let mut possible = ground.faults().to_vec();
    let has_server = ground.has_server();
    if options.restart_cmd.is_some() && has_server {
        possible.push(Fault::Restart);
    }
    let Some(wanted) = &options.faults else {
        return match &options.restart_cmd {
            Some(_) if !has_server => Err(impossible(Fault::Restart, ground, &possible)),
            _ => Ok(possible),
        };
    };
    // The wall clock is the candidates', not the store's.
    let can = |fault: &Fault| possible.contains(fault) || *fault == Fault::Clock;
    match wanted.iter().find(|fault| !can(fault)) {
        None => Ok(wanted.clone()),
        Some(Fault::Restart) if has_server => Err(DrillError::refused(
            "the fault restart needs a command that restarts the store: --restart-cmd 'systemctl \
             restart postgresql'. A drill never restarts a store by itself",
        )),
        Some(fault) => Err(impossible(*fault, ground, &possible)),
    }
}

fn impossible(fault: Fault, ground: &dyn Ground, possible: &[Fault]) -> DrillError {
    let names: Vec<&str> = possible.iter().map(|fault| fault.name()).collect();
    let (name, why) = (fault.name(), ground.why_not(fault));
    DrillError::refused(format!("the fault {name} {why}; possible are {}, clock", names.join(", ")))
}
