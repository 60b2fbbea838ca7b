//! Several processes in one election, and what they tell.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use rustix::event::{Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tempfile::TempDir;
use tenure::{BootClock, Time};

use crate::candidate::CANDIDATE;
use crate::ground::{Engine, Ground};
use crate::interrupt;

pub(crate) const TTL: Duration = Duration::from_secs(3);
/// How long anything may take before the bench gives up.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A directory on the file system that the build is on, gone with its handle.
pub(crate) fn scratch() -> Result<TempDir> {
    Ok(TempDir::with_prefix_in("bench-", beside_us()?)?)
}

/// The release `tenure` command, built now.
pub(crate) fn tenure() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--locked", "--package", "tenure-cli"])
        .current_dir(root)
        .status()
        .context("can't start cargo")?;
    ensure!(built.success(), "the tenure command does not build");
    let path = beside_us()?.join("tenure");
    ensure!(path.exists(), "cargo did not put the tenure command beside this program");
    Ok(path)
}

fn beside_us() -> Result<PathBuf> {
    let here = env::current_exe()?;
    Ok(here.parent().context("this program is in no directory")?.to_owned())
}

/// What a candidate said of itself. Other fields do not matter here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) boot_ns: u64,
    pub(crate) event: String,
    pub(crate) term: Option<u64>,
}

impl Event {
    pub(crate) fn at(&self) -> Time {
        Time::from_nanos(self.boot_ns)
    }
}

/// An event and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) member: usize,
    pub(crate) event: Event,
}

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This program, whose work holds a `Tenure`: it says that it is done by ending.
    Work,
    /// `tenure run` with a command that does nothing.
    Run,
    /// `tenure campaign`: nothing tells it when the work that others do has ended.
    Campaign,
}

/// The candidates. All are killed when this is dropped.
pub(crate) struct Fleet {
    kind: Kind,
    tenure: PathBuf,
    /// Before the ground, because they are dropped in this order.
    members: Vec<Member>,
    pub(crate) ground: Ground,
    started: usize,
    sender: Sender<Told>,
    receiver: Receiver<Told>,
    /// Everything that was told, in the order of its arrival.
    pub(crate) told: Vec<Told>,
}

struct Member {
    number: usize,
    process: Ended,
}

/// A child that ends with its handle.
pub(crate) struct Ended(pub(crate) Child);

impl Ended {
    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let end = BootClock::time() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            interrupt::check()?;
            ensure!(BootClock::time() < end, "a process did not end within {LIMIT:?}");
            pause(Duration::from_millis(1));
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Our own child, not waited for yet: the pid is still its own.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Fleet {
    pub(crate) fn new(kind: Kind, count: usize, ground: Ground) -> Result<Fleet> {
        let (sender, receiver) = channel();
        let (members, told) = (Vec::new(), Vec::new());
        let tenure = tenure()?;
        let mut fleet = Fleet { kind, tenure, ground, members, started: 0, sender, receiver, told };
        for _ in 0..count {
            fleet.add()?;
        }
        Ok(fleet)
    }

    /// Starts one more candidate and waits until it takes part and knows who leads.
    pub(crate) fn add(&mut self) -> Result<usize> {
        let number = self.started;
        self.started += 1;
        let mut child = self
            .command(&format!("c{number}"))?
            .env("TENURE_STORE", &self.ground.url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start the tenure command")?;
        let output = child.stdout.take().context("it has no output")?;
        self.members.push(Member { number, process: Ended(child) });
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else { continue };
                if sender.send(Told { member: number, event }).is_err() {
                    break;
                }
            }
        });
        self.wait("a new candidate", |told| {
            told.member == number && ["elected", "leader_changed"].contains(&&*told.event.event)
        })?;
        Ok(number)
    }

    fn command(&self, label: &str) -> Result<Command> {
        let name = &self.ground.election;
        if self.kind == Kind::Work {
            let mut command = Command::new(env::current_exe()?);
            command.args([CANDIDATE, name, label]);
            return Ok(command);
        }
        let mut command = Command::new(&self.tenure);
        let verb = if self.kind == Kind::Run { "run" } else { "campaign" };
        command.args([verb, name, "--json", "--ttl", "3s", "--renew-every", "1s", "--id", label]);
        if self.kind == Kind::Run {
            command.args(["--", "sleep", "1000000"]);
        } else {
            // Nobody works for it, so there is nobody to wait for.
            command.arg("--at-once");
        }
        Ok(command)
    }

    /// Waits for something that is told from now on, at most for the limit.
    pub(crate) fn wait(&mut self, what: &str, wanted: impl Fn(&Told) -> bool) -> Result<Told> {
        let end = BootClock::time() + LIMIT;
        while BootClock::time() < end {
            if let Some(told) = self.next(Duration::from_millis(100))?
                && wanted(&told)
            {
                return Ok(told);
            }
        }
        bail!("{what} did not come within {LIMIT:?}");
    }

    /// Takes in what is told for so long.
    pub(crate) fn listen(&mut self, time: Duration) -> Result<()> {
        let end = BootClock::time() + time;
        while BootClock::time() < end {
            self.next(end - BootClock::time())?;
        }
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Told>> {
        interrupt::check()?;
        match self.receiver.recv_timeout(limit.min(Duration::from_millis(100))) {
            Ok(told) => {
                self.told.push(told.clone());
                Ok(Some(told))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody is left to tell anything"),
        }
    }

    /// Who was elected last, and how it said so.
    pub(crate) fn leader(&self) -> Result<Told> {
        let elected = self.told.iter().rev().find(|told| told.event.event == "elected");
        elected.cloned().context("nobody was elected")
    }

    /// Waits for the next one to be elected under a higher term than this one's.
    pub(crate) fn successor(&mut self, of: &Told) -> Result<Told> {
        let term = of.event.term;
        self.wait("a successor", |told| told.event.event == "elected" && told.event.term > term)
    }

    /// Sends a signal, and tells the instant just before.
    pub(crate) fn signal(&self, number: usize, signal: Signal) -> Result<Time> {
        let member = self.members.iter().find(|member| member.number == number);
        let pid = Pid::from_child(&member.context("there is no such candidate")?.process.0);
        let at = BootClock::time();
        kill_process(pid, signal).context("can't send a signal")?;
        Ok(at)
    }

    /// Stops a candidate between two writes, and tells when. On SQLite a process that is stopped in
    /// the middle of one holds up everybody, which is a documented limit and not what is measured
    /// here.
    pub(crate) fn freeze(&self, number: usize) -> Result<Time> {
        for _ in 0..100 {
            let at = self.signal(number, Signal::STOP)?;
            if self.can_be_written()? {
                return Ok(at);
            }
            self.signal(number, Signal::CONT)?;
            pause(Duration::from_millis(20));
        }
        bail!("it was always in the middle of a write");
    }

    fn can_be_written(&self) -> Result<bool> {
        if self.ground.engine != Engine::Sqlite {
            return Ok(true);
        }
        let file = Connection::open(self.ground.directory().join("tenure.db"))?;
        file.busy_timeout(Duration::from_millis(200))?;
        Ok(file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok())
    }

    /// Waits for the end of a candidate that was sent a signal, and starts another one.
    pub(crate) fn replace(&mut self, number: usize) -> Result<()> {
        self.dismiss(number)?;
        self.add()?;
        Ok(())
    }

    /// Waits for the end of a candidate that was sent a signal.
    pub(crate) fn dismiss(&mut self, number: usize) -> Result<()> {
        let index = self.members.iter().position(|member| member.number == number);
        let mut member = self.members.remove(index.context("there is no such candidate")?);
        member.process.wait()?;
        Ok(())
    }
}

pub(crate) fn pause(time: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) as _ };
    let _ended = poll(&mut [], Some(&timeout));
}
