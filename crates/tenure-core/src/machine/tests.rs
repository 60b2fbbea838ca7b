//! The machine's rules, one sentence each. Time is driven by hand; nothing here waits.
//!
//! The timing of most tests is a ttl of 3 s: renewed after 1 s, stepped down from after 2.35 s,
//! trusted for 2.85 s.

mod edges;
mod follow;
mod lease;
mod past;
mod property;
mod resign;
mod run_out;
mod store_clock;
mod terms;
mod withdraw;

use std::time::Duration;

use super::*;
use crate::{CandidateId, Grant, Lease, Name, Outcome, Sight, Timing};

const TTL_MS: u64 = 3_000;
const STEP_DOWN_MS: u64 = 2_350;
const TRUST_MS: u64 = 2_850;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

fn candidate(label: &str, incarnation: u128) -> CandidateId {
    CandidateId::new(label, incarnation).unwrap()
}

fn me() -> CandidateId {
    candidate("me", 1)
}

fn settings() -> Settings {
    Settings::new(Name::new("jobs").unwrap(), me(), Timing::new(ms(TTL_MS)))
}

fn granted(number: u64) -> Outcome {
    Outcome::Granted(Grant::new(term(number)))
}

/// A grant that also says what the store's clock shows.
fn granted_at(number: u64, store_ms: u64) -> Grant {
    Grant { store_clock: Some(ms(store_ms)), ..Grant::new(term(number)) }
}

/// Somebody else holds the lease.
fn held_by(who: &CandidateId, number: u64, remaining_ms: u64) -> Sight {
    let lease = Lease {
        holder: Holder::from(who),
        term: Some(term(number)),
        remaining: ms(remaining_ms),
        ttl: Some(ms(TTL_MS)),
        since_unix_ms: None,
        metadata: None,
    };
    Sight { lease: Some(lease), last_term: Some(term(number)), ..Sight::default() }
}

fn refused(number: u64, remaining_ms: u64) -> Outcome {
    Outcome::Refused(held_by(&candidate("other", 9), number, remaining_ms))
}

/// A machine, the instant of its last call, and the request that is under way.
struct Rig {
    machine: Machine,
    now: Time,
    flight: Option<(Time, Op)>,
}

impl Rig {
    fn new(settings: Settings) -> Rig {
        Rig { machine: Machine::new(settings), now: Time::ZERO, flight: None }
    }

    /// A follower whose first acquire leaves at 0.
    fn campaigning() -> Rig {
        let mut rig = Rig::new(settings());
        rig.give(0, Input::Campaign);
        rig
    }

    /// A leader of term 1, granted at 10 ms on a request sent at 0.
    fn leading() -> Rig {
        let mut rig = Rig::campaigning();
        rig.answer(10, granted(1));
        assert_eq!(rig.machine.leading(), Some(term(1)));
        rig
    }

    /// Hands in one input, checks what holds for every call, and returns the actions.
    fn give(&mut self, millis: u64, input: Input) -> Vec<Action> {
        let now = at(millis);
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        let mut out = Actions::new();
        self.machine.handle(now, input, &mut out);
        let actions: Vec<Action> = out.drain().collect();
        let naps = actions.iter().filter(|a| matches!(a, Action::Wake { .. } | Action::Sleep));
        assert_eq!(naps.count(), 1, "exactly one wake or sleep: {actions:?}");
        assert!(matches!(actions.last(), Some(Action::Wake { .. } | Action::Sleep)));
        for action in &actions {
            if let Action::Send(op) = action {
                assert!(self.flight.is_none(), "never two requests under way: {actions:?}");
                self.flight = Some((now, op.clone()));
            }
        }
        actions
    }

    fn tick(&mut self, millis: u64) -> Vec<Action> {
        self.give(millis, Input::Tick)
    }

    /// Answers the request under way, which left when the machine said so.
    fn answer(&mut self, millis: u64, outcome: Outcome) -> Vec<Action> {
        let (sent_at, _) = self.flight.take().expect("a request is under way");
        self.give(millis, Input::Reply { sent_at, outcome })
    }

    /// The request under way.
    fn op(&self) -> &Op {
        &self.flight.as_ref().expect("a request is under way").1
    }
}

fn wake(actions: &[Action]) -> (Time, Time) {
    match actions.last() {
        Some(Action::Wake { from, to, .. }) => (*from, *to),
        other => panic!("no wake but {other:?}"),
    }
}

fn sleeps(actions: &[Action]) -> bool {
    actions.last() == Some(&Action::Sleep)
}

fn sends(actions: &[Action]) -> Option<&Op> {
    actions.iter().find_map(|action| match action {
        Action::Send(op) => Some(op),
        _ => None,
    })
}

fn leads(actions: &[Action]) -> Option<Term> {
    actions.iter().find_map(|action| match action {
        Action::Lead { term, .. } => Some(*term),
        _ => None,
    })
}

/// Reason and end of trust of the step-down among these actions.
fn step_down(actions: &[Action]) -> Option<(Reason, Time)> {
    actions.iter().find_map(|action| match action {
        Action::StepDown { reason, until, .. } => Some((*reason, *until)),
        _ => None,
    })
}

fn aborts(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Abort { .. }))
}

fn vacated(actions: &[Action]) -> Option<(Option<Term>, bool)> {
    actions.iter().find_map(|action| match action {
        Action::Vacated { term, released } => Some((*term, *released)),
        _ => None,
    })
}

fn reports(actions: &[Action]) -> Vec<Report> {
    let report = |action: &Action| match action {
        Action::Report(report) => Some(report.clone()),
        _ => None,
    };
    actions.iter().filter_map(report).collect()
}
