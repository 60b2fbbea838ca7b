//! A private PostgreSQL on loopback.
//!
//! It refuses to run as root, so as root it is started as the user `postgres`, whom its packages
//! bring, with its data where that user can get at it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::pgbouncer::{PGBOUNCER, PgBouncer};
use super::{Home, free_port};
use crate::cargo;
use crate::packages::{self, Tool};
use crate::process::{self, Group, Stopwatch};

/// The server, from whichever version the distribution has.
pub(crate) const POSTGRES: Tool = Tool { command: "postgres", packages: &["postgresql"] };

/// Its superuser, and the user that runs it if we are root.
pub(super) const USER: &str = "postgres";

/// The password of its superuser. It listens on loopback only, and not for long.
pub(super) const PASSWORD: &str = "tenure-test";

const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// A running server. Dropping it ends it and removes its data.
pub(crate) struct Postgres {
    /// Before the server: fields go in order.
    pooler: Option<PgBouncer>,
    group: Group,
    port: u16,
    owner: Option<(u32, u32)>,
    // Dropped after the group: fields go in order.
    home: Home,
}

impl Postgres {
    /// Makes a new cluster and starts it.
    pub(crate) fn start() -> Result<Self> {
        let mut running = Self::start_with(None)?;
        if packages::find(PGBOUNCER.command).is_some() {
            let (home, port, owner) = (&running.home.path, running.port, running.owner);
            running.pooler = Some(PgBouncer::start(home, port, owner)?);
        }
        Ok(running)
    }

    /// The same with programs of another version, below this directory, and without a pooler.
    pub(crate) fn start_from(native: &Path) -> Result<Self> {
        Self::start_with(Some(native))
    }

    fn start_with(native: Option<&Path>) -> Result<Self> {
        let owner = if packages::is_root() { Some(account(USER)?) } else { None };
        let home = home(owner)?;
        let data = home.path.join("data");
        let password = home.path.join("password");
        fs::write(&password, PASSWORD)?;
        if let Some((uid, gid)) = owner {
            chown(&password, Some(uid), Some(gid))?;
        }
        let log = File::options()
            .append(true)
            .create(true)
            .open(cargo::scratch()?.join("logs-postgres.log"))?;
        // Where its user can get at them.
        if let Some(native) = native {
            let mut copy = Command::new("cp");
            copy.arg("-a").arg(native).arg(home.path.join("native"));
            if !copy.status()?.success() {
                bail!("cannot copy {}", native.display());
            }
        }
        let program = |name: &str| -> Result<Command> {
            match native {
                Some(_) => Ok(by(&home.path.join("native/bin").join(name), owner, &home.path)),
                None => command(name, owner, &home.path),
            }
        };
        let mut initdb = program("initdb")?;
        initdb.args(["--username", "postgres", "--auth", "scram-sha-256", "--encoding", "UTF8"]);
        initdb.args(["--locale", "C.UTF-8", "--no-sync", "--pwfile"]).arg(&password);
        initdb.arg("--pgdata").arg(&data);
        initdb.stdout(log.try_clone()?).stderr(log.try_clone()?);
        if !Group::spawn(&mut initdb)?.wait(|_| ())?.success() {
            bail!("initdb failed; see target/xtask/logs-postgres.log");
        }
        let port = free_port()?;
        let mut server = program("postgres")?;
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=500",
            "max_prepared_transactions=10",
        ] {
            server.args(["-c", setting]);
        }
        server.stdout(log.try_clone()?).stderr(log);
        let group = Group::spawn(&mut server)?;
        let running = Self { pooler: None, group, port, owner, home };
        running.wait_until_ready(owner)?;
        Ok(running)
    }

    /// What tests have to know: how to reach it, and how to start one that they may crash.
    pub(crate) fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        let server = packages::find("postgres").context("cannot find postgres")?;
        // Its own directory, with the other programs, where this is a link to it.
        let server = fs::canonicalize(server)?;
        let bin = server.parent().context("postgres lies in a directory")?;
        let mut variables = vec![
            ("TENURE_TEST_POSTGRES", self.url()),
            ("TENURE_TEST_POSTGRES_BIN", bin.display().to_string()),
        ];
        variables.extend(self.pooler_url().map(|url| ("TENURE_TEST_PGBOUNCER", url)));
        if packages::is_root() {
            let (uid, gid) = account(USER)?;
            variables.push(("TENURE_TEST_POSTGRES_OWNER", format!("{uid}:{gid}")));
        }
        Ok(variables)
    }

    /// How to reach it, as its superuser.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    /// For a shell: has the server end as if it had crashed, and starts it again.
    pub(crate) fn crash_command(&self) -> Result<String> {
        let pg_ctl = packages::find("pg_ctl").context("cannot find pg_ctl")?;
        let as_owner = self.owner.map_or(String::new(), |(uid, gid)| {
            format!("setpriv --reuid {uid} --regid {gid} --clear-groups ")
        });
        let (home, pg_ctl) = (self.home.path.display(), pg_ctl.display());
        Ok(format!("cd '{home}' && {as_owner}{pg_ctl} -D data -w -m immediate -l log restart"))
    }

    /// How to reach it through the pooler, if there is one.
    pub(crate) fn pooler_url(&self) -> Option<String> {
        self.pooler.as_ref().map(PgBouncer::url)
    }

    pub(super) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    fn wait_until_ready(&self, owner: Option<(u32, u32)>) -> Result<()> {
        let watch = Stopwatch::start();
        let port = self.port.to_string();
        while watch.elapsed() < START_MAX {
            process::check_interrupted()?;
            if self.group.leader_ended()? {
                bail!("the server ended at once; see target/xtask/logs-postgres.log");
            }
            let mut ready = command("pg_isready", owner, Path::new("/"))?;
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port]);
            ready.stdout(Stdio::null()).stderr(Stdio::null());
            if Group::spawn(&mut ready)?.wait(|_| ())?.success() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        bail!("the server was not ready after {START_MAX:?}; see target/xtask/logs-postgres.log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // One that was started again by the command for crashes is in no group of ours.
        if !self.group.leader_ended().unwrap_or(false) {
            return;
        }
        let stopped = command("pg_ctl", self.owner, &self.home.path).and_then(|mut pg_ctl| {
            pg_ctl.args(["-D", "data", "-m", "immediate", "-w", "stop"]);
            pg_ctl.stdout(Stdio::null()).stderr(Stdio::null());
            Ok(pg_ctl.status()?)
        });
        if let Err(error) = stopped {
            eprintln!("warning: cannot stop the PostgreSQL server: {error:#}");
        }
    }
}

/// One of the server's own programs, run by the right user.
pub(super) fn command(name: &str, owner: Option<(u32, u32)>, dir: &Path) -> Result<Command> {
    let path = packages::find(name).with_context(|| format!("cannot find {name}"))?;
    Ok(by(&path, owner, dir))
}

fn by(path: &Path, owner: Option<(u32, u32)>, dir: &Path) -> Command {
    let mut command = Command::new(path);
    // The directory that we are in may be out of that user's reach.
    command.current_dir(dir).env("LC_ALL", "C.UTF-8");
    if let Some((uid, gid)) = owner {
        command.uid(uid).gid(gid);
    }
    command
}

/// The directory of one cluster, in the reach of the user who runs it.
fn home(owner: Option<(u32, u32)>) -> Result<Home> {
    let scratch = cargo::scratch()?;
    let parent = match owner {
        Some(_) if !is_open_to_all(&scratch) => std::env::temp_dir(),
        _ => scratch,
    };
    let home = Home::create_in(&parent, "postgres")?;
    if let Some((uid, gid)) = owner {
        chown(&home.path, Some(uid), Some(gid))?;
    }
    Ok(home)
}

/// Whether any user can get to this directory.
fn is_open_to_all(path: &Path) -> bool {
    let passable = |dir: &Path| fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 1 != 0);
    path.ancestors().all(passable)
}

/// The ids of a user, from the system's own list.
fn account(user: &str) -> Result<(u32, u32)> {
    let list = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    parse_account(&list, user).with_context(|| format!("there is no user {user}"))
}

fn parse_account(list: &str, user: &str) -> Option<(u32, u32)> {
    // postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash
    list.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = fields[..] else {
            return None;
        };
        (name == user).then(|| Some((uid.parse().ok()?, gid.parse().ok()?))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_their_whole_name() {
        let list = "root:x:0:0::/:/bin/sh\npostgresx:x:1:1::/:\npostgres:x:101:104:a,,:/v:/b\n";
        assert_eq!(parse_account(list, "postgres"), Some((101, 104)));
        assert_eq!(parse_account(list, "nobody"), None);
        assert_eq!(parse_account("postgres:x:a:b::", "postgres"), None);
    }

    #[test]
    fn a_directory_below_a_private_one_is_not_open_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!is_open_to_all(&inner));
    }
}
