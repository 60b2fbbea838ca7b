//! Three instances of one job, whose leader is killed or frozen again and again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{eventually, processes};
use crate::support::{Place, Process};

const JOB: &str = "job";

/// Short leases, so that a failover fits between two faults.
const FLAGS: [&str; 4] = ["--ttl", "1500ms", "--json", "--quiet"];

/// Where the job writes a line for each of its runs: instant, attempt, term, candidate.
const NOTE: &str = "printf '%s %s %s %s\\n' \"$TENURE_SCHEDULED_AT\" \"$TENURE_ATTEMPT\" \
                    \"$TENURE_TERM\" \"$TENURE_CANDIDATE\" >> ";

pub(crate) struct Fleet {
    place: Place,
    url: String,
    flags: Vec<String>,
    command: Vec<String>,
    members: Vec<Process>,
    envs: Vec<(String, String)>,
}

/// What is left when all is over.
pub(crate) struct Outcome {
    /// How often each instant ran, as the job itself noted.
    pub(crate) ran: BTreeMap<String, usize>,
    /// What the ledger says of each second, from the first to the last.
    pub(crate) ledger: BTreeMap<i64, String>,
    pub(crate) faults: usize,
}

impl Fleet {
    pub(crate) fn new(url: Option<&str>, flags: &[&str]) -> Fleet {
        let place = Place::new();
        let url = url.map_or_else(|| place.url(), str::to_owned);
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let note = format!("{NOTE}{}", place.path("ran"));
        let command = ["sh", "-c", &note].map(str::to_owned).into();
        Fleet { place, url, flags, command, members: Vec::new(), envs: Vec::new() }
    }

    /// Has another command run after the note.
    pub(crate) fn then(mut self, command: &str) -> Fleet {
        self.command[2] = format!("{} && {command}", self.command[2]);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Fleet {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path(name).into()
    }

    /// Runs so many faults, with some ticks after each; then ends all in order.
    pub(crate) fn play(mut self, rounds: usize, ticks: usize) -> Outcome {
        for number in 0..3 {
            let member = self.start(number);
            self.members.push(member);
        }
        let mut faults = 0;
        for round in 0..rounds {
            self.more_ticks(ticks);
            let leader = eventually("a leader", || self.leader());
            if round % 2 == 0 {
                self.members[leader].signal(Signal::KILL);
                self.members[leader].code();
                self.members[leader] = self.start(leader);
            } else {
                self.freeze(leader);
                eventually("a successor", || self.leader().filter(|now| *now != leader));
                self.more_ticks(1);
                self.members[leader].signal(Signal::CONT);
            }
            faults += 1;
        }
        // Long enough for whoever leads to settle what the last fault left open.
        self.more_ticks(ticks.max(3));
        for member in &self.members {
            member.signal(Signal::TERM);
        }
        for member in &mut self.members {
            assert_eq!(member.code(), 0);
        }
        let (mut ran, mut ledger) = (self.ran(), self.ledger());
        // What the end of the fleet interrupted is for the next leader, and there is none.
        while let Some((at, _)) = ledger.last_key_value().filter(|(_, state)| is_open(state)) {
            let at = *at;
            ledger.remove(&at);
            ran.retain(|ran, _| second(ran) != at);
        }
        Outcome { ran, ledger, faults }
    }

    fn start(&self, number: usize) -> Process {
        let label = format!("member-{number}");
        let mut args = vec!["cron", JOB, "* * * * * *", "--id", &label];
        args.extend(FLAGS);
        args.extend(self.flags.iter().map(String::as_str));
        args.push("--");
        args.extend(self.command.iter().map(String::as_str));
        let mut command = self.place.command(&args);
        command.env("TENURE_STORE", &self.url);
        command.envs(self.envs.iter().map(|(name, value)| (name, value)));
        Process::new(&mut command)
    }

    /// Stops a process, but not in the middle of a write to a SQLite file: that would hold up all
    /// others until it goes on, which the store says of itself.
    fn freeze(&self, member: usize) {
        let member = &self.members[member];
        eventually("a moment without a write", || {
            member.signal(Signal::STOP);
            eventually("it has stopped", || {
                let all = processes();
                all.iter().any(|it| it.pid == member.pid() && it.state == "T").then_some(())
            });
            // The lock of a writer to the write-ahead log is byte 120 of the shared memory.
            let locks = fs::read_to_string("/proc/locks").unwrap();
            let writes = format!("WRITE {} ", member.pid());
            let is_writing = |line: &str| line.contains(&writes) && line.ends_with(" 120 120");
            if locks.lines().any(is_writing) {
                member.signal(Signal::CONT);
                return None;
            }
            Some(())
        });
    }

    /// Which member leads.
    fn leader(&self) -> Option<usize> {
        let mut command = self.place.command(&["status", "--json", JOB]);
        let output = command.env("TENURE_STORE", &self.url).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        let text = status.to_string();
        (0..3).find(|number| text.contains(&format!("member-{number}")))
    }

    /// Waits until the job noted so many ticks that it had not noted before.
    fn more_ticks(&self, count: usize) {
        let before = self.ran().len();
        eventually("more ticks", || (self.ran().len() >= before + count).then_some(()));
    }

    fn ran(&self) -> BTreeMap<String, usize> {
        let mut ran = BTreeMap::new();
        for line in fs::read_to_string(self.place.path("ran")).unwrap_or_default().lines() {
            let at = line.split(' ').next().unwrap_or_default();
            *ran.entry(at.to_owned()).or_default() += 1;
        }
        ran
    }

    fn ledger(&self) -> BTreeMap<i64, String> {
        let mut command = self.place.command(&["cron", "history", JOB, "--json", "-n", "100000"]);
        let output = command.env("TENURE_STORE", &self.url).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut ledger = BTreeMap::new();
        for line in text.lines() {
            let tick: Value = serde_json::from_str(line).unwrap();
            let state = tick["state"].as_str().unwrap().to_owned();
            let from = second(tick["scheduled_at"].as_str().unwrap());
            let to = tick["through"].as_str().map_or(from, second);
            for at in from..=to {
                let before = ledger.insert(at, state.clone());
                assert_eq!(before, None, "the ledger has a tick twice: {line}");
            }
        }
        ledger
    }
}

fn is_open(state: &str) -> bool {
    ["requested", "claimed", "started"].contains(&state)
}

/// Seconds of Unix time.
pub(crate) fn second(instant: &str) -> i64 {
    tenure_cron::parse_instant(instant, "UTC").unwrap() / 1000
}

impl Outcome {
    /// Every second from the first to the last is in the ledger.
    pub(crate) fn is_gapless(&self) {
        let (first, last) =
            (self.ledger.keys().next().unwrap(), self.ledger.keys().last().unwrap());
        let missing: Vec<i64> =
            (*first..=*last).filter(|at| !self.ledger.contains_key(at)).collect();
        assert!(missing.is_empty(), "{missing:?} of {first} to {last}: {:?}", self.ledger);
        for at in self.ran.keys() {
            assert!(self.ledger.contains_key(&second(at)), "{at} ran and is not in the ledger");
        }
    }

    /// No instant ran twice.
    pub(crate) fn ran_once(&self) {
        let twice: Vec<_> = self.ran.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "ran twice: {twice:?}");
    }

    /// How many ticks stand so.
    pub(crate) fn count(&self, state: &str) -> usize {
        self.ledger.values().filter(|there| *there == state).count()
    }
}
