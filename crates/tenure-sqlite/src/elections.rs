//! Which elections the file knows of.

use tenure_core::{BoxFuture, Elections, Error, Name};

use crate::store::SqliteStore;

impl Elections for SqliteStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }
}
