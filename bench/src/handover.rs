//! How long nobody leads, by what befell the leader.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure::core::{Op, Reply, StoreExt as _};
use tenure::{BootClock, CandidateId, Name, Time};

use crate::fleet::{CandidateEvent, Fleet, Kind, TTL};
use crate::ground::{Engine, Ground, block_on};
use crate::numbers::Sample;
use crate::raw::Yardstick;
use crate::report::{Section, say};

const CANDIDATES: usize = 3;

/// How long a candidate that was just started is left alone: its connections are being made, and
/// the processors are few.
const CALM: Duration = Duration::from_millis(300);

/// The leader resigns. The bars are for p50 and p99 of the gap, in milliseconds.
pub(crate) fn clean(
    kind: Kind,
    engine: Engine,
    rounds: usize,
    bars: (f64, f64),
) -> Result<Section> {
    let mut fleet = Fleet::new(kind, CANDIDATES, Ground::new(engine)?)?;
    let mut raw = Yardstick::new(&fleet.ground)?;
    let (mut gaps, mut whole, mut overlaps) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        progress(round, rounds);
        raw.measure()?;
        let leader = fleet.leader()?;
        let signalled = fleet.dismiss(leader.process)?;
        let next = fleet.successor(&leader)?;
        fleet.replace(leader.process)?;
        fleet.listen(CALM)?;
        let draining = own_event(&fleet, &leader, "draining")?;
        let stepped_down = own_event(&fleet, &leader, "stepped_down")?;
        overlaps += usize::from(next.at < stepped_down.at);
        gaps.push(next.at - draining.at);
        whole.push(next.at - signalled);
    }
    let (gaps, whole) = (Sample::of_durations(&gaps)?, Sample::of_durations(&whole)?);
    let mut section = Section::new();
    section.at_most("resigning to elected, p50", gaps.median(), bars.0, "ms");
    section.at_most("resigning to elected, p99", gaps.percentile(99), bars.1, "ms");
    section.number("SIGTERM to elected, p50", whole.median(), "ms");
    section.number("SIGTERM to elected, p99", whole.percentile(99), "ms");
    section.never("elected before the other stepped down", overlaps);
    compare(&mut section, &gaps, &raw.sample()?);
    Ok(section)
}

/// The leader is killed. The bar is for p99 of the gap, in milliseconds.
pub(crate) fn kill_9(engine: Engine, rounds: usize, bar: f64) -> Result<Section> {
    let (gaps, overlaps, raw) = deaths(Kind::Run, engine, rounds, Fleet::kill)?;
    let mut section = Section::new();
    section.number("kill -9 to elected, p50", gaps.median(), "ms");
    section.at_most("kill -9 to elected, p99", gaps.percentile(99), bar, "ms");
    section.never("elected before the other was killed", overlaps);
    compare(&mut section, &gaps, &raw);
    Ok(section)
}

/// The electing process of the leader is killed, alone: its witness gives the lease back. First
/// with a ttl of 3 s, then at the defaults.
pub(crate) fn die(engine: Engine, rounds: usize) -> Result<Section> {
    let mut section = Section::new();
    for (kind, ttl) in [(Kind::Run, "ttl 3 s"), (Kind::RunAtDefaults, "defaults")] {
        let (gaps, overlaps, raw) = deaths(kind, engine, rounds, Fleet::die)?;
        section.at_most(&format!("{ttl}: death to elected, p50"), gaps.median(), 20.0, "ms");
        section.at_most(&format!("{ttl}: death to elected, p99"), gaps.percentile(99), 100.0, "ms");
        section.never(&format!("{ttl}: elected before the other was killed"), overlaps);
        compare(&mut section, &gaps, &raw);
    }
    let (new, kept) = releases(engine, rounds)?;
    section.number("a release over a new connection, p50", new.median(), "ms");
    section.number("a release over one that is there, p50", kept.median(), "ms");
    Ok(section)
}

/// Kills the leader time and again: the gaps until the next one, how many of these came before the
/// death, and the raw writes of the same time.
fn deaths(
    kind: Kind,
    engine: Engine,
    rounds: usize,
    kill: fn(&mut Fleet, usize) -> Result<Time>,
) -> Result<(Sample, usize, Sample)> {
    let mut fleet = Fleet::new(kind, CANDIDATES, Ground::new(engine)?)?;
    let mut raw = Yardstick::new(&fleet.ground)?;
    let (mut gaps, mut overlaps) = (Vec::new(), 0);
    for round in 0..rounds {
        progress(round, rounds);
        raw.measure()?;
        let leader = fleet.leader()?;
        let killed = kill(&mut fleet, leader.process)?;
        let next = fleet.successor(&leader)?;
        overlaps += usize::from(next.at < killed);
        gaps.push(next.at - killed);
        fleet.replace(leader.process)?;
        fleet.listen(CALM)?;
    }
    Ok((Sample::of_durations(&gaps)?, overlaps, raw.sample()?))
}

/// What a witness would save that kept a connection: a release for nobody, over a new one and over
/// one that was used before.
fn releases(engine: Engine, rounds: usize) -> Result<(Sample, Sample)> {
    let ground = Ground::new(engine)?;
    let (mut new, mut kept) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let release = Op::Release {
            election: Name::new(ground.election.as_str())?,
            candidate: CandidateId::new("nobody", round as u128)?,
            term: None,
            seq: u64::MAX,
        };
        block_on(async {
            let mut began = BootClock::time();
            let store = ground.open()?;
            for took in [&mut new, &mut kept] {
                let reply = store.apply_one(&release).await;
                ensure!(matches!(reply, Reply::Refused(_)), "a release said {reply:?}");
                took.push(BootClock::time() - began);
                began = BootClock::time();
            }
            Ok(())
        })?;
    }
    Ok((Sample::of_durations(&new)?, Sample::of_durations(&kept)?))
}

/// The leader is stopped, and goes on later.
pub(crate) fn frozen(engine: Engine, rounds: usize) -> Result<Section> {
    let mut fleet = Fleet::new(Kind::Work, CANDIDATES, Ground::new(engine)?)?;
    let mut raw = Yardstick::new(&fleet.ground)?;
    let (mut gaps, mut revived) = (Vec::new(), 0);
    for round in 0..rounds {
        progress(round, rounds);
        raw.measure()?;
        // Each leader is frozen at another point between two renewals.
        fleet.listen(Duration::from_millis(17 * (round as u64 % 60)))?;
        let leader = fleet.leader()?;
        let frozen = fleet.freeze(leader.process)?;
        let next = fleet.successor(&leader)?;
        gaps.push(next.at - frozen);
        let before = fleet.told().len();
        fleet.go_on(leader.process)?;
        let process = leader.process;
        fleet.wait("the end of the old reign", |told| {
            told.process == process && told.is("stepped_down")
        })?;
        // Long enough to see it follow; what comes later is checked at the end.
        fleet.listen(Duration::from_millis(100))?;
        let again =
            |told: &&CandidateEvent| told.process == process && leads_under(told, leader.term);
        revived += fleet.told()[before..].iter().filter(again).count();
    }
    let gaps = Sample::of_durations(&gaps)?;
    let bar = TTL.as_secs_f64() * 1e3 + engine.late_ms();
    let mut section = Section::new();
    section.number("freeze to elected, p50", gaps.median(), "ms");
    section.at_most("freeze to elected, max", gaps.max(), bar, "ms");
    section.never("led again under the old term", revived);
    section.never("terms that did not rise", fallen_terms(&fleet, rounds)?);
    compare(&mut section, &gaps, &raw.sample()?);
    if engine == Engine::Sqlite {
        section.note(
            "Each leader is stopped between two writes. One that is stopped in the middle of a \
             write, a millisecond of each\nsecond, holds SQLite's own lock: nobody follows until \
             it goes on or ends. That is a limit of this store, told by\n`tenure doctor`.",
        );
    }
    Ok(section)
}

fn leads_under(told: &CandidateEvent, term: u64) -> bool {
    told.is("elected") && told.term <= term
}

/// Elections whose term is not above the one before, in the order of time.
fn fallen_terms(fleet: &Fleet, rounds: usize) -> Result<usize> {
    let elected = fleet.told().iter().filter(|told| told.is("elected"));
    let mut elected: Vec<(Time, u64)> = elected.map(|told| (told.at, told.term)).collect();
    elected.sort_unstable();
    ensure!(elected.len() > rounds, "rounds are missing");
    Ok(elected.windows(2).filter(|pair| pair[1].1 <= pair[0].1).count())
}

/// What a leader said of the end of its reign.
fn own_event(fleet: &Fleet, leader: &CandidateEvent, name: &str) -> Result<CandidateEvent> {
    let own = |told: &&CandidateEvent| {
        told.process == leader.process && told.is(name) && told.term == leader.term
    };
    let told = fleet.told().iter().find(own).cloned();
    told.with_context(|| format!("the old leader did not say {name}"))
}

fn compare(section: &mut Section, gaps: &Sample, raw: &Sample) {
    section.number("a raw write, p50", raw.median(), "ms");
    section.number("a raw write, p99", raw.percentile(99), "ms");
    section.number("p50 as raw writes", gaps.median() / raw.median(), "");
    section.number("p99 as raw writes", gaps.percentile(99) / raw.percentile(99), "");
}

fn progress(round: usize, rounds: usize) {
    if round > 0 && round.is_multiple_of(10) {
        say(&format!("  {round} of {rounds} rounds"));
    }
}
