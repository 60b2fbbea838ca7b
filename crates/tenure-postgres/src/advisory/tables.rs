//! Whether a candidate uses the tables of `tenure migrate`, or must not campaign.
//!
//! A leader without them, where they are, takes over past a fence and knows of no floor.

use tenure_core::{Error, ErrorKind, Migrated, Term};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::store::AdvisoryStore;
use crate::error;

impl AdvisoryStore {
    /// Makes the tables that fences, metadata, messages and the ledger need, or brings them up to
    /// date. Elections need none; candidates use them from their next session on.
    ///
    /// # Cancel safety
    /// Cancel safe: it is done as a whole or not at all.
    ///
    /// # Errors
    /// As those of [`PostgresStore::migrate`](crate::PostgresStore::migrate).
    pub async fn migrate(&self) -> Result<Migrated, Error> {
        self.tables().migrate().await
    }

    /// What [`migrate`](Self::migrate) does, as a script for `psql`.
    pub fn migration_sql(&self) -> String {
        self.tables().migration_sql()
    }

    /// Has every term that is issued here from now on be above this one; see
    /// [`PostgresStore::raise_terms`](crate::PostgresStore::raise_terms). It needs the tables.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may be done or not. Doing it again is harmless.
    ///
    /// # Errors
    /// As those of [`PostgresStore::raise_terms`](crate::PostgresStore::raise_terms).
    pub async fn raise_terms(&self, above: Term) -> Result<Term, Error> {
        self.tables().raise_terms(above).await
    }
}

/// Asks which server this is, and about its tables.
pub(super) const SERVER_SQL: &str = include_str!("sql/server.sql");

/// What it takes.
pub(super) fn of<'a>(schema: &'a String, table: &'a String) -> [(&'a (dyn ToSql + Sync), Type); 2] {
    [(schema, Type::TEXT), (table, Type::TEXT)]
}

/// Whether the tables are there to be used; why nobody may campaign, if others use them.
pub(super) fn usable(row: &Row, schema: &str) -> Result<bool, Error> {
    let broken = |error: tokio_postgres::Error| {
        error::new(ErrorKind::Corrupt, "the server answers in another shape").caused_by(error)
    };
    let there: bool = row.try_get(3).map_err(broken)?;
    let usable = row.try_get::<_, Option<bool>>(4).map_err(broken)?.unwrap_or(false);
    let others: Option<String> = row.try_get(5).map_err(broken)?;
    match (there, usable, others) {
        (true, false, _) => Err(no_rights(schema)),
        (false, _, Some(others)) => Err(elsewhere(schema, &others)),
        _ => Ok(usable),
    }
}

/// Others fence here, and this role would not see it.
fn no_rights(schema: &str) -> Error {
    error::new(
        ErrorKind::Denied,
        format!(
            "this role may not use the tables of `tenure migrate` in the schema {schema:?}, and \
             would take over past a fence; have the owner grant what roles.sql lists"
        ),
    )
}

/// The same locks are elections of another schema.
fn elsewhere(schema: &str, others: &str) -> Error {
    error::new(
        ErrorKind::Config,
        format!(
            "the schema {schema:?} has no tables of `tenure migrate`, and {others} has: a leader \
             without them takes over past a fence; name that one, as in ?schema=NAME, or \
             run `tenure migrate` for this one"
        ),
    )
}
