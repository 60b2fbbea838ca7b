//! A private Redis on loopback, and where its program is.
//!
//! Tests start servers of their own, which they may crash and freeze. Those are children of the
//! tests and in their process group, so they end with it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Home, free_port};
use crate::cargo;
use crate::packages::{self, Tool};
use crate::process::{self, Group, Stopwatch};

/// The server. Its package brings the program for Sentinel too.
pub(crate) const REDIS: Tool = Tool { command: "redis-server", packages: &["redis-server"] };

const START_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// What tests have to know to start servers.
pub(crate) fn variables() -> Result<Vec<(&'static str, String)>> {
    variables_for(&packages::find(REDIS.command).context("cannot find redis-server")?)
}

/// The same for this program.
pub(crate) fn variables_for(program: &Path) -> Result<Vec<(&'static str, String)>> {
    // What their servers write is kept with all else that tests leave behind.
    let home = cargo::scratch()?.join("redis-tests");
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    Ok(vec![
        ("TENURE_TEST_REDIS_SERVER", program.display().to_string()),
        ("TMPDIR", home.display().to_string()),
    ])
}

/// A running server. Dropping it ends it and removes its data.
pub(crate) struct Redis {
    group: Group,
    port: u16,
    // Dropped after the group: fields go in order.
    _home: Home,
}

impl Redis {
    /// Starts a server that keeps nothing when it ends.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a server that keeps its data and can be told to restart.
    pub(crate) fn start_restartable() -> Result<Self> {
        Self::start_with(&["--appendonly", "yes", "--enable-debug-command", "local"])
    }

    /// For a shell: restarts such a server, and waits until it is up.
    pub(crate) fn restart_command(&self) -> Result<String> {
        let client = packages::find("redis-cli").context("cannot find redis-cli")?;
        let ask = format!("{} -p {}", client.display(), self.port);
        Ok(format!("{ask} DEBUG RESTART; until {ask} PING | grep -q PONG; do sleep 0.02; done"))
    }

    /// Starts a server with more settings, as on its command line.
    fn start_with(settings: &[&str]) -> Result<Self> {
        let (home, port) = (Home::create("redis")?, free_port()?);
        let mut server = program()?;
        server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        server.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&home.path).args(settings);
        let log = File::create(cargo::scratch()?.join("logs-redis.log"))?;
        server.stdout(log.try_clone()?).stderr(log);
        let running = Self { group: Group::spawn(&mut server)?, port, _home: home };
        running.wait_until_ready()?;
        Ok(running)
    }

    /// How to reach it.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(super) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    /// Whether it answers.
    fn is_up(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer.trim_end() == "+PONG")
    }

    fn wait_until_ready(&self) -> Result<()> {
        let watch = Stopwatch::start();
        while watch.elapsed() < START_MAX {
            process::check_interrupted()?;
            if self.group.leader_ended()? {
                bail!("the server ended at once; see target/xtask/logs-redis.log");
            }
            if self.is_up().is_ok_and(|is_up| is_up) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        bail!("the server was not ready after {START_MAX:?}; see target/xtask/logs-redis.log")
    }
}

fn program() -> Result<Command> {
    let program = packages::find(REDIS.command).context(
        "cannot find redis-server; install Debian's package redis-server, or run \
         `cargo xtask test --only redis` as root",
    )?;
    Ok(Command::new(program))
}
