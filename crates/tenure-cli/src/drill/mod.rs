//! `tenure drill`: real processes of this binary, real faults, and a checker outside of them.
//!
//! The drill starts candidates in an election of its own on the user's store, does things to
//! whoever leads, and writes down what happens on the one clock that all of them share. It never
//! touches an election that it did not name itself, and removes its own when it is over.

#![cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "no store to have drills on"))]

pub(crate) mod candidate;
mod fleet;
mod ground;
mod judge;
mod options;
mod place;
pub(crate) mod plan;
mod progress;
mod record;
mod report;
mod rounds;
#[cfg(feature = "sabotage")]
mod sabotage;
mod show;
#[cfg(feature = "sqlite")]
mod sqlite;
mod wall_clock;

use std::time::Duration;

use tenure::{BootClock, Name};

use self::candidate::Brief;
use self::fleet::{Fleet, Halt};
use self::ground::Ground;
pub(crate) use self::options::DrillOptions;
use self::place::Place;
use self::plan::{Fault, Plan};
use self::progress::Progress;
use self::record::Record;
use self::rounds::Scene;
use self::wall_clock::WallClock;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::redact::redact;
use crate::signals::Signals;
use crate::store::{Opened, StoreChoice};

/// Runs a drill and tells what came out.
pub(crate) async fn run(
    options: &DrillOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let signals = Signals::listen()?;
    let opened = choice.open()?;
    options.timing.check_store_minimum(opened.store.info().min_ttl)?;
    let place = Place::new()?;
    let ground = ground::ground(&opened, place.path())?;
    let faults = faults(options, &*ground)?;
    let steps = faults.contains(&Fault::Clock);
    let clock = steps.then(|| WallClock::new(place.path())).transpose()?;
    let name = format!("tenure-drill-{:08x}", fastrand::Rng::new().u32(..));
    let election = Name::new(&name)?;
    out.say(&introduction(options, choice, &faults, &election));

    let brief = Brief {
        election: election.clone(),
        ttl: options.timing.ttl,
        place: place.path().display().to_string(),
    };
    let envs = clock.as_ref().map(WallClock::envs).unwrap_or_default();
    let mut scene = Scene {
        election: &election,
        timing: options.timing,
        candidates: options.candidates,
        store: opened.store.clone(),
        ground: &*ground,
        fleet: Fleet::new(brief, choice.url.clone(), envs, signals),
        clock,
        rounds: Vec::new(),
        progress: Progress::new(out),
    };
    let began = BootClock::time();
    let plan = Plan::new(options.seed, &faults, options.timing.renew_every);
    let halted = scene.run(plan, options.extent).await.err();
    scene.fleet.finish(options.timing.drain + Duration::from_secs(5)).await;
    let ended = BootClock::time();
    let Scene { fleet, rounds, .. } = scene;
    let rows = ground.rows();
    clean_up(&*ground, &opened, &election, options, out).await;
    let (told, killed) = (fleet.told.clone(), fleet.killed.clone());
    let record = Record {
        election,
        store: redact(&choice.url).into_owned(),
        seed: options.seed,
        candidates: options.candidates,
        timing: options.timing,
        began,
        ended,
        told,
        killed,
        rounds,
        rows: rows?,
    };
    conclude(&record, halted, options, out)
}

/// What is to be done to the leaders: what was asked for, or all that the store can have.
fn faults(options: &DrillOptions, ground: &dyn Ground) -> Result<Vec<Fault>, Failure> {
    let possible = ground.faults();
    let Some(wanted) = &options.faults else { return Ok(possible.to_vec()) };
    // The wall clock is the candidates', not the store's.
    let can = |fault: &Fault| possible.contains(fault) || *fault == Fault::Clock;
    match wanted.iter().find(|fault| !can(fault)) {
        None => Ok(wanted.clone()),
        Some(fault) => {
            let names: Vec<&str> = possible.iter().map(|fault| fault.name()).collect();
            Err(Failure::usage(format!(
                "the fault {} {}; possible are {}, clock",
                fault.name(),
                ground.why_not(*fault),
                names.join(", ")
            )))
        }
    }
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
        choice.url,
        tenure_core::show_duration(options.timing.ttl),
        names.join(", "),
        options.seed
    )
}

async fn clean_up(
    ground: &dyn Ground,
    opened: &Opened,
    election: &Name,
    options: &DrillOptions,
    out: &Output,
) {
    let cleaned = ground::clean_up(ground, opened, election, options.timing.ttl).await;
    if let Err(error) = cleaned {
        out.warn(&format!("the election {election} was left in the store: {error}"));
    }
}

fn conclude(
    record: &Record,
    halted: Option<Halt>,
    options: &DrillOptions,
    out: &Output,
) -> Result<Exit, Failure> {
    let (found, asked) = match halted {
        None => (None, None),
        Some(Halt::Found(sentence)) => (Some(sentence), None),
        Some(Halt::Asked(signal)) => (None, Some(signal)),
        Some(Halt::Broken(failure)) => return Err(failure),
    };
    let judgement = judge::judge(record, found);
    if let Some(dir) = &options.report {
        report::write(dir, record, &judgement)?;
        out.say(&format!("the report is in {}", dir.join("report.html").display()));
    }
    if out.json {
        let fields = show::fields(record, &judgement, asked.is_some());
        out.object(record.ended, "drill", &record.election, fields);
    } else {
        show::table(&judgement).iter().for_each(|line| out.data(line));
        show::complaints(&judgement).iter().for_each(|line| out.data(line));
        out.data(&show::verdict(record, &judgement));
    }
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
