//! Which server, database, schema and table, and how long to wait for them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Secret, Store, StoreConfig, StoreKind, parse_duration, url_decoded};
use tokio_postgres::config::TargetSessionAttrs;

use crate::hosts::{self, Hosts};
use crate::names::Names;
use crate::passfile::Passfile;
use crate::store::{PostgresStore, TTL_MIN};
use crate::tls;

/// How long a connection may take until it is of use.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a call may take before its outcome is unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long after the end of a lease a fenced transaction is left alone.
const FENCE_GRACE: Duration = Duration::from_secs(10);

/// The schema and the table, unless a URL names others.
const SCHEMA: &str = "public";
const TABLE: &str = "leader_election";

/// Where the store is and how it is reached.
///
/// # Examples
/// ```
/// use tenure_postgres::PostgresConfig;
///
/// let config = PostgresConfig::from_url("postgres://app:secret@db/shop?schema=elections")?;
/// assert_eq!(config.address(), "postgres://app@db/shop?schema=elections");
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) server: tokio_postgres::Config,
    pub(crate) hosts: Hosts,
    pub(crate) tls: tls::Tls,
    pub(crate) names: Names,
    pub(crate) fence_grace: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

impl PostgresConfig {
    /// The store that a URL names: `postgres://USER:PASSWORD@HOST/DATABASE?OPTIONS`, with all that
    /// libpq knows of such URLs and `schema`, `table` and `fence_grace` among the options.
    /// `target_session_attrs` is `read-write` unless the URL says otherwise: nobody can lead where
    /// nothing can be written.
    ///
    /// # Errors
    /// `Config` if this is no such URL; its secrets are not in the message.
    pub fn from_url(url: &str) -> Result<PostgresConfig, Error> {
        let Some((_, tail)) =
            url.split_once("://").filter(|(scheme, _)| ["postgres", "postgresql"].contains(scheme))
        else {
            return Err(Error::config(
                "the URL is not of the form postgres://USER:PASSWORD@HOST/DATABASE",
            ));
        };
        // The driver ends the password at the first of them, and the rest of it would be shown as a
        // part of the host or the database. What looks like an option may be a piece of it, too.
        if tail.matches('@').count() > 1 {
            return Err(Error::config(
                "the postgres:// URL has more than one @; write those of the user, the password, \
                 the database and the options as %40",
            ));
        }
        // A password may have a question mark in it.
        let after_password = tail.find('@').filter(|at| !tail[..*at].contains('/')).unwrap_or(0);
        let (place, query) = match tail[after_password..].find('?') {
            Some(at) => (&tail[..after_password + at], &tail[after_password + at + 1..]),
            None => (tail, ""),
        };
        let options = Options::from_query(query)?;
        let names = Names::new(&options.schema, &options.table)?;
        let question = if options.theirs.is_empty() { "" } else { "?" };
        let theirs = options.theirs.join("&").replace('@', "%40");
        let url = format!("postgres://{place}{question}{theirs}");
        // What the parser says may hold a piece of the password.
        let mut server = tokio_postgres::Config::from_str(&url).map_err(|_| {
            Error::config(
                "the postgres:// URL can't be read; write postgres://USER:PASSWORD@HOST/DATABASE, \
                 odd characters of the password as %XX, and only options that libpq knows",
            )
        })?;
        if !options.theirs.iter().any(|option| option.starts_with("target_session_attrs=")) {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if hosts::count(&server) == 0 {
            server.host("localhost");
        }
        let (mode, tls) = options.tls.build()?;
        server.ssl_mode(mode);
        if server.get_application_name().is_none() {
            server.application_name("tenure");
        }
        // A dead server must be noticed by connections that only listen, too.
        server.keepalives_idle(Duration::from_secs(15)).keepalives_interval(Duration::from_secs(5));
        server.tcp_user_timeout(Duration::from_secs(30));
        let (variable, home) = (std::env::var_os("PGPASSFILE"), std::env::var_os("HOME"));
        let passfile = Passfile::choose(options.passfile, variable, home);
        Ok(PostgresConfig {
            hosts: Hosts::new(&server, passfile)?,
            server,
            tls,
            names,
            fence_grace: options.fence_grace,
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
        })
    }

    /// How long a fenced transaction may outlast its lease before a successor ends it. 10 s
    /// unless set.
    #[must_use]
    pub fn with_fence_grace(mut self, grace: Duration) -> PostgresConfig {
        self.fence_grace = grace;
        self
    }

    /// How long a connection may take. 3 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> PostgresConfig {
        self.connect_timeout = timeout;
        self
    }

    /// How long a call may take; then its outcome is unknown. 3 s unless set.
    #[must_use]
    pub fn with_call_timeout(mut self, timeout: Duration) -> PostgresConfig {
        self.call_timeout = timeout;
        self
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        let server = &self.server;
        let hosts: Vec<String> =
            (0..hosts::count(server)).map(|index| hosts::show(server, index)).collect();
        let user = server.get_user().map(|user| format!("{user}@")).unwrap_or_default();
        let database = server.get_dbname().or(server.get_user()).unwrap_or_default();
        let mut options = Vec::new();
        if self.names.schema() != SCHEMA {
            options.push(format!("schema={}", self.names.schema()));
        }
        if self.names.table() != TABLE {
            options.push(format!("table={}", self.names.table()));
        }
        let question = if options.is_empty() { "" } else { "?" };
        format!("postgres://{user}{}/{database}{question}{}", hosts.join(","), options.join("&"))
    }

    /// Where one of its servers is.
    pub(crate) fn address_of(&self, index: usize) -> String {
        match self.hosts.count() {
            1 => self.address(),
            _ => self.hosts.show(index),
        }
    }

    /// A handle onto the store. Nothing is connected yet: the first call does that, and a server
    /// that is away is an unknown outcome like any other.
    pub fn open(self) -> PostgresStore {
        PostgresStore::new(self)
    }
}

/// The URLs of this store.
pub const POSTGRES: StoreKind =
    StoreKind { forms: &["postgres://"], aliases: &["postgresql"], default_url: None, parse };

fn parse(url: &Secret) -> Result<Arc<dyn StoreConfig>, Error> {
    Ok(Arc::new(PostgresConfig::from_url(url.expose())?))
}

impl StoreConfig for PostgresConfig {
    fn address(&self) -> String {
        self.address()
    }

    fn min_ttl(&self) -> Duration {
        TTL_MIN
    }

    /// What a server has is known when it was asked.
    fn is_missing(&self) -> bool {
        false
    }

    /// No proof of death is used here (D4).
    fn childless(&self) -> Arc<dyn StoreConfig> {
        Arc::new(self.clone())
    }

    fn open(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(self.clone().open()))
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("address", &self.address())
            .field("fence_grace", &self.fence_grace)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish()
    }
}

/// The options of a URL: ours, and those that the driver knows.
struct Options<'a> {
    schema: String,
    table: String,
    fence_grace: Duration,
    tls: tls::Options,
    passfile: Option<String>,
    theirs: Vec<&'a str>,
}

impl<'a> Options<'a> {
    fn from_query(query: &'a str) -> Result<Options<'a>, Error> {
        let mut options = Options {
            schema: SCHEMA.to_owned(),
            table: TABLE.to_owned(),
            fence_grace: FENCE_GRACE,
            tls: tls::Options::default(),
            passfile: None,
            theirs: Vec::new(),
        };
        let tls = &mut options.tls;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("schema", value)) => options.schema = decoded("schema", value)?,
                Some(("table", value)) => options.table = decoded("table", value)?,
                Some(("fence_grace", value)) => options.fence_grace = grace(value)?,
                Some(("sslmode", value)) => tls.mode = Some(decoded("sslmode", value)?),
                Some(("sslrootcert", path)) => tls.files.root = Some(decoded("sslrootcert", path)?),
                Some(("sslcert", path)) => tls.files.certificate = Some(decoded("sslcert", path)?),
                Some(("sslkey", path)) => tls.files.key = Some(decoded("sslkey", path)?),
                Some(("passfile", path)) => options.passfile = Some(decoded("passfile", path)?),
                _ => options.theirs.push(option),
            }
        }
        Ok(options)
    }
}

fn grace(value: &str) -> Result<Duration, Error> {
    parse_duration(value).map_err(|_| Error::config("fence_grace is a duration, such as 10s"))
}

/// Undoes the `%XX` of a URL.
fn decoded(what: &str, text: &str) -> Result<String, Error> {
    // Not quoted: what looks like an option may be a part of a password that was not escaped.
    let bad = || {
        Error::config(format!("the {what} is not written as in a URL; write odd characters as %XX"))
    };
    // Those of a user's name are left alone, as libpq does.
    if text.contains('@') {
        return Err(bad());
    }
    url_decoded(text).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_our_own_are_taken_out_of_the_url() {
        let url = "postgresql://a:b@h:5433/d?schema=my%20own&connect_timeout=7&table=t%22x\
                   &fence_grace=2s";
        let config = PostgresConfig::from_url(url).unwrap();
        assert_eq!(config.names, Names::new("my own", "t\"x").unwrap());
        assert_eq!(config.fence_grace, Duration::from_secs(2));
        assert_eq!(config.server.get_connect_timeout(), Some(&Duration::from_secs(7)));
        assert_eq!(config.address(), "postgres://a@h:5433/d?schema=my own&table=t\"x");
    }

    #[test]
    fn a_server_that_takes_writes_is_asked_for_unless_the_url_says_otherwise() {
        for (options, wanted) in [
            ("", TargetSessionAttrs::ReadWrite),
            ("?schema=s", TargetSessionAttrs::ReadWrite),
            ("?target_session_attrs=read-write", TargetSessionAttrs::ReadWrite),
            ("?schema=s&target_session_attrs=any", TargetSessionAttrs::Any),
        ] {
            let config = PostgresConfig::from_url(&format!("postgres://a,b/d{options}")).unwrap();
            assert_eq!(config.server.get_target_session_attrs(), wanted, "{options}");
            let server = config.hosts.server(1).unwrap();
            assert_eq!(server.get_target_session_attrs(), wanted, "each of them: {options}");
        }
    }

    #[test]
    fn an_at_sign_in_an_option_is_no_end_of_a_password() {
        let config = PostgresConfig::from_url("postgres://h/d?application_name=a@b&schema=s");
        let config = config.unwrap();
        assert_eq!(config.names, Names::new("s", TABLE).unwrap());
        assert_eq!(config.address(), "postgres://h/d?schema=s");
        assert_eq!(config.server.get_application_name(), Some("a@b"));
    }

    #[test]
    fn a_second_at_sign_is_refused_and_no_part_of_the_password_is_shown() {
        for url in [
            "postgres://a:b@hunter2@h/d",
            "postgres://a:b/c@hunter2@h/d",
            "postgres://a:b@c/hunter2@h/d?schema=s",
            "postgres://a:b@c?hunter2@h/d",
            "postgres://a:b@c/hunter2 ?password=d@h/d",
        ] {
            let error = PostgresConfig::from_url(url).expect_err(url);
            assert!(error.message().contains("as %"), "{error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        let config = PostgresConfig::from_url("postgres://a:b%40hunter2@h/d").unwrap();
        assert_eq!(config.server.get_password(), Some(&b"b@hunter2"[..]));
        assert_eq!(config.address(), "postgres://a@h/d");
    }

    #[test]
    fn secrets_are_in_no_output() {
        for url in ["postgres://a:hunter2@h/d", "postgres://a:pw?hunter2@h/d?schema=s"] {
            let config = PostgresConfig::from_url(url).unwrap();
            assert!(!format!("{config:?} {}", config.address()).contains("hunter2"));
        }
        for url in [
            "postgres://a:hunter2@h:port/d",
            "postgres://a:hunter2@h/d?hunter2=x",
            "postgres://a:hunter2@h/d?sslmode=perhaps",
            "postgres://a:hunter2@h/d?sslmode=verify-full&sslrootcert=/nonexistent",
            "postgres://a:hunter2@h/d?sslcert=/nonexistent",
            "postgres://a:hunter2@h/d?table=",
            "mysql://a:hunter2@h/d",
        ] {
            let error = PostgresConfig::from_url(url).expect_err(url);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
