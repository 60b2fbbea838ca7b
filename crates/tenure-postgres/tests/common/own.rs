//! A server of one test's own, which may be crashed without harm to other tests.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A private server. Dropping it ends it.
pub(crate) struct OwnServer {
    bin: PathBuf,
    /// The user and group to run it as, if we are root.
    owner: Option<(u32, u32)>,
    pub(crate) home: tempfile::TempDir,
    pub(crate) port: u16,
    settings: Vec<String>,
    child: Option<Child>,
}

impl OwnServer {
    /// A new cluster that is not started yet; `None`, with a sentence, if `cargo xtask test` did
    /// not say where its programs are.
    pub(crate) fn new(settings: &[&str]) -> Option<OwnServer> {
        let Some(bin) = env::var_os("TENURE_TEST_POSTGRES_BIN").map(PathBuf::from) else {
            println!("skipped: TENURE_TEST_POSTGRES_BIN is not set; use `cargo xtask test`");
            return None;
        };
        let owner = env::var("TENURE_TEST_POSTGRES_OWNER").ok().map(|ids| {
            let (uid, gid) = ids.split_once(':').unwrap();
            (uid.parse().unwrap(), gid.parse().unwrap())
        });
        let home = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = owner {
            chown(home.path(), Some(uid), Some(gid)).unwrap();
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server = OwnServer { bin, owner, home, port, settings, child: None };
        let mut initdb = server.command("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-D", "data"]);
        assert!(initdb.status().unwrap().success(), "initdb failed");
        Some(server)
    }

    /// Puts a file beside the data that only the server may read.
    pub(crate) fn put(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.home.path().join("data").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = self.owner {
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
    }

    pub(crate) fn start(&mut self) {
        let mut server = self.command("postgres");
        server.args(["-D", "data", "-p", &self.port.to_string()]);
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            server.args(["-c", setting]);
        }
        self.child = Some(server.spawn().unwrap());
    }

    /// Everything that was not on the disk is lost.
    pub(crate) fn crash(&mut self) {
        self.end();
        self.start();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // This process id is ours until it is waited for.
            let pid = child.id().to_string();
            let _ = Command::new("kill").args(["-QUIT", &pid]).status();
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
        self.end();
    }
}
