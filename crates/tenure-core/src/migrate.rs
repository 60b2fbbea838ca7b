//! Setting a store up, for those that need it.

use crate::{BoxFuture, Error, Term};

/// What tenure needs in a database before elections can be held there.
pub trait Migrate: Send + Sync {
    /// Creates or upgrades it. It may be called any number of times, by all instances at once, and
    /// while others lead.
    ///
    /// # Cancel safety
    /// Cancel safe: it is done as a whole or not at all.
    fn run(&self) -> BoxFuture<'_, Result<Migrated, Error>>;

    /// Keeps all terms that are issued from now on, in every election, above this one; tells above
    /// which they are. It never lowers a term (C5).
    ///
    /// # Cancel safety
    /// Cancel safe: it is done as a whole or not at all.
    fn raise_terms(&self, above: Term) -> BoxFuture<'_, Result<Term, Error>>;

    /// A script that does the same, for people who may not run it themselves. With a term, it
    /// raises the terms, too.
    fn script(&self, terms_above: Option<Term>) -> String;
}

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version before; 0 if there was nothing.
    pub from: i32,
    /// The version after.
    pub to: i32,
    /// The newest version that this program knows.
    pub known: i32,
}

impl Migrated {
    /// From one version to another, where this program knows up to `known`.
    pub fn new(from: i32, to: i32, known: i32) -> Migrated {
        Migrated { from, to, known }
    }
}
