//! The four instants of a lease, and what renewals do to them (I3, I4, I7).

use super::*;

#[test]
fn a_grant_is_trusted_from_the_instant_the_request_left() {
    let mut rig = Rig::campaigning();
    let actions = rig.answer(900, granted(1));
    let expected =
        Action::Lead { term: term(1), step_down_at: at(STEP_DOWN_MS), until: at(TRUST_MS) };
    assert_eq!(actions[0], expected, "the 900 ms that the answer took are lost, not won");
}

#[test]
fn the_next_renewal_is_due_one_renew_every_after_the_request_left() {
    let mut rig = Rig::campaigning();
    let actions = rig.answer(300, granted(1));
    assert_eq!(wake(&actions), (at(800), at(1_000)));
    assert!(sends(&rig.tick(799)).is_none());
    assert!(sends(&rig.tick(800)).is_some());
}

#[test]
fn a_renewal_moves_all_instants_and_names_the_exact_term() {
    let mut rig = Rig::leading();
    let actions = rig.tick(1_000);
    let renew = Op::Renew {
        election: Name::new("jobs").unwrap(),
        candidate: me(),
        term: term(1),
        ttl: ms(TTL_MS),
    };
    assert_eq!(sends(&actions), Some(&renew), "I4");
    assert_eq!(wake(&actions), (at(STEP_DOWN_MS), at(STEP_DOWN_MS)), "busy: only the deadline");
    let actions = rig.answer(1_200, granted(1));
    let step_down_at = at(1_000 + STEP_DOWN_MS);
    let until = at(1_000 + TRUST_MS);
    assert_eq!(actions[0], Action::Extend { term: term(1), step_down_at, until });
    assert_eq!(wake(&actions), (at(1_800), at(2_000)));
}

#[test]
fn without_a_renewal_it_steps_down_then_aborts() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    assert!(step_down(&rig.tick(STEP_DOWN_MS - 1)).is_none());
    let actions = rig.tick(STEP_DOWN_MS);
    assert_eq!(step_down(&actions), Some((Reason::NotRenewed, at(TRUST_MS))));
    assert!(!aborts(&actions));
    assert_eq!(wake(&actions), (at(TRUST_MS), at(TRUST_MS)));
    assert!(!aborts(&rig.tick(TRUST_MS - 1)));
    let actions = rig.tick(TRUST_MS);
    assert!(aborts(&actions), "trust ends, the work has not");
    assert!(sleeps(&actions), "nothing is left to be done before the work has ended");
    assert!(!aborts(&rig.tick(TRUST_MS + 1)), "once is enough");
}

#[test]
fn a_late_grant_does_not_revive() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.tick(STEP_DOWN_MS);
    let actions = rig.answer(STEP_DOWN_MS + 1, granted(1));
    assert_eq!(actions, [Action::Wake { from: at(TRUST_MS), to: at(TRUST_MS), pick: Pick::Late }]);
    assert_eq!(rig.machine.leading(), None);
    assert!(aborts(&rig.tick(TRUST_MS)), "I3: trust ends as announced");
}

#[test]
fn a_frozen_driver_steps_down_before_it_looks_at_the_late_grant() {
    for (thaws_at, ended) in [(STEP_DOWN_MS, false), (TRUST_MS, true), (60_000, true)] {
        let mut rig = Rig::leading();
        rig.tick(1_000);
        let actions = rig.answer(thaws_at, granted(1));
        assert_eq!(step_down(&actions), Some((Reason::NotRenewed, at(TRUST_MS))), "{thaws_at}");
        assert_eq!(aborts(&actions), ended, "{thaws_at}");
        assert!(!actions.iter().any(|action| matches!(action, Action::Extend { .. })));
        assert_eq!(rig.machine.leading(), None);
    }
}

#[test]
fn an_acquire_whose_grant_comes_too_late_is_not_led_but_asked_again() {
    let mut rig = Rig::campaigning();
    let actions = rig.answer(STEP_DOWN_MS, granted(1));
    assert_eq!(leads(&actions), None);
    let (_, to) = wake(&actions);
    rig.flight = None;
    let again = rig.tick(to.as_nanos() / 1_000_000);
    assert!(matches!(sends(&again), Some(Op::Acquire { seq: 2, above: None, .. })));
    assert_eq!(leads(&rig.answer(3_000, granted(1))), Some(term(1)), "the same term is healed");
}

#[test]
fn an_unknown_renewal_is_neither_success_nor_refusal() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    let actions = rig.answer(1_100, Outcome::Unknown);
    assert_eq!(rig.machine.leading(), Some(term(1)), "I7: no refusal");
    assert_eq!(actions.len(), 1, "I7: no extension either");
    assert!(step_down(&rig.tick(STEP_DOWN_MS)).is_some());
}

#[test]
fn unknown_renewals_are_tried_again_well_inside_renew_every_until_the_step_down() {
    let mut rig = Rig::leading();
    let mut now_ms = 1_000;
    let mut tries = 0;
    while step_down(&rig.tick(now_ms)).is_none() {
        if rig.flight.is_none() {
            panic!("woken at {now_ms} for nothing");
        }
        tries += 1;
        let (from, to) = wake(&rig.answer(now_ms, Outcome::Unknown));
        assert!(to - at(now_ms) <= ms(250) || to == at(STEP_DOWN_MS), "a quarter of renew_every");
        assert!(from > at(now_ms), "no busy loop");
        now_ms = to.as_nanos().div_ceil(1_000_000);
    }
    assert!(tries >= 5, "{tries}");
}

#[test]
fn one_success_after_unknown_outcomes_makes_all_good() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.answer(1_100, Outcome::Unknown);
    rig.tick(1_200);
    let actions = rig.answer(1_210, granted(1));
    assert_eq!(wake(&actions), (at(2_000), at(2_200)), "counted from the request that was granted");
}

#[test]
fn a_refused_renewal_deposes_at_once() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    let actions = rig.answer(1_100, refused(2, 2_000));
    assert_eq!(step_down(&actions), Some((Reason::Deposed, at(1_100))), "until is now");
    assert!(aborts(&actions), "somebody else may lead at this very instant");
    assert_eq!(vacated(&rig.give(1_150, Input::Drained)), Some((Some(term(1)), true)));
    assert!(matches!(rig.op(), Op::Acquire { above: Some(above), .. } if *above == term(1)));
}

#[test]
fn a_refusal_while_ending_ends_trust_at_once() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.tick(STEP_DOWN_MS);
    assert!(aborts(&rig.answer(STEP_DOWN_MS + 10, refused(2, 2_000))));
}

#[test]
fn a_renewal_granted_under_another_term_counts_as_unknown() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    let actions = rig.answer(1_050, granted(2));
    assert_eq!(actions.len(), 1, "neither extended nor deposed: {actions:?}");
    assert_eq!(rig.machine.leading(), Some(term(1)));
}

#[test]
fn fail_closed_steps_down_at_the_first_unknown_renewal() {
    let mut rig = Rig::new(Settings { fail_closed: true, ..settings() });
    rig.give(0, Input::Campaign);
    rig.answer(10, granted(1));
    rig.tick(1_000);
    let actions = rig.answer(1_500, Outcome::Unknown);
    assert_eq!(step_down(&actions), Some((Reason::RenewalFailed, at(TRUST_MS))));
    rig.give(1_600, Input::Drained);
    assert!(matches!(rig.op(), Op::Release { .. }), "the lease may still be ours");
}

#[test]
fn a_hint_makes_a_leader_renew_at_once_and_nothing_else() {
    let mut rig = Rig::leading();
    let actions = rig.give(100, Input::Hint);
    assert!(matches!(sends(&actions), Some(Op::Renew { .. })), "somebody may have asked");
    assert_eq!(rig.machine.leading(), Some(term(1)), "I5");
    assert_eq!(actions.len(), 2);
}

#[test]
fn work_that_drains_after_the_lease_ran_out_has_nothing_to_release() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.answer(1_500, Outcome::Unknown);
    rig.tick(STEP_DOWN_MS);
    rig.flight = None;
    rig.machine.flight = None;
    rig.tick(TRUST_MS);
    let actions = rig.give(TTL_MS + 1, Input::Drained);
    assert_eq!(vacated(&actions), Some((Some(term(1)), false)));
    assert!(matches!(sends(&actions), Some(Op::Acquire { .. })));
}

#[test]
fn a_renewal_granted_while_ending_tells_that_there_is_something_to_release() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.tick(STEP_DOWN_MS);
    rig.answer(2_400, granted(1));
    rig.tick(TRUST_MS);
    rig.give(3_500, Input::Drained);
    assert!(matches!(rig.op(), Op::Release { term: Some(t), .. } if *t == term(1)));
}

#[test]
fn it_never_campaigns_before_the_work_has_ended() {
    let mut rig = Rig::leading();
    rig.tick(STEP_DOWN_MS);
    rig.flight = None;
    rig.machine.flight = None;
    for now_ms in [TRUST_MS, 5_000, 60_000] {
        assert!(sends(&rig.tick(now_ms)).is_none());
        assert!(sends(&rig.give(now_ms, Input::Hint)).is_none());
        assert!(sends(&rig.give(now_ms, Input::Campaign)).is_none());
    }
    assert!(sends(&rig.give(60_001, Input::Drained)).is_some());
}
