//! Somebody who was told "you lead" has not said that they are done: the lease runs out (I8).

use super::*;

/// A leader that stepped down because a renewal failed, and whose trust has ended.
fn stepped_down() -> Rig {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.answer(STEP_DOWN_MS, Outcome::Unknown);
    assert!(aborts(&rig.tick(TRUST_MS)));
    rig
}

#[test]
fn a_lease_that_runs_out_is_never_released() {
    let mut rig = stepped_down();
    let actions = rig.give(TRUST_MS, Input::RunOut);
    assert_eq!(vacated(&actions), Some((Some(term(1)), false)));
    assert!(sends(&actions).is_none());
    assert_eq!(rig.machine.ending(), None);
    assert!(wake(&actions).0 >= at(TTL_MS), "asked for again when it has run out");
}

#[test]
fn a_hint_makes_it_look_and_not_ask_before_the_lease_has_run_out() {
    let mut rig = stepped_down();
    rig.give(TRUST_MS, Input::RunOut);
    let actions = rig.give(TRUST_MS + 10, Input::Hint);
    assert!(!matches!(sends(&actions), Some(Op::Acquire { .. })), "{actions:?}");
    if rig.flight.is_some() {
        rig.answer(TRUST_MS + 20, Outcome::Seen(held_by(&me(), 1, 100)));
    }
    let actions = rig.tick(TTL_MS + 50);
    assert!(matches!(sends(&actions), Some(Op::Acquire { .. })), "{actions:?}");
    assert_eq!(leads(&rig.answer(TTL_MS + 60, granted(2))), Some(term(2)), "in a new term");
}

#[test]
fn one_that_takes_no_further_part_holds_nothing_back() {
    let mut rig = stepped_down();
    rig.give(TRUST_MS, Input::Withdraw);
    let actions = rig.give(TRUST_MS, Input::RunOut);
    assert_eq!(vacated(&actions), Some((Some(term(1)), false)));
    assert!(rig.machine.is_out() && sleeps(&actions));
}

/// Found by the simulated library: a release by incarnation alone takes whatever is held.
#[test]
fn an_acquire_that_is_in_doubt_does_not_give_it_back_either() {
    let mut rig = Rig::campaigning();
    rig.answer(10, Outcome::Unknown);
    rig.tick(1_000);
    rig.answer(1_010, granted(1));
    assert_eq!(rig.machine.leading(), Some(term(1)));
    rig.give(1_020, Input::Resign);
    rig.give(1_030, Input::RunOut);
    let actions = rig.give(1_040, Input::Withdraw);
    assert!(!matches!(sends(&actions), Some(Op::Release { .. })), "{actions:?}");
    assert!(rig.machine.is_out());
}

#[test]
fn without_a_reign_that_ends_it_means_nothing() {
    let mut rig = Rig::leading();
    let before = rig.machine.clone();
    rig.give(100, Input::RunOut);
    assert_eq!(rig.machine, before);
}

/// The reply to the first acquire was lost, and the second one healed it. The first may still
/// arrive.
fn healed_and_stepped_down() -> Rig {
    let mut rig = Rig::campaigning();
    rig.answer(10, Outcome::Unknown);
    rig.tick(500);
    rig.answer(510, granted(1));
    rig.tick(1_500);
    rig.answer(500 + STEP_DOWN_MS, Outcome::Unknown);
    assert!(aborts(&rig.tick(500 + TRUST_MS)));
    rig
}

#[test]
fn an_acquire_in_doubt_is_no_reason_to_give_it_back() {
    for leave in [Input::Withdraw, Input::Observe] {
        let mut rig = healed_and_stepped_down();
        rig.give(500 + TRUST_MS, Input::RunOut);
        let actions = rig.give(500 + TRUST_MS + 10, leave.clone());
        assert!(!matches!(sends(&actions), Some(Op::Release { .. })), "{leave:?}: {actions:?}");
    }
}

#[test]
fn once_it_has_run_out_an_acquire_in_doubt_is_taken_back() {
    let mut rig = healed_and_stepped_down();
    rig.give(500 + TRUST_MS, Input::RunOut);
    let actions = rig.give(500 + TTL_MS, Input::Withdraw);
    assert!(matches!(sends(&actions), Some(Op::Release { term: None, .. })), "{actions:?}");
}

#[test]
fn a_later_machine_does_not_give_it_back_either() {
    let mut rig = healed_and_stepped_down();
    rig.give(500 + TRUST_MS, Input::RunOut);
    rig.give(500 + TRUST_MS, Input::Withdraw);
    let mut rig = Rig { machine: Machine::resume(settings(), rig.machine.past()), ..rig };
    let actions = rig.give(500 + TRUST_MS + 10, Input::Observe);
    assert!(!matches!(sends(&actions), Some(Op::Release { .. })), "{actions:?}");
}
