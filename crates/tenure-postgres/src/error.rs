//! Turns everything that can go wrong into one sentence that says what to do.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, Name, show_duration};

use tokio_postgres::config::SslNegotiation;

use crate::config::PostgresConfig;

/// The name of this store in errors.
pub(crate) const STORE: &str = "postgres";

/// An error of this store.
pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).in_store(STORE)
}

/// What the server or the driver says, in our words.
pub(crate) fn from_postgres(config: &PostgresConfig, error: tokio_postgres::Error) -> Error {
    said(config, &config.address(), error)
}

/// What one of the servers, or the driver, says to somebody who wants in.
pub(crate) fn from_connecting(
    config: &PostgresConfig,
    index: usize,
    error: tokio_postgres::Error,
) -> Error {
    said(config, &config.address_of(index), error)
}

fn said(config: &PostgresConfig, address: &str, error: tokio_postgres::Error) -> Error {
    let user = config.server.get_user().unwrap_or("the user");
    let says = error.as_db_error().map(|db| db.message().to_owned()).unwrap_or_default();
    let code = error.code().map(|state| state.code().to_owned()).unwrap_or_default();
    let direct = config.server.get_ssl_negotiation() == SslNegotiation::Direct;
    let (kind, message) = match code.as_str() {
        "" if direct => {
            let (kind, message) = unsaid(address, &causes(&error));
            (kind, format!("{message} And sslnegotiation=direct needs PostgreSQL 17 or later"))
        }
        "" => unsaid(address, &causes(&error)),
        "28P01" | "28000" => (
            ErrorKind::Denied,
            format!(
                "{address} does not let {user} in: {says}; fix the password, the client's \
                 certificate (sslcert, sslkey) or pg_hba.conf"
            ),
        ),
        "3D000" => (ErrorKind::Config, format!("{says} at {address}; create it, or fix the URL")),
        "42501" => (
            ErrorKind::Denied,
            format!("{says} as {user}; have the owner grant what roles.sql lists"),
        ),
        "42883" | "42P01" | "3F000" | "42703" => (
            ErrorKind::Config,
            format!(
                "schema {:?} at {address} is not set up for tenure ({says}); run `tenure migrate`",
                config.names.schema()
            ),
        ),
        "TN002" => (
            ErrorKind::Config,
            format!("{says}; use another schema or table, as in ?schema=tenure"),
        ),
        "TN004" => (
            ErrorKind::Config,
            format!(
                "{says} by default, and tenure needs read committed; run ALTER ROLE {user} SET \
                 default_transaction_isolation = 'read committed'"
            ),
        ),
        "42P13" => (
            ErrorKind::Config,
            format!("a function of the same name is there already: {says}; drop it first"),
        ),
        "25006" => (ErrorKind::Unavailable, read_only(address, &says)),
        "53300" => (
            ErrorKind::Unavailable,
            format!("{address} has no connection left ({says}); raise max_connections"),
        ),
        "57P01" | "57P02" | "57P03" => {
            (ErrorKind::Unavailable, format!("{address} is stopping or starting ({says}); wait"))
        }
        "40001" | "40P01" | "55P03" => {
            (ErrorKind::Unavailable, format!("others were faster ({says}); try again"))
        }
        "22021" | "22P05" => (
            ErrorKind::Unsupported,
            format!("the encoding of the database can't hold this ({says}); use one in UTF8"),
        ),
        code => (
            ErrorKind::Unavailable,
            format!("{address} says {code}: {says}; see the log of the server"),
        ),
    };
    new(kind, message).caused_by(error)
}

/// The role may not create what a migration creates.
pub(crate) fn may_not_migrate(config: &PostgresConfig, error: tokio_postgres::Error) -> Error {
    let user = config.server.get_user().unwrap_or("the user");
    let says = error.as_db_error().map(|db| db.message().to_owned()).unwrap_or_default();
    let message = format!(
        "{user} may not set up {} ({says}); have its owner run what `tenure migrate --print` \
         prints, and then roles.sql for {user}",
        config.address()
    );
    new(ErrorKind::Denied, message).caused_by(error)
}

/// What a migration could not put right (P8).
pub(crate) fn differs(config: &PostgresConfig, what: &[String]) -> Error {
    let (address, what) = (config.address(), what.join("; "));
    let message = format!(
        "{address} is not as tenure made it, and could not be put right: {what}; drop what is \
         wrong, then run `tenure migrate` again"
    );
    new(ErrorKind::Config, message)
}

/// What went wrong without a word of the server's.
fn unsaid(address: &str, causes: &str) -> (ErrorKind, String) {
    let has = |part: &str| causes.contains(part);
    if has("does not allow writes") {
        let says = "it does not allow writes";
        return (ErrorKind::Unavailable, read_only(address, says));
    }
    if has("password missing") {
        let message = format!(
            "{address} asks for a password and there is none; put it into the URL, or into a file \
             named with passfile=PATH or PGPASSFILE"
        );
        return (ErrorKind::Denied, message);
    }
    if has("channel binding") {
        let message = format!(
            "{address} can't be reached with channel_binding=require ({causes}); it needs TLS \
             (sslmode=require) and a password by SCRAM there"
        );
        return (ErrorKind::Unsupported, message);
    }
    let remedy = if has("does not support TLS") {
        "turn ssl on there, or ask for sslmode=disable"
    } else if has("certificate") || has("fatal alert") {
        "check sslrootcert, the name of the host, and your own certificate in sslcert"
    } else {
        "is it running?"
    };
    (ErrorKind::Unavailable, format!("{address} does not answer: {causes}; {remedy}"))
}

fn read_only(address: &str, says: &str) -> String {
    format!(
        "{address} is read-only ({says}); is it a standby? name all servers in the URL, or the \
         primary; target_session_attrs=any is for reading only"
    )
}

/// None of the servers will do, each for its own reason.
pub(crate) fn nobody(mut refusals: Vec<Error>) -> Error {
    if refusals.len() == 1 {
        return refusals.remove(0);
    }
    // While one of them may yet do, it is worth trying again.
    let passing = refusals.iter().any(Error::is_retryable);
    let kind = match refusals.first() {
        Some(first) if !passing => first.kind(),
        _ => ErrorKind::Unavailable,
    };
    let reasons: Vec<&str> = refusals.iter().map(Error::message).collect();
    new(kind, format!("none of the servers will do: {}", reasons.join("; and ")))
}

/// One of several servers did not answer in its share of the time.
pub(crate) fn no_answer(config: &PostgresConfig, index: usize, after: Duration) -> Error {
    let (address, after) = (config.address_of(index), show_duration(after));
    new(ErrorKind::Unavailable, format!("connecting to {address} took more than {after}"))
}

/// The server did not answer in time.
pub(crate) fn timed_out(config: &PostgresConfig, what: &str, after: Duration) -> Error {
    let (address, after) = (config.address(), show_duration(after));
    new(ErrorKind::Unavailable, format!("{what} {address} took more than {after}; is it stuck?"))
}

/// LISTEN succeeded, and what was notified then did not come.
pub(crate) fn not_heard(config: &PostgresConfig, after: Duration) -> Error {
    let (address, after) = (config.address(), show_duration(after));
    new(
        ErrorKind::Unavailable,
        format!(
            "LISTEN at {address} did not hear its own NOTIFY within {after}{NOT_HEARD}; connect to \
             the server itself, or to a pooler in session mode"
        ),
    )
}

/// Whether it is that.
pub(crate) fn is_not_heard(error: &Error) -> bool {
    error.message().contains(NOT_HEARD)
}

const NOT_HEARD: &str = ", as behind a pooler in transaction mode";

/// Whether others had something locked for longer than was waited for.
pub(crate) fn is_locked(error: &Error) -> bool {
    code(error) == Some("55P03")
}

/// The SQLSTATE of an error, if the server has said it.
pub(crate) fn code(error: &Error) -> Option<&str> {
    let driver = std::error::Error::source(error)?.downcast_ref::<tokio_postgres::Error>()?;
    Some(driver.code()?.code())
}

/// Somebody else is at the row at this instant (P2); if it has been so for a while, who that is.
pub(crate) fn busy(pids: Option<&str>) -> Error {
    let message = match pids {
        None => "another transaction is at this election; try again".to_owned(),
        Some(pids) => format!(
            "backend {pids} has locked this election (FOR UPDATE?) and does not let go; end its \
             transaction, with pg_terminate_backend if need be"
        ),
    };
    new(ErrorKind::Unavailable, message)
}

/// The lease is over, and a fenced transaction of it is not (P3).
pub(crate) fn fenced(pids: &[i32], since: Duration, grace: Duration) -> Error {
    let who: Vec<String> = pids.iter().filter(|pid| **pid != 0).map(i32::to_string).collect();
    let ago = show_duration(Duration::from_millis(since.as_millis().try_into().unwrap_or(0)));
    let by_hand = "nobody can end that but you: COMMIT PREPARED or ROLLBACK PREPARED what \
                   pg_prepared_xacts lists";
    let and_then = format!("it may finish, and is ended {} after the lease", show_duration(grace));
    let (who, what) = match (who.join(", "), pids.contains(&0)) {
        (pids, true) if pids.is_empty() => {
            ("a prepared transaction is fenced".to_owned(), by_hand.to_owned())
        }
        (pids, false) => (format!("backend {pids} is still in a fenced transaction"), and_then),
        (pids, true) => (
            format!("backend {pids} and a prepared transaction are fenced"),
            format!("the first {and_then}; the other: {by_hand}"),
        ),
    };
    new(ErrorKind::Unavailable, format!("the lease ended {ago} ago, but {who}; {what}"))
}

/// There is no term left.
pub(crate) fn used_up() -> Error {
    new(
        ErrorKind::Unsupported,
        "the terms of this election are used up; give it another name, or lower its term floor",
    )
}

/// The election is one by an advisory lock, and led (P8).
pub(crate) fn led_by_lock(election: &Name, holder: &str) -> Error {
    new(
        ErrorKind::Config,
        format!(
            "the election {election} is led by an advisory lock (postgres+advisory://), as \
             {holder}; stop its candidates there first, or give this election another name"
        ),
    )
}

/// The election is one in the table of leases, and led (P8).
pub(crate) fn led_by_lease(election: &Name, holder: &str) -> Error {
    new(
        ErrorKind::Config,
        format!(
            "the election {election} is led by a lease in the table (postgres://), as {holder}; \
             stop its candidates there first, or give this election another name"
        ),
    )
}

/// Whether the server, or this database, takes no writes (P7).
pub(crate) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "25006")
}

/// The causes of an error, innermost last.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
