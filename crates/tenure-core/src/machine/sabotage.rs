//! Wrong decisions on purpose, so that the checkers can show that they would notice real ones.
//! Faults that bend only what goes in or comes out stand around the machine: in the simulator, and
//! in the driver.
//!
//! Without the feature `sabotage` every question in here is answered with no and costs nothing.
//! Never turn that feature on in a program that is to be relied upon.

use super::state::{State, Window};
use super::{Actions, Machine};
use crate::{Term, Time};

/// One way for the machine to be wrong, for tests of the checkers only.
///
/// `docs/proof-faults.md` says which checker catches which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(feature = "sabotage"),
    expect(unreachable_pub, reason = "public with the feature only")
)]
pub enum Sabotage {
    /// A hint is taken for a vacant lease (breaks I5).
    HintBelieved,
    /// An acquire does not say which term was led last, and whatever comes is led (breaks C1).
    OldTermAgain,
    /// An answer is looked at before the deadlines that have passed (breaks I3).
    LateGrantRevives,
}

impl Machine {
    /// Whether this fault is switched on.
    #[inline]
    pub(super) fn sabotaged(&self, fault: Sabotage) -> bool {
        #[cfg(feature = "sabotage")]
        return self.settings.sabotage == Some(fault);
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = fault;
            false
        }
    }

    /// What a hint does under [`Sabotage::HintBelieved`]: a follower that waits leads at once.
    pub(super) fn believe(&mut self, now: Time, out: &mut Actions) {
        let term = Term::successor(self.led.max(self.seen), None);
        if let (State::Waiting { .. }, None, Some(term)) = (&self.state, self.flight, term) {
            self.lead(term, now, Window::renewal(now, &self.settings.timing), out);
        }
    }
}
