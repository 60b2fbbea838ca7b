//! How far a reign has got, and who may say so.
//!
//! Two go on with it: the driver, and the alarm that notices the end of trust while the driver
//! hangs. What must hold in every order of events: it only goes forward, each step is made by one
//! of the two, and its end gives the reason that the step-down gave.

use tenure_core::Reason;

/// How far a reign has got. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Leading,
    /// Work is told to stop.
    Draining(Reason),
    /// Trust has ended: work is ended by force.
    Over(Reason),
}

impl Phase {
    /// Why it ended; that of a reign that is on is what it would be if nothing more happened.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Phase::Leading => Reason::NotRenewed,
            Phase::Draining(reason) | Phase::Over(reason) => reason,
        }
    }

    fn rank(self) -> u8 {
        match self {
            Phase::Leading => 0,
            Phase::Draining(_) => 1,
            Phase::Over(_) => 2,
        }
    }
}

/// A phase behind a lock of some kind.
pub(crate) trait Phases {
    /// Looks at the phase and changes it, while nobody else does.
    fn change<R>(&self, change: impl FnOnce(&mut Phase) -> R) -> R;

    /// Goes on to `phase`, unless it is there or further already; says whether it went.
    fn advance(&self, phase: Phase) -> bool {
        self.change(|present| {
            let advances = present.rank() < phase.rank();
            if advances {
                *present = phase;
            }
            advances
        })
    }

    /// Trust has ended; says whether anybody is to be told, to the first that notices it.
    fn advance_to_end(&self) -> bool {
        self.change(|present| {
            if matches!(present, Phase::Over(_)) {
                return false;
            }
            *present = Phase::Over(present.reason());
            true
        })
    }
}
