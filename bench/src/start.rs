//! How long `tenure` takes from its start until its command runs or it is elected, and what it
//! holds in memory.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure::{BootClock, Time};

use crate::fleet::{self, Ended, Fleet, Kind, LIMIT};
use crate::ground::{Engine, Ground};
use crate::interrupt;
use crate::many::resident_mb;
use crate::numbers::Sample;
use crate::raw::Yardstick;
use crate::report::{Section, say};

const ROUNDS: usize = 50;

/// The command that the bench has run: this program, which says when it began.
const NOW: &str = "__now";
/// The same, and then it waits for the end of its input.
const STAY: &str = "__stay";

/// Plays the command, if that is what this process is for.
pub(crate) fn says_now() -> Result<bool> {
    let now = BootClock::time();
    let Some(part) = env::args().nth(1).filter(|part| part == NOW || part == STAY) else {
        return Ok(false);
    };
    say(&now.as_nanos().to_string());
    if part == STAY {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    }
    Ok(true)
}

pub(crate) fn starts_a_command() -> Result<Section> {
    let tenure = fleet::tenure()?;
    let ground = Ground::new(Engine::Sqlite)?;
    let mut raw = Yardstick::new(&ground)?;
    let mut took = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        interrupt::check()?;
        raw.measure()?;
        took.push(until_a_command_runs(&tenure, &ground.url)?);
    }
    let mut running = Running::start(&tenure, &ground.url, STAY)?;
    running.told_time()?;
    let resident = resident_mb(&running.process.0.id().to_string())?;
    let helpers = guardians(running.process.0.id())?;
    drop(running.process.0.stdin.take());
    ensure!(running.process.wait()?.success(), "tenure run failed");

    let took = Sample::of_durations(&took)?;
    let raw = raw.sample()?;
    let mut section = Section::new();
    section.number("started to command running, p50", took.median(), "ms");
    section.at_most("started to command running, p99", took.percentile(99), 50.0, "ms");
    section.at_most("resident, tenure", resident, 12.0, "MB");
    for guardian in helpers {
        section.number("resident, its guardian", guardian, "MB");
    }
    section.number("a raw durable write, p50", raw.median(), "ms");
    section.number("p50 as raw writes", took.median() / raw.median(), "");
    Ok(section)
}

/// From the start of a process to its election, under a name that nobody had before.
pub(crate) fn first_leader(engine: Engine, bar: f64) -> Result<Section> {
    let ground = Ground::new(engine)?;
    let mut raw = Yardstick::new(&ground)?;
    let name = ground.election.clone();
    let mut fleet = Fleet::new(Kind::Campaign, 0, ground)?;
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        raw.measure()?;
        fleet.turn_to(format!("{name}-{round}"));
        let began = BootClock::time();
        let number = fleet.add()?;
        let leader = fleet.leader()?;
        ensure!(leader.process == number, "somebody else leads a new election");
        took.push(leader.at - began);
        fleet.dismiss(number)?;
        fleet.ended(number)?;
    }
    let took = Sample::of_durations(&took)?;
    let raw = raw.sample()?;
    let mut section = Section::new();
    section.number("process started to elected, p50", took.median(), "ms");
    section.at_most("process started to elected, p99", took.percentile(99), bar, "ms");
    section.number("a raw write, p50", raw.median(), "ms");
    Ok(section)
}

/// From the start of a process until its command runs, on this store.
pub(crate) fn until_a_command_runs(tenure: &Path, store: &str) -> Result<Duration> {
    let began = BootClock::time();
    let mut running = Running::start(tenure, store, NOW)?;
    let took = running.told_time()? - began;
    ensure!(running.process.wait()?.success(), "tenure run failed");
    Ok(took)
}

/// A `tenure run`, and what its command says.
struct Running {
    process: Ended,
    lines: Receiver<String>,
}

impl Running {
    fn start(tenure: &Path, store: &str, part: &str) -> Result<Running> {
        let mut child = Command::new(tenure)
            .args(["run", "bench", "--once", "--quiet", "--store", store, "--"])
            .arg(env::current_exe()?)
            .arg(part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start the tenure command")?;
        let output = child.stdout.take().context("it has no output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _gone = sender.send(line);
            }
        });
        Ok(Running { process: Ended(child), lines })
    }

    /// The instant that the command told.
    fn told_time(&self) -> Result<Time> {
        let line = self.lines.recv_timeout(LIMIT).context("the command said nothing")?;
        let nanos = line.trim().parse().with_context(|| format!("the command said {line:?}"))?;
        Ok(Time::from_nanos(nanos))
    }
}

/// The memory of the guardians among a process's children.
fn guardians(parent: u32) -> Result<Vec<f64>> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    let mut found = Vec::new();
    for child in children.split_whitespace() {
        if std::fs::read_to_string(format!("/proc/{child}/comm"))?.trim() == "guardian" {
            found.push(resident_mb(child)?);
        }
    }
    Ok(found)
}
