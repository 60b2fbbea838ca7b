//! Which elections the database knows of.

use tenure_core::{BoxFuture, Elections, Error, Name};

use crate::{AdvisoryStore, PostgresStore};

impl Elections for PostgresStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }
}

impl Elections for AdvisoryStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }
}
