//! The history, from what the candidates told, what was done to them, and what was written.

use std::collections::BTreeMap;

use tenure_core::{Name, Term, Time};
use tenure_history::{Event, History, Kind};

use super::fleet::{CandidateEvent, MARGIN, NAME};
use super::workload::Written;

/// What befell a leader, as seen from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// Killed, just after this instant.
    Killed(Time),
    /// Stopped at the first instant, with a lease until the second.
    Frozen(Time, Time),
}

pub(crate) fn name() -> Name {
    Name::new(NAME).unwrap()
}

pub(crate) fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

/// Puts the history together; `fates` are by term.
pub(crate) fn history(
    told: &[CandidateEvent],
    fates: &BTreeMap<u64, Fate>,
    written: &[Written],
) -> History {
    let mut events = Vec::new();
    for told in told {
        let mut add = |at, kind| events.push(Event::new(at, &name(), &*told.candidate, kind));
        match &*told.event {
            "elected" => {
                add(told.at, Kind::Lead { term: term(told.term), until: Time::MAX });
                match fates.get(&told.term) {
                    // The command may outlive tenure for a moment; its last write is the end.
                    Some(Fate::Killed(at)) => {
                        let last = last_write(written, told.term).unwrap_or(*at);
                        add((*at).max(last) + std::time::Duration::from_nanos(1), Kind::Killed);
                    }
                    // It can't do anything, and what it runs must be gone when trust ends.
                    Some(Fate::Frozen(at, lease_until)) => {
                        let until = *lease_until - MARGIN;
                        let reason = "frozen".to_owned();
                        add(*at, Kind::StepDown { reason, until, resigning: false });
                    }
                    None => {}
                }
            }
            // Those that were frozen tell it when they go on; it is in the record already.
            "draining" if !fates.contains_key(&told.term) => {
                let (reason, resigning) = (told.reason.clone(), told.reason == "resigned");
                add(told.at, Kind::StepDown { reason, until: Time::MAX, resigning });
            }
            "stepped_down" if !fates.contains_key(&told.term) => {
                add(told.at, Kind::Released { term: Some(term(told.term)) });
            }
            _ => {}
        }
    }
    for Written { at, term: number, candidate } in written {
        let mut add = |kind| events.push(Event::new(*at, &name(), &**candidate, kind));
        add(Kind::Trusts { term: term(*number) });
        add(Kind::WriteFenced { term: term(*number), accepted: true });
    }
    events.into_iter().collect()
}

fn last_write(written: &[Written], term: u64) -> Option<Time> {
    written.iter().filter(|write| write.term == term).map(|write| write.at).max()
}

#[track_caller]
pub(crate) fn assert_sound(history: &History) {
    if let Err(violations) = history.check() {
        let sentences: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("{}", sentences.join("\n"));
    }
}

/// Falsifies a sound history in every way that this test is there to notice, and sees each of them
/// rejected: so the check can fail.
#[track_caller]
pub(crate) fn assert_lies_are_seen(history: &History, frozen: u64) {
    let leads: Vec<&Event> =
        history.events().iter().filter(|event| matches!(event.kind, Kind::Lead { .. })).collect();
    let (last, end) = (leads[leads.len() - 1], history.events().iter().map(|event| event.at).max());
    let after = end.unwrap() + std::time::Duration::from_secs(1);
    let of_frozen =
        |event: &&&Event| matches!(event.kind, Kind::Lead { term, .. } if term.get() == frozen);
    let frozen = leads.iter().find(of_frozen).unwrap();
    let Kind::Lead { term: old, .. } = frozen.kind else { unreachable!() };

    let early = leads[leads.len() - 2].at + std::time::Duration::from_nanos(1);
    let two_at_once = history.events().iter().cloned().map(|mut event| {
        if event == *last {
            event.at = early;
        }
        event
    });
    assert_rejected("I1", two_at_once.collect());

    let again = Kind::Lead { term: old, until: Time::MAX };
    assert_rejected("I2", with(history, Event::new(after, &name(), &*frozen.candidate, again)));

    let late = Kind::Trusts { term: old };
    assert_rejected("I3", with(history, Event::new(after, &name(), &*frozen.candidate, late)));

    let stale = Kind::WriteFenced { term: old, accepted: true };
    assert_rejected("fence", with(history, Event::new(after, &name(), &*frozen.candidate, stale)));
}

fn with(history: &History, event: Event) -> History {
    history.events().iter().cloned().chain([event]).collect()
}

#[track_caller]
fn assert_rejected(invariant: &str, history: History) {
    let violations = history.check().expect_err("a falsified history was accepted");
    assert!(
        violations.iter().any(|violation| violation.invariant == invariant),
        "{invariant} is not among {violations:#?}"
    );
}
