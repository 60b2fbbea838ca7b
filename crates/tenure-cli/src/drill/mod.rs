//! `tenure drill`: real processes of this binary, real faults, and a checker outside of them.
//!
//! The drill starts candidates in an election of its own on the user's store, does things to
//! whoever leads, and writes down what happens on the one clock that all of them share. It never
//! touches an election that it did not name itself, and removes its own when it is over.

#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "no store to have drills on")
)]

pub(crate) mod candidate;
mod fleet;
mod ground;
mod judge;
mod options;
mod place;
pub(crate) mod plan;
#[cfg(feature = "postgres")]
mod postgres;
mod progress;
mod proxy;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod report;
mod restart;
mod rounds;
mod route;
#[cfg(feature = "sabotage")]
mod sabotage;
mod show;
#[cfg(feature = "sqlite")]
mod sqlite;
mod wall_clock;

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{BootClock, Name};
use tenure_core::{Expiry, Secret};

use self::candidate::Brief;
use self::fleet::{Fleet, Halt};
use self::ground::{Ground, Left};
pub(crate) use self::options::DrillOptions;
use self::place::Place;
use self::plan::{Fault, Plan};
use self::progress::Progress;
use self::proxy::Proxy;
use self::record::{CutShort, Record};
use self::rounds::Scene;
use self::wall_clock::WallClock;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::signals::Signals;
use crate::store::{Opened, StoreChoice};

/// Runs a drill and tells what came out.
pub(crate) async fn run(
    options: &DrillOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let place = Place::new()?;
    let name = format!("tenure-drill-{:08x}", fastrand::Rng::new().u32(..));
    let election = Name::new(&name)?;
    let ground = ground::ground(choice, place.path(), &election, options.timing.ttl)?;
    let faults = faults(options, &*ground)?;
    let steps = faults.contains(&Fault::Clock);
    let clock = steps.then(|| WallClock::new(place.path())).transpose()?;
    if let Some(dir) = &options.report {
        // Not after an hour of work.
        report::prepare(dir)?;
    }
    let opened = StoreChoice::new(Some(&ground.url()))?.open()?;
    let drill = Drill { options, choice, election: &election, ground: &*ground, opened, out };
    let begun = drill.begin(&faults, &mut signals).await;
    let done = match begun {
        Ok(None) => drill.perform(&faults, clock, &place, signals).await,
        // Nothing was done to the store, or nearly nothing.
        not_begun => {
            let is_clean = !ground.is_touched() || drill.clean_up(BTreeSet::new()).await;
            let exit = not_begun?.map_or(Exit::DONE, Exit::by_signal);
            return Ok(if is_clean { exit } else { Exit::FAILED });
        }
    };
    let (record, halted) = match done {
        Ok(done) => done,
        Err(failure) => {
            drill.clean_up(BTreeSet::new()).await;
            return Err(failure);
        }
    };
    let candidates = record.told.iter().map(|told| told.candidate.clone()).collect();
    let is_clean = drill.clean_up(candidates).await;
    let exit = conclude(&record, halted, options, out)?;
    Ok(if exit == Exit::DONE && !is_clean { Exit::FAILED } else { exit })
}

/// One drill, while it leaves something in the store.
struct Drill<'a> {
    options: &'a DrillOptions,
    choice: &'a StoreChoice,
    election: &'a Name,
    ground: &'a dyn Ground,
    opened: Opened,
    out: &'a Output,
}

impl Drill<'_> {
    /// Gets the store ready. A signal, if one came before it was.
    async fn begin(
        &self,
        faults: &[Fault],
        signals: &mut Signals,
    ) -> Result<Option<Signal>, Failure> {
        let Drill { options, choice, election, ground, opened, out } = self;
        options.timing.check_store_minimum(opened.store.info().min_ttl)?;
        out.say(&introduction(options, choice, faults, election));
        tokio::select! {
            biased;
            signal = signals.end() => Ok(Some(signal)),
            ready = ground.prepare() => ready.map(|()| None),
        }
    }

    /// Goes through all rounds. Whatever happened, nobody takes part any more afterwards.
    async fn perform(
        &self,
        faults: &[Fault],
        clock: Option<WallClock>,
        place: &Place,
        signals: Signals,
    ) -> Result<(Record, Option<Halt>), Failure> {
        let Drill { options, election, ground, .. } = *self;
        let (timing, candidates) = (options.timing, options.candidates);
        let brief = Brief {
            election: election.clone(),
            ttl: timing.ttl,
            place: place.path().display().to_string(),
        };
        let envs = clock.as_ref().map(WallClock::envs).unwrap_or_default();
        let (proxy, urls) = ways(ground, candidates)?;
        let mut scene = Scene {
            election,
            timing,
            candidates,
            store: self.opened.store.clone(),
            ground,
            fleet: Fleet::new(brief, urls, envs, signals),
            proxy,
            clock,
            restart_cmd: options.restart_cmd.clone(),
            rounds: Vec::new(),
            progress: Progress::new(self.out),
        };
        let began = BootClock::time();
        let plan = Plan::new(options.seed, faults, timing.renew_every);
        let mut halted = scene.run(plan, options.extent).await.err();
        let closed = BootClock::time();
        scene.fleet.finish(timing.drain + Duration::from_secs(5)).await;
        let ended = BootClock::time();
        // Without them the rest is still evidence.
        let rows = match ground.rows().await {
            Ok(rows) => Some(rows),
            Err(failure) => {
                halted = halted.or(Some(Halt::Broken(failure)));
                None
            }
        };
        let Scene { fleet, rounds, .. } = scene;
        let record = Record {
            election: election.clone(),
            store: self.choice.address(),
            seed: options.seed,
            candidates,
            timing,
            admits_overlap: self.opened.store.info().expiry == Expiry::Connection,
            may_forget: ground.may_forget(),
            began,
            closed,
            ended,
            cut_short: match halted {
                None | Some(Halt::Found(_)) => None,
                Some(Halt::Asked(_)) => Some(CutShort::Asked),
                Some(Halt::Broken(_)) => Some(CutShort::Broken),
            },
            told: fleet.told,
            killed: fleet.killed,
            rounds,
            acknowledged: fleet.acknowledged,
            rows,
        };
        Ok((record, halted))
    }

    /// Leaves the store as it was found; whether that could be done. Who asks for the end again,
    /// and again, is left with what is there.
    async fn clean_up(&self, candidates: BTreeSet<String>) -> bool {
        let Drill { options, election, ground, opened, out, .. } = self;
        let left = Left { opened, election, candidates };
        let asked_twice = async {
            match Signals::listen() {
                Ok(mut signals) => {
                    signals.end().await;
                    out.warn("the drill removes what it has made; once more, and it leaves it");
                    signals.end().await;
                }
                Err(_) => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            cleaned = ground::clean_up(*ground, &left, options.timing.ttl) => match cleaned {
                Ok(()) => return true,
                Err(failure) => format!("{:#}", failure.error),
            },
            () = asked_twice => "the clean-up was ended".to_owned(),
        };
        let leavings = ground.leavings();
        out.warn(&format!("things of {election} may be left in the store ({why}); {leavings}"));
        false
    }
}

/// How each candidate gets to the store: through a proxy, where there is a network.
fn ways(ground: &dyn Ground, candidates: usize) -> Result<(Option<Proxy>, Vec<Secret>), Failure> {
    let Some((route, hosts)) = ground.route().and_then(|route| Some((route, route.hosts()?)))
    else {
        return Ok((None, vec![ground.url(); candidates]));
    };
    let proxy = Proxy::start(candidates, hosts)?;
    let urls =
        (0..candidates).map(|lane| Secret::new(route.url_through(proxy.doors(lane)))).collect();
    Ok((Some(proxy), urls))
}

/// What is to be done to the leaders: what was asked for, or all that the store can have.
fn faults(options: &DrillOptions, ground: &dyn Ground) -> Result<Vec<Fault>, Failure> {
    let mut possible = ground.faults().to_vec();
    let has_server = ground.url().expose().contains("://");
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
        Some(Fault::Restart) if has_server => Err(Failure::usage(
            "the fault restart needs a command that restarts the store: --restart-cmd 'systemctl \
             restart postgresql'. A drill never restarts a store by itself",
        )),
        Some(fault) => Err(impossible(*fault, ground, &possible)),
    }
}

fn impossible(fault: Fault, ground: &dyn Ground, possible: &[Fault]) -> Failure {
    let names: Vec<&str> = possible.iter().map(|fault| fault.name()).collect();
    let (name, why) = (fault.name(), ground.why_not(fault));
    Failure::usage(format!("the fault {name} {why}; possible are {}, clock", names.join(", ")))
}

fn introduction(
    options: &DrillOptions,
    choice: &StoreChoice,
    faults: &[Fault],
    election: &Name,
) -> String {
    let names: Vec<&str> = faults.iter().map(|fault| fault.name()).collect();
    format!(
        "{} candidates on {} in the election {election}, ttl {}, faults {}, seed {}",
        options.candidates,
        choice.address(),
        tenure_core::show_duration(options.timing.ttl),
        names.join(", "),
        options.seed
    )
}

/// Tells what was seen, whatever ended it, and only then writes it down.
fn conclude(
    record: &Record,
    halted: Option<Halt>,
    options: &DrillOptions,
    out: &Output,
) -> Result<Exit, Failure> {
    let (found, asked, broken) = match halted {
        None => (None, None, None),
        Some(Halt::Found(sentence)) => (Some(sentence), None, None),
        Some(Halt::Asked(signal)) => (None, Some(signal), None),
        Some(Halt::Broken(failure)) => (None, None, Some(failure)),
    };
    let judgement = judge::judge(record, found);
    if out.json {
        out.object(record.ended, "drill", &record.election, show::fields(record, &judgement));
    } else {
        show::table(&judgement).iter().for_each(|line| out.data(line));
        show::complaints(&judgement).iter().for_each(|line| out.data(line));
        out.data(&show::verdict(record, &judgement));
    }
    let written = options.report.as_ref().map(|dir| {
        report::write(dir, record, &judgement)?;
        out.say(&format!("the report is in {}", dir.join("report.html").display()));
        Ok::<(), Failure>(())
    });
    if let Some(failure) = broken {
        return Err(failure);
    }
    written.transpose()?;
    Ok(match asked {
        _ if !judgement.is_sound() => Exit::NEGATIVE,
        Some(signal) => {
            out.warn("the drill was ended before its time; this is what it had seen");
            Exit::by_signal(signal)
        }
        None => Exit::DONE,
    })
}

/// What the fuzz targets may reach.
#[cfg(test)]
pub(crate) mod fuzz {
    use super::fleet::Told;

    pub(crate) fn read_line(line: &str) {
        if let Some(told) = Told::read(0, 0, line) {
            assert_eq!(told.line, line);
        }
    }
}
