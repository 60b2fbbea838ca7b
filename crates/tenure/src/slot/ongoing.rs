//! A reign inside its slot: who works for it, who relies on it, and what its end means (I8).

use std::sync::Arc;

use tenure_core::{Input, Reason, Time};

use crate::announcer::Announcer;
use crate::sabotage::{Fault, Faults};
use crate::shared::{Phase, Reign};

/// What an election's callbacks mean for those who were told "you lead" (I8).
#[derive(Clone, Copy, Default)]
pub(crate) struct Promises {
    /// `on_elected` tells somebody, and no `on_lost` says when they are done.
    pub(crate) relies: bool,
    /// A returned `on_lost` says that the whole reign is done.
    pub(crate) answers: bool,
}

/// A reign that is on, or that was stepped down from and has not ended.
pub(super) struct Ongoing {
    pub(super) reign: Arc<Reign>,
    /// Set at the step-down.
    pub(super) reason: Option<Reason>,
    /// Somebody was told "you lead" without being registered, and has not said that they are done.
    pub(super) relied_upon: bool,
    /// The drain is over, or trust is.
    pub(super) aborted: bool,
    pub(super) awaits_relay: bool,
    /// `on_lost` was to say that the reign is done, and did not return.
    pub(super) cut_off: bool,
    pub(super) tenure_ended: bool,
    pub(super) told: bool,
    /// The work was ended by force, and goes on all the same.
    pub(super) overrun: bool,
}

impl Ongoing {
    pub(super) fn new(reign: Arc<Reign>) -> Ongoing {
        Ongoing {
            reign,
            reason: None,
            relied_upon: false,
            aborted: false,
            awaits_relay: false,
            cut_off: false,
            tenure_ended: false,
            told: false,
            overrun: false,
        }
    }

    /// Nobody trusts this reign any more.
    pub(super) fn end(&self, announcer: &Announcer) {
        self.reign.set_trust_until(Time::ZERO);
        announcer.deadline_moved(&self.reign);
        let reason = self.reason.unwrap_or(Reason::NotRenewed);
        if self.reign.advance(Phase::Over(reason)) {
            announcer.phase_changed(&self.reign);
        }
    }

    /// What the machine is to be told, once nobody works for this reign any more and everybody who
    /// was told "you lead" is done, or the time for that is over (I8).
    pub(super) fn verdict(&self, relay_is_gone: bool, faults: Faults) -> Option<Input> {
        let reason = self.reason?;
        let relaying = self.awaits_relay && !relay_is_gone;
        let works = self.reign.has_work() && !faults.has(Fault::ReleasesUnderWork);
        let relied_upon = self.relied_upon && !faults.has(Fault::ReleasesRelied);
        if works || relaying || (relied_upon && !self.aborted) {
            return None;
        }
        let in_order = matches!(reason, Reason::Resigned | Reason::Asked);
        let unanswered = self.cut_off || (self.awaits_relay && relay_is_gone);
        if unanswered || (self.relied_upon && !in_order) {
            return Some(Input::RunOut);
        }
        Some(Input::Drained)
    }
}
