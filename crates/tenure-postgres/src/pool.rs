//! Connections that the user's own pool lends, for all that is no renewal (C3).
//!
//! A pool may be used up, hang, or lead elsewhere. Whatever it can't do in time is done on tenure's
//! own connection: every op may be carried out twice without harm.

#[cfg(feature = "tokio-postgres")]
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::BoxFuture;
use tokio::time::{Instant, timeout};
#[cfg(feature = "tokio-postgres")]
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error as PostgresError, Row};

use crate::link::held;

/// How long a pool is let alone after it did not lend in time.
const REST: Duration = Duration::from_secs(5);

/// The values of a statement, with their types.
pub(crate) type Values<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The pool of a user, and how it has served so far.
pub(crate) struct Pool {
    lender: Box<dyn Lender>,
    rests_until: Mutex<Option<Instant>>,
    /// It was seen to lead to the same deployment.
    known: AtomicBool,
}

/// Whatever runs a statement on a connection that it has been lent.
pub(crate) trait Lender: Send + Sync {
    /// Runs one statement. `Ok(None)`: no connection was lent, for the reason in the log.
    fn query<'a>(
        &'a self,
        sql: &'a str,
        values: &'a Values<'a>,
    ) -> BoxFuture<'a, Result<Option<Vec<Row>>, PostgresError>>;
}

impl Pool {
    #[cfg(feature = "tokio-postgres")]
    pub(crate) fn new(lender: impl Lender + 'static) -> Pool {
        Pool {
            lender: Box::new(lender),
            rests_until: Mutex::default(),
            known: AtomicBool::new(false),
        }
    }

    /// Runs a statement within the limit. `Ok(None)`: ask elsewhere.
    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &Values<'_>,
        limit: Duration,
    ) -> Result<Option<Vec<Row>>, PostgresError> {
        if held(&self.rests_until).is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        match timeout(limit, self.lender.query(sql, values)).await {
            Ok(Ok(Some(rows))) => Ok(Some(rows)),
            Ok(Err(error)) if !is_broken(&error) => Err(error),
            // Nothing was lent, it hangs, or what was lent is broken.
            Ok(Ok(None)) | Ok(Err(_)) | Err(_) => {
                tracing::debug!("the pool is let alone for a while");
                *held(&self.rests_until) = Some(Instant::now() + REST);
                Ok(None)
            }
        }
    }

    /// Whether it was seen to lead to the same deployment.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    pub(crate) fn know(&self) {
        self.known.store(true, Ordering::Relaxed);
    }
}

/// Whether the connection is at fault, and not the statement.
fn is_broken(error: &PostgresError) -> bool {
    let ended = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::IDLE_SESSION_TIMEOUT,
        SqlState::CONNECTION_FAILURE,
    ];
    error.is_closed() || error.code().is_none_or(|code| ended.contains(code))
}

/// A pool of whichever kind: how to borrow from it, and where the client is in what it lends.
#[cfg(feature = "tokio-postgres")]
pub(crate) struct Borrowed<P, C> {
    pub(crate) borrow: P,
    pub(crate) client: fn(&C) -> &Client,
}

#[cfg(feature = "tokio-postgres")]
impl<P, F, C, E> Lender for Borrowed<P, C>
where
    P: Fn() -> F + Send + Sync,
    F: Future<Output = Result<C, E>> + Send,
    C: Send + Sync,
    E: fmt::Display,
{
    fn query<'a>(
        &'a self,
        sql: &'a str,
        values: &'a Values<'a>,
    ) -> BoxFuture<'a, Result<Option<Vec<Row>>, PostgresError>> {
        Box::pin(async move {
            let lent = match (self.borrow)().await {
                Ok(lent) => lent,
                Err(error) => {
                    tracing::debug!(%error, "the pool lends no connection");
                    return Ok(None);
                }
            };
            (self.client)(&lent).query_typed(sql, values).await.map(Some)
        })
    }
}
