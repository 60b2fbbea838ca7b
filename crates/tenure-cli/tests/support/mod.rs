//! What the tests of the command share: a store of their own, and processes whose lines can be
//! waited for.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{LIMIT, Watched, now, tenure};

/// A directory with a store that nobody else uses.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The URL of the store.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("tenure.db"))
    }

    /// `tenure` with these arguments on this store, and nothing of the tester's own settings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(tenure());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command.env_remove("NO_COLOR").env("TENURE_STORE", self.url()).args(args);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        finish(&mut self.command(args))
    }

    /// Starts it.
    pub(crate) fn spawn(&self, args: &[&str]) -> Process {
        Process::new(&mut self.command(args))
    }

    /// The object of `status` for this election.
    pub(crate) fn status(&self, name: &str) -> Value {
        let done = self.run(&["status", "--json", name]);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Done {
    done(command.output().unwrap())
}

/// Runs a command that may go on for ever; it is told to end when its time is over.
pub(crate) fn finish_within(limit: Duration, command: &mut Command) -> Done {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if !Watched::new(child.id()).ends_within(limit) {
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    }
    done(child.wait_with_output().unwrap())
}

fn done(output: Output) -> Done {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: shell_code(output.status), out: text(output.stdout), err: text(output.stderr) }
}

/// The code, or 128 plus the number of the signal that came before anybody listened to it.
fn shell_code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap()
}

/// A running `tenure`. Dropping it kills it, and so its guardian kills what it ran.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    /// Which of those were waited for.
    taken: Vec<bool>,
}

impl Process {
    pub(crate) fn new(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        read_lines(child.stdout.take().unwrap(), sender.clone());
        read_lines(child.stderr.take().unwrap(), sender);
        Process { child, lines, seen: Vec::new(), taken: Vec::new() }
    }

    /// Writes a line to its stdin, which was asked for as a pipe.
    pub(crate) fn write(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("its stdin is a pipe");
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Ends its input.
    pub(crate) fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line with this in it, on stdout or stderr, that was not waited for before. In
    /// which order lines of the two come is nobody's promise.
    #[track_caller]
    pub(crate) fn line(&mut self, part: &str) -> String {
        let end = now() + LIMIT;
        loop {
            let found = self.seen.iter().enumerate().find(|(number, line)| {
                !self.taken.get(*number).copied().unwrap_or_default() && line.contains(part)
            });
            if let Some((number, line)) = found {
                self.taken.resize(self.seen.len(), false);
                self.taken[number] = true;
                return line.clone();
            }
            match self.lines.recv_timeout(end - now()) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("{part:?} never came in {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended without {part:?} in {:#?}", self.seen)
                }
            }
        }
    }

    /// Waits for the event of this name, with `--json`.
    #[track_caller]
    pub(crate) fn event(&mut self, name: &str) -> Value {
        let line = self.line(&format!("\"event\":\"{name}\""));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// What follows this word on a line of its own.
    #[track_caller]
    pub(crate) fn number(&mut self, word: &str) -> u32 {
        let line = self.line(&format!("{word} "));
        line.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end: the code, or 128 and the signal.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;

        // The lines end when it and all it ran have ended.
        self.rest();
        let status = self.child.wait().unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }

    /// All lines until its end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> &[String] {
        let end = now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end - now()) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return &self.seen,
                Err(RecvTimeoutError::Timeout) => panic!("it never ends: {:#?}", self.seen),
            }
        }
    }

    /// Looks at what has come so far, without waiting.
    pub(crate) fn take_in(&mut self) {
        self.seen.extend(self.lines.try_iter());
    }

    /// The lines that came so far and were looked at.
    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if to.send(line).is_err() {
                return;
            }
        }
    });
}

/// A command with faults on purpose, built aside, so that nobody mistakes it for the real one.
pub(crate) fn sabotaged_binary() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sabotaged");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "tenure-cli", "--bin", "tenure"])
        .args(["--features", "sabotage", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success());
    target.join("debug/tenure")
}
