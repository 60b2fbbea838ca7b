//! Which elections a store knows of.

use crate::{BoxFuture, Error, Name};

/// The list of elections, for stores that can tell it.
pub trait Elections: Send + Sync {
    /// All elections that the store knows of, in the order of their names.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>>;
}
