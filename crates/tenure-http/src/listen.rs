//! Where to listen: an address, or a unix socket that only its owner may open.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind as Io};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tenure::{Error, ErrorKind};
use tokio::net::{TcpListener, UnixListener};

/// What was asked for: `127.0.0.1:7070`, `[::1]:7070`, `localhost:7070` or `unix:/run/x.sock`.
///
/// # Examples
/// ```
/// use tenure_http::Listen;
///
/// assert!("127.0.0.1:7070".parse::<Listen>()?.is_private());
/// assert!(!"0.0.0.0:7070".parse::<Listen>()?.is_private());
/// assert!("unix:/run/tenure.sock".parse::<Listen>()?.is_private());
/// assert!("7070".parse::<Listen>().is_err());
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system, of mode 0600.
    Unix(PathBuf),
}

impl Listen {
    /// Whether only this machine can reach it.
    pub fn is_private(&self) -> bool {
        match self {
            Listen::Tcp(address) => address.ip().is_loopback(),
            Listen::Unix(_) => true,
        }
    }
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Listen, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                let message = format!("{text:?} has no whole path; write unix:/run/tenure.sock");
                return Err(Error::config(message));
            }
            return Ok(Listen::Unix(path.into()));
        }
        if let Ok(address) = text.parse() {
            return Ok(Listen::Tcp(address));
        }
        let bad = || {
            Error::config(format!(
                "{text:?} is no address to listen on; write 127.0.0.1:7070, [::1]:7070 or \
                 unix:/path"
            ))
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port: u16 = port.parse().map_err(|_| bad())?;
        let mut found = (host, port).to_socket_addrs().map_err(|_| bad())?;
        found.next().map(Listen::Tcp).ok_or_else(bad)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "http://{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens. A unix socket is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
    at: Listen,
    /// Whether it is a unix socket that only its owner may open.
    pub(crate) is_owners: bool,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// `Config` if the address is in use or not one of this machine, with a sentence for each.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver on.
    pub fn bind(at: &Listen) -> Result<Listener, Error> {
        match at {
            Listen::Tcp(address) => {
                let socket = tcp(*address).map_err(|error| refused(at, &error))?;
                Listener::from_tcp(socket)
            }
            Listen::Unix(path) => {
                let (socket, file) = private_socket(path).map_err(|error| refused(at, &error))?;
                let mut listener = Listener::from_unix(socket)?;
                (listener.at, listener.is_owners) = (at.clone(), true);
                listener._file = Some(file);
                Ok(listener)
            }
        }
    }

    /// Takes over a socket that listens already, such as one that systemd opened.
    ///
    /// # Errors
    /// `Config` if it is of no use.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver on.
    pub fn from_tcp(socket: std::net::TcpListener) -> Result<Listener, Error> {
        let unusable = |error: io::Error| Error::config(format!("the socket is unusable: {error}"));
        socket.set_nonblocking(true).map_err(unusable)?;
        let socket = TcpListener::from_std(socket).map_err(unusable)?;
        let at = Listen::Tcp(socket.local_addr().map_err(unusable)?);
        Ok(Listener { socket: Socket::Tcp(socket), at, is_owners: false, _file: None })
    }

    /// Takes over a unix socket that listens already. Who may open it is up to its maker: if
    /// that is its owner alone (mode 0600), no token is needed to change something. If others may
    /// open it, or nobody can tell who may, they need the token for that, as everywhere.
    ///
    /// # Errors
    /// `Config` if it is of no use.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver on.
    pub fn from_unix(socket: unix::UnixListener) -> Result<Listener, Error> {
        let unusable = |error: io::Error| Error::config(format!("the socket is unusable: {error}"));
        socket.set_nonblocking(true).map_err(unusable)?;
        let path = socket.local_addr().map_err(unusable)?;
        let is_owners = path.as_pathname().is_some_and(is_owners);
        let path = path.as_pathname().unwrap_or(Path::new("(unnamed)")).to_owned();
        let socket = UnixListener::from_std(socket).map_err(unusable)?;
        let at = Listen::Unix(path);
        Ok(Listener { socket: Socket::Unix(socket), at, is_owners, _file: None })
    }

    /// Where it listens; with the port that was found, if 0 was asked for.
    pub fn at(&self) -> &Listen {
        &self.at
    }
}

/// Whether a socket can be opened by its owner alone. The descriptor does not know: who may connect
/// is up to the file.
fn is_owners(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.file_type().is_socket() && found.mode() & 0o077 == 0)
}

fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    std::net::TcpListener::bind(address)
}

fn refused(at: &Listen, error: &io::Error) -> Error {
    let why = match error.kind() {
        Io::AddrInUse => "is in use by another program; end it or choose another with --listen",
        Io::AddrNotAvailable => "is not an address of this machine; choose one that is",
        Io::PermissionDenied => {
            "may not be used by this user; choose a port above 1023 or a path \
                                 of your own"
        }
        Io::NotFound => "is in a directory that does not exist; create it",
        _ => return Error::config(format!("{at} can't be listened on: {error}")),
    };
    Error::new(ErrorKind::Config, format!("{at} {why}"))
}

/// Removes a socket that is still ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket that nobody else can open at any instant: in a directory of our own, with its
/// mode set, and only then moved to where it belongs.
fn private_socket(path: &Path) -> io::Result<(unix::UnixListener, SocketFile)> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::other("there is something else than a socket"));
        }
        if unix::UnixStream::connect(path).is_ok() {
            return Err(Io::AddrInUse.into());
        }
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    // By chance and not by the number of this process: in containers that is always the same, and
    // one that was killed here may have left its own behind.
    let random = uuid::Uuid::now_v7().simple().to_string();
    let aside = parent.join(format!(".tenure-{}", &random[24..]));
    DirBuilder::new().mode(0o700).create(&aside)?;
    let made = (|| {
        let inside = aside.join("s");
        let socket = unix::UnixListener::bind(&inside)?;
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(&inside)?.ino();
        fs::rename(&inside, path)?;
        Ok((socket, SocketFile { path: path.to_owned(), inode }))
    })();
    let _left_over = fs::remove_dir_all(&aside);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_nonsense_is_refused() {
        for good in ["127.0.0.1:7070", "[::1]:0", "localhost:7070", "unix:/run/x.sock"] {
            assert!(good.parse::<Listen>().unwrap().is_private(), "{good}");
        }
        for bad in ["", "7070", ":x", "unix:relative", "127.0.0.1", "127.0.0.1:99999", "no host:1"]
        {
            let error = bad.parse::<Listen>().unwrap_err().to_string();
            assert!(error.contains("write "), "{bad}: {error}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_told_as_such() {
        let first = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let error = Listener::bind(first.at()).unwrap_err().to_string();
        assert!(error.contains("is in use by another program"), "{error}");
    }

    #[tokio::test]
    async fn a_unix_socket_is_for_its_owner_alone_and_goes_when_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.sock");
        let at = Listen::Unix(path.clone());
        let listener = Listener::bind(&at).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(listener.is_owners);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        let error = Listener::bind(&at).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        drop(listener);
        assert!(!path.exists());
        // What a killed process left behind is no obstacle.
        drop(unix::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        fs::create_dir(dir.path().join(format!(".tenure-{}", std::process::id()))).unwrap();
        let again = Listener::bind(&at).unwrap();
        drop(again);
        fs::write(&path, "not a socket").unwrap();
        let error = Listener::bind(&at).unwrap_err().to_string();
        assert!(error.contains("something else than a socket"), "{error}");
    }
}
