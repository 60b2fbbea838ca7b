//! Servers for tests with real processes: the Postgres that `cargo xtask test` starts, and Redis
//! servers of a test's own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tenure_testbed::process::free_port;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::common::eventually;

/// The Postgres to test on, and a session with it.
pub(crate) struct Postgres {
    pub(crate) url: String,
    runtime: Runtime,
    client: Client,
}

impl Postgres {
    pub(crate) fn connect() -> Postgres {
        let url = tenure_testbed::postgres::server();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).unwrap();
        runtime.spawn(connection);
        Postgres { url, runtime, client }
    }

    pub(crate) fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }
}

/// A Redis server that keeps nothing. It is ended by its process id when dropped.
pub(crate) struct Redis {
    child: Child,
    pub(crate) address: String,
    pub(crate) port: u16,
    _directory: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Redis {
        Redis::start_by(Command::new(program()), "127.0.0.1")
    }

    /// Starts it by this command, to which the settings are added, on this address.
    pub(crate) fn start_by(mut command: Command, address: &str) -> Redis {
        let port = free_port();
        let directory = tempfile::tempdir().unwrap();
        command.args(["--port", &port.to_string(), "--bind", address, "--save", ""]);
        command.args(["--appendonly", "no", "--daemonize", "no", "--protected-mode", "no"]);
        command.args(["--enable-debug-command", "yes", "--dir"]).arg(directory.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Redis { child, address: address.to_owned(), port, _directory: directory }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}:{}/0", self.address, self.port)
    }

    /// One command on a connection of its own; `None` if nobody answers.
    pub(crate) fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect((self.address.as_str(), self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = [0; 256];
        let read = stream.read(&mut answer).ok().filter(|read| *read > 0)?;
        Some(String::from_utf8_lossy(&answer[..read]).trim().to_owned())
    }

    /// Waits until it answers.
    pub(crate) fn once_up(self) -> Redis {
        eventually("a redis-server that answers", || {
            self.ask("PING").filter(|pong| pong == "+PONG")
        });
        self
    }

    /// How many keys it has.
    pub(crate) fn size(&self) -> String {
        self.ask("DBSIZE").unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, as `cargo xtask test` names it, or as it is found on the path.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("TENURE_TEST_REDIS_SERVER").map_or("redis-server".into(), PathBuf::from)
}
