//! The fence for data in Postgres: a check in the user's own transaction.
//!
//! `SELECT tenure_fence(name, term)` first, then the writes. They commit while that term is the
//! latest, or not at all: until the transaction ends nobody can be granted the next one. From any
//! language, at every isolation level:
//!
//! ```sql
//! BEGIN;
//! SELECT tenure_fence('invoices', 42);   -- raises TN001 if term 42 is over
//! INSERT INTO invoice ...;
//! COMMIT;
//! ```
//!
//! - At the top level of an explicit transaction: in autocommit it protects nothing, and rolling
//!   back to a savepoint before it undoes it. The trigger `tenure_guard` catches both (P4).
//! - A session that falls silent in the middle is ended by the server when the lease runs out.
//! - A statement that runs on keeps a successor out until `fence_grace` after the lease (P3).

/// The statement, with the name of the election and the term (a bigint) to be bound. Where the
/// functions are not on the search path, put the schema before the name.
pub const FENCE_SQL: &str = "SELECT tenure_fence($1, $2)";

/// The SQLSTATE that the fence raises for a term that is over.
pub const STALE: &str = "TN001";

#[cfg(feature = "tokio-postgres")]
pub use with_tokio_postgres::{FenceError, check};

#[cfg(feature = "tokio-postgres")]
mod with_tokio_postgres {
    use std::error::Error as StdError;
    use std::fmt;

    use tenure_core::{Name, Term};
    use tokio_postgres::Transaction;
    use tokio_postgres::types::Type;

    use super::STALE;

    /// Why the fence did not let a transaction pass. In any case: roll back.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum FenceError {
        /// The term is over. Stop the work; the sentence says what came after it.
        Stale(String),
        /// The check itself failed, in a sentence.
        Failed(String),
    }

    /// Lets the transaction go on only if this term is the latest and its lease is held, and keeps
    /// it so until the transaction ends. Call it first.
    ///
    /// `schema` is where `tenure migrate` put the functions: `public` unless told otherwise.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped the transaction may be fenced or not; drop it.
    ///
    /// # Errors
    /// [`FenceError::Stale`]: drop the transaction, which rolls it back, and stop.
    pub async fn check(
        tx: &Transaction<'_>,
        schema: &str,
        election: &Name,
        term: Term,
    ) -> Result<(), FenceError> {
        let schema = schema.replace('"', "\"\"");
        let sql = format!("SELECT \"{schema}\".tenure_fence($1, $2)");
        let (name, term) = (election.as_str(), i64::try_from(term.get()).unwrap_or(i64::MAX));
        match tx.query_typed(&sql, &[(&name, Type::TEXT), (&term, Type::INT8)]).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let says = error.as_db_error().map(|db| db.message().to_owned());
                let stale = error.code().is_some_and(|code| code.code() == STALE);
                match says {
                    Some(says) if stale => Err(FenceError::Stale(says)),
                    Some(says) => Err(FenceError::Failed(format!("{says}; roll back"))),
                    None => Err(FenceError::Failed(format!("{error}; roll back"))),
                }
            }
        }
    }

    impl fmt::Display for FenceError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                FenceError::Stale(says) => write!(f, "{says}; roll back and stop"),
                FenceError::Failed(says) => f.write_str(says),
            }
        }
    }

    impl StdError for FenceError {}
}
