//! Several `tenure` processes in one election: the fleet of a drill, waited for without a runtime.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure::BootClock;
use tenure_core::{Name, StoreExt as _, Time};
pub(crate) use tenure_drill::fleet::CandidateEvent;
use tenure_drill::fleet::Halt;
use tenure_sqlite::SqliteStore;
use tokio::runtime::Runtime;

use crate::common::{LIMIT, eventually, now, tenure};

pub(crate) const TTL: Duration = Duration::from_secs(3);
/// What tenure takes for a ttl of 3 s.
pub(crate) const MARGIN: Duration = Duration::from_millis(150);
pub(crate) const NAME: &str = "e2e";

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
    fleet: tenure_drill::fleet::Fleet<'static>,
    directory: tempfile::TempDir,
    runtime: Runtime,
    started: usize,
}

impl Fleet {
    /// No candidate yet. `envs` are for tenure itself.
    pub(crate) fn new(
        directory: tempfile::TempDir,
        role: Role,
        envs: Vec<(String, String)>,
    ) -> Fleet {
        let store = format!("sqlite:{}", store(directory.path()).display());
        let launch = move |number: usize| {
            let mut command = Command::new(tenure());
            command.arg(match role {
                Role::Campaign => "campaign",
                Role::Run { .. } => "run",
            });
            command
                .args([NAME, "--json", "--quiet", "--ttl", "3s", "--renew-every", "1s"])
                .args(["--store", &store, "--id", &format!("c{number}")])
                .envs(envs.iter().cloned());
            if let Role::Run { command: work, envs } = &role {
                command.arg("--").args(work).envs(envs.iter().cloned());
            }
            Ok(command)
        };
        let fleet = tenure_drill::fleet::Fleet::new(Arc::new(BootClock), launch);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Fleet { fleet, directory, runtime, started: 0 }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Everything that was told so far, in the order of arrival. The fields that every event has
    /// must be there: that is the contract.
    pub(crate) fn told(&self) -> &[CandidateEvent] {
        let objects = self.fleet.unread.iter().filter(|line| line.starts_with('{'));
        assert_eq!(objects.collect::<Vec<_>>(), [""; 0]);
        for told in &self.fleet.events {
            let json: Value = serde_json::from_str(&told.line).unwrap();
            assert_eq!(json["election"], NAME, "{}", told.line);
            wall(told);
        }
        &self.fleet.events
    }

    /// Starts one more candidate, and waits until it leads or knows who does.
    pub(crate) fn add(&mut self) -> usize {
        let process = self.fleet.start(self.started).unwrap();
        self.started += 1;
        self.wait("a new candidate", |told| {
            told.process == process && (told.is("elected") || told.is("leader_changed"))
        });
        process
    }

    /// Waits for something that is told from now on.
    pub(crate) fn wait(
        &mut self,
        what: &str,
        wanted: impl Fn(&CandidateEvent) -> bool,
    ) -> CandidateEvent {
        let told = self.runtime.block_on(self.fleet.wait_for(what, LIMIT, wanted));
        self.expect(told)
    }

    /// Takes in what is told for so long.
    pub(crate) fn listen(&mut self, time: Duration) {
        let listened = self.runtime.block_on(self.fleet.listen(time));
        self.expect(listened);
    }

    #[track_caller]
    fn expect<T>(&self, result: Result<T, Halt>) -> T {
        result.unwrap_or_else(|halt| panic!("{halt}; told was {:#?}", self.fleet.events))
    }

    /// The last election.
    pub(crate) fn leader(&self) -> CandidateEvent {
        self.fleet.leader().unwrap().clone()
    }

    pub(crate) fn successor(&mut self, of: &CandidateEvent) -> CandidateEvent {
        let next = self.runtime.block_on(self.fleet.successor(of, LIMIT));
        self.expect(next)
    }

    pub(crate) fn pid(&self, process: usize) -> u32 {
        self.fleet.pid(process).unwrap()
    }

    /// Asks a candidate to end, and tells the instant just before.
    pub(crate) fn dismiss(&mut self, process: usize) -> Time {
        self.fleet.dismiss(process).unwrap()
    }

    /// Kills a candidate, and tells the instant just before.
    pub(crate) fn kill(&mut self, process: usize) -> Time {
        self.fleet.kill(process).unwrap()
    }

    /// Has a candidate that was stopped go on.
    pub(crate) fn go_on(&self, process: usize) {
        self.fleet.go_on(process).unwrap();
    }

    /// Stops a candidate between two writes to the store, and tells when. One that is stopped in
    /// the middle of a write holds up everybody until it goes on: a documented limit.
    pub(crate) fn freeze(&mut self, process: usize) -> Time {
        eventually("a stop between two writes", || {
            let stopped = self.runtime.block_on(self.fleet.stop(process));
            let at = self.expect(stopped);
            if can_be_written(&store(self.directory.path())) {
                return Some(at);
            }
            self.go_on(process);
            None
        })
    }

    /// Until when the present lease lasts, as the store tells anybody who asks; not before it.
    pub(crate) fn lease_until(&self) -> Time {
        let store = SqliteStore::open(store(self.directory.path())).unwrap();
        let sight = self.runtime.block_on(store.read(&Name::new(NAME).unwrap())).unwrap();
        now() + sight.lease.expect("somebody holds it").remaining
    }

    /// Waits until a candidate that was told to end has ended.
    pub(crate) fn reap(&mut self, process: usize) {
        let ended = self.runtime.block_on(self.fleet.ended(process, LIMIT));
        self.expect(ended);
    }
}

/// The wall clock of the teller.
pub(crate) fn wall(told: &CandidateEvent) -> jiff::Timestamp {
    let json: Value = serde_json::from_str(&told.line).unwrap();
    json["at"].as_str().unwrap().parse().unwrap()
}

fn store(directory: &Path) -> PathBuf {
    directory.join("tenure.db")
}

fn can_be_written(store: &Path) -> bool {
    let file = rusqlite::Connection::open(store).unwrap();
    file.busy_timeout(Duration::from_millis(200)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
}
