//! Which file, and how long to wait for other writers.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Secret, Store, StoreConfig, StoreKind};

use crate::host::Host;
use crate::store::SqliteStore;

/// How long a call waits for another process that is writing, unless told otherwise.
///
/// A write takes a few milliseconds. A process that takes longer than this is stuck, and an unknown
/// outcome that names it is worth more than a longer wait.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// Where the store's file is and how it is opened.
///
/// # Examples
/// ```
/// use tenure_sqlite::SqliteConfig;
///
/// let config = SqliteConfig::from_url("sqlite:/var/lib/app/tenure.db")?;
/// assert_eq!(config.path().to_str(), Some("/var/lib/app/tenure.db"));
/// assert!(SqliteConfig::from_url("sqlite::memory:").is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) busy_timeout: Duration,
    pub(crate) childless: bool,
    pub(crate) read_only: bool,
    pub(crate) host: Option<Host>,
}

impl SqliteConfig {
    /// The store in this file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> SqliteConfig {
        let path = path.into();
        let (childless, read_only) = (false, false);
        SqliteConfig { path, busy_timeout: BUSY_TIMEOUT, childless, read_only, host: None }
    }

    /// The store that a URL names: `sqlite:PATH`, or `sqlite:` alone for the default path.
    ///
    /// # Errors
    /// `Config` if this is no such URL, or if there is no default path.
    pub fn from_url(url: &str) -> Result<SqliteConfig, Error> {
        Ok(SqliteConfig::new(match path_in_url(url)? {
            Some(path) => path,
            None => SqliteConfig::default_path()?,
        }))
    }

    /// `$XDG_STATE_HOME/tenure/tenure.db`, else `~/.local/state/tenure/tenure.db`.
    ///
    /// # Errors
    /// `Config` if neither `XDG_STATE_HOME` nor `HOME` is set.
    pub fn default_path() -> Result<PathBuf, Error> {
        default_path_from(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
    }

    /// How long a call waits for another process that is writing; then its outcome is unknown.
    /// 500 ms unless set.
    #[must_use]
    pub fn with_busy_timeout(mut self, timeout: Duration) -> SqliteConfig {
        self.busy_timeout = timeout;
        self
    }

    /// Declares that whatever is done because this process leads is done by this very process.
    ///
    /// A follower that can prove the process dead then takes over at once. Without this it waits
    /// until the lease has run out, because the death of a process is no proof that its work is
    /// over (D1): a child process may go on, and so may anybody who was told that this process
    /// leads. So declare it only if, because it leads,
    /// - no child process works, nor anything that a child has started, and
    /// - nobody else works: no program that asks this one over a network or a pipe.
    ///
    /// # Examples
    /// ```
    /// use tenure_sqlite::SqliteConfig;
    ///
    /// let config = SqliteConfig::new("/var/lib/app/tenure.db").childless();
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn childless(mut self) -> SqliteConfig {
        self.childless = true;
        self
    }

    /// Only to look: who leads, and what waits. Nothing is created or changed, so that a file of
    /// another user, or on a read-only mount, will do. A candidate is refused (`Denied`).
    ///
    /// # Examples
    /// ```
    /// use tenure_sqlite::SqliteConfig;
    ///
    /// let config = SqliteConfig::new("/var/lib/app/tenure.db").read_only();
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn read_only(mut self) -> SqliteConfig {
        self.read_only = true;
        self
    }

    /// For tests: a host of one's own making.
    #[doc(hidden)]
    #[must_use]
    pub fn with_host(mut self, host: Host) -> SqliteConfig {
        self.host = Some(host);
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the store, creating the file and its directory where needed.
    ///
    /// Blocks for some milliseconds, or for some seconds while others open or write the same file.
    ///
    /// # Errors
    /// See [`SqliteStore::open`].
    pub fn open(self) -> Result<SqliteStore, Error> {
        SqliteStore::open_with(self)
    }
}

/// The URLs of this store.
pub const SQLITE: StoreKind =
    StoreKind { forms: &["sqlite:PATH"], aliases: &[], default_url: Some("sqlite:"), parse };

fn parse(url: &Secret) -> Result<Arc<dyn StoreConfig>, Error> {
    Ok(Arc::new(SqliteConfig::from_url(url.expose())?))
}

impl StoreConfig for SqliteConfig {
    fn address(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    fn min_ttl(&self) -> Duration {
        SqliteStore::TTL_MIN
    }

    fn is_missing(&self) -> bool {
        matches!(self.path.try_exists(), Ok(false))
    }

    fn childless(&self) -> Arc<dyn StoreConfig> {
        Arc::new(self.clone().childless())
    }

    fn open(&self) -> Result<Arc<dyn Store>, Error> {
        let store = self.clone().open().or_else(|error| match error.kind() {
            // To look at it may be all that is wanted. To lead is refused by the first call.
            ErrorKind::Denied => self.clone().read_only().open().map_err(|e| {
                tracing::debug!(error = %e, "it can't be read either");
                error
            }),
            _ => Err(error),
        })?;
        Ok(Arc::new(store))
    }
}

fn path_in_url(url: &str) -> Result<Option<PathBuf>, Error> {
    let Some(path) = url.strip_prefix("sqlite:") else {
        // Not quoted: it may be the URL of another store, with a password in it.
        return Err(Error::config("the URL is not of the form sqlite:PATH"));
    };
    if path == ":memory:" {
        return Err(Error::config(
            "sqlite::memory: can't be shared by candidates; give a file as sqlite:PATH",
        ));
    }
    if path.starts_with("//") && !path.starts_with("///") {
        return Err(Error::config(
            "the URL names a host, and SQLite has none; write sqlite:PATH or sqlite:///PATH",
        ));
    }
    if path.starts_with("~/") {
        return Err(Error::config(
            "the ~ in the URL is not expanded; write the directory in full, or sqlite:$HOME/...",
        ));
    }
    if path.contains('?') {
        return Err(Error::config(
            "the sqlite: URL has options after a question mark, and there are none; leave them out",
        ));
    }
    if path.contains('\0') {
        return Err(Error::config("a path has no NUL byte in it; remove it"));
    }
    Ok((!path.is_empty()).then(|| PathBuf::from(path)))
}

fn default_path_from(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Error> {
    // The XDG specification says that relative paths are to be ignored.
    let state = state.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.map(PathBuf::from).filter(|path| path.is_absolute());
    match (state, home) {
        (Some(state), _) => Ok(state.join("tenure/tenure.db")),
        (None, Some(home)) => Ok(home.join(".local/state/tenure/tenure.db")),
        (None, None) => {
            Err(Error::config("neither XDG_STATE_HOME nor HOME is set; give a file as sqlite:PATH"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_path_or_the_default_one() {
        let path = |url: &str| path_in_url(url).unwrap();
        assert_eq!(path("sqlite:a b.db"), Some("a b.db".into()));
        assert_eq!(path("sqlite:/var/x.db"), Some("/var/x.db".into()));
        assert_eq!(path("sqlite:///var/x.db"), Some("///var/x.db".into()));
        assert_eq!(path("sqlite:"), None);
    }

    #[test]
    fn a_url_that_would_surprise_is_refused_with_a_sentence() {
        for (url, word) in [
            ("postgres:x", "sqlite:PATH"),
            ("sqlite", "sqlite:PATH"),
            ("sqlite::memory:", "shared"),
            ("sqlite://x.db", "host"),
            ("sqlite:~/x.db", "expanded"),
            ("sqlite:x.db?mode=ro", "options"),
            ("sqlite:x\0.db", "NUL"),
        ] {
            let error = path_in_url(url).unwrap_err();
            assert!(error.message().contains(word), "{url}: {error}");
        }
    }

    #[test]
    fn the_default_path_follows_xdg_and_ignores_relative_directories() {
        let path = |state: Option<&str>, home: Option<&str>| {
            default_path_from(state.map(OsString::from), home.map(OsString::from))
        };
        let home = "/home/a/.local/state/tenure/tenure.db";
        assert_eq!(path(Some("/s"), Some("/home/a")).unwrap(), Path::new("/s/tenure/tenure.db"));
        assert_eq!(path(None, Some("/home/a")).unwrap(), Path::new(home));
        assert_eq!(path(Some("s"), Some("/home/a")).unwrap(), Path::new(home));
        assert_eq!(path(Some(""), Some("/home/a")).unwrap(), Path::new(home));
        assert!(path(None, None).unwrap_err().message().contains("sqlite:PATH"));
    }
}
