//! What the tests of this crate share: ops in few words, and other processes.

use std::env;
use std::future::poll_fn;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_core::{Hint, Hints, Reply};
use tenure_sqlite::{Host, SqliteConfig, SqliteStore};
pub(crate) use tenure_testbed::ops::{name, term};
pub(crate) use tenure_testbed::{PATIENCE, granted, real_wait, refused, unknown};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One candidate at one store.
pub(crate) type Player = tenure_testbed::Player<SqliteStore>;

#[track_caller]
pub(crate) fn all_granted(replies: Vec<Reply>) {
    for reply in replies {
        granted(reply);
    }
}

pub(crate) async fn next_hint(hints: &mut Box<dyn Hints>) -> Option<Hint> {
    let next = poll_fn(|cx| hints.poll_next(cx));
    tokio::time::timeout(PATIENCE, next).await.expect("a hint comes")
}

/// A host whose clock stands still until it is moved.
#[derive(Clone)]
pub(crate) struct Machine {
    now_ns: Arc<AtomicI64>,
    pub(crate) host: Host,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let now_ns = Arc::new(AtomicI64::new(1_000_000_000));
        let clock = now_ns.clone();
        let host = Host::detect().unwrap().with_boot_id("this boot");
        let host = host.with_clock(move || clock.load(Ordering::SeqCst));
        Machine { now_ns, host }
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.now_ns.fetch_add(span.as_nanos() as i64, Ordering::SeqCst);
    }

    pub(crate) fn open(&self, path: &Path) -> Result<SqliteStore, tenure_core::Error> {
        SqliteConfig::new(path).with_host(self.host.clone()).open()
    }
}

/// Another process: this test's own binary, which runs only the test of `child.rs`, as this role.
pub(crate) struct Other {
    pub(crate) process: Child,
    /// Its end tells the child that we are gone.
    _input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

const ROLE: &str = "TENURE_TEST_ROLE";
const PATH: &str = "TENURE_TEST_PATH";

impl Other {
    pub(crate) fn start(role: &str, path: &Path) -> Other {
        Other::from_command(Command::new(env::current_exe().unwrap()), role, path)
    }

    pub(crate) fn from_command(mut command: Command, role: &str, path: &Path) -> Other {
        let mut process = command
            .args(["child::plays_its_role", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        Other { process, _input: input, output }
    }

    /// The next line that the child says to us.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child has ended");
            // The first line of a test comes after the harness's own words on the same line.
            if let Some((_, said)) = line.split_once('@') {
                return said.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Ends it and takes it off the list of processes.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: which role to play, on which path.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    Some((env::var(ROLE).ok()?, env::var_os(PATH)?.into()))
}

/// In the child: says a line to the parent.
pub(crate) fn say(words: impl std::fmt::Display) {
    println!("@{words}");
}

/// In the child: waits for a word of the parent; `None` if that is gone.
pub(crate) fn listen() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}
