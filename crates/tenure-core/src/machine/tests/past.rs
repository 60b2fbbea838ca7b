//! What a later machine of the same candidate knows, field by field.

use super::*;

/// The machine that goes on where this one left off.
fn resumed(rig: Rig) -> Rig {
    Rig { machine: Machine::resume(settings(), rig.machine.past()), ..rig }
}

fn seen_at(store_ms: u64) -> Outcome {
    let sight = held_by(&candidate("other", 9), 7, 2_900);
    Outcome::Refused(Sight { store_clock: Some(ms(store_ms)), ..sight })
}

#[test]
fn it_asks_for_terms_above_those_seen_in_other_hands() {
    let mut rig = Rig::campaigning();
    rig.answer(10, refused(7, 1_000));
    rig.give(20, Input::Withdraw);
    let mut rig = resumed(rig);
    rig.give(30, Input::Campaign);
    assert!(matches!(rig.op(), Op::Acquire { floor: Some(floor), .. } if *floor == term(8)));
}

#[test]
fn it_notices_a_step_of_the_clock_that_came_in_between() {
    let mut rig = Rig::campaigning();
    rig.answer(0, seen_at(100_000));
    rig.give(20, Input::Withdraw);
    let mut rig = resumed(rig);
    rig.give(100, Input::Campaign);
    let actions = rig.answer(100, Outcome::Granted(granted_at(8, 104_000)));
    assert_eq!(leads(&actions), None, "another one may still trust itself (W2)");
    assert_eq!(reports(&actions).len(), 1);
}

#[test]
fn it_waits_as_long_as_the_one_before_it_after_a_step() {
    let mut rig = Rig::campaigning();
    rig.answer(0, seen_at(100_000));
    rig.give(100, Input::Hint);
    rig.answer(100, seen_at(104_000));
    rig.give(110, Input::Withdraw);
    let mut rig = resumed(rig);
    rig.give(120, Input::Campaign);
    assert_eq!(leads(&rig.answer(130, Outcome::Granted(granted_at(8, 104_030)))), None);
    rig.tick(1_100);
    rig.answer(1_110, Outcome::Granted(granted_at(8, 105_010)));
    rig.tick(2_100);
    rig.answer(2_110, Outcome::Granted(granted_at(8, 106_010)));
    assert_eq!(leads(&rig.tick(3_099)), None);
    assert_eq!(leads(&rig.tick(3_100)), Some(term(8)));
}

#[test]
fn it_knows_the_longest_ttl_that_was_seen() {
    let mut rig = Rig::campaigning();
    let mut sight = held_by(&candidate("other", 9), 7, 29_000);
    sight.lease.as_mut().unwrap().ttl = Some(ms(30_000));
    rig.answer(0, Outcome::Refused(Sight { store_clock: Some(ms(100_000)), ..sight }));
    rig.give(20, Input::Withdraw);
    let mut rig = resumed(rig);
    rig.give(100, Input::Campaign);
    rig.answer(100, Outcome::Granted(granted_at(8, 140_000)));
    for now_ms in (1_000..30_000).step_by(1_000) {
        assert_eq!(leads(&rig.tick(now_ms)), None, "at {now_ms} ms");
        rig.answer(now_ms, Outcome::Granted(granted_at(8, 139_900 + now_ms)));
    }
    assert_eq!(leads(&rig.tick(30_100)), Some(term(8)));
}

#[test]
fn one_that_is_numbered_after_another_keeps_what_else_it_knows() {
    let mut rig = Rig::leading();
    let old = rig.machine.past();
    rig.give(100, Input::Resign);
    rig.give(110, Input::Drained);
    rig.answer(120, granted(1));
    rig.tick(1_200);
    let numbered = rig.machine.past();
    let acquire = |past: Past| {
        let mut rig = Rig::new(settings());
        rig.machine = Machine::resume(settings(), past);
        rig.give(2_000, Input::Campaign);
        match rig.op() {
            Op::Acquire { seq, above, .. } => (*seq, *above),
            other => panic!("no acquire but {other:?}"),
        }
    };
    assert_eq!(acquire(Past::default().numbered_after(&numbered)), (3, None));
    assert_eq!(acquire(old.numbered_after(&numbered)), (3, Some(term(1))));
    assert_eq!(acquire(numbered.numbered_after(&old)), (3, Some(term(1))));
}

#[test]
fn out_means_that_nothing_is_wanted_and_nothing_is_under_way() {
    let mut rig = Rig::new(settings());
    assert!(rig.machine.is_out());
    rig.give(0, Input::Observe);
    assert!(!rig.machine.is_out(), "it observes");
    rig.give(5, Input::Withdraw);
    assert!(!rig.machine.is_out(), "a read is under way");
    rig.answer(10, refused(7, 1_000));
    assert!(rig.machine.is_out());
}

#[test]
fn a_lease_that_is_being_given_back_is_still_ending() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    rig.give(110, Input::Drained);
    assert!(matches!(rig.op(), Op::Release { .. }));
    assert_eq!(rig.machine.ending(), Some(term(1)));
    rig.answer(120, granted(1));
    assert_eq!(rig.machine.ending(), None);
}

#[test]
fn reasons_have_a_word_of_their_own() {
    let reasons = [
        (Reason::Resigned, "resigned"),
        (Reason::Asked, "asked"),
        (Reason::NotRenewed, "not_renewed"),
        (Reason::RenewalFailed, "renewal_failed"),
        (Reason::Deposed, "deposed"),
    ];
    for (reason, word) in reasons {
        assert_eq!(reason.as_str(), word);
    }
}

#[test]
fn actions_can_be_looked_at_before_they_are_taken_out() {
    let mut out = Actions::new();
    Machine::new(settings()).handle(Time::ZERO, Input::Tick, &mut out);
    assert_eq!(out.iter().collect::<Vec<_>>(), [&Action::Sleep]);
    assert_eq!(out.drain().count(), 1);
}
