//! Candidates that are wrong on purpose, so that the checkers can show that they would notice.
//!
//! A fault that bends what goes into a machine or what comes out of it stands here, around the
//! machine. Only faults of its own decisions are inside it, behind a feature of `tenure-core`.

use tenure_core::{Action, Actions, Grant, Input, Machine, Outcome, Reason, Sight, Time};

/// One way for a candidate to be wrong. `docs/proof-faults.md` says which checker catches which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A wrong decision of the machine itself.
    Inside(tenure_core::Sabotage),
    /// Trust is counted from the reply instead of from the request (breaks I3).
    TrustFromReply,
    /// The lease is given back before the work has ended (breaks I1).
    ReleaseBeforeDrain,
    /// Steps of the store's clock are not noticed (breaks I1 where W2 covers them).
    StepsUnseen,
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
    /// A candidate that does not lead sleeps instead of trying again (nobody follows).
    Oversleeps,
    /// An observer campaigns.
    ObserverCampaigns,
    /// A later machine of the same candidate starts without its past (breaks C1, C2).
    ForgetsPast,
    /// Renewals are tried again although the settings say to step down at the first unknown one.
    StaysOpen,
    /// A lease is given back without regard to those who were told "you lead" (breaks I8).
    ForgetsTold,
    /// A lease that is to run out is given back (breaks I8).
    ReleasesRunOut,
}

impl Sabotage {
    /// The part of it that is inside the machine.
    pub(crate) fn inside(self) -> Option<tenure_core::Sabotage> {
        match self {
            Sabotage::Inside(fault) => Some(fault),
            _ => None,
        }
    }
}

/// What [`Machine::handle`] says, with this fault around it if there is one.
pub(crate) fn handle(
    fault: Option<Sabotage>,
    machine: &mut Machine,
    now: Time,
    input: Input,
) -> Vec<Action> {
    let mut out = Actions::new();
    machine.handle(now, misread(fault, machine, now, input), &mut out);
    let mut actions: Vec<Action> = out.drain().collect();
    if fault == Some(Sabotage::ReleaseBeforeDrain) && actions.iter().any(is_orderly_end) {
        // One call asks for one wake, and this is to look like one call.
        actions.retain(|action| !matches!(action, Action::Wake { .. } | Action::Sleep));
        machine.handle(now, Input::Drained, &mut out);
        actions.extend(out.drain());
    }
    let sleeps = fault == Some(Sabotage::Oversleeps) && machine.leading().is_none();
    let actions = actions.into_iter().flat_map(|action| repeated(fault, action));
    actions.map(|action| asleep(sleeps, action)).collect()
}

fn is_orderly_end(action: &Action) -> bool {
    matches!(action, Action::StepDown { reason: Reason::Resigned | Reason::Asked, .. })
}

/// Turns a wake into sleep.
fn asleep(sleeps: bool, action: Action) -> Action {
    match action {
        Action::Wake { .. } if sleeps => Action::Sleep,
        action => action,
    }
}

/// What the machine is told instead. While it leads, a renewal is all that it waits for, so that an
/// unknown answer is one to a renewal.
fn misread(fault: Option<Sabotage>, machine: &Machine, now: Time, input: Input) -> Input {
    match (fault, input, machine.leading()) {
        (Some(Sabotage::TrustFromReply), Input::Reply { outcome, .. }, _) => {
            Input::Reply { sent_at: now, outcome }
        }
        (Some(Sabotage::StepsUnseen), Input::Reply { sent_at, mut outcome }, _) => {
            match &mut outcome {
                Outcome::Granted(grant) => grant.store_clock = None,
                Outcome::Refused(sight) | Outcome::Seen(sight) => sight.store_clock = None,
                Outcome::Unknown => {}
            }
            Input::Reply { sent_at, outcome }
        }
        (
            Some(Sabotage::UnknownIsYes),
            Input::Reply { sent_at, outcome: Outcome::Unknown },
            Some(term),
        ) => Input::Reply { sent_at, outcome: Outcome::Granted(Grant::new(term)) },
        (
            Some(Sabotage::UnknownIsNo),
            Input::Reply { sent_at, outcome: Outcome::Unknown },
            Some(_),
        ) => Input::Reply { sent_at, outcome: Outcome::Refused(Sight::default()) },
        (Some(Sabotage::ObserverCampaigns), Input::Observe, _) => Input::Campaign,
        (Some(Sabotage::ReleasesRunOut), Input::RunOut, _) => Input::Drained,
        (_, input, _) => input,
    }
}

/// Says things twice that are to be said once.
fn repeated(fault: Option<Sabotage>, action: Action) -> impl Iterator<Item = Action> {
    let twice = matches!(
        (fault, &action),
        (Some(Sabotage::StepsDownTwice), Action::StepDown { .. })
            | (Some(Sabotage::LeadsTwice), Action::Lead { .. })
            | (Some(Sabotage::SendsTwice), Action::Send(_))
            | (Some(Sabotage::WakesTwice), Action::Wake { .. })
    );
    twice.then(|| action.clone()).into_iter().chain([action])
}
