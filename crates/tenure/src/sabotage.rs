//! Wrong on purpose, so that the simulation of the library can show that it would notice.
//!
//! A fault is asked for by the [`Runtime`], so a process may have sound candidates beside wrong
//! ones; a drill asks for one of a single election. Without the feature `sabotage` every question
//! in here is answered with no and costs nothing. Never turn that feature on in a program that is
//! to be relied upon.

use tenure_core::{Action, Input, Outcome, Reason, Time};

use crate::runtime::Runtime;

/// One way for the library to be wrong. `docs/proof-faults.md` says how the simulation catches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Slot: the lease is given back although somebody relies on the reign (I8).
    ReleasesRelied,
    /// Slot: the lease is given back although registered work goes on (I8).
    ReleasesUnderWork,
    /// Slot: nobody waits for `on_lost` to return (I8).
    IgnoresOnLost,
    /// Slot: the lease is given back although `on_lost` was cut off (I8).
    ReleasesCutOff,
    /// Slot: `is_leader()` stays true after the step-down.
    KeepsLeadWord,
    /// Slot: a renewal does not move the deadline of the reign.
    ForgetsDeadline,
    /// Slot: a stop does not put out those who campaign.
    StopForgetsCampaign,
    /// Slot: the reign is announced before the dispatcher listens (M1).
    LeadsBeforeListening,
    /// Slot: `start` is answered by nobody if it comes while the last reign winds up.
    ForgetsFirstReply,
    /// Slot: trust is counted from the reply instead of from the request (I3). For drills; not in
    /// [`Fault::ALL`], because the simulator of the machine and the model have it already.
    TrustFromReply,
    /// Slot: the lease is given back when work is told to stop, and nobody is told of that (I1).
    /// For drills, as the one above.
    ReleaseBeforeDrain,
    /// Slot: the store's clock is not read, so nobody sees it step (W2).
    StoreClockUnread,
    /// Handles: a forked child takes itself for its parent (L3).
    ChildBelieved,
    /// Driver: an answer is believed whatever its ticket.
    OldTicketBelieved,
    /// Driver: what was asked of an election that waits to begin is forgotten.
    ForgetsParked,
    /// Driver: an election whose handles are gone goes on.
    KeepsRemoved,
    /// Calls: a batch has several ops of one election.
    CrowdedBatch,
    /// Announcer: wakers are called by the thread that has the news, also by the driver's (L2).
    DriverWakes,
    /// Announcer: the alarm does not tell of the end of trust.
    AlarmSleeps,
    /// Announcer: a changed status wakes nobody.
    StatusWakesNobody,
    /// Lead word: an answer of `is_leader()` does not count as relied upon (L1).
    AnswersUnnoted,
    /// Lead word: a mere look counts as relied upon, too.
    PeekVouches,
    /// Relay: `on_lost` is told twice.
    LostTwice,
    /// Relay: `on_lost` is not told.
    LostUntold,
    /// Relay: what goes on of `on_elected` is not dropped at the loss.
    ElectedGoesOn,
    /// Pulse: nobody counts as silent.
    SilenceUnheard,
    /// Slot: a lease is renewed although who vouches for it is silent.
    RenewsUnvouched,
    /// Slot: a lease is taken although who vouches for it is silent.
    AcquiresUnvouched,
    /// `lead`: the bell is made after user code was called (L2).
    BellTooLate,
    /// `lead`: what work returns that ended while it wound up is dropped, and it runs again.
    WindingUpForgotten,
    /// Tenure: dropping it tells nobody.
    DropTellsNobody,
    /// Candidate: the name of an election whose handles are gone stays taken.
    NameStaysTaken,
    /// Election: a campaigner that has gone is still counted.
    ExitForgotten,
    /// Feeds: the loss is left out.
    FeedLosesLoss,
    /// Inbox: a post is acknowledged before it is handled.
    AcknowledgesFirst,
    /// Inbox: a handler is not counted as work (I8).
    HandlerUncounted,
    /// Inbox: the bell of a handler is answered by another task (L2).
    HandlerBellElsewhere,
    /// Once: the success is recorded before the work has ended.
    OnceRecordsFirst,
    /// Once: nobody asks between the claim and the start whether the term still holds (K1).
    OnceUnchecked,
    /// Cron: a tick starts before its claim was answered (K1).
    ClaimUnawaited,
    /// Cron: nobody asks between the claim and the start whether the term still holds (K1).
    TickUnchecked,
    /// Cron: an open tick of a job that is not known here is abandoned.
    UnknownAbandoned,
    /// Cron: what a former leader left open is not looked for.
    OpenForgotten,
    /// Cron: what somebody asked for by hand is not run.
    RequestsUnseen,
    /// Cron: nobody asks whether the transaction of a job has ended its tick (K2).
    ConfirmUnasked,
    /// Cron: a tick is run again whatever its delivery (K2).
    MostOnceAgain,
    /// Cron: skipped ticks are not noted.
    SkipsUnnoted,
    /// Cron: a job's bell is answered by the engine alone (L2).
    JobBellElsewhere,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 46] = [
        Fault::ReleasesRelied,
        Fault::ReleasesUnderWork,
        Fault::IgnoresOnLost,
        Fault::ReleasesCutOff,
        Fault::KeepsLeadWord,
        Fault::ForgetsDeadline,
        Fault::StopForgetsCampaign,
        Fault::LeadsBeforeListening,
        Fault::ForgetsFirstReply,
        Fault::StoreClockUnread,
        Fault::ChildBelieved,
        Fault::OldTicketBelieved,
        Fault::ForgetsParked,
        Fault::KeepsRemoved,
        Fault::CrowdedBatch,
        Fault::DriverWakes,
        Fault::AlarmSleeps,
        Fault::StatusWakesNobody,
        Fault::AnswersUnnoted,
        Fault::PeekVouches,
        Fault::LostTwice,
        Fault::LostUntold,
        Fault::ElectedGoesOn,
        Fault::SilenceUnheard,
        Fault::RenewsUnvouched,
        Fault::AcquiresUnvouched,
        Fault::BellTooLate,
        Fault::WindingUpForgotten,
        Fault::DropTellsNobody,
        Fault::NameStaysTaken,
        Fault::ExitForgotten,
        Fault::FeedLosesLoss,
        Fault::AcknowledgesFirst,
        Fault::HandlerUncounted,
        Fault::HandlerBellElsewhere,
        Fault::OnceRecordsFirst,
        Fault::OnceUnchecked,
        Fault::ClaimUnawaited,
        Fault::TickUnchecked,
        Fault::UnknownAbandoned,
        Fault::OpenForgotten,
        Fault::RequestsUnseen,
        Fault::ConfirmUnasked,
        Fault::MostOnceAgain,
        Fault::SkipsUnnoted,
        Fault::JobBellElsewhere,
    ];
}

/// The fault of one candidate, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    #[cfg(feature = "sabotage")]
    fault: Option<Fault>,
}

impl Faults {
    /// What the runtime asks for.
    pub(crate) fn of(runtime: &dyn Runtime) -> Faults {
        #[cfg(feature = "sabotage")]
        return Faults { fault: runtime.fault() };
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = runtime;
            Faults {}
        }
    }

    /// This one.
    #[cfg(feature = "sabotage")]
    pub(crate) fn only(fault: Fault) -> Faults {
        Faults { fault: Some(fault) }
    }

    /// Whether this fault is switched on.
    #[inline]
    pub fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "sabotage")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = fault;
            false
        }
    }

    /// What the machine is told instead of an answer of the store.
    pub(crate) fn misread(self, now: Time, sent_at: Time, mut outcome: Outcome) -> (Time, Outcome) {
        if self.has(Fault::StoreClockUnread) {
            match &mut outcome {
                Outcome::Granted(grant) => grant.store_clock = None,
                Outcome::Refused(sight) | Outcome::Seen(sight) => sight.store_clock = None,
                Outcome::Unknown => {}
            }
        }
        (if self.has(Fault::TrustFromReply) { now } else { sent_at }, outcome)
    }

    /// What the machine is told by nobody in particular once it has said this.
    pub(crate) fn answer(self, action: &Action) -> Option<Input> {
        let orderly =
            matches!(action, Action::StepDown { reason: Reason::Resigned | Reason::Asked, .. });
        (orderly && self.has(Fault::ReleaseBeforeDrain)).then_some(Input::Drained)
    }
}
