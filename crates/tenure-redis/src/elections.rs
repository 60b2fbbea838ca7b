//! Which elections the database knows of.

use tenure_core::{BoxFuture, Elections, Error, Name};

use crate::store::RedisStore;

impl Elections for RedisStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }
}
