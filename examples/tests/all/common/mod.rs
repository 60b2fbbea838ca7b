//! Example programs as real processes: their lines as they come, and their end.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Far more than anything here takes; a test that needs it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// One instance of an example. Killed with the test.
pub(crate) struct Instance {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Instance {
    /// Starts a program with the store (and what else it wants) as its arguments.
    pub(crate) fn start(program: &str, paths: &[&Path]) -> Instance {
        let mut command = Command::new(program);
        command.args(paths).env_remove("TENURE_STORE");
        Instance::spawn(command)
    }

    /// Starts a program on the store of this URL.
    pub(crate) fn start_at(program: &str, url: &str) -> Instance {
        let mut command = Command::new(program);
        command.env("TENURE_STORE", url);
        Instance::spawn(command)
    }

    fn spawn(mut command: Command) -> Instance {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Instance { child, stdin, lines }
    }

    /// The next line, whatever it says; `None` when there will be no more.
    pub(crate) fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no line came"),
        }
    }

    /// Waits for a line that starts so, and returns the rest of it.
    pub(crate) fn line(&self, start: &str) -> String {
        let mut others = Vec::new();
        while let Some(line) = self.next() {
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
            others.push(line);
        }
        panic!("no line {start:?}, but {others:?}");
    }

    /// The lines that have come by now.
    pub(crate) fn told(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill_9(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end: the lines that were left, and how it ended. Output comes first: it ends
    /// when the process does.
    pub(crate) fn end(mut self) -> (Vec<String>, ExitStatus) {
        self.stdin = None;
        let mut rest = Vec::new();
        while let Some(line) = self.next() {
            rest.push(line);
        }
        (rest, self.child.wait().unwrap())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Its own child, not waited for yet, so the pid is still its own.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The rest of the next line that starts so, of any of these.
pub(crate) fn any_line(instances: &[&Instance], start: &str) -> String {
    let pause = Duration::from_millis(10);
    for _ in 0..LIMIT.as_millis() / pause.as_millis() {
        for instance in instances {
            match instance.lines.recv_timeout(pause) {
                Ok(line) if line.starts_with(start) => return line[start.len()..].to_owned(),
                _ => {}
            }
        }
    }
    panic!("no line {start:?} of any of them");
}
