//! Turns everything that can go wrong into one sentence that says what to do.

use std::time::Duration;

use redis::{ErrorKind as Driver, RedisError, ServerError};
use tenure_core::{Error, ErrorKind};
use tenure_tls::HandshakeFailure;

/// The name of this store in errors.
pub(crate) const STORE: &str = "redis";

/// What an ACL user needs; the README has the same list.
pub(crate) const PRIVILEGES: &str = "+evalsha +eval +info +time +get +set +del +pexpireat \
     +persist +pttl +hget +hset +hmget +hdel +publish +subscribe +unsubscribe +ping (with a \
     database other than 0 +select, on a Cluster +spublish +ssubscribe +sunsubscribe \
     +cluster|slots +asking, with wait_replicas +wait, for messages and cron +hgetall +hexists \
     +hincrby +sadd +smembers +zadd +zrem +zcard +zrange +zrangebyscore +zrevrange +zscore)";

/// An error of this store.
pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).in_store(STORE)
}

/// The server did not answer in time.
pub(crate) fn silent(address: &str, what: &str, waited: Duration) -> Error {
    new(
        ErrorKind::Unavailable,
        format!(
            "{address} did not {what} within {} ms; is the server stopped or out of reach?",
            waited.as_millis()
        ),
    )
}

/// What the network says, in our words.
pub(crate) fn from_io(address: &str, error: &std::io::Error) -> Error {
    let message = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("nobody listens at {address}; is the server running?")
        }
        _ => format!("{address} can't be reached: {error}; look at host, port and network"),
    };
    new(ErrorKind::Unavailable, message)
}

/// Why a connection could not be encrypted.
pub(crate) fn from_handshake(address: &str, error: &std::io::Error) -> Error {
    let advice = match HandshakeFailure::of(error) {
        None => return from_io(address, error),
        Some(HandshakeFailure::NoTls) => return without_tls(address),
        Some(HandshakeFailure::WantsCertificate) => return wants_certificate(address),
        Some(HandshakeFailure::Untrusted(why)) => format!(
            "has a certificate that can't be trusted ({why}); name the file of its CA with \
             sslrootcert=PATH, and the host as the certificate does"
        ),
        Some(HandshakeFailure::Refused(alert)) => {
            format!("refused the handshake ({alert}); look at sslcert, sslkey and the CA it has")
        }
        Some(HandshakeFailure::Other(why)) => {
            format!("and this client do not agree on TLS: {why}; look at both ends")
        }
        Some(_) => "and this client do not agree on TLS; look at both ends".to_owned(),
    };
    new(ErrorKind::Config, format!("{address} {advice}"))
}

/// The server does not speak TLS.
pub(crate) fn without_tls(address: &str) -> Error {
    let advice = "answers without TLS; write redis:// instead of rediss://, or name the port that \
                  speaks TLS";
    new(ErrorKind::Config, format!("{address} {advice}"))
}

/// The server wants to know by a certificate who we are.
pub(crate) fn wants_certificate(address: &str) -> Error {
    let advice = "asks for a client certificate; give sslcert=PATH and sslkey=PATH";
    new(ErrorKind::Config, format!("{address} {advice}"))
}

/// The server does not trust our certificate.
pub(crate) fn refuses_certificate(address: &str, alert: &str) -> Error {
    let advice = "refused the certificate of this client";
    new(ErrorKind::Denied, format!("{address} {advice} ({alert}); look at sslcert and sslkey"))
}

/// A grant is on the server, and not on as many replicas as it should be.
pub(crate) fn too_few_replicas(address: &str, have: &str, wanted: &str) -> Error {
    new(
        ErrorKind::Unavailable,
        format!(
            "only {have} of {wanted} replicas of {address} had the lease in time, so it does not \
             count; look at the replicas, or lower wait_replicas"
        ),
    )
}

/// What the driver says, in our words.
pub(crate) fn from_driver(address: &str, error: RedisError) -> Error {
    let code = error.code().map(str::to_owned);
    let detail = error.detail().unwrap_or_default().to_owned();
    let (kind, message) = match (error.kind(), code) {
        (_, Some(code)) => from_code(address, &code, &detail),
        (Driver::AuthenticationFailed, _) => (ErrorKind::Denied, refused_login(address)),
        (Driver::Parse | Driver::UnexpectedReturnType | Driver::RESP3NotSupported, _) => (
            ErrorKind::Config,
            format!("what listens at {address} is not a Redis server; look at host and port"),
        ),
        (Driver::InvalidClientConfig, _) => (
            ErrorKind::Unsupported,
            format!("{address} can't be reached by this build: {error}; fix the URL"),
        ),
        _ if error.is_connection_refusal() => {
            (ErrorKind::Unavailable, format!("nobody listens at {address}; is the server running?"))
        }
        _ if error.is_io_error() => (
            ErrorKind::Unavailable,
            format!("the connection to {address} broke: {error}; is it a Redis, and running?"),
        ),
        _ => (ErrorKind::Unavailable, format!("{address} did not answer as expected: {error}")),
    };
    new(kind, message).caused_by(error)
}

/// What the driver says of a connection that it could not set up, in our words. A server that does
/// not know HELLO or AUTH quotes what it was sent, and that is the password: so what it answers to
/// a login is judged, but none of it is passed on.
pub(crate) fn from_login(address: &str, error: RedisError) -> Error {
    let Some(code) = error.code() else {
        return match error.kind() {
            Driver::AuthenticationFailed => new(ErrorKind::Denied, refused_login(address)),
            _ => from_driver(address, error),
        };
    };
    let (kind, message) = match from_code(address, code, error.detail().unwrap_or_default()) {
        (ErrorKind::Denied, _) if code == "NOPERM" => (ErrorKind::Denied, refused_login(address)),
        (ErrorKind::Corrupt, _) => (
            ErrorKind::Corrupt,
            format!("{address} refused the login with an unexpected error; look at its log"),
        ),
        judged => judged,
    };
    new(kind, message)
}

fn refused_login(address: &str) -> String {
    format!("{address} refused the user or the password; fix the URL")
}

/// What the server answered to one call, in our words.
pub(crate) fn from_server(address: &str, error: &ServerError) -> Error {
    let detail = error.details().unwrap_or_default();
    let (kind, message) = from_code(address, error.code(), detail);
    new(kind, message).caused_by(RedisError::from(error.clone()))
}

/// The script answered something that it never answers.
pub(crate) fn odd_answer() -> Error {
    new(ErrorKind::Corrupt, "a script gave an answer that it can't give; report this as a bug")
}

fn from_code(address: &str, code: &str, detail: &str) -> (ErrorKind, String) {
    use ErrorKind::{Config, Corrupt, Denied, Unavailable, Unsupported};
    let (kind, advice) = match code {
        "NOAUTH" => (Denied, "wants a password; write redis://USER:PASSWORD@HOST"),
        "WRONGPASS" => (Denied, "refused the user or the password; fix the URL"),
        "NOPERM" => return (Denied, no_permission(address, detail)),
        "ERR"
            if detail.contains("executing the script can't") || detail.contains("ACL failure") =>
        {
            return (Denied, no_permission(address, detail));
        }
        "ERR" if detail.contains("AUTH") => (Denied, "wants no password; leave it out of the URL"),
        "ERR" if detail.contains("DB index") => {
            (Config, "has no database of this number; see `databases` in its configuration")
        }
        "ERR" if detail.starts_with("unknown command") => {
            (Unsupported, "does not run scripts; for a Sentinel write redis+sentinel://HOST/MASTER")
        }
        "WRONGTYPE" => (
            Config,
            "has another program's data under the name of this election; choose another name, \
             or a prefix of your own",
        ),
        "READONLY" => return (Unavailable, is_replica(address)),
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => {
            return (Unsupported, in_cluster(address));
        }
        "LOADING" => (Unavailable, "is loading its data; try again in a moment"),
        "MASTERDOWN" => (Unavailable, "is a replica without its primary; connect to the primary"),
        "BUSY" => (Unavailable, "is busy with a long-running script; stop that script"),
        "OOM" => (Unavailable, "has used up its `maxmemory`; give it more"),
        "MISCONF" => (Unavailable, "can't save its data and takes no writes; look at its disk"),
        "NOREPLICAS" => (Unavailable, "has too few replicas to take writes; look at them"),
        "TENURERANGE" => (Unsupported, "has no term left for this election; choose another name"),
        "TENURENORUN" => (Unsupported, "does not tell its run_id; use settle=off if you must"),
        _ => {
            return (Corrupt, format!("{address} answered {code} {detail}; look at its log"));
        }
    };
    (kind, format!("{address} {advice}"))
}

fn no_permission(address: &str, detail: &str) -> String {
    // Inside a script a server does not tell which command it refused.
    let named = detail.split_once(" run the '").and_then(|(_, rest)| rest.split_once("' command"));
    let grant = match named {
        Some((command, _)) => format!("it lacks +{}; all that ", command.to_lowercase()),
        None => String::new(),
    };
    format!(
        "{address} refused this user: {detail}; {grant}its ACL needs: {PRIVILEGES}, the \
         keys of the elections and the channel of hints (without +info, settle=off)"
    )
}

/// The server is one of a Cluster.
pub(crate) fn in_cluster(address: &str) -> String {
    format!("{address} is part of a Cluster; write redis+cluster:// instead of redis://")
}

/// The server has a copy only.
pub(crate) fn is_replica(address: &str) -> String {
    format!("{address} is a read-only replica; connect to the primary")
}

/// A Cluster is being changed, or lacks a server.
pub(crate) fn in_flux(address: &str) -> String {
    format!(
        "nobody serves this slot of {address} now: it is being moved, or its server is down; try \
         again in a moment, or look at CLUSTER INFO"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_has_its_sentence() {
        for (code, detail, kind, word) in [
            ("NOAUTH", "Authentication required.", ErrorKind::Denied, "PASSWORD"),
            ("WRONGPASS", "invalid", ErrorKind::Denied, "fix the URL"),
            ("NOPERM", "may not run the 'eval' command", ErrorKind::Denied, "it lacks +eval; all"),
            ("ERR", "The user executing the script can't run this command", ErrorKind::Denied, "+"),
            ("ERR", "The user executing the script can't access", ErrorKind::Denied, "the keys"),
            ("ERR", "ACL failure in script: may not", ErrorKind::Denied, "needs: +evalsha"),
            ("ERR", "DB index is out of range", ErrorKind::Config, "databases"),
            ("ERR", "unknown command 'EVALSHA'", ErrorKind::Unsupported, "Sentinel"),
            ("WRONGTYPE", "", ErrorKind::Config, "prefix"),
            ("READONLY", "", ErrorKind::Unavailable, "primary"),
            ("MOVED", "1 h:1", ErrorKind::Unsupported, "Cluster"),
            ("OOM", "", ErrorKind::Unavailable, "maxmemory"),
            ("TENURERANGE", "", ErrorKind::Unsupported, "another name"),
            ("WHAT", "is this", ErrorKind::Corrupt, "WHAT is this"),
        ] {
            let (got, message) = from_code("redis://h/0", code, detail);
            assert_eq!(got, kind, "{message}");
            assert!(message.contains(word), "{message}");
        }
    }
}
