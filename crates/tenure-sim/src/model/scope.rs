//! What a model has beside candidates, a store, faults and commands.

use tenure_core::Term;

/// What more there is in a world. Each of these has its price in states, so each is looked at in a
/// world of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The store may lose its memory (a fault). It then grants nothing for a ttl (R2), and its
    /// terms follow its clock (R1).
    pub forgets: bool,
    /// The store's clock may step ahead by a ttl, or back by half of one (a fault), once every
    /// candidate has read it. No answer takes long and nobody stands still: the rest is what W2
    /// covers.
    pub steps: bool,
    /// Candidates may turn to observing, and campaign again (a command).
    pub observes: bool,
    /// A candidate that takes part again has a machine that is built from its past.
    pub resumes: bool,
    /// Candidates step down at the first renewal whose outcome is unknown.
    pub fail_closed: bool,
    /// The second candidate demands terms of at least this one (C5).
    pub floor: Option<Term>,
    /// Somebody who is not registered as work may be told "you lead" at any time, and may say that
    /// they are done at any time, or never (I8).
    pub relies: bool,
    /// In calm weather somebody must lead within [`CALM_TICKS`].
    pub live: bool,
}

/// How many ticks after the last trouble somebody leads: a lease that runs out (6), and stepping
/// back, backing off and clocks that are off by a tick (3).
pub const CALM_TICKS: u64 = 9;
