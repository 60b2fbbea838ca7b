//! A private Redis on loopback, and where its program is.
//!
//! Tests start servers of their own, which they may crash and freeze. Those are children of the
//! tests and in their process group, so they end with it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::free_port;
use crate::cargo;
use crate::packages::{self, Tool};
use crate::process::{self, Group, Stopwatch};

/// The server. Its package brings the program for Sentinel too.
pub(crate) const REDIS: Tool = Tool { command: "redis-server", packages: &["redis-server"] };

const START_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// What tests have to know to start servers.
pub(crate) fn variables() -> Result<Vec<(&'static str, String)>> {
    let program = packages::find(REDIS.command).context("cannot find redis-server")?;
    Ok(vec![("TENURE_TEST_REDIS_SERVER", program.display().to_string())])
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
        let home = Home::create()?;
        let log = File::create(cargo::scratch()?.join("logs-redis.log"))?;
        let port = free_port()?;
        let program = packages::find(REDIS.command).context(
            "cannot find redis-server; install Debian's package redis-server, or run \
             `cargo xtask test --only redis` as root",
        )?;
        let mut server = Command::new(program);
        server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        server.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&home.path);
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

    fn wait_until_ready(&self) -> Result<()> {
        let watch = Stopwatch::start();
        while watch.elapsed() < START_MAX {
            process::check_interrupted()?;
            if self.group.leader_ended()? {
                bail!("the server ended at once; see target/xtask/logs-redis.log");
            }
            if self.answers().is_ok_and(|pong| pong) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        bail!("the server was not ready after {START_MAX:?}; see target/xtask/logs-redis.log")
    }

    fn answers(&self) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut pong = [0; 7];
        stream.read_exact(&mut pong)?;
        Ok(&pong == b"+PONG\r\n")
    }
}

/// The directory of one server. Dropping it removes it.
struct Home {
    path: PathBuf,
}

impl Home {
    fn create() -> Result<Self> {
        let path = cargo::scratch()?.join(format!("tenure-redis-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("warning: cannot remove {}: {error}", self.path.display());
        }
    }
}
