//! A cron tick whose effect is in the same database: the effect and the end of the tick are one
//! transaction, so the effect is there exactly once (K2).
//!
//! A job of delivery `transactional` begins its transaction with `tenure_tick`, which fences it as
//! `tenure_fence` does, and has the tick end well with it. From every language, with what the
//! command finds in its environment:
//!
//! ```sql
//! BEGIN;
//! SELECT tenure_tick('nightly', 42, 'invoices', '2026-11-16T03:00:00Z', 1);
//! INSERT INTO invoice ...;
//! COMMIT;
//! ```
//!
//! It raises TN001 if the term is over, if the tick took effect before, or if it is the tick of
//! another attempt: roll back then.

/// The statement, with the election, the term (a bigint), the job, the scheduled instant (a text
/// in RFC 3339) and the attempt (an integer) to be bound. Where the functions are not on the
/// search path, put the schema before the name.
pub const TICK_SQL: &str = "SELECT tenure_tick($1, $2, $3, $4::text::timestamptz, $5)";

#[cfg(feature = "tokio-postgres")]
pub use with_tokio_postgres::take;

#[cfg(feature = "tokio-postgres")]
mod with_tokio_postgres {
    use tenure_core::{Name, Term};
    use tokio_postgres::Transaction;
    use tokio_postgres::types::Type;

    use crate::fence::{FenceError, STALE};

    /// Fences the transaction, and has this attempt of the tick end well with it. Call it first.
    ///
    /// `schema` is where `tenure migrate` put the functions: `public` unless told otherwise.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped the transaction may be fenced or not; drop it.
    ///
    /// # Errors
    /// [`FenceError::Stale`]: drop the transaction, which rolls it back, and stop.
    pub async fn take(
        tx: &Transaction<'_>,
        schema: &str,
        (election, term): (&Name, Term),
        (job, scheduled_at): (&str, &str),
        attempt: u32,
    ) -> Result<(), FenceError> {
        let schema = schema.replace('"', "\"\"");
        let sql = format!("SELECT \"{schema}\".tenure_tick($1, $2, $3, $4::text::timestamptz, $5)");
        let (name, term) = (election.as_str(), i64::try_from(term.get()).unwrap_or(i64::MAX));
        let attempt = i32::try_from(attempt).unwrap_or(i32::MAX);
        let taken = tx
            .query_typed(
                &sql,
                &[
                    (&name, Type::TEXT),
                    (&term, Type::INT8),
                    (&job, Type::TEXT),
                    (&scheduled_at, Type::TEXT),
                    (&attempt, Type::INT4),
                ],
            )
            .await;
        let Err(error) = taken else { return Ok(()) };
        let stale = error.code().is_some_and(|code| code.code() == STALE);
        let says = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().into());
        Err(if stale { FenceError::Stale(says) } else { FenceError::Failed(says) })
    }
}
