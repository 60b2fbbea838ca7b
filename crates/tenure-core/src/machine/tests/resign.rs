//! Resigning, being asked, and draining: never release first.

use super::*;

fn asked(number: u64) -> Outcome {
    Outcome::Granted(Grant { asked: true, ..Grant::new(term(number)) })
}

fn seen_held(number: u64, remaining_ms: u64) -> Outcome {
    Outcome::Seen(held_by(&candidate("other", 9), number, remaining_ms))
}

fn seen_vacant() -> Outcome {
    Outcome::Seen(Sight { last_term: Some(term(1)), ..Sight::default() })
}

#[test]
fn resigning_stops_the_work_first_and_releases_only_when_it_has_ended() {
    let mut rig = Rig::leading();
    let actions = rig.give(100, Input::Resign);
    assert_eq!(step_down(&actions), Some((Reason::Resigned, at(TRUST_MS))));
    assert!(sends(&actions).is_none(), "never release first");
    assert_eq!((rig.machine.leading(), rig.machine.ending()), (None, Some(term(1))));
    let actions = rig.give(150, Input::Drained);
    let Some(Op::Release { term: Some(released), seq: 1, .. }) = sends(&actions) else {
        panic!("{actions:?}")
    };
    assert_eq!(*released, term(1), "I4");
    assert_eq!(vacated(&rig.answer(160, granted(1))), Some((Some(term(1)), true)));
}

#[test]
fn it_keeps_renewing_while_the_work_drains() {
    let mut rig = Rig::leading();
    rig.give(700, Input::Resign);
    let actions = rig.tick(1_000);
    assert!(matches!(sends(&actions), Some(Op::Renew { .. })));
    let actions = rig.answer(1_010, granted(1));
    let until = at(1_000 + TRUST_MS);
    assert!(matches!(actions[0], Action::Extend { until: u, .. } if u == until));
    assert_eq!(step_down(&actions), None, "I6: one is enough");
    assert_eq!(wake(&actions).1, at(1_200), "the drain of 500 ms bounds it");
}

#[test]
fn a_drain_that_takes_too_long_is_aborted_and_renewed_no_more() {
    let mut rig = Rig::leading();
    rig.give(700, Input::Resign);
    assert!(!aborts(&rig.tick(799)));
    let actions = rig.tick(1_200);
    assert!(aborts(&actions));
    assert!(sends(&actions).is_none());
    assert!(sleeps(&actions), "no renewals: the lease runs out unless the work ends");
    rig.give(1_300, Input::Drained);
    assert!(matches!(rig.op(), Op::Release { .. }), "it ended after all, so nobody has to wait");
}

#[test]
fn a_drain_never_outlasts_trust() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.answer(2_200, Outcome::Unknown);
    rig.give(2_300, Input::Resign);
    rig.tick(2_300);
    assert!(aborts(&rig.tick(2_800)), "drain over");
    let mut rig = Rig::new(Settings {
        timing: Timing { drain: ms(850), ..Timing::new(ms(TTL_MS)) },
        ..settings()
    });
    rig.give(0, Input::Campaign);
    rig.answer(0, granted(1));
    rig.tick(1_000);
    rig.give(1_990, Input::Resign);
    assert!(!aborts(&rig.tick(2_839)));
    assert!(aborts(&rig.tick(2_850)), "I3: trust ends first");
}

#[test]
fn a_refused_renewal_while_draining_aborts() {
    let mut rig = Rig::leading();
    rig.give(700, Input::Resign);
    rig.tick(1_000);
    let actions = rig.answer(1_010, refused(2, 2_000));
    assert!(aborts(&actions));
    assert_eq!(step_down(&actions), None, "I6: it has stepped down before");
    let actions = rig.give(1_020, Input::Drained);
    assert_eq!(vacated(&actions), Some((Some(term(1)), true)), "nothing is left to release");
}

#[test]
fn a_release_waits_for_the_renewal_under_way() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.give(1_010, Input::Resign);
    assert!(sends(&rig.give(1_020, Input::Drained)).is_none(), "one request at a time");
    let actions = rig.answer(1_030, granted(1));
    assert!(matches!(sends(&actions), Some(Op::Release { .. })));
    assert!(!actions.iter().any(|action| matches!(action, Action::Extend { .. })));
}

#[test]
fn asked_by_a_renewal_it_resigns() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    let actions = rig.answer(1_010, asked(1));
    let until = at(1_000 + TRUST_MS);
    assert_eq!(step_down(&actions), Some((Reason::Asked, until)));
}

#[test]
fn whoever_resigned_or_was_asked_steps_back_and_hints_do_not_shorten_it() {
    for by_wish in [true, false] {
        let mut rig = Rig::leading();
        rig.tick(1_000);
        if by_wish {
            rig.answer(1_010, granted(1));
            rig.give(1_010, Input::Resign);
        } else {
            rig.answer(1_010, asked(1));
        }
        rig.give(1_020, Input::Drained);
        rig.give(1_025, Input::Hint);
        let actions = rig.answer(1_030, granted(1));
        assert!(matches!(sends(&actions), Some(Op::Read { .. })), "the hint is looked into");
        let actions = rig.answer(1_035, seen_held(2, 2_900));
        assert_eq!(wake(&actions), (at(3_935), at(3_985)), "when that lease is due");
        assert!(matches!(sends(&rig.give(1_040, Input::Hint)), Some(Op::Read { .. })));
        assert!(sends(&rig.give(1_050, Input::Campaign)).is_none());
        let actions = rig.answer(1_060, Outcome::Unknown);
        assert_eq!(wake(&actions), (at(2_030), at(2_080)), "one renew_every");
        assert!(sends(&rig.tick(2_029)).is_none());
        assert!(matches!(sends(&rig.tick(2_030)), Some(Op::Acquire { .. })));
    }
}

#[test]
fn whoever_stepped_back_soon_knows_who_follows_and_asks_for_nothing_meanwhile() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    rig.give(110, Input::Drained);
    let actions = rig.answer(120, granted(1));
    assert_eq!(wake(&actions), (at(125), at(130)));
    assert!(matches!(sends(&rig.tick(130)), Some(Op::Read { .. })));
    let actions = rig.answer(131, seen_vacant());
    assert_eq!(wake(&actions), (at(136), at(141)), "soon again");
    assert!(matches!(sends(&rig.tick(141)), Some(Op::Read { .. })));
    let actions = rig.answer(142, seen_held(2, 900));
    assert!(actions.iter().any(|action| matches!(action, Action::Observed(Some(_)))));
    assert_eq!(wake(&actions), (at(1_120), at(1_170)), "its time to stand back is not cut short");
}

#[test]
fn a_lease_that_stays_vacant_is_looked_at_less_and_less_often() {
    let mut rig = Rig::new(settings());
    rig.give(0, Input::Observe);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let now = rig.now.as_nanos() / 1_000_000;
        let (_, to) = wake(&rig.answer(now, seen_vacant()));
        let to = to.as_nanos() / 1_000_000;
        pauses.push(ms(to - now));
        rig.tick(to);
    }
    assert_eq!(pauses[..4], [10, 20, 40, 80].map(ms));
    assert_eq!(pauses[4..], [ms(125), ms(125)], "an eighth of renew_every at most");
}

#[test]
fn a_healed_acquire_that_was_asked_leads_and_resigns_in_order() {
    let mut rig = Rig::campaigning();
    rig.answer(500, Outcome::Unknown);
    rig.tick(1_000);
    let actions = rig.answer(1_010, asked(1));
    let lead = actions.iter().position(|action| matches!(action, Action::Lead { .. }));
    let down = actions.iter().position(|action| matches!(action, Action::StepDown { .. }));
    assert!(lead.is_some() && lead < down, "I6: {actions:?}");
}

#[test]
fn an_unknown_release_is_tried_again_for_one_renew_every_then_left_to_expire() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    let mut actions = rig.give(200, Input::Drained);
    let (mut now_ms, mut tries) = (200, 0);
    while vacated(&actions).is_none() {
        tries += 1;
        actions = rig.answer(now_ms, Outcome::Unknown);
        if vacated(&actions).is_none() {
            now_ms = wake(&actions).1.as_nanos().div_ceil(1_000_000);
            actions = rig.tick(now_ms);
            assert!(matches!(sends(&actions), Some(Op::Release { .. })));
        }
    }
    assert!(tries > 2 && now_ms <= 1_200, "{tries} tries until {now_ms}");
    assert_eq!(vacated(&actions), Some((Some(term(1)), false)), "nobody confirmed it");
}

#[test]
fn resign_and_drained_mean_nothing_to_a_follower() {
    let mut rig = Rig::campaigning();
    let before = rig.machine.clone();
    assert!(sleeps(&rig.give(1, Input::Resign)));
    assert!(sleeps(&rig.give(1, Input::Drained)));
    assert_eq!(rig.machine, before);
}

#[test]
fn resigning_twice_is_resigning_once() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    let before = rig.machine.clone();
    assert_eq!(step_down(&rig.give(200, Input::Resign)), None);
    assert_eq!(rig.machine, before);
}
