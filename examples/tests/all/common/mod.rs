//! Example programs as real processes: their lines in order, and their end.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tenure_testbed::eventually;
use tenure_testbed::process::Process;

/// One instance of an example. Killed with the test.
pub(crate) struct Instance {
    process: Process,
    /// How many of its lines were looked at.
    read: usize,
}

impl Deref for Instance {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Instance {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
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
        Instance { process: Process::new(command.stdin(Stdio::piped())), read: 0 }
    }

    /// The next line, whatever it says; `None` when there will be no more.
    pub(crate) fn next(&mut self) -> Option<String> {
        if self.read == self.process.seen().len() && !self.process.more() {
            return None;
        }
        self.read += 1;
        Some(self.process.seen()[self.read - 1].clone())
    }

    /// Waits for a line that starts so, and returns the rest of it.
    pub(crate) fn line(&mut self, start: &str) -> String {
        while let Some(line) = self.next() {
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
        panic!("no line {start:?}, but {:#?}", self.process.seen());
    }

    /// The lines that have come by now.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.process.take_in();
        let lines = self.process.seen()[self.read..].to_vec();
        self.read += lines.len();
        lines
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill_9(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the end: the lines that were left, and the exit code.
    pub(crate) fn end(mut self) -> (Vec<String>, i32) {
        self.process.end_input();
        let code = self.process.code();
        (self.told(), code)
    }
}

/// The rest of the next line that starts so, of any of these.
pub(crate) fn any_line(instances: &mut [&mut Instance], start: &str) -> String {
    eventually(&format!("{start:?} of any of them"), || {
        instances.iter_mut().find_map(|instance| {
            instance.process.take_in();
            let lines = &instance.process.seen()[instance.read..];
            let found = lines.iter().position(|line| line.starts_with(start))?;
            let line = lines[found][start.len()..].to_owned();
            instance.read += found + 1;
            Some(line)
        })
    })
}
