//! A store whose clock steps (W1, W2).

use super::*;

/// A follower that has read the store's clock once: 100 s at 0, a lease of `remaining_ms` seen.
fn reader(remaining_ms: u64) -> Rig {
    let mut rig = Rig::campaigning();
    let answer = seen_at(100_000, remaining_ms);
    rig.answer(0, answer);
    rig
}

fn seen_at(store_ms: u64, remaining_ms: u64) -> Outcome {
    let sight = held_by(&candidate("other", 9), 7, remaining_ms);
    Outcome::Refused(Sight { store_clock: Some(ms(store_ms)), ..sight })
}

fn took_over(number: u64, store_ms: u64) -> Outcome {
    Outcome::Granted(Grant { expired: Some(ms(TTL_MS)), ..granted_at(number, store_ms) })
}

#[test]
fn a_clock_that_runs_as_ours_is_no_news() {
    let mut rig = reader(1_000);
    rig.tick(1_050);
    let actions = rig.answer(1_060, took_over(8, 101_055));
    assert_eq!(reports(&actions), []);
    assert_eq!(leads(&actions), Some(term(8)));
}

#[test]
fn a_lease_that_ran_out_by_a_step_is_held_for_its_ttl_before_it_is_led() {
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    let actions = rig.answer(110, took_over(8, 103_105));
    let ahead = Report::StoreClockStepped { by: ms(103_105 - 100_000 - 110), ahead: true };
    assert_eq!(reports(&actions), [ahead]);
    assert_eq!(leads(&actions), None, "the former holder may trust itself");
    let mut store_ms = 104_000;
    for now_ms in [1_100, 2_100] {
        rig.tick(now_ms);
        assert!(matches!(rig.op(), Op::Renew { .. }), "held, so renewed");
        rig.answer(now_ms, Outcome::Granted(granted_at(8, store_ms)));
        store_ms += 1_000;
    }
    assert_eq!(leads(&rig.tick(3_109)), None);
    assert_eq!(leads(&rig.tick(3_110)), Some(term(8)), "the former ttl has passed");
}

#[test]
fn a_hint_does_not_shorten_the_wait_after_a_step() {
    // Seen to step while another held the lease: that lease counts as fresh, hint or no hint (I5).
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    let actions = rig.answer(110, seen_at(102_105, 900));
    assert_eq!(wake(&actions).0, at(3_110), "fresh for the holder's ttl");
    rig.give(1_100, Input::Hint);
    let actions = rig.answer(1_110, took_over(8, 103_105));
    assert_eq!(leads(&actions), None);
    rig.tick(2_000);
    rig.answer(2_010, Outcome::Granted(granted_at(8, 104_005)));
    assert_eq!(leads(&rig.tick(3_109)), None);
    assert_eq!(leads(&rig.tick(3_110)), Some(term(8)));
}

#[test]
fn a_healed_grant_after_a_step_waits_too() {
    // The grant that told of the expired lease was lost; the healed one does not tell again.
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    rig.answer(600, Outcome::Unknown);
    rig.tick(1_000);
    let actions = rig.answer(1_010, Outcome::Granted(granted_at(8, 104_005)));
    assert_eq!(leads(&actions), None);
    rig.tick(2_000);
    rig.answer(2_010, Outcome::Granted(granted_at(8, 105_005)));
    rig.tick(3_000);
    rig.answer(3_010, Outcome::Granted(granted_at(8, 106_005)));
    assert_eq!(leads(&rig.tick(4_009)), None);
    assert_eq!(leads(&rig.tick(4_010)), Some(term(8)));
}

#[test]
fn a_held_lease_that_is_not_renewed_in_time_is_asked_for_again_and_still_waits() {
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    rig.answer(110, took_over(8, 103_105));
    rig.tick(1_100);
    rig.answer(1_600, Outcome::Unknown);
    rig.tick(1_700);
    rig.answer(2_200, Outcome::Unknown);
    rig.tick(2_440);
    let actions = rig.answer(2_451, Outcome::Unknown);
    assert!(step_down(&actions).is_none(), "it never led");
    assert!(matches!(rig.op(), Op::Acquire { .. }));
    let actions = rig.answer(2_460, Outcome::Granted(granted_at(8, 105_455)));
    assert_eq!(leads(&actions), None, "the former holder's ttl has not passed");
    assert_eq!(leads(&rig.tick(3_110)), Some(term(8)));
}

#[test]
fn after_a_step_even_a_lease_that_was_released_waits() {
    // Another candidate may have taken over by the step, and released without ever leading.
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    let actions = rig.answer(110, Outcome::Granted(granted_at(9, 110_000)));
    assert_eq!(reports(&actions).len(), 1);
    assert_eq!(leads(&actions), None);
    rig.tick(1_000);
    rig.answer(1_010, Outcome::Granted(granted_at(9, 110_900)));
    assert_eq!(leads(&rig.tick(3_110)), Some(term(9)));
}

#[test]
fn a_clock_that_was_set_back_makes_nobody_wait_longer_than_the_ttl() {
    let mut rig = reader(2_000);
    rig.give(100, Input::Hint);
    let actions = rig.answer(110, seen_at(50_000, 52_000));
    let back = Report::StoreClockStepped { by: ms(50_100), ahead: false };
    assert_eq!(reports(&actions), [back]);
    assert_eq!(wake(&actions).0, at(3_110), "52 s are no ttl");
}

#[test]
fn a_clock_that_was_set_back_does_not_make_a_dead_twin_look_alive() {
    let twin = candidate("me", 2);
    let seen = |store_ms, remaining_ms| {
        let sight = held_by(&twin, 7, remaining_ms);
        Outcome::Refused(Sight { store_clock: Some(ms(store_ms)), ..sight })
    };
    let mut rig = Rig::campaigning();
    rig.answer(0, seen(100_000, 2_000));
    rig.give(100, Input::Hint);
    let actions = rig.answer(100, seen(99_100, 2_900));
    assert!(!reports(&actions).iter().any(|r| matches!(r, Report::DuplicateLabel { .. })));
}

#[test]
fn what_a_slow_answer_may_hide_is_not_taken_for_a_step() {
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    assert_eq!(reports(&rig.answer(600, seen_at(100_100, 2_800))), [], "read when it was sent");
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    assert_eq!(reports(&rig.answer(600, seen_at(100_600, 2_300))), [], "read when it came back");
}

#[test]
fn drift_within_the_bound_is_no_step() {
    let day_ms = 24 * 3_600_000;
    for drifted in [day_ms + day_ms / 100, day_ms - day_ms / 100] {
        let mut rig = reader(1_000);
        rig.tick(day_ms);
        assert_eq!(reports(&rig.answer(day_ms, seen_at(100_000 + drifted, 1_000))), []);
    }
}

#[test]
fn a_leader_reports_a_step_and_leads_on() {
    let mut rig = Rig::campaigning();
    rig.answer(0, Outcome::Granted(granted_at(1, 100_000)));
    rig.tick(1_000);
    let actions = rig.answer(1_000, Outcome::Granted(granted_at(1, 102_000)));
    assert_eq!(reports(&actions).len(), 1);
    assert_eq!(rig.machine.leading(), Some(term(1)));
}

#[test]
fn a_held_lease_can_be_lost_withdrawn_and_asked_for() {
    let held = || {
        let mut rig = reader(2_900);
        rig.give(100, Input::Hint);
        rig.answer(110, took_over(8, 103_105));
        rig
    };
    let mut rig = held();
    assert!(matches!(sends(&rig.give(200, Input::Resign)), Some(Op::Release { .. })));
    let mut rig = held();
    assert!(matches!(sends(&rig.give(200, Input::Withdraw)), Some(Op::Release { .. })));
    let mut rig = held();
    rig.tick(1_100);
    let actions = rig.answer(1_110, refused(9, 1_000));
    assert_eq!(wake(&actions).0, at(2_110), "somebody else has it: follow");
    assert_eq!(step_down(&actions), None, "I6: nothing was led");
}

#[test]
fn a_step_seen_by_a_release_makes_the_next_grant_wait_too() {
    // Its lost acquire took over by the step, its release gave that back: another one, whose
    // lease was cut short, may trust itself all the while.
    let mut rig = reader(2_900);
    rig.give(100, Input::Hint);
    rig.answer(600, Outcome::Unknown);
    rig.give(610, Input::Withdraw);
    assert!(matches!(rig.op(), Op::Release { term: None, .. }));
    rig.answer(620, Outcome::Granted(granted_at(8, 104_005)));
    rig.give(630, Input::Campaign);
    assert_eq!(leads(&rig.answer(640, Outcome::Granted(granted_at(9, 104_025)))), None);
}

#[test]
fn in_a_mixed_fleet_the_longer_ttl_that_was_seen_decides() {
    let mut rig = Rig::campaigning();
    let mut sight = held_by(&candidate("other", 9), 7, 29_000);
    sight.lease.as_mut().unwrap().ttl = Some(ms(30_000));
    rig.answer(0, Outcome::Refused(Sight { store_clock: Some(ms(100_000)), ..sight }));
    rig.give(100, Input::Hint);
    rig.answer(600, Outcome::Unknown);
    rig.tick(1_000);
    assert_eq!(leads(&rig.answer(1_010, Outcome::Granted(granted_at(8, 140_000)))), None);
    let (_, to) = wake(&rig.tick(1_020));
    assert!(to < at(31_010), "it is renewed all the while");
    for now_ms in (2_000..31_000).step_by(1_000) {
        assert_eq!(leads(&rig.tick(now_ms)), None);
        rig.answer(now_ms, Outcome::Granted(granted_at(8, 139_000 + now_ms)));
    }
    assert_eq!(leads(&rig.tick(31_010)), Some(term(8)));
}
