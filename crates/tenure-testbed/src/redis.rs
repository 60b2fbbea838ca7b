//! Redis servers of one test's own. They may be crashed, frozen and restarted without harm to
//! other tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::free_port;

/// The program, as `cargo xtask test` names it, or as it is found on the path.
pub fn program() -> PathBuf {
    std::env::var_os("TENURE_TEST_REDIS_SERVER").map_or("redis-server".into(), PathBuf::from)
}

/// A server of a test's own. It is ended by its process id when dropped.
pub struct RedisServer {
    child: Option<Child>,
    /// Where it listens, on loopback.
    pub port: u16,
    directory: tempfile::TempDir,
    extra: Vec<String>,
    /// What it finds in its environment.
    variables: Vec<(String, PathBuf)>,
    /// Whether it watches servers instead of being one.
    is_sentinel: bool,
}

impl RedisServer {
    /// A server that writes nothing to disk unless told.
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// A server with more settings, as on its command line.
    pub fn start_with(extra: &[&str]) -> RedisServer {
        RedisServer::begin(extra, &[])
    }

    /// A server with more variables in its environment.
    pub fn start_in(variables: &[(&str, &Path)]) -> RedisServer {
        RedisServer::begin(&[], variables)
    }

    fn begin(extra: &[&str], variables: &[(&str, &Path)]) -> RedisServer {
        for _ in 0..5 {
            // Somebody else may take the port in between: then the server ends at once.
            let directory = tempfile::tempdir().unwrap();
            let extra = extra.iter().map(|word| (*word).to_owned()).collect();
            let variable = |(name, path): &(&str, &Path)| ((*name).to_owned(), path.to_path_buf());
            let variables = variables.iter().map(variable).collect();
            let (child, port, is_sentinel) = (None, free_port(), false);
            let mut server = RedisServer { child, port, directory, extra, variables, is_sentinel };
            if server.launch() {
                return server;
            }
        }
        panic!("{} did not start; install Debian's package redis-server", program().display());
    }

    /// A sentinel with these lines in its configuration.
    pub fn start_sentinel(lines: &str) -> RedisServer {
        for _ in 0..5 {
            let (port, directory) = (free_port(), tempfile::tempdir().unwrap());
            let path = directory.path().join("sentinel.conf");
            let settings = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\n{lines}\n",
                directory.path().display()
            );
            std::fs::write(&path, settings).unwrap();
            let extra = vec![path.display().to_string(), "--sentinel".to_owned()];
            let (child, variables, is_sentinel) = (None, Vec::new(), true);
            let mut server = RedisServer { child, port, directory, extra, variables, is_sentinel };
            if server.launch() {
                return server;
            }
        }
        panic!("{} did not start as a sentinel", program().display());
    }

    /// Starts the process. Whether it answers.
    fn launch(&mut self) -> bool {
        let port = self.port.to_string();
        let mut command = Command::new(program());
        if !self.is_sentinel {
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--daemonize", "no", "--appendonly", "no", "--dir"]);
            command.arg(self.directory.path());
        }
        command.envs(self.variables.iter().cloned());
        command.args(&self.extra).stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        for _ in 0..500 {
            if matches!(self.child.as_mut().unwrap().try_wait(), Ok(Some(_))) {
                return false;
            }
            // Any answer will do: one that wants a password is up as well.
            if self.try_run(&["PING"]).is_some_and(|answer| !answer.starts_with("-LOADING")) {
                return self.is_ours();
            }
            // tidy: sleep because another process has to come up
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Whether nobody else was quicker to take the port. One that does not tell is taken for ours.
    fn is_ours(&self) -> bool {
        let info = self.try_run(&["INFO", "server"]).unwrap_or_default();
        let told = info.lines().find_map(|line| line.trim_end().strip_prefix("process_id:"));
        let ours = self.child.as_ref().map(|child| child.id().to_string());
        told.is_none() || told == ours.as_deref()
    }

    /// The URL of its database 0.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Kills the process, as a crash would, and starts it again on what is on disk.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "the server did not come back");
    }

    /// Kills the process, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the process again on what is on disk.
    pub fn come_back(&mut self) {
        assert!(self.launch(), "the server did not come back");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// One command on a plain connection; the first line of the answer, and the text behind it.
    pub fn run(&self, words: &[&str]) -> String {
        self.try_run(words).unwrap()
    }

    fn try_run(&self, words: &[&str]) -> Option<String> {
        command(self.port, words)
    }

    /// One command, its words apart by blanks; `None` if nobody answers.
    pub fn ask(&self, command: &str) -> Option<String> {
        self.try_run(&command.split(' ').collect::<Vec<_>>())
    }

    /// How many keys it has.
    pub fn size(&self) -> String {
        self.run(&["DBSIZE"])
    }

    /// Waits until it has been up for so many seconds, as it says itself.
    pub fn until_up(&self, seconds: u64) {
        for _ in 0..6_000 {
            let info = self.run(&["INFO", "server"]);
            let told = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
            if told.unwrap().trim_end().parse::<u64>().unwrap() >= seconds {
                return;
            }
            // tidy: sleep because the age of another process has to grow
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it never was up for {seconds} s");
    }

    /// Waits until the answer to a command has these words in it.
    pub fn until(&self, words: &[&str], holds: &str) {
        for _ in 0..2_000 {
            if self.try_run(words).is_some_and(|answer| answer.contains(holds)) {
                return;
            }
            // tidy: sleep because other processes have to find each other
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{words:?} never answered {holds:?}: {:?}", self.try_run(words));
    }
}

/// One command to the server on a port of loopback; the first line of the answer, or its text.
pub fn command(port: u16, words: &[&str]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(request.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    match line.trim_end().strip_prefix('$').map(|length| length.parse::<usize>()) {
        Some(Ok(length)) => {
            let mut text = vec![0; length];
            reader.read_exact(&mut text).ok()?;
            String::from_utf8(text).ok()
        }
        _ => Some(line.trim_end().to_owned()),
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
