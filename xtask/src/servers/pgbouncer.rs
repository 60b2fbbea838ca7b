//! A private PgBouncer in transaction mode before a server of ours.
//!
//! It refuses to run as root too, so it is started as the user that runs the server.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::free_port;
use super::postgres::{PASSWORD, USER, command};
use crate::cargo;
use crate::packages::Tool;
use crate::process::{self, Group, Stopwatch};

/// The pooler that most people have.
pub(crate) const PGBOUNCER: Tool = Tool { command: "pgbouncer", packages: &["pgbouncer"] };

const START_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A running pooler. Dropping it ends it.
pub(crate) struct PgBouncer {
    group: Group,
    port: u16,
}

impl PgBouncer {
    /// Starts a pooler before the server on `server_port`, with its files in `home`.
    pub(crate) fn start(
        home: &Path,
        server_port: u16,
        owner: Option<(u32, u32)>,
    ) -> Result<PgBouncer> {
        let port = free_port()?;
        let (users, settings) = (home.join("pgbouncer.users"), home.join("pgbouncer.ini"));
        let files = [
            (&users, format!("\"{USER}\" \"{PASSWORD}\"\n")),
            (&settings, ini(&users.display().to_string(), port, server_port)),
        ];
        for (path, text) in files {
            fs::write(path, text)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            if let Some((uid, gid)) = owner {
                chown(path, Some(uid), Some(gid))?;
            }
        }
        let log = File::create(cargo::scratch()?.join("logs-pgbouncer.log"))?;
        let mut pooler = command(PGBOUNCER.command, owner, home)?;
        pooler.arg(&settings).stdout(log.try_clone()?).stderr(log);
        let running = PgBouncer { group: Group::spawn(&mut pooler)?, port };
        running.wait_until_ready()?;
        Ok(running)
    }

    /// How to reach the server through it.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let watch = Stopwatch::start();
        while watch.elapsed() < START_MAX {
            process::check_interrupted()?;
            if self.group.leader_ended()? {
                bail!("the pooler ended at once; see target/xtask/logs-pgbouncer.log");
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        bail!("the pooler was not ready after {START_MAX:?}; see target/xtask/logs-pgbouncer.log")
    }
}

/// Its settings: after COMMIT, a client may get another session of the server.
fn ini(users: &str, port: u16, server_port: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server_port}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {users}\n\
         admin_users = {USER}\n\
         pool_mode = transaction\n\
         default_pool_size = 4\n\
         max_client_conn = 200\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_shared_by_transactions() {
        let ini = ini("/home/users", 6432, 5433);
        for line in ["listen_port = 6432", "pool_mode = transaction", "port=5433"] {
            assert!(ini.contains(line), "{ini}");
        }
    }
}
