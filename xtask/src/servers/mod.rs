//! Servers of our own for tests: private, on free ports, ended with the run.

pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod redis;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::process::Group;

/// `cargo xtask up NAME`: starts a server to play with, until Ctrl-C.
pub(crate) fn up(name: &str) -> Result<bool> {
    match name {
        "postgres" => {
            let mut server = postgres::Postgres::start()?;
            println!("postgres is up; Ctrl-C ends it and removes its data\n\n{}", server.url());
            if let Some(url) = server.pooler_url() {
                println!("{url} (PgBouncer, transaction mode)");
            }
            wait(server.group())
        }
        "redis" => {
            let mut server = redis::Redis::start()?;
            println!("redis is up; Ctrl-C ends it and removes its data\n\n{}", server.url());
            wait(server.group())
        }
        "redis-sentinel" | "redis-cluster" => {
            // The sets that tests use. They are in the process group of the program that starts
            // them, and end with it.
            let home = Home::create(name)?;
            let mut command = cargo::command();
            command.args(["run", "--quiet", "--locked", "--package", "tenure-testbed"]);
            command.args(["--example", "up", "--", name]);
            command.envs(redis::variables()?).env("TMPDIR", &home.path);
            wait(&mut Group::spawn(&mut command)?)
        }
        _ => bail!(
            "there is no server `{name}`; there are postgres, redis, redis-sentinel and \
             redis-cluster"
        ),
    }
}

fn wait(group: &mut Group) -> Result<bool> {
    Ok(group.wait(|_| ())?.success())
}

/// A port that nobody uses at this instant.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// The directory of one server. Dropping it removes it.
struct Home {
    path: PathBuf,
}

impl Home {
    fn create(name: &str) -> Result<Self> {
        Self::create_in(&cargo::scratch()?, name)
    }

    fn create_in(parent: &Path, name: &str) -> Result<Self> {
        // Servers of several versions may run at the same time.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("tenure-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let home = Self { path };
        fs::set_permissions(&home.path, fs::Permissions::from_mode(0o700))?;
        Ok(home)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("warning: cannot remove {}: {error}", self.path.display());
        }
    }
}
