//! Setting a store up, for those that need it.

use crate::{BoxFuture, Error, Term};

/// What tenure needs in a database before elections can be held there.
pub trait Migrate: Send + Sync {
    /// Creates or upgrades it, and puts right what others have changed since. It may be called any
    /// number of times, by all instances at once, and while others lead.
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

    /// What the database's own client wants to be told before the script, so that it ends with an
    /// error if the script does; nothing, if it does so anyway.
    fn client_preamble(&self) -> &'static str {
        ""
    }
}

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version before; 0 if there was nothing.
    pub from: i32,
    /// The version after.
    pub to: i32,
    /// The newest version that this program knows.
    pub known: i32,
    /// What was there already and not as this program makes it, in a sentence each. It is now.
    pub repaired: Vec<String>,
}

impl Migrated {
    /// From one version to another, where this program knows up to `known`.
    pub fn new(from: i32, to: i32, known: i32) -> Migrated {
        Migrated { from, to, known, repaired: Vec::new() }
    }

    /// Says what was put right.
    #[must_use]
    pub fn with_repairs(self, repaired: Vec<String>) -> Migrated {
        Migrated { repaired, ..self }
    }
}
