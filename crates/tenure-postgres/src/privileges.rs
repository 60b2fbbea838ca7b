//! What the role of the store may do, and what it lacks.

use tenure_core::Error;
use tokio_postgres::types::{ToSql, Type};

use crate::store::PostgresStore;

/// Something that the role may not do and should.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPrivilege {
    /// As `GRANT` takes it: `SELECT, INSERT on public.leader_election`.
    pub what: String,
    /// Nobody can lead without it; else messages or cron alone do without.
    pub to_lead: bool,
}

impl PostgresStore {
    /// What the role of this store lacks of what `roles.sql` grants. Nothing is said of tables and
    /// functions that are not there yet: [`check`](Self::check) tells that.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub async fn missing_privileges(&self) -> Result<Vec<MissingPrivilege>, Error> {
        let names = self.names();
        let (schema, table, released) = (names.schema(), names.table(), names.released());
        let values: [(&(dyn ToSql + Sync), Type); 3] =
            [(&schema, Type::TEXT), (&table, Type::TEXT), (&released, Type::TEXT)];
        let rows = self.connector().query(include_str!("sql/privileges.sql"), &values);
        let rows = rows.await.map_err(|error| error.during("check"))?;
        let missing = |row: &tokio_postgres::Row| {
            Some(MissingPrivilege { what: row.try_get(0).ok()?, to_lead: row.try_get(1).ok()? })
        };
        Ok(rows.iter().filter_map(missing).collect())
    }
}
