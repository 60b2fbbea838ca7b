//! Several processes in one election, and what they tell.

use std::cell::RefCell;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use rustix::event::{Timespec, poll};
use tempfile::TempDir;
use tenure::{BootClock, Time};
pub(crate) use tenure_drill::fleet::CandidateEvent;
use tenure_drill::fleet::Halt;
use tokio::runtime::Runtime;

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

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This program, whose work holds a `Tenure`: it says that it is done by ending.
    Work,
    /// `tenure run` with a command that does nothing.
    Run,
    /// The same with the ttl that people get who ask for none.
    RunAtDefaults,
    /// `tenure campaign`: nothing tells it when the work that others do has ended.
    Campaign,
}

/// The candidates: the fleet of a drill, waited for without a runtime. All are killed when this is
/// dropped.
pub(crate) struct Fleet {
    /// Before the ground, because they are dropped in this order.
    fleet: tenure_drill::fleet::Fleet<'static>,
    pub(crate) ground: Ground,
    /// The election of the candidates that are started from now on.
    election: Rc<RefCell<String>>,
    runtime: Runtime,
    started: usize,
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
        let program = if kind == Kind::Work { env::current_exe()? } else { tenure()? };
        let election = Rc::new(RefCell::new(ground.election.clone()));
        let (name, url) = (election.clone(), ground.url.clone());
        let launch = move |number: usize| {
            let mut command = command(kind, &program, &name.borrow(), &format!("c{number}"));
            command.env("TENURE_STORE", &url);
            Ok(command)
        };
        let fleet = tenure_drill::fleet::Fleet::new(Arc::new(BootClock), launch);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut fleet = Fleet { fleet, ground, election, runtime, started: 0 };
        for _ in 0..count {
            fleet.add()?;
        }
        Ok(fleet)
    }

    /// Candidates that are started from now on take part in another election.
    pub(crate) fn turn_to(&mut self, election: String) {
        *self.election.borrow_mut() = election;
    }

    /// Starts one more candidate and waits until it takes part and knows who leads.
    pub(crate) fn add(&mut self) -> Result<usize> {
        let process = self.fleet.start(self.started)?;
        self.started += 1;
        self.wait("a new candidate", |told| {
            told.process == process && (told.is("elected") || told.is("leader_changed"))
        })?;
        Ok(process)
    }

    /// Everything that was told, in the order of its arrival.
    pub(crate) fn told(&self) -> &[CandidateEvent] {
        &self.fleet.events
    }

    /// Waits for something that is told from now on, at most for the limit.
    pub(crate) fn wait(
        &mut self,
        what: &str,
        wanted: impl Fn(&CandidateEvent) -> bool,
    ) -> Result<CandidateEvent> {
        let waiting = self.fleet.wait_for(what, LIMIT, wanted);
        self.runtime.block_on(unless_interrupted(waiting))
    }

    /// Takes in what is told for so long.
    pub(crate) fn listen(&mut self, time: Duration) -> Result<()> {
        self.runtime.block_on(unless_interrupted(self.fleet.listen(time)))
    }

    /// The last election, as the leader told it.
    pub(crate) fn leader(&self) -> Result<CandidateEvent> {
        self.fleet.leader().cloned().context("nobody was elected")
    }

    /// Waits for the next one to be elected under a higher term than this one's.
    pub(crate) fn successor(&mut self, of: &CandidateEvent) -> Result<CandidateEvent> {
        self.runtime.block_on(unless_interrupted(self.fleet.successor(of, LIMIT)))
    }

    /// Asks a candidate to end, and tells the instant just before.
    pub(crate) fn dismiss(&mut self, process: usize) -> Result<Time> {
        Ok(self.fleet.dismiss(process)?)
    }

    /// Kills a candidate, and tells the instant just before.
    pub(crate) fn kill(&mut self, process: usize) -> Result<Time> {
        Ok(self.fleet.kill(process)?)
    }

    /// Kills the electing process alone, and tells the instant just before.
    pub(crate) fn die(&mut self, process: usize) -> Result<Time> {
        Ok(self.fleet.die(process)?)
    }

    /// Stops a candidate between two writes, and tells when. On SQLite a process that is stopped in
    /// the middle of one holds up everybody, which is a documented limit and not what is measured
    /// here.
    pub(crate) fn freeze(&mut self, process: usize) -> Result<Time> {
        for _ in 0..100 {
            let at = self.runtime.block_on(unless_interrupted(self.fleet.stop(process)))?;
            if self.can_be_written()? {
                return Ok(at);
            }
            self.go_on(process)?;
            pause(Duration::from_millis(20));
        }
        bail!("it was always in the middle of a write");
    }

    /// Has a candidate that was stopped go on.
    pub(crate) fn go_on(&self, process: usize) -> Result<()> {
        self.fleet.go_on(process)?;
        Ok(())
    }

    fn can_be_written(&self) -> Result<bool> {
        if self.ground.engine != Engine::Sqlite {
            return Ok(true);
        }
        let file = Connection::open(self.ground.directory().join("tenure.db"))?;
        file.busy_timeout(Duration::from_millis(200))?;
        Ok(file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok())
    }

    /// Waits for the end of a candidate that was killed or asked to end, and starts another one.
    pub(crate) fn replace(&mut self, process: usize) -> Result<()> {
        self.ended(process)?;
        self.add()?;
        Ok(())
    }

    /// Waits for the end of a candidate that was killed or asked to end.
    pub(crate) fn ended(&mut self, process: usize) -> Result<()> {
        self.runtime.block_on(unless_interrupted(self.fleet.ended(process, LIMIT)))
    }
}

fn command(kind: Kind, program: &Path, election: &str, label: &str) -> Command {
    let mut command = Command::new(program);
    let verb = match kind {
        Kind::Work => {
            command.args([CANDIDATE, election, label]);
            return command;
        }
        Kind::Run | Kind::RunAtDefaults => "run",
        Kind::Campaign => "campaign",
    };
    command.args([verb, election, "--json", "--id", label]);
    if kind != Kind::RunAtDefaults {
        command.args(["--ttl", "3s", "--renew-every", "1s"]);
    }
    match kind {
        Kind::Run | Kind::RunAtDefaults => command.args(["--", "sleep", "1000000"]),
        // Nobody works for it, so there is nobody to wait for.
        _ => command.arg("--at-once"),
    };
    command
}

/// What a fleet waits for, unless somebody wants the bench to end.
async fn unless_interrupted<T>(waiting: impl Future<Output = Result<T, Halt>>) -> Result<T> {
    tokio::select! {
        biased;
        error = interrupt::heard() => Err(error),
        done = waiting => Ok(done?),
    }
}

pub(crate) fn pause(time: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) as _ };
    let _ended = poll(&mut [], Some(&timeout));
}
