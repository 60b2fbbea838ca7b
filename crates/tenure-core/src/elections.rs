//! Which elections a store knows of.

use std::future::ready;

use crate::{BoxFuture, Error, ErrorKind, Name};

/// The list of elections, for stores that can tell it.
pub trait Elections: Send + Sync {
    /// All elections that the store knows of, in the order of their names.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>>;

    /// Forgets an election that nobody leads: it is not listed any more, and messages that wait for
    /// its leader are gone. Its last term stays. If the name is used again, its terms go on above
    /// that one, so that no fence takes an old term for a new one (I2).
    ///
    /// A store that can't do it says so.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may be done or not. Doing it again is harmless.
    fn forget<'a>(&'a self, _election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        let message = "this store can't forget an election; it costs a few bytes, leave it there";
        Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, message).during("forget"))))
    }
}

/// What came of forgetting an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forgotten {
    /// It is forgotten.
    Done,
    /// The store did not know it, or had forgotten it before.
    NotKnown,
    /// Somebody leads it, so it stays.
    Led,
}
