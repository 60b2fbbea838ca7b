//! The fence for data in SQLite: a high-water mark in the user's own file.
//!
//! Leases live in a file of their own, because a long write transaction beside them would hold up
//! renewals (S3). So the user's file needs to know which term is the latest: one small table,
//! checked and raised inside the transaction that writes.
//!
//! - Once: [`INSTALL_SQL`] (or `install`).
//! - A new leader, before it reads anything: [`RAISE_SQL`] (or `raise`).
//! - Every write transaction, first: [`RAISE_SQL`] again (or `check`). It fails with
//!   `tenure: stale term` if a later leader has raised the mark; then roll back.
//!
//! # Raise before you read
//! A mark that is only raised with the first write comes too late for what was read before it:
//!
//! ```text
//! leader 43 reads stock = 5
//!                               leader 42, late, checks (the mark is still 42), stock = 4
//! leader 43 checks (mark 43), stock = 5 - 1 = 4        one of the two sales is lost
//! ```
//!
//! With the mark raised first, the late write of leader 42 is refused.
//!
//! # Other languages
//! The same statements work from everywhere; `?1` is the election's name, `?2` the term:
//!
//! ```sql
#![doc = include_str!("sql/fence_install.sql")]
//! ```
//!
//! ```sql
//! BEGIN IMMEDIATE;
#![doc = include_str!("sql/fence_raise.sql")]
//! -- your own statements
//! COMMIT;
//! ```

/// Creates the table of marks, and the trigger that refuses a stale term. May be run again.
pub const INSTALL_SQL: &str = include_str!("sql/fence_install.sql");

/// Raises the mark of election `?1` to term `?2`; leaves it where it is for the same term; fails
/// with `tenure: stale term` for an older one.
pub const RAISE_SQL: &str = include_str!("sql/fence_raise.sql");

#[cfg(feature = "rusqlite")]
pub use with_rusqlite::{FenceError, Stale, check, install, raise};

#[cfg(feature = "rusqlite")]
mod with_rusqlite {
    use std::error::Error as StdError;
    use std::fmt;

    use rusqlite::{Connection, OptionalExtension, Transaction};
    use tenure_core::{Error, Name, Term};

    use super::{INSTALL_SQL, RAISE_SQL};
    use crate::error;

    /// A later leader has raised the mark: the writer leads no more. Roll back.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Stale {
        /// The election.
        pub election: Name,
        /// The term that the writer believed in.
        pub term: Term,
        /// The latest term that the file knows.
        pub mark: Term,
    }

    /// Why the fence did not let a write pass.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub enum FenceError {
        /// The term is stale.
        Stale(Stale),
        /// The file could not be asked.
        Failed(Error),
    }

    /// Creates the table of marks in the user's file. May be called again.
    ///
    /// # Errors
    /// [`FenceError::Failed`] if the file can't be written.
    pub fn install(conn: &Connection) -> Result<(), FenceError> {
        conn.execute_batch(INSTALL_SQL).map_err(|error| failed(conn, error))
    }

    /// Raises the mark to this term. A new leader does this before it reads anything.
    ///
    /// # Errors
    /// [`FenceError::Stale`] if a later leader was faster.
    pub fn raise(conn: &Connection, election: &Name, term: Term) -> Result<(), FenceError> {
        // The file knows better than any reading before it: the statement itself decides.
        match conn
            .prepare_cached(RAISE_SQL)
            .and_then(|mut raise| raise.execute((election.as_str(), column(term))))
        {
            Ok(_) => Ok(()),
            Err(error) => match mark(conn, election)? {
                Some(mark) if mark > term => Err(stale(election, term, mark)),
                _ => Err(failed(conn, error)),
            },
        }
    }

    /// Lets the transaction go on only if no later leader has raised the mark; raises it to this
    /// term if it is lower. Call it first in every transaction that writes.
    ///
    /// # Guarantees
    /// SQLite's transactions are serialisable: if this one commits a change, no later term was
    /// in the file when it began to read, and none was raised before it committed.
    ///
    /// # Errors
    /// [`FenceError::Stale`]: drop the transaction, which rolls it back, and stop.
    ///
    /// # Examples
    /// ```
    /// use rusqlite::Connection;
    /// use tenure_core::{Name, Term};
    /// use tenure_sqlite::fence;
    ///
    /// let mut conn = Connection::open_in_memory()?;
    /// conn.execute_batch("CREATE TABLE jobs (done INTEGER)")?;
    /// fence::install(&conn)?;
    /// let (election, term) = (Name::new("jobs")?, Term::new(42).expect("in range"));
    /// fence::raise(&conn, &election, term)?;
    ///
    /// let tx = conn.transaction()?;
    /// fence::check(&tx, &election, term)?;
    /// tx.execute("INSERT INTO jobs VALUES (1)", ())?;
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(tx: &Transaction<'_>, election: &Name, term: Term) -> Result<(), FenceError> {
        match mark(tx, election)? {
            Some(mark) if mark == term => Ok(()),
            Some(mark) if mark > term => Err(stale(election, term, mark)),
            _ => raise(tx, election, term),
        }
    }

    fn mark(conn: &Connection, election: &Name) -> Result<Option<Term>, FenceError> {
        let mark: Option<i64> = conn
            .prepare_cached(include_str!("sql/fence_mark.sql"))
            .and_then(|mut read| read.query_row([election.as_str()], |row| row.get(0)).optional())
            .map_err(|error| failed(conn, error))?;
        match mark {
            None => Ok(None),
            Some(mark) => match u64::try_from(mark).ok().and_then(Term::new) {
                Some(mark) => Ok(Some(mark)),
                None => Err(failed(conn, rusqlite::Error::IntegralValueOutOfRange(0, mark))),
            },
        }
    }

    fn stale(election: &Name, term: Term, mark: Term) -> FenceError {
        FenceError::Stale(Stale { election: election.clone(), term, mark })
    }

    fn failed(conn: &Connection, error: rusqlite::Error) -> FenceError {
        FenceError::Failed(error::from_user_file(conn.path(), error).during("fence"))
    }

    fn column(term: Term) -> i64 {
        i64::try_from(term.get()).unwrap_or(i64::MAX)
    }

    impl fmt::Display for Stale {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Stale { election, term, mark } = self;
            write!(f, "term {term} of {election} is stale, {mark} leads; roll back and stop")
        }
    }

    impl StdError for Stale {}

    impl fmt::Display for FenceError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                FenceError::Stale(stale) => stale.fmt(f),
                FenceError::Failed(error) => error.fmt(f),
            }
        }
    }

    impl StdError for FenceError {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            match self {
                FenceError::Stale(_) => None,
                FenceError::Failed(error) => error.source(),
            }
        }
    }
}
