//! Which server, database, schema and table, and how long to wait for them.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Secret, Store, StoreConfig, StoreKind, parse_duration, url_decoded};
use tokio_postgres::config::TargetSessionAttrs;

use crate::environment::{self, Lookup, usual_file};
use crate::hosts::{self, Hosts};
use crate::names::Names;
use crate::passfile::Passfile;
use crate::store::{PostgresStore, TTL_MIN};
use crate::tls;

/// How long a connection may take until it is of use.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long what was sent may be unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// The URL that names this very store.
    pub(crate) url: Secret,
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
        PostgresConfig::from_url_in(url, &environment::of_process)
    }

    /// The same, with this environment.
    pub(crate) fn from_url_in(url: &str, lookup: Lookup<'_>) -> Result<PostgresConfig, Error> {
        let named = Secret::new(url);
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
        let mut options = Options::from_query(query)?;
        let more = environment::settings(options.service.take(), lookup)?;
        options.complete(&more, lookup)?;
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
        if !options.has("target_session_attrs") {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        login(&mut server, &more)?;
        let (mode, negotiation, tls) = options.tls.build()?;
        server.ssl_mode(mode).ssl_negotiation(negotiation);
        if server.get_application_name().is_none() {
            server.application_name(options.fallback_name.as_deref().unwrap_or("tenure"));
        }
        options.keep_alive(&mut server);
        // Where 0 is asked for, the system's own limit holds.
        match options.tcp_user_timeout.unwrap_or(TCP_USER_TIMEOUT) {
            Duration::ZERO => {}
            limit => drop(server.tcp_user_timeout(limit)),
        }
        let passfile = Passfile::choose(options.passfile, None, lookup("HOME").map(Into::into));
        // As with libpq it is for each server.
        let each = options.connect_timeout.map(|each| each * hosts::count(&server) as u32);
        Ok(PostgresConfig {
            hosts: Hosts::new(&server, passfile)?,
            server,
            tls,
            names,
            fence_grace: options.fence_grace,
            connect_timeout: each.unwrap_or(CONNECT_TIMEOUT),
            call_timeout: CALL_TIMEOUT,
            url: named,
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

    /// The store itself sees no deaths: a witness does (D1).
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
struct Options {
    schema: String,
    table: String,
    fence_grace: Duration,
    tls: tls::Options,
    passfile: Option<String>,
    connect_timeout: Option<Duration>,
    tcp_user_timeout: Option<Duration>,
    fallback_name: Option<String>,
    service: Option<String>,
    /// As they were written.
    theirs: Vec<String>,
}

impl Options {
    fn from_query(query: &str) -> Result<Options, Error> {
        let mut options = Options {
            schema: SCHEMA.to_owned(),
            table: TABLE.to_owned(),
            fence_grace: FENCE_GRACE,
            tls: tls::Options::default(),
            passfile: None,
            connect_timeout: None,
            tcp_user_timeout: None,
            fallback_name: None,
            service: None,
            theirs: Vec::new(),
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((name, value)) if is_ours(name) => {
                    options.set(name, decoded(name, value)?)?;
                }
                Some(("keepalives_count", value)) => {
                    options.theirs.push(format!("keepalives_retries={value}"));
                }
                // A server that takes writes is a primary.
                Some(("target_session_attrs", "primary")) => {
                    options.theirs.push("target_session_attrs=read-write".to_owned());
                }
                _ => options.theirs.push(option.to_owned()),
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), Error> {
        let tls = &mut self.tls;
        match name {
            "schema" => self.schema = value,
            "table" => self.table = value,
            "fence_grace" => self.fence_grace = grace(&value)?,
            "passfile" => self.passfile = Some(value),
            "service" => self.service = Some(value),
            "fallback_application_name" => self.fallback_name = Some(value),
            "sslmode" => tls.mode = Some(value),
            "sslnegotiation" => tls.negotiation = Some(value),
            "sslrootcert" => tls.files.root = Some(value),
            "sslcert" => tls.files.certificate = Some(value),
            "sslkey" => tls.files.key = Some(value),
            // A lease can't wait without end: what would mean that is left at our own limit.
            "connect_timeout" => {
                let limit = Duration::from_secs(whole(name, &value)?);
                self.connect_timeout = Some(limit).filter(|limit| !limit.is_zero());
            }
            "tcp_user_timeout" => {
                self.tcp_user_timeout = Some(Duration::from_millis(whole(name, &value)?));
            }
            "gssencmode" if value == "require" => {
                return Err(Error::config(
                    "gssencmode=require is not supported; use TLS, with sslmode=require",
                ));
            }
            // GSSAPI is never used, and the encoding is always UTF8.
            _ => {}
        }
        Ok(())
    }

    /// A dead server must be noticed by connections that only listen, too.
    fn keep_alive(&self, server: &mut tokio_postgres::Config) {
        if !self.has("keepalives_idle") {
            server.keepalives_idle(Duration::from_secs(15));
        }
        if !self.has("keepalives_interval") {
            server.keepalives_interval(Duration::from_secs(5));
        }
    }

    /// What the URL does not say, from the service and the environment.
    fn complete(
        &mut self,
        more: &HashMap<String, String>,
        lookup: Lookup<'_>,
    ) -> Result<(), Error> {
        for (name, value) in more {
            let tls = &self.tls;
            let is_said = match name.as_str() {
                "host" | "hostaddr" | "port" | "user" | "password" | "dbname" => true,
                "passfile" => self.passfile.is_some(),
                "connect_timeout" => self.connect_timeout.is_some(),
                "tcp_user_timeout" => self.tcp_user_timeout.is_some(),
                "fallback_application_name" => self.fallback_name.is_some(),
                "sslmode" => tls.mode.is_some(),
                "sslnegotiation" => tls.negotiation.is_some(),
                "sslrootcert" => tls.files.root.is_some(),
                "sslcert" => tls.files.certificate.is_some(),
                "sslkey" => tls.files.key.is_some(),
                name => self.has(name),
            };
            match is_said {
                true => {}
                false if is_ours(name) => self.set(name, value.clone())?,
                false => {
                    let name = if name == "keepalives_count" { "keepalives_retries" } else { name };
                    let value = if value == "primary" { "read-write" } else { value };
                    self.theirs.push(format!("{name}={}", encoded(value)));
                }
            }
        }
        let files = &mut self.tls.files;
        if matches!(self.tls.mode.as_deref(), Some("require" | "verify-ca" | "verify-full")) {
            files.root = files.root.take().or_else(|| usual_file("root.crt", lookup));
        }
        if files.certificate.is_none() && files.key.is_none() {
            let own = (usual_file("postgresql.crt", lookup), usual_file("postgresql.key", lookup));
            if let (Some(certificate), Some(key)) = own {
                (files.certificate, files.key) = (Some(certificate), Some(key));
            }
        }
        Ok(())
    }

    /// Whether the driver is told this.
    fn has(&self, name: &str) -> bool {
        let is_it = |option: &String| option.split('=').next() == Some(name);
        self.theirs.iter().any(is_it)
    }
}

/// Whether this is an option that we see to, and not the driver.
fn is_ours(name: &str) -> bool {
    const OURS: [&str; 15] = [
        "schema",
        "table",
        "fence_grace",
        "passfile",
        "service",
        "fallback_application_name",
        "sslmode",
        "sslnegotiation",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "connect_timeout",
        "tcp_user_timeout",
        "gssencmode",
        "client_encoding",
    ];
    OURS.contains(&name)
}

/// Where and as whom to connect, if the URL does not say.
fn login(server: &mut tokio_postgres::Config, more: &HashMap<String, String>) -> Result<(), Error> {
    let of = |name: &str| more.get(name).map(String::as_str);
    if hosts::count(server) == 0 {
        for host in of("host").unwrap_or("localhost").split(',') {
            server.host(host);
        }
        for address in of("hostaddr").into_iter().flat_map(|all| all.split(',')) {
            let bad = |_| Error::config("hostaddr of the service is no address; write numbers");
            server.hostaddr(address.parse().map_err(bad)?);
        }
    }
    if server.get_ports().is_empty() {
        for port in of("port").into_iter().flat_map(|ports| ports.split(',')) {
            let bad = |_| Error::config("PGPORT, or port of the service, is no port number");
            server.port(port.parse().map_err(bad)?);
        }
    }
    if let (None, Some(user)) = (server.get_user(), of("user")) {
        server.user(user);
    }
    if let (None, Some(password)) = (server.get_password(), of("password")) {
        server.password(password);
    }
    if let (None, Some(database)) = (server.get_dbname(), of("dbname")) {
        server.dbname(database);
    }
    Ok(())
}

fn whole(name: &str, value: &str) -> Result<u64, Error> {
    let limit = value.parse::<i64>();
    let bad = |_| Error::config(format!("{name} is a whole number, as libpq has it"));
    limit.map(|limit| u64::try_from(limit).unwrap_or(0)).map_err(bad)
}

/// A value as in a URL.
fn encoded(value: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    value.bytes().map(letter).collect()
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
        assert_eq!(config.connect_timeout, Duration::from_secs(7));
        assert_eq!(config.address(), "postgres://a@h:5433/d?schema=my own&table=t\"x");
    }

    #[test]
    fn limits_are_as_given_and_in_the_units_of_libpq() {
        let url = "postgres://a,b/d?connect_timeout=7&tcp_user_timeout=1500&keepalives_idle=9\
                   &keepalives_interval=2&keepalives_count=4&keepalives=0&gssencmode=disable";
        let config = PostgresConfig::from_url(url).unwrap();
        assert_eq!(config.connect_timeout, Duration::from_secs(14), "7 s for each");
        let server = config.hosts.server(1).unwrap();
        assert_eq!(server.get_tcp_user_timeout(), Some(&Duration::from_millis(1_500)));
        assert_eq!(server.get_keepalives_idle(), Duration::from_secs(9));
        assert_eq!(server.get_keepalives_interval(), Some(Duration::from_secs(2)));
        assert_eq!((server.get_keepalives_retries(), server.get_keepalives()), (Some(4), false));
        let plain = PostgresConfig::from_url("postgres://a/d?tcp_user_timeout=0").unwrap();
        assert_eq!(plain.server.get_tcp_user_timeout(), None);
        assert_eq!(plain.connect_timeout, CONNECT_TIMEOUT);
        let usual = PostgresConfig::from_url("postgres://a/d").unwrap();
        assert_eq!(usual.server.get_tcp_user_timeout(), Some(&TCP_USER_TIMEOUT));
        assert!(PostgresConfig::from_url("postgres://a/d?gssencmode=require").is_err());
        assert!(PostgresConfig::from_url("postgres://a/d?connect_timeout=soon").is_err());
    }

    #[test]
    fn the_environment_says_what_the_url_does_not() {
        let lookup = |name: &str| {
            let value = match name {
                "PGHOST" => "db1,db2",
                "PGPORT" => "5433",
                "PGUSER" => "app",
                "PGPASSWORD" => "hunter2",
                "PGDATABASE" => "shop",
                "PGSSLMODE" => "disable",
                "PGAPPNAME" => "a&b",
                "PGCONNECT_TIMEOUT" => "5",
                "PGTARGETSESSIONATTRS" => "primary",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let config = PostgresConfig::from_url_in("postgres://", &lookup).unwrap();
        assert_eq!(config.address(), "postgres://app@db1:5433,db2:5433/shop");
        let server = config.hosts.server(1).unwrap();
        assert_eq!(server.get_password(), Some(&b"hunter2"[..]));
        assert_eq!(server.get_ssl_mode(), tokio_postgres::config::SslMode::Disable);
        assert_eq!(server.get_application_name(), Some("a&b"));
        assert_eq!(config.connect_timeout, Duration::from_secs(10));
        assert!(!format!("{config:?}").contains("hunter2"));
        let url = "postgres://me:pw@h:1/d?sslmode=require&application_name=n&connect_timeout=2";
        let config = PostgresConfig::from_url_in(url, &lookup).unwrap();
        assert_eq!(config.address(), "postgres://me@h:1/d");
        assert_eq!(config.server.get_password(), Some(&b"pw"[..]));
        assert_eq!(config.server.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
        assert_eq!(config.server.get_application_name(), Some("n"));
        assert_eq!(config.connect_timeout, Duration::from_secs(2));
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
