//! Taking no further part, and giving back what may be held without our knowing (C2).

use super::*;

#[test]
fn a_follower_withdraws_at_once() {
    let mut rig = Rig::campaigning();
    rig.answer(10, refused(7, 1_000));
    let actions = rig.give(20, Input::Withdraw);
    assert_eq!(vacated(&actions), Some((None, true)));
    assert!(sleeps(&actions) && rig.machine.is_out());
    assert!(sends(&rig.give(30, Input::Hint)).is_none());
    assert!(sends(&rig.tick(5_000)).is_none());
}

#[test]
fn a_leader_withdraws_by_resigning_and_does_not_come_back() {
    let mut rig = Rig::leading();
    let actions = rig.give(100, Input::Withdraw);
    assert_eq!(step_down(&actions), Some((Reason::Resigned, at(TRUST_MS))));
    rig.give(200, Input::Drained);
    let actions = rig.answer(210, granted(1));
    assert_eq!(vacated(&actions), Some((Some(term(1)), true)));
    assert!(sleeps(&actions) && rig.machine.is_out());
}

#[test]
fn an_acquire_in_doubt_is_given_back_by_incarnation_alone() {
    let mut rig = Rig::campaigning();
    rig.answer(500, Outcome::Unknown);
    let actions = rig.give(510, Input::Withdraw);
    assert!(matches!(sends(&actions), Some(Op::Release { term: None, seq: 1, .. })), "C2");
    let actions = rig.answer(520, granted(1));
    assert_eq!(vacated(&actions), Some((None, true)));
    assert!(rig.machine.is_out());
}

#[test]
fn doubt_stays_while_others_lead_because_the_acquire_may_arrive_late() {
    let mut rig = Rig::campaigning();
    rig.answer(500, Outcome::Unknown);
    rig.tick(1_000);
    rig.answer(1_010, refused(7, 1_000));
    let actions = rig.give(1_020, Input::Withdraw);
    assert!(matches!(sends(&actions), Some(Op::Release { term: None, seq: 2, .. })));
}

#[test]
fn where_no_grant_is_known_one_release_is_enough() {
    let mut rig = Rig::campaigning();
    rig.answer(500, Outcome::Unknown);
    rig.give(510, Input::Withdraw);
    let actions = rig.answer(900, Outcome::Unknown);
    assert_eq!(vacated(&actions), Some((None, false)), "nobody confirmed it; it runs out");
    assert!(rig.machine.is_out());
}

#[test]
fn a_later_machine_of_the_same_candidate_takes_the_doubt_over() {
    let mut rig = Rig::campaigning();
    rig.answer(500, Outcome::Unknown);
    rig.give(510, Input::Withdraw);
    rig.answer(900, Outcome::Unknown);
    let mut later = Rig::new(settings());
    later.machine = Machine::resume(settings(), rig.machine.past());
    let actions = later.give(1_000, Input::Withdraw);
    assert!(matches!(sends(&actions), Some(Op::Release { term: None, seq: 1, .. })), "C2");
}

#[test]
fn a_later_machine_of_the_same_candidate_leads_no_old_term_and_numbers_on() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Withdraw);
    rig.give(200, Input::Drained);
    rig.answer(210, granted(1));
    let mut later = Rig::new(settings());
    later.machine = Machine::resume(settings(), rig.machine.past());
    let actions = later.give(1_000, Input::Campaign);
    assert!(
        matches!(sends(&actions), Some(Op::Acquire { seq: 2, above: Some(above), .. })
            if *above == term(1)),
        "{actions:?}"
    );
}

#[test]
fn withdrawing_while_an_acquire_is_under_way_waits_for_its_answer() {
    let start = || {
        let mut rig = Rig::campaigning();
        let actions = rig.give(5, Input::Withdraw);
        assert!(sends(&actions).is_none() && vacated(&actions).is_none());
        rig
    };
    let mut rig = start();
    let actions = rig.answer(10, granted(1));
    assert_eq!(leads(&actions), None, "granted: it is given back, never led");
    assert!(matches!(sends(&actions), Some(Op::Release { term: Some(t), .. }) if *t == term(1)));

    let mut rig = start();
    let actions = rig.answer(10, refused(7, 1_000));
    assert_eq!(vacated(&actions), Some((None, true)), "refused: nothing to give back");
    assert!(sends(&actions).is_none() && rig.machine.is_out());

    let mut rig = start();
    let actions = rig.answer(10, Outcome::Unknown);
    assert!(matches!(sends(&actions), Some(Op::Release { term: None, seq: 1, .. })), "unknown: C2");
}

#[test]
fn campaigning_again_during_that_acquire_takes_its_grant() {
    let mut rig = Rig::campaigning();
    rig.give(5, Input::Withdraw);
    rig.give(6, Input::Campaign);
    assert_eq!(leads(&rig.answer(10, granted(1))), Some(term(1)));
}

#[test]
fn campaigning_works_again_after_a_withdrawal() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Withdraw);
    rig.give(110, Input::Drained);
    rig.answer(120, granted(1));
    let actions = rig.give(130, Input::Campaign);
    assert!(matches!(sends(&actions), Some(Op::Acquire { seq: 2, .. })), "at once, no step back");
    assert_eq!(leads(&rig.answer(140, granted(2))), Some(term(2)));
}

#[test]
fn withdrawing_while_draining_or_stepping_back_forgets_the_campaign() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    rig.give(110, Input::Withdraw);
    rig.give(120, Input::Drained);
    rig.answer(130, granted(1));
    assert!(rig.machine.is_out());

    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    rig.give(120, Input::Drained);
    rig.answer(130, granted(1));
    rig.give(140, Input::Withdraw);
    assert!(rig.machine.is_out());
}

#[test]
fn a_campaign_while_the_old_reign_drains_starts_when_it_is_released() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Withdraw);
    rig.give(110, Input::Campaign);
    rig.give(120, Input::Drained);
    assert!(matches!(sends(&rig.answer(130, granted(1))), Some(Op::Acquire { .. })));
}

#[test]
fn withdrawing_twice_confirms_twice() {
    let mut rig = Rig::new(settings());
    for now_ms in [1, 2] {
        assert_eq!(vacated(&rig.give(now_ms, Input::Withdraw)), Some((None, true)));
    }
}
