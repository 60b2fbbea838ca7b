//! Which elections the file knows of.

use tenure_core::{BoxFuture, Elections, Error, Forgotten, Name};

use crate::store::SqliteStore;

impl Elections for SqliteStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }

    fn forget<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        Box::pin(self.forget(election))
    }
}
