//! Turns everything that can go wrong into one sentence that says what to do.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, show_duration};

use crate::config::PostgresConfig;

/// The name of this store in errors.
pub(crate) const STORE: &str = "postgres";

/// An error of this store.
pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).in_store(STORE)
}

/// What the server or the driver says, in our words.
pub(crate) fn from_postgres(config: &PostgresConfig, error: tokio_postgres::Error) -> Error {
    let address = config.address();
    let user = config.server.get_user().unwrap_or("the user");
    let says = error.as_db_error().map(|db| db.message().to_owned()).unwrap_or_default();
    let code = error.code().map(|state| state.code().to_owned()).unwrap_or_default();
    let (kind, message) = match code.as_str() {
        "" => (
            ErrorKind::Unavailable,
            format!("{address} does not answer: {}; is it running?", causes(&error)),
        ),
        "28P01" | "28000" => (
            ErrorKind::Denied,
            format!("{address} does not let {user} in: {says}; mend the password or pg_hba.conf"),
        ),
        "3D000" => (ErrorKind::Config, format!("{says} at {address}; create it, or mend the URL")),
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
        "25006" => (
            ErrorKind::Unavailable,
            format!(
                "{address} is read-only ({says}); is it a standby? name all servers and \
                 target_session_attrs=read-write in the URL"
            ),
        ),
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

/// The server did not answer in time.
pub(crate) fn timed_out(config: &PostgresConfig, what: &str, after: Duration) -> Error {
    let (address, after) = (config.address(), show_duration(after));
    new(ErrorKind::Unavailable, format!("{what} {address} took more than {after}; is it stuck?"))
}

/// Somebody else is at the row at this instant (P2).
pub(crate) fn busy() -> Error {
    new(ErrorKind::Unavailable, "another transaction is at this election; try again")
}

/// The lease is over, and a fenced transaction of it is not (P3).
pub(crate) fn fenced(pids: &[i32], since: Duration, grace: Duration) -> Error {
    let who: Vec<String> = pids.iter().filter(|pid| **pid != 0).map(i32::to_string).collect();
    let who = match (who.as_slice(), pids.contains(&0)) {
        ([], _) => "a prepared transaction (end it: see pg_prepared_xacts)".to_owned(),
        (pids, false) => format!("backend {}", pids.join(", ")),
        (pids, true) => format!("backend {} and a prepared transaction", pids.join(", ")),
    };
    let ago = show_duration(Duration::from_millis(since.as_millis().try_into().unwrap_or(0)));
    new(
        ErrorKind::Unavailable,
        format!(
            "the lease ended {ago} ago, but {who} is still in a fenced transaction; it may finish, \
             and is ended {} after the lease",
            show_duration(grace)
        ),
    )
}

/// A table that counts in 32 bits can't go on.
pub(crate) fn used_up() -> Error {
    new(
        ErrorKind::Unsupported,
        format!(
            "terms end at {} in this table, and the next one would be beyond; give the election \
             another name, or lower its term floor",
            i32::MAX
        ),
    )
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
