//! A schema of a test's own, and `psql` for those who use other programs.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Done, Place, Process, finish};

/// One schema of the server that `cargo xtask test` starts.
pub(crate) struct Database {
    pub(crate) server: String,
    pub(crate) schema: String,
    place: Place,
}

impl Database {
    /// Nothing is in it yet.
    pub(crate) fn empty() -> Database {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = tenure_testbed::postgres::server();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("cli_{}_{number}", std::process::id());
        Database { server, schema, place: Place::new() }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?schema={}", self.server, self.schema)
    }

    /// `tenure` on this schema.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TENURE_STORE", self.url());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        finish(&mut self.command(args))
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Process {
        Process::new(&mut self.command(args))
    }

    /// A session of `psql` in this schema.
    pub(crate) fn psql(&self) -> Psql {
        let mut psql = Psql::start(&self.server);
        psql.tell(&format!("SET search_path = {}", self.schema));
        psql
    }
}

/// A running `psql`. Dropping it kills it.
pub(crate) struct Psql {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Psql {
    pub(crate) fn start(url: &str) -> Psql {
        let bin = env::var_os("TENURE_TEST_POSTGRES_BIN").map(PathBuf::from);
        let program = bin.map_or("psql".into(), |bin| bin.join("psql"));
        let mut psql = Command::new(program);
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = psql.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Psql { child, stdin, stdout }
    }

    /// Runs statements that answer nothing.
    pub(crate) fn tell(&mut self, sql: &str) {
        assert_eq!(self.ask(&format!("{sql}; SELECT 'done'")), "done");
    }

    /// The one value that a statement answers.
    pub(crate) fn ask(&mut self, sql: &str) -> String {
        writeln!(self.stdin, "{sql};").unwrap();
        self.stdin.flush().unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "psql ended at {sql}");
        line.trim_end().to_owned()
    }

    /// Whether a statement answers yes.
    pub(crate) fn truth(&mut self, sql: &str) -> bool {
        self.ask(sql) == "t"
    }

    /// Runs a whole script; what it said on stderr if it failed.
    pub(crate) fn script(self, sql: &str) -> Result<(), String> {
        let Psql { mut child, mut stdin, stdout } = self;
        child.stdout = Some(stdout.into_inner());
        stdin.write_all(sql.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(says) }
    }

    /// As a crash would end it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
