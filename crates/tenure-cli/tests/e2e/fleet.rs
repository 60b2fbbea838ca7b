//! Several `tenure` processes in one election, and what they tell.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure_core::{Name, StoreExt as _, Time};
use tenure_sqlite::SqliteStore;

use crate::common::{LIMIT, eventually, now, processes, tenure};

pub(crate) const TTL: Duration = Duration::from_secs(3);
/// What tenure takes for a ttl of 3 s.
pub(crate) const MARGIN: Duration = Duration::from_millis(150);
pub(crate) const NAME: &str = "e2e";

/// One line of JSON, and who said it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) member: usize,
    pub(crate) at: Time,
    /// The wall clock of the teller.
    pub(crate) wall: jiff::Timestamp,
    pub(crate) event: String,
    pub(crate) candidate: String,
    pub(crate) term: u64,
    pub(crate) reason: String,
}

impl Told {
    /// The fields that every event has must be there: that is the contract.
    fn new(member: usize, line: &str) -> Told {
        let json: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(json["election"], NAME, "{line}");
        Told {
            member,
            at: Time::from_nanos(json["boot_ns"].as_u64().unwrap()),
            wall: text("at").parse().unwrap(),
            event: text("event"),
            candidate: text("candidate"),
            term: json["term"].as_u64().unwrap_or(0),
            reason: text("reason"),
        }
    }

    pub(crate) fn is(&self, event: &str) -> bool {
        self.event == event
    }
}

/// What each candidate is.
#[derive(Clone)]
pub(crate) enum Role {
    /// It takes part and does nothing.
    Campaign,
    /// It runs this command, with these variables, while it leads.
    Run { command: Vec<String>, envs: Vec<(String, String)> },
}

/// The candidates, in a directory of their own. All of them are killed with it.
pub(crate) struct Fleet {
    /// Before the directory, because they are dropped in this order.
    members: Vec<Member>,
    directory: tempfile::TempDir,
    role: Role,
    envs: Vec<(String, String)>,
    started: usize,
    sender: Sender<Told>,
    receiver: Receiver<Told>,
    /// Everything that was told so far, in the order of arrival.
    pub(crate) told: Vec<Told>,
}

struct Member {
    number: usize,
    child: Child,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Our own child, not waited for yet: the pid is still its own.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Fleet {
    /// No candidate yet. `envs` are for tenure itself.
    pub(crate) fn new(
        directory: tempfile::TempDir,
        role: Role,
        envs: Vec<(String, String)>,
    ) -> Fleet {
        let (sender, receiver) = channel();
        let (members, told) = (Vec::new(), Vec::new());
        Fleet { directory, role, envs, members, started: 0, sender, receiver, told }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("tenure.db")
    }

    /// Starts one more candidate, and waits until it leads or knows who does.
    pub(crate) fn add(&mut self) -> usize {
        let number = self.started;
        self.started += 1;
        let mut command = Command::new(tenure());
        command.arg(match self.role {
            Role::Campaign => "campaign",
            Role::Run { .. } => "run",
        });
        command
            .args([NAME, "--json", "--quiet", "--ttl", "3s", "--renew-every", "1s", "--store"])
            .arg(format!("sqlite:{}", self.store().display()))
            .arg("--id")
            .arg(format!("c{number}"))
            .envs(self.envs.iter().cloned());
        if let Role::Run { command: work, envs } = &self.role {
            command.arg("--").args(work).envs(envs.iter().cloned());
        }
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        self.members.push(Member { number, child });
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok).filter(|line| line.starts_with('{')) {
                if sender.send(Told::new(number, &line)).is_err() {
                    break;
                }
            }
        });
        self.wait("a new candidate", |told| {
            told.member == number && (told.is("elected") || told.is("leader_changed"))
        });
        number
    }

    /// Waits for something that is told from now on.
    pub(crate) fn wait(&mut self, what: &str, wanted: impl Fn(&Told) -> bool) -> Told {
        let end = now() + LIMIT;
        while now() < end {
            if let Some(told) = self.next(end - now())
                && wanted(&told)
            {
                return told;
            }
        }
        panic!("never came: {what}; told was {:#?}", self.told);
    }

    /// Takes in what is told for so long.
    pub(crate) fn listen(&mut self, time: Duration) {
        let end = now() + time;
        while now() < end {
            self.next(end - now());
        }
    }

    fn next(&mut self, limit: Duration) -> Option<Told> {
        match self.receiver.recv_timeout(limit) {
            Ok(told) => {
                self.told.push(told.clone());
                Some(told)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender ourselves"),
        }
    }

    /// Who was elected last.
    pub(crate) fn leader(&self) -> Told {
        self.told.iter().rev().find(|told| told.is("elected")).unwrap().clone()
    }

    pub(crate) fn successor(&mut self, of: &Told) -> Told {
        let term = of.term;
        self.wait("a successor", |told| told.is("elected") && told.term > term)
    }

    pub(crate) fn pid(&self, number: usize) -> u32 {
        self.child(number).id()
    }

    fn child(&self, number: usize) -> &Child {
        &self.members.iter().find(|member| member.number == number).unwrap().child
    }

    /// Sends a signal, and tells the instant just before.
    pub(crate) fn signal(&self, number: usize, signal: Signal) -> Time {
        let at = now();
        kill_process(Pid::from_child(self.child(number)), signal).unwrap();
        at
    }

    /// Stops a candidate between two writes to the store, and tells when. One that is stopped in
    /// the middle of a write holds up everybody until it goes on: a documented limit.
    pub(crate) fn freeze(&self, number: usize) -> Time {
        let pid = self.pid(number);
        eventually("a stop between two writes", || {
            let at = self.signal(number, Signal::STOP);
            eventually("the stop", || {
                let stats = processes();
                stats.into_iter().find(|stat| stat.pid == pid && stat.state == "T")
            });
            if can_be_written(&self.store()) {
                return Some(at);
            }
            self.signal(number, Signal::CONT);
            None
        })
    }

    /// Until when the present lease lasts, as the store tells anybody who asks; not before it.
    pub(crate) fn lease_until(&self) -> Time {
        let store = SqliteStore::open(self.store()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sight = runtime.block_on(store.read(&Name::new(NAME).unwrap())).unwrap();
        now() + sight.lease.expect("somebody holds it").remaining
    }

    /// Waits until a candidate that was told to end has ended.
    pub(crate) fn reap(&mut self, number: usize) {
        let index = self.members.iter().position(|member| member.number == number).unwrap();
        let mut member = self.members.remove(index);
        eventually("the end of a candidate", || member.child.try_wait().unwrap());
    }
}

fn can_be_written(store: &Path) -> bool {
    let file = rusqlite::Connection::open(store).unwrap();
    file.busy_timeout(Duration::from_millis(200)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
}
