//! Where exactly things begin and end: found by mutants that no other test had noticed.

use super::*;

fn seen_at(store_ms: u64, remaining_ms: u64) -> Outcome {
    let sight = held_by(&candidate("other", 9), 7, remaining_ms);
    Outcome::Refused(Sight { store_clock: Some(ms(store_ms)), ..sight })
}

#[test]
fn an_unknown_renewal_while_draining_is_tried_again_after_a_pause() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    rig.give(1_100, Input::Resign);
    let actions = rig.answer(1_200, Outcome::Unknown);
    assert!(sends(&actions).is_none(), "not in the same breath: {actions:?}");
    let (from, to) = wake(&actions);
    assert!(at(1_200) < from && to <= at(1_250), "{from:?} to {to:?}");
}

#[test]
fn no_wake_is_later_than_the_step_down() {
    let mut rig = Rig::leading();
    rig.tick(1_000);
    let (from, to) = wake(&rig.answer(STEP_DOWN_MS - 20, Outcome::Unknown));
    assert!(from < to, "there is time for another try");
    assert_eq!(to, at(STEP_DOWN_MS));
}

#[test]
fn whoever_campaigns_backs_off_from_a_refusal_without_a_holder() {
    let mut rig = Rig::campaigning();
    let (from, to) = wake(&rig.answer(0, Outcome::Refused(Sight::default())));
    assert_eq!(
        (from, to),
        (at(62) + Duration::from_micros(500), at(125)),
        "an eighth of renew_every"
    );
}

#[test]
fn the_pause_between_looks_at_a_vacant_lease_doubles_nine_times() {
    let timing = Timing::new(Duration::from_secs(3_600));
    let mut rig = Rig::new(Settings { timing, ..settings() });
    rig.give(0, Input::Observe);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let now = rig.now.as_nanos() / 1_000_000;
        let (_, to) = wake(&rig.answer(now, Outcome::Seen(Sight::default())));
        pauses.push((to - rig.now).as_millis());
        rig.tick(to.as_nanos() / 1_000_000);
    }
    assert_eq!(pauses[..3], [10, 20, 40]);
    assert_eq!(pauses[9..], [5_120, 5_120, 5_120]);
}

#[test]
fn a_step_begins_above_half_a_margin_and_the_rate_bound() {
    // Half a margin is 75 ms, and a hundredth of 100 ms is 1 ms.
    let read = |store_ms| {
        let mut rig = Rig::campaigning();
        rig.answer(0, seen_at(100_000, 2_900));
        rig.give(100, Input::Hint);
        let actions = rig.answer(100, Outcome::Granted(granted_at(8, store_ms)));
        (reports(&actions).len(), leads(&actions))
    };
    assert_eq!(read(100_100 + 76), (0, Some(term(8))));
    assert_eq!(read(100_100 + 77), (1, None));
    assert_eq!(read(100_100 - 76), (0, Some(term(8))));
    assert_eq!(read(100_100 - 77), (1, Some(term(8))), "set back: nobody's lease is cut short");
}

#[test]
fn at_the_edge_of_a_step_the_lease_that_is_seen_lasts_as_it_says() {
    let mut rig = Rig::campaigning();
    rig.answer(0, seen_at(100_000, 2_900));
    rig.give(100, Input::Hint);
    let actions = rig.answer(100, seen_at(100_100 + 76, 1_000));
    assert_eq!(wake(&actions).0, at(1_100));
}

#[test]
fn a_lease_that_is_vacant_for_a_while_does_not_make_forget_the_longest_ttl() {
    let mut rig = Rig::campaigning();
    let mut sight = held_by(&candidate("other", 9), 7, 29_000);
    sight.lease.as_mut().unwrap().ttl = Some(ms(30_000));
    rig.answer(0, Outcome::Refused(Sight { store_clock: Some(ms(100_000)), ..sight }));
    rig.give(100, Input::Hint);
    let vacant = Sight { store_clock: Some(ms(100_100)), ..Sight::default() };
    rig.answer(100, Outcome::Refused(vacant));
    rig.give(200, Input::Hint);
    rig.answer(200, Outcome::Granted(granted_at(8, 140_000)));
    for now_ms in (1_100..30_000).step_by(1_000) {
        assert_eq!(leads(&rig.tick(now_ms)), None, "at {now_ms} ms");
        rig.answer(now_ms, Outcome::Granted(granted_at(8, 139_800 + now_ms)));
    }
    assert_eq!(leads(&rig.tick(30_200)), Some(term(8)));
}

#[test]
fn a_twin_that_follows_another_is_no_duplicate() {
    let mut rig = Rig::campaigning();
    rig.answer(0, Outcome::Refused(held_by(&candidate("me", 2), 7, 1_000)));
    rig.give(100, Input::Hint);
    let actions = rig.answer(100, Outcome::Refused(held_by(&candidate("me", 3), 8, 3_000)));
    assert_eq!(reports(&actions), []);
}

#[test]
fn a_twin_is_a_duplicate_when_its_lease_ends_more_than_a_margin_later() {
    let twin = candidate("me", 2);
    for (remaining_ms, told) in [(2_050, 0), (2_051, 1)] {
        let mut rig = Rig::campaigning();
        rig.answer(0, Outcome::Refused(held_by(&twin, 7, 2_000)));
        rig.give(100, Input::Hint);
        let actions = rig.answer(100, Outcome::Refused(held_by(&twin, 7, remaining_ms)));
        assert_eq!(reports(&actions).len(), told, "{remaining_ms} ms");
    }
}
