//! A cron tick whose effect is in the user's own file: the effect and the note that it is there are
//! one transaction, so the effect is there exactly once (K2).
//!
//! Leases and the ledger live in a file of their own (S3). So the user's file keeps a table of the
//! ticks that took effect, beside the fence's mark. A job of delivery `transactional` begins its
//! transaction with [`TAKE_SQL`] (or `take`):
//!
//! - the fence lets it pass only if no later leader was there;
//! - a tick that took effect under an earlier attempt is told so: commit nothing, return.
//!
//! From every language, with `?1` the election (TENURE_ELECTION), `?2` the term (TENURE_TERM), `?3`
//! the job (TENURE_JOB) and `?4` the scheduled instant (TENURE_SCHEDULED_AT):
//!
//! ```sql
#![doc = include_str!("sql/take_install.sql")]
//! ```
//!
//! ```sql
//! BEGIN IMMEDIATE;
#![doc = include_str!("sql/fence_raise.sql")]
//! ;
#![doc = include_str!("sql/take.sql")]
//! ; -- no row changed: it was done before; ROLLBACK and leave
//! -- your own statements
//! COMMIT;
//! ```

/// Creates the table of ticks that took effect; [`fence::INSTALL_SQL`](crate::fence::INSTALL_SQL)
/// is needed too. May be run again.
pub const INSTALL_SQL: &str = include_str!("sql/take_install.sql");

/// Notes the tick of job `?2` of election `?1` at `?3`, under term `?4`; changes no row if it took
/// effect before.
pub const TAKE_SQL: &str = include_str!("sql/take.sql");

#[cfg(feature = "rusqlite")]
pub use with_rusqlite::{Taken, install, take};

#[cfg(feature = "rusqlite")]
mod with_rusqlite {
    use rusqlite::{Connection, Transaction};
    use tenure_core::{Error, ErrorKind, Name, Term};

    use super::{INSTALL_SQL, TAKE_SQL};
    use crate::error;
    use crate::fence::{self, FenceError};

    /// Whether a tick is still to be done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Taken {
        /// It is: make its effect in this transaction, and commit.
        Now,
        /// It took effect under an earlier attempt. There is nothing to do.
        Before,
    }

    /// Creates the tables in the user's file, the fence's too. May be called again.
    ///
    /// # Errors
    /// [`FenceError::Failed`] if the file can't be written.
    pub fn install(conn: &Connection) -> Result<(), FenceError> {
        fence::install(conn)?;
        conn.execute_batch(INSTALL_SQL).map_err(failed)
    }

    /// Fences the transaction, and notes that the tick takes effect in it. Call it first.
    ///
    /// # Errors
    /// [`FenceError::Stale`]: drop the transaction, which rolls it back, and stop.
    pub fn take(
        tx: &Transaction<'_>,
        election: &Name,
        term: Term,
        job: &str,
        scheduled_at: &str,
    ) -> Result<Taken, FenceError> {
        fence::check(tx, election, term)?;
        let term = i64::try_from(term.get()).unwrap_or(i64::MAX);
        let values = (election.as_str(), job, scheduled_at, term);
        let noted = tx.prepare_cached(TAKE_SQL).and_then(|mut take| take.execute(values));
        Ok(if noted.map_err(failed)? == 0 { Taken::Before } else { Taken::Now })
    }

    fn failed(cause: rusqlite::Error) -> FenceError {
        let message = format!("the tick can't be noted in your file: {cause}; roll back");
        let error: Error = error::new(ErrorKind::Unavailable, message);
        FenceError::Failed(error.during("take"))
    }
}
