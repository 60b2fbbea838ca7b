//! Other processes: their lines as they come, their deaths, and who they are.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tenure_core::ProcStat;

use crate::wait::{PATIENCE, eventually, now};

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    /// Its code, or 128 plus the number of the signal that ended it.
    pub code: i32,
    /// All that it wrote to stdout.
    pub out: String,
    /// All that it wrote to stderr.
    pub err: String,
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Done {
    done(command.output().unwrap())
}

/// Runs a command that may go on for ever; it is told to end when its time is over.
pub fn finish_within(limit: Duration, command: &mut Command) -> Done {
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

/// A running program, whose lines can be waited for. Dropping it kills it.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    /// Which of those were waited for.
    taken: Vec<bool>,
}

impl Process {
    /// Starts it.
    pub fn new(command: &mut Command) -> Process {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A copy that was just made is busy while a child of another test has it open, up to exec.
        let mut child = eventually("the program is not busy", || match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
            started => Some(started.unwrap()),
        });
        let (sender, lines) = channel();
        read_lines(child.stdout.take().unwrap(), sender.clone());
        read_lines(child.stderr.take().unwrap(), sender);
        Process { child, lines, seen: Vec::new(), taken: Vec::new() }
    }

    /// Writes a line to its stdin, which was asked for as a pipe.
    pub fn write(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("its stdin is a pipe");
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line with this in it, on stdout or stderr, that was not waited for before. In
    /// which order lines of the two come is nobody's promise.
    #[track_caller]
    pub fn line(&mut self, part: &str) -> String {
        let end = now() + PATIENCE;
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
    pub fn event(&mut self, name: &str) -> Value {
        let line = self.line(&format!("\"event\":\"{name}\""));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// What follows this word on a line of its own.
    #[track_caller]
    pub fn number(&mut self, word: &str) -> u32 {
        let line = self.line(&format!("{word} "));
        line.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end: the code, or 128 and the signal.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        // The lines end when it and all it ran have ended.
        self.rest();
        shell_code(self.child.wait().unwrap())
    }

    /// All lines until its end.
    #[track_caller]
    pub fn rest(&mut self) -> &[String] {
        let end = now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end - now()) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return &self.seen,
                Err(RecvTimeoutError::Timeout) => panic!("it never ends: {:#?}", self.seen),
            }
        }
    }

    /// Waits for one more line; `false` if it has ended and there are no more.
    #[track_caller]
    pub fn more(&mut self) -> bool {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.seen.push(line),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("nothing follows {:#?}", self.seen),
        }
        true
    }

    /// Looks at what has come so far, without waiting.
    pub fn take_in(&mut self) {
        self.seen.extend(self.lines.try_iter());
    }

    /// The lines that came so far and were looked at.
    pub fn seen(&self) -> &[String] {
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

/// A process whose death can be awaited, also if it is no child of ours.
pub struct Watched {
    /// Its process id.
    pub pid: u32,
    pidfd: OwnedFd,
}

impl Watched {
    /// Watches the process that has this id now.
    pub fn new(pid: u32) -> Watched {
        let id = Pid::from_raw(pid as i32).unwrap();
        Watched { pid, pidfd: pidfd_open(id, PidfdFlags::empty()).unwrap() }
    }

    /// Whether it has ended when the limit is over; returns as soon as it has.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let (tv_sec, tv_nsec) = (limit.as_secs() as i64, limit.subsec_nanos().into());
        let mut events = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut events, Some(&Timespec { tv_sec, tv_nsec })).unwrap() == 1
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ends(&self) {
        assert!(self.ends_within(PATIENCE), "process {} is still there", self.pid);
    }
}

/// One line of `/proc`: who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its id.
    pub pid: u32,
    /// One letter, as `T` for one that is stopped and `Z` for one that nobody has waited for.
    pub state: String,
    /// The id of its parent.
    pub parent: u32,
    /// The id of its process group.
    pub group: u32,
}

impl From<ProcStat> for Stat {
    fn from(stat: ProcStat) -> Stat {
        Stat {
            pid: stat.pid.unsigned_abs(),
            state: char::from(stat.state).to_string(),
            parent: stat.parent.unsigned_abs(),
            group: stat.group.unsigned_abs(),
        }
    }
}

/// Every process there is.
pub fn processes() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| fs::read(entry.path().join("stat")).ok());
    stats.filter_map(|stat| Some(Stat::from(ProcStat::parse(&stat)?))).collect()
}

/// Waits until the group has `count` processes, and watches them all.
pub fn watch_group(group: u32, count: usize) -> Vec<Watched> {
    let pids = eventually(&format!("{count} processes of group {group}"), || {
        let pids: Vec<u32> =
            processes().iter().filter(|stat| stat.group == group).map(|stat| stat.pid).collect();
        (pids.len() == count).then_some(pids)
    });
    pids.into_iter().map(Watched::new).collect()
}

/// Waits for the command to write a whole line into a file, and returns it.
pub fn line_of(path: &Path) -> String {
    eventually(&format!("a line in {}", path.display()), || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
}

/// A port that nobody uses at this instant.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
