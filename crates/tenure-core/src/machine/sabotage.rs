//! Deliberate faults, so that the checkers can show that they would notice real ones.
//!
//! Without the feature `sabotage` every question in here is answered with no and costs nothing.
//! Never turn that feature on in a program that is to be relied upon.

use super::state::{State, Window};
use super::{Action, Actions, Machine};
use crate::{Grant, Outcome, Sight, Term, Time};

/// One way for the machine to be wrong, for tests of the checkers only.
///
/// `docs/proof-faults.md` says which checker catches which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(feature = "sabotage"),
    expect(unreachable_pub, reason = "public with the feature only")
)]
pub enum Sabotage {
    /// Trust is counted from the reply instead of from the request (breaks I3).
    TrustFromReply,
    /// The lease is given back before the work has ended (breaks I1).
    ReleaseBeforeDrain,
    /// A hint is taken for a vacant lease (breaks I5).
    HintBelieved,
    /// An acquire does not say which term was led last, and whatever comes is led (breaks C1).
    OldTermAgain,
    /// An answer is looked at before the deadlines that have passed (breaks I3).
    LateGrantRevives,
    /// Every step-down is told twice (breaks I6).
    StepsDownTwice,
    /// Every reign is begun twice (breaks I6).
    LeadsTwice,
    /// A renewal of which nothing is known counts as granted (breaks I7).
    UnknownIsYes,
    /// A renewal of which nothing is known counts as refused (breaks I7).
    UnknownIsNo,
    /// Every request is sent twice (two are under way at once).
    SendsTwice,
    /// Every call asks for two wakes.
    WakesTwice,
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

    /// What is made of an answer that is unknown.
    #[inline]
    pub(super) fn misread(&self, outcome: Outcome) -> Outcome {
        match (outcome, self.leading()) {
            (Outcome::Unknown, Some(term)) if self.sabotaged(Sabotage::UnknownIsYes) => {
                Outcome::Granted(Grant::new(term))
            }
            (Outcome::Unknown, Some(_)) if self.sabotaged(Sabotage::UnknownIsNo) => {
                Outcome::Refused(Sight::default())
            }
            (outcome, _) => outcome,
        }
    }

    /// Says things twice that are to be said once.
    #[inline]
    pub(super) fn repeat(&self, out: &mut Actions) {
        if !cfg!(feature = "sabotage") {
            return;
        }
        let all: Vec<Action> = out.drain().collect();
        for action in all {
            let twice = match action {
                Action::StepDown { .. } => self.sabotaged(Sabotage::StepsDownTwice),
                Action::Lead { .. } => self.sabotaged(Sabotage::LeadsTwice),
                Action::Send(_) => self.sabotaged(Sabotage::SendsTwice),
                Action::Wake { .. } => self.sabotaged(Sabotage::WakesTwice),
                _ => false,
            };
            if twice {
                out.push(action.clone());
            }
            out.push(action);
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
