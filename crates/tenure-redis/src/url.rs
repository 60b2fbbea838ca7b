//! Reads the URLs of the store. What they say may be secret, so no message quotes them.

use redis::RedisConnectionInfo;
use tenure_core::{Error, Secret, parse_duration, url_decoded};
use tenure_tls::{TlsOptions, Verify};

use crate::config::{FailClosed, RedisConfig, Settle};
use crate::primary::{Node, Servers};

/// The ports of servers and of sentinels.
pub(crate) const PORT: u16 = 6379;
pub(crate) const SENTINEL_PORT: u16 = 26379;

/// All options, for the sentence about an unknown one.
const OPTIONS: &str = "prefix, settle, wait_replicas, fail_closed, sslrootcert, sslcert, sslkey, \
                       sentinel_user and sentinel_password";

/// The three kinds of places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Sentinel,
    Cluster,
}

/// A URL in pieces, as they stand there.
struct Parts<'a> {
    kind: Kind,
    tls: bool,
    user: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

/// What the options set beside the configuration itself.
#[derive(Default)]
struct Extras {
    tls: TlsOptions,
    sentinel_user: Option<String>,
    sentinel_password: Option<Secret>,
}

pub(crate) fn parse(url: &str) -> Result<RedisConfig, Error> {
    let parts = split(url)?;
    let usual = if parts.kind == Kind::Sentinel { SENTINEL_PORT } else { PORT };
    let hosts = parts.hosts.split(',').map(|host| node(host, usual));
    let hosts: Vec<Node> = hosts.collect::<Option<_>>().ok_or_else(malformed)?;
    let (servers, database) = servers(&parts, hosts)?;
    let mut login = RedisConnectionInfo::default().set_db(database);
    if let Some(user) = parts.user {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let (name, password) = (decoded(name)?, decoded(password)?);
        if !name.is_empty() {
            login = login.set_username(name);
        }
        if !password.is_empty() {
            login = login.set_password(password);
        }
    }
    let mut config = RedisConfig::new(servers, login);
    let mut extras = Extras::default();
    for option in parts.query.split('&').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        config = with_option(config, &mut extras, &decoded(key)?, &decoded(value)?)?;
    }
    with_extras(config, extras, &parts)
}

fn split(url: &str) -> Result<Parts<'_>, Error> {
    let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
    let (base, kind) = match scheme.split_once('+') {
        None => (scheme, Kind::Single),
        Some((base, "sentinel")) => (base, Kind::Sentinel),
        Some((base, "cluster")) => (base, Kind::Cluster),
        Some(_) => return Err(malformed()),
    };
    let tls = match base {
        "redis" => false,
        "rediss" => true,
        _ => return Err(malformed()),
    };
    if rest.contains('#') {
        return Err(Error::config(
            "the URL has a # in it; write %23 where it belongs to the password or the prefix",
        ));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // An @ further on is one of a password that was not escaped; nothing of it may be quoted.
    if path.contains('@') || query.contains('@') {
        return Err(malformed());
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    Ok(Parts { kind, tls, user, hosts, path, query })
}

fn servers(parts: &Parts<'_>, mut hosts: Vec<Node>) -> Result<(Servers, i64), Error> {
    let path = parts.path.trim_end_matches('/');
    match parts.kind {
        Kind::Single => {
            if hosts.len() > 1 {
                return Err(Error::config(
                    "redis:// names one server; write redis+sentinel:// or redis+cluster:// for \
                     several",
                ));
            }
            let host = hosts.pop().ok_or_else(malformed)?;
            Ok((Servers::Single(host), database(path)?))
        }
        Kind::Sentinel => {
            let (name, number) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(Error::config(
                    "the URL does not name the primary that the sentinels watch; write \
                     redis+sentinel://HOST1,HOST2/MASTER/DATABASE",
                ));
            }
            let name = decoded(name)?;
            Ok((Servers::Sentinel { sentinels: hosts, name }, database(number)?))
        }
        Kind::Cluster => match database(path)? {
            0 => Ok((Servers::Cluster { seeds: hosts }, 0)),
            _ => Err(Error::config("a Cluster has the database 0 and no other; leave it out")),
        },
    }
}

fn database(text: &str) -> Result<i64, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = text.parse::<u32>().map(i64::from);
    number.map_err(|_| {
        Error::config(format!("the database {text:?} is not a number; write redis://HOST:PORT/0"))
    })
}

fn node(text: &str, usual: u16) -> Option<Node> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.is_empty() => (host, port),
            Some(_) => return None,
            None => (text, ""),
        },
    };
    let port = if port.is_empty() { usual } else { port.parse().ok().filter(|port| *port > 0)? };
    // The database's own tools take an empty host for this one.
    let host = if host.is_empty() && text.starts_with(':') { "localhost" } else { host };
    let plain = !host.is_empty() && !host.contains(char::is_whitespace);
    plain.then(|| Node { host: host.to_owned(), port })
}

fn with_option(
    config: RedisConfig,
    extras: &mut Extras,
    key: &str,
    value: &str,
) -> Result<RedisConfig, Error> {
    let text = || Some(value.to_owned());
    Ok(match (key, value) {
        ("prefix", prefix) => config.with_prefix(prefix),
        ("settle", "off") => config.with_settle(Settle::Off),
        ("settle", value) => {
            let settle = parse_duration(value).map_err(|error| {
                Error::config(format!("settle: {}; or write settle=off", error.message()))
            })?;
            config.with_settle(Settle::For(settle))
        }
        ("wait_replicas", value) => {
            let count = value.parse::<u32>().ok().filter(|count| *count <= 100);
            config.with_wait_replicas(count.ok_or_else(|| {
                Error::config("wait_replicas is a small number, such as wait_replicas=1")
            })?)
        }
        ("fail_closed", "first-failure") => config.with_fail_closed(FailClosed::FirstFailure),
        ("fail_closed", "trust-ends") => config.with_fail_closed(FailClosed::TrustEnds),
        ("fail_closed", _) => {
            return Err(Error::config("fail_closed is first-failure or trust-ends"));
        }
        ("sslrootcert", _) => {
            extras.tls.root = text();
            config
        }
        ("sslcert", _) => {
            extras.tls.certificate = text();
            config
        }
        ("sslkey", _) => {
            extras.tls.key = text();
            config
        }
        ("sentinel_user", _) => {
            extras.sentinel_user = text();
            config
        }
        ("sentinel_password", _) => {
            extras.sentinel_password = Some(Secret::new(value));
            config
        }
        // After a password it may be a part of it: one with an & that was not escaped.
        _ if extras.sentinel_password.is_some() => {
            return Err(Error::config(format!(
                "the URL has an option that is not known, and there are only {OPTIONS}; write an & \
                 of the password as %26"
            )));
        }
        (key, _) => {
            return Err(Error::config(format!(
                "the URL has the option {key:?}, and there are only {OPTIONS}"
            )));
        }
    })
}

fn with_extras(
    mut config: RedisConfig,
    extras: Extras,
    parts: &Parts<'_>,
) -> Result<RedisConfig, Error> {
    if parts.tls {
        config.tls = Some(extras.tls.build(Verify::Server)?);
    } else if extras.tls != TlsOptions::default() {
        return Err(Error::config(
            "the URL has options for TLS and does not ask for it; write rediss:// instead of \
             redis://",
        ));
    }
    if let Some(user) = extras.sentinel_user {
        config.sentinel_login = config.sentinel_login.set_username(user);
    }
    if let Some(password) = extras.sentinel_password {
        config.sentinel_login = config.sentinel_login.set_password(password.expose());
    }
    Ok(config)
}

/// Undoes the `%XX` of a URL.
pub(crate) fn decoded(text: &str) -> Result<String, Error> {
    url_decoded(text).ok_or_else(malformed)
}

fn malformed() -> Error {
    Error::config(
        "the URL is not of the form redis://USER:PASSWORD@HOST:PORT/DATABASE, \
         redis+sentinel://HOST1,HOST2/MASTER/DATABASE or redis+cluster://HOST1,HOST2 (rediss for \
         TLS); escape special characters of the password with %",
    )
}
