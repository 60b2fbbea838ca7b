//! PostgreSQL: the server that `cargo xtask test` starts, and servers of one test's own, which may
//! be crashed or frozen without harm to other tests.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::sync::lock;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use crate::process::{free_port, processes};

/// The URL of the server that all tests share. Each makes a schema or a database of its own there.
pub fn server() -> String {
    variable("TENURE_TEST_POSTGRES")
}

/// The same server behind PgBouncer in transaction mode. All its users share its few sessions, so
/// one test at a time has it.
pub struct Pooler {
    /// How to reach the server through it.
    pub url: String,
    _turn: MutexGuard<'static, ()>,
}

impl Pooler {
    /// Waits for its turn.
    pub fn take() -> Pooler {
        static TURN: Mutex<()> = Mutex::new(());
        // A test that failed leaves nothing in it that another could not use.
        let _turn = lock(&TURN);
        Pooler { url: variable("TENURE_TEST_PGBOUNCER"), _turn }
    }
}

#[track_caller]
fn variable(name: &str) -> String {
    let hint = "`cargo xtask test --only postgres` starts a server and runs this test on it";
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {hint}"))
}

/// A session, for tests that are not async.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    /// Connects to this server.
    pub fn open(url: &str) -> Session {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls)).unwrap();
        runtime.spawn(connection);
        Session { runtime, client }
    }

    /// Runs statements that answer nothing.
    pub fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    /// The one number that a statement answers.
    pub fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }
}

/// A private server. Dropping it ends it.
pub struct OwnServer {
    bin: PathBuf,
    /// The user and group to run it as, if we are root.
    owner: Option<(u32, u32)>,
    /// Its data is in `data` below it.
    pub home: tempfile::TempDir,
    /// Where it listens, on loopback.
    pub port: u16,
    settings: Vec<String>,
    /// What the server finds in its environment.
    variables: Vec<(String, String)>,
    child: Option<Child>,
    started: bool,
}

impl OwnServer {
    /// A new cluster that is not started yet, with these settings.
    pub fn new(settings: &[&str]) -> OwnServer {
        let server = OwnServer::bare(settings);
        let mut initdb = server.command("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-D", "data"]);
        assert!(initdb.status().unwrap().success(), "initdb failed");
        server
    }

    /// A standby of this server, not started yet.
    pub fn standby(&self) -> OwnServer {
        let standby = OwnServer::bare(&[]);
        let mut backup = standby.command("pg_basebackup");
        backup.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"]);
        backup.args(["-D", "data", "-R", "--no-sync", "-c", "fast"]);
        assert!(backup.status().unwrap().success(), "pg_basebackup failed");
        standby
    }

    fn bare(settings: &[&str]) -> OwnServer {
        let bin = variable("TENURE_TEST_POSTGRES_BIN").into();
        let owner = env::var("TENURE_TEST_POSTGRES_OWNER").ok().map(|ids| {
            let (uid, gid) = ids.split_once(':').unwrap();
            (uid.parse().unwrap(), gid.parse().unwrap())
        });
        let home = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = owner {
            chown(home.path(), Some(uid), Some(gid)).unwrap();
        }
        let port = free_port();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (variables, child) = (Vec::new(), None);
        OwnServer { bin, owner, home, port, settings, variables, child, started: false }
    }

    /// One more setting for the next start.
    pub fn set(&mut self, setting: String) {
        self.settings.push(setting);
    }

    /// One more variable in its environment, from the next start on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// How to reach it as this user.
    pub fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// Puts a file beside the data that only the server may read.
    pub fn put(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.home.path().join("data").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = self.owner {
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
    }

    /// Starts it, and waits until it lets people in.
    pub fn start(&mut self) {
        for _ in 0..5 {
            self.launch();
            if self.is_ready() {
                self.started = true;
                return;
            }
            assert!(!self.started, "the server does not come back");
            // Somebody else was faster to take the port.
            self.port = free_port();
        }
        panic!("the server does not start");
    }

    fn launch(&mut self) {
        let mut server = self.command("postgres");
        server.args(["-D", "data", "-p", &self.port.to_string()]);
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            server.args(["-c", setting]);
        }
        server.envs(self.variables.iter().cloned());
        self.child = Some(server.spawn().unwrap());
    }

    /// Waits for its note that it is ready; false if it ended instead.
    fn is_ready(&mut self) -> bool {
        let child = self.child.as_mut().unwrap();
        let (note, pid) = (self.home.path().join("data/postmaster.pid"), child.id().to_string());
        for _ in 0..3_000 {
            if child.try_wait().unwrap().is_some() {
                self.child = None;
                return false;
            }
            let text = fs::read_to_string(&note).unwrap_or_default();
            let mut lines = text.lines();
            let ours = lines.next().is_some_and(|line| line.trim() == pid);
            let state = lines.nth(6).unwrap_or_default();
            if ours && ["ready", "standby"].contains(&state.trim()) {
                return true;
            }
            // tidy: sleep because another process has to come up
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Everything that was not on the disk is lost.
    pub fn crash(&mut self) {
        self.end("QUIT");
        self.start();
    }

    /// Ends all sessions and stops it in good order.
    pub fn stop(&mut self) {
        self.end("INT");
    }

    /// For a shell: has the server end as if it had crashed, and starts it again.
    pub fn crash_command(&self) -> String {
        let as_owner = self.owner.map_or(String::new(), |(uid, gid)| {
            format!("setpriv --reuid {uid} --regid {gid} --clear-groups ")
        });
        let (home, pg_ctl) = (self.home.path().display(), self.bin.join("pg_ctl"));
        let pg_ctl = pg_ctl.display();
        format!("cd {home} && {as_owner}{pg_ctl} -D data -w -m immediate -l log restart")
    }

    /// It and all its sessions stand still, as if the machine did.
    pub fn freeze(&self) {
        let postmaster = self.child.as_ref().unwrap().id();
        // The one that starts others first.
        signal("STOP", &[postmaster]);
        signal("STOP", &children(postmaster));
    }

    /// It and all its sessions go on.
    pub fn thaw(&self) {
        let postmaster = self.child.as_ref().unwrap().id();
        signal("CONT", &children(postmaster));
        signal("CONT", &[postmaster]);
    }

    /// One of its sessions crashes. The server then ends all others and starts anew by itself.
    pub fn crash_session(&self, pid: i32) {
        let (postmaster, pid) = (self.child.as_ref().unwrap().id(), pid.unsigned_abs());
        assert!(children(postmaster).contains(&pid), "it is a session of this server");
        signal("KILL", &[pid]);
    }

    fn end(&mut self, how: &str) {
        if let Some(mut child) = self.child.take() {
            // This process id is ours until it is waited for.
            signal(how, &[child.id()]);
            let _ = child.wait();
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.current_dir(self.home.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.thaw();
        }
        self.end("QUIT");
        // One that was started again by the command for crashes is no child of ours.
        if self.home.path().join("data/postmaster.pid").exists() {
            let _ = self.command("pg_ctl").args(["-D", "data", "-m", "immediate", "stop"]).status();
        }
    }
}

fn signal(name: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    // One that has just ended by itself is no failure.
    let mut kill = Command::new("kill");
    let _ = kill.arg(format!("-{name}")).args(pids).stderr(Stdio::null()).status();
}

/// The processes that this one has started.
fn children(parent: u32) -> Vec<u32> {
    let own = processes().into_iter().filter(|process| process.parent == parent);
    own.map(|process| process.pid).collect()
}
