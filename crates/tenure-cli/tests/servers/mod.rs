//! Servers for tests with real processes: the Postgres that `cargo xtask test` starts, and Redis
//! servers of a test's own.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
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
    /// `None`, with a sentence, if there is none.
    pub(crate) fn find() -> Option<Postgres> {
        let Ok(url) = std::env::var("TENURE_TEST_POSTGRES") else {
            crate::common::skipped(
                "TENURE_TEST_POSTGRES is not set; `cargo xtask test` starts a server and sets it",
            );
            return None;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).unwrap();
        runtime.spawn(connection);
        Some(Postgres { url, runtime, client })
    }

    pub(crate) fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }
}

/// A Postgres server of one test's own, which may crash without harm to others. Dropping it ends
/// it.
pub(crate) struct OwnPostgres {
    bin: PathBuf,
    /// The user and group to run it as, if we are root.
    owner: Option<(u32, u32)>,
    home: TempDir,
    port: u16,
}

impl OwnPostgres {
    /// `None`, with a sentence, if `cargo xtask test` did not say where its programs are.
    pub(crate) fn start() -> Option<OwnPostgres> {
        let Some(bin) = std::env::var_os("TENURE_TEST_POSTGRES_BIN").map(PathBuf::from) else {
            crate::common::skipped("TENURE_TEST_POSTGRES_BIN is not set; use `cargo xtask test`");
            return None;
        };
        let owner = std::env::var("TENURE_TEST_POSTGRES_OWNER").ok().map(|ids| {
            let (uid, gid) = ids.split_once(':').unwrap();
            (uid.parse().unwrap(), gid.parse().unwrap())
        });
        let home = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(home.path(), Some(uid), Some(gid)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = OwnPostgres { bin, owner, home, port };
        let initdb = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-D", "data"];
        assert!(server.run("initdb", &initdb));
        let settings =
            format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=");
        assert!(server.run("pg_ctl", &["-D", "data", "-w", "-l", "log", "-o", &settings, "start"]));
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// For a shell: has the server end as if it had crashed, and starts it again.
    pub(crate) fn crash_command(&self) -> String {
        let as_owner = self.owner.map_or(String::new(), |(uid, gid)| {
            format!("setpriv --reuid {uid} --regid {gid} --clear-groups ")
        });
        let (home, pg_ctl) = (self.home.path().display(), self.bin.join("pg_ctl"));
        let pg_ctl = pg_ctl.display();
        format!("cd {home} && {as_owner}{pg_ctl} -D data -w -m immediate -l log restart")
    }

    fn run(&self, name: &str, args: &[&str]) -> bool {
        let mut command = Command::new(self.bin.join(name));
        command.args(args).current_dir(self.home.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        command.status().unwrap().success()
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-D", "data", "-m", "immediate", "stop"]);
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
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
