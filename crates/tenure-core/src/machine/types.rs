//! What goes into the machine and what comes out of it.

use std::time::Duration;

use crate::{CandidateId, Holder, Lease, Metadata, Name, Op, Outcome, Term, Time, Timing};

/// Who campaigns for what, and on which terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Settings {
    /// The election.
    pub election: Name,
    /// The candidate.
    pub candidate: CandidateId,
    /// The durations of its lease. They have passed [`Timing::check`].
    pub timing: Timing,
    /// What it publishes while it leads.
    pub metadata: Option<Metadata>,
    /// Terms are at least this one (C5).
    pub term_floor: Option<Term>,
    /// Step down at the first renewal whose outcome is unknown, instead of trying again while
    /// trust lasts.
    pub fail_closed: bool,
    /// A deliberate fault, for tests of the checkers. Never for production.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<super::Sabotage>,
}

impl Settings {
    /// Plain settings: no metadata, no floor, renewals tried again while trust lasts.
    pub fn new(election: Name, candidate: CandidateId, timing: Timing) -> Settings {
        Settings {
            election,
            candidate,
            timing,
            metadata: None,
            term_floor: None,
            fail_closed: false,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Time has passed; nothing else.
    Tick,
    /// The answer to the last [`Action::Send`]. Each send gets exactly one, silence being turned
    /// into `Unknown` by the driver.
    Reply {
        /// When the request left, stamped before its bytes did.
        sent_at: Time,
        /// The answer.
        outcome: Outcome,
    },
    /// Somebody says that something may have changed (I5).
    Hint,
    /// Take part: lead whenever possible.
    Campaign,
    /// Take no part, but keep track of who leads.
    Observe,
    /// Give up the present reign, if there is one; step back, then campaign again.
    Resign,
    /// Give up and take no further part.
    Withdraw,
    /// The work of the reign that was stepped down from has ended, and everybody who was told "you
    /// lead" in it is done: its lease may be given back (I8).
    Drained,
    /// The reign that was stepped down from is over, but nobody can say for all who were told "you
    /// lead" that they are done: its lease is left to run out (I8).
    RunOut,
}

/// What is to be done. A driver carries actions out in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this to the store. Never more than one at a time.
    Send(Op),
    /// A reign begins.
    Lead {
        /// Its term.
        term: Term,
        /// Until when new work may be started, unless extended.
        step_down_at: Time,
        /// Until when the lease may be trusted, unless extended.
        until: Time,
    },
    /// The lease was renewed. After a step-down this only gives the work more time to wind up.
    Extend {
        /// The term.
        term: Term,
        /// Until when new work may be started.
        step_down_at: Time,
        /// Until when the lease may be trusted.
        until: Time,
    },
    /// The reign is over: work is told to stop. Exactly one for each lead (I6).
    StepDown {
        /// The term that ends.
        term: Term,
        /// Why.
        reason: Reason,
        /// Until when work may wind up; the present instant if the lease is somebody else's.
        until: Time,
    },
    /// Trust has ended and the work has not: end it by force. It must not be believed to have
    /// stopped until [`Input::Drained`] says so.
    Abort {
        /// The term whose work it is.
        term: Term,
    },
    /// What was held is given up, or was never held: the end of a resign or a withdrawal.
    Vacated {
        /// The term that was given up, if one is known.
        term: Option<Term>,
        /// Whether the store confirmed it. If not, the lease runs out by itself.
        released: bool,
    },
    /// Somebody else is seen to lead, or nobody.
    Observed(Option<Lease>),
    /// A fact worth telling.
    Report(Report),
    /// Call [`Machine::handle`](crate::Machine::handle) again inside this window, with a tick if
    /// nothing else comes. Replaces the window given before.
    Wake {
        /// Not before this.
        from: Time,
        /// Not after this.
        to: Time,
        /// Where in the window.
        pick: Pick,
    },
    /// No need to call again until something happens. Replaces the window given before.
    Sleep,
}

/// Which instant of a [`Action::Wake`] window suits best. Any is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pick {
    /// A random one: others wait for the same instant.
    Random,
    /// A late one: the more elections share a call to the store, the cheaper it is.
    Late,
}

/// Why a reign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// This candidate resigned or withdrew.
    Resigned,
    /// Somebody asked it to resign.
    Asked,
    /// No renewal was granted in time.
    NotRenewed,
    /// A renewal's outcome was unknown, and the settings say to step down then.
    RenewalFailed,
    /// The store says that the lease is not this candidate's any more.
    Deposed,
}

impl Reason {
    /// One word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Resigned => "resigned",
            Reason::Asked => "asked",
            Reason::NotRenewed => "not_renewed",
            Reason::RenewalFailed => "renewal_failed",
            Reason::Deposed => "deposed",
        }
    }
}

/// Facts that change nothing by themselves, but that people want to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Report {
    /// The store grants nothing new for now (R2).
    Settling {
        /// How much longer.
        left: Duration,
    },
    /// The store's clock jumped against the local one (W2).
    StoreClockStepped {
        /// By how much.
        by: Duration,
        /// Whether it jumped ahead, which makes leases shorter than they should be.
        ahead: bool,
    },
    /// Another live process uses the same label.
    DuplicateLabel {
        /// Who it is.
        holder: Holder,
    },
    /// The store granted a term that it must have issued before. It is not led (I2).
    TermFell {
        /// What was granted.
        granted: Term,
        /// The least that would have been right.
        least: Term,
    },
}

/// The list that a machine writes its actions into.
///
/// # Examples
/// ```
/// use tenure_core::{Action, Actions};
///
/// let mut out = Actions::new();
/// assert!(out.drain().next().is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions(Vec<Action>);

impl Actions {
    /// An empty list.
    pub fn new() -> Actions {
        Actions::default()
    }

    /// Takes the actions out, in order, and keeps the room for more.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.0.drain(..)
    }

    /// Looks at the actions, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Action> {
        self.0.iter()
    }

    pub(super) fn push(&mut self, action: Action) {
        self.0.push(action);
    }
}
