//! Followers: when they try, what hints do, and what they tell.

use super::*;

#[test]
fn a_follower_wakes_when_the_lease_it_saw_is_due_within_50_ms() {
    let mut rig = Rig::campaigning();
    let actions = rig.answer(10, refused(7, 1_234));
    assert_eq!(wake(&actions), (at(1_244), at(1_294)));
    assert!(
        matches!(&actions[0], Action::Observed(Some(lease)) if lease.holder.label() == "other")
    );
    assert!(matches!(sends(&rig.tick(1_244)), Some(Op::Acquire { seq: 2, .. })));
    let small = Settings { timing: Timing::new(ms(200)), ..settings() };
    let mut rig = Rig::new(small);
    rig.give(0, Input::Campaign);
    let (from, to) = wake(&rig.answer(0, refused(7, 100)));
    assert_eq!(to - from, ms(10), "a twentieth of a short ttl");
}

#[test]
fn it_never_polls_while_the_lease_lasts() {
    let mut rig = Rig::campaigning();
    rig.answer(10, refused(7, 2_000));
    for now_ms in (100..2_000).step_by(100) {
        assert!(sends(&rig.tick(now_ms)).is_none());
    }
}

#[test]
fn a_hint_is_an_immediate_attempt() {
    let mut rig = Rig::campaigning();
    rig.answer(10, refused(7, 2_000));
    assert!(matches!(sends(&rig.give(500, Input::Hint)), Some(Op::Acquire { .. })));
    let actions = rig.answer(510, refused(7, 1_500));
    assert!(leads(&actions).is_none(), "I5: only the store's word counts");
    assert_eq!(wake(&actions).0, at(2_010));
}

#[test]
fn hints_during_a_flight_are_one_more_attempt() {
    let mut rig = Rig::campaigning();
    for _ in 0..3 {
        assert!(sends(&rig.give(5, Input::Hint)).is_none());
    }
    let actions = rig.answer(10, refused(7, 2_000));
    assert!(matches!(sends(&actions), Some(Op::Acquire { seq: 2, .. })), "it may be older");
    assert!(sends(&rig.answer(20, refused(7, 1_990))).is_none(), "one, not three");
}

#[test]
fn unknown_attempts_back_off_up_to_one_renew_every() {
    let mut rig = Rig::campaigning();
    let mut now_ms = 0;
    let mut longest = Duration::ZERO;
    for _ in 0..8 {
        let (from, to) = wake(&rig.answer(now_ms, Outcome::Unknown));
        assert!(from > at(now_ms));
        longest = longest.max(to - at(now_ms));
        now_ms = to.as_nanos().div_ceil(1_000_000);
        assert!(sends(&rig.tick(now_ms)).is_some());
    }
    assert!(longest > ms(900) && longest <= ms(1_000), "{longest:?}");
}

/// Found by a drill: a candidate whose answers came too late was granted the lease each time,
/// never knew, and kept everybody else from leading.
#[test]
fn who_hears_nothing_takes_no_lease_until_it_hears_again() {
    let mut rig = Rig::campaigning();
    let mut now_ms = 0;
    let mut acquires = 1;
    for _ in 0..20 {
        let (_, to) = wake(&rig.answer(now_ms, Outcome::Unknown));
        now_ms = to.as_nanos().div_ceil(1_000_000);
        rig.tick(now_ms);
        acquires += usize::from(matches!(rig.op(), Op::Acquire { .. }));
    }
    assert_eq!(acquires, 2, "one more heals a lost reply; after that it only looks");
    assert!(matches!(rig.op(), Op::Read { .. }));
    let heard = rig.answer(now_ms + 10, Outcome::Seen(Sight::default()));
    assert!(matches!(sends(&heard), Some(Op::Acquire { .. })), "at once: {heard:?}");
    assert_eq!(leads(&rig.answer(now_ms + 20, granted(1))), Some(term(1)));
}

#[test]
fn a_refusal_without_a_holder_is_tried_again_soon() {
    let mut rig = Rig::campaigning();
    let actions = rig.answer(0, Outcome::Refused(Sight::default()));
    let (from, to) = wake(&actions);
    assert!(from > at(0) && to <= at(250), "{from:?} {to:?}");
    assert!(matches!(actions[0], Action::Observed(None)));
}

#[test]
fn a_settling_store_is_reported_and_waited_for() {
    let mut rig = Rig::campaigning();
    let sight = Sight { settling: Some(ms(5_000)), ..Sight::default() };
    let actions = rig.answer(0, Outcome::Refused(sight));
    assert_eq!(reports(&actions), [Report::Settling { left: ms(5_000) }]);
    assert_eq!(wake(&actions).0, at(5_000));
}

#[test]
fn only_changes_of_leader_are_told() {
    let mut rig = Rig::campaigning();
    let told = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Observed(_)));
    assert!(told(&rig.answer(0, refused(7, 1_000))));
    rig.give(10, Input::Hint);
    assert!(!told(&rig.answer(20, refused(7, 2_900))), "renewed, not changed");
    rig.give(30, Input::Hint);
    assert!(told(&rig.answer(40, refused(8, 2_900))), "the same holder under a new term");
    rig.give(50, Input::Hint);
    assert!(told(&rig.answer(60, Outcome::Refused(Sight::default()))));
}

#[test]
fn an_observer_reads_and_never_acquires() {
    let mut rig = Rig::new(settings());
    assert!(matches!(sends(&rig.give(0, Input::Observe)), Some(Op::Read { .. })));
    let sight = held_by(&candidate("other", 9), 7, 1_000);
    let actions = rig.answer(10, Outcome::Seen(sight));
    assert!(matches!(&actions[0], Action::Observed(Some(_))));
    assert_eq!(wake(&actions), (at(1_010), at(1_060)));
    assert!(matches!(sends(&rig.give(20, Input::Hint)), Some(Op::Read { .. })));
    let actions = rig.answer(30, Outcome::Unknown);
    assert!(wake(&actions).0 > at(30));
    assert!(matches!(sends(&rig.give(40, Input::Campaign)), Some(Op::Acquire { .. })));
}

#[test]
fn a_campaign_that_begins_during_a_read_waits_for_nothing_else() {
    let mut rig = Rig::new(settings());
    rig.give(0, Input::Observe);
    assert!(sends(&rig.give(5, Input::Campaign)).is_none(), "one request at a time");
    let sight = held_by(&candidate("other", 9), 7, 1_000);
    assert!(matches!(sends(&rig.answer(10, Outcome::Seen(sight))), Some(Op::Acquire { .. })));
}

#[test]
fn a_leader_that_only_wants_to_observe_resigns_first() {
    let mut rig = Rig::leading();
    assert_eq!(
        step_down(&rig.give(100, Input::Observe)).map(|down| down.0),
        Some(Reason::Resigned)
    );
    rig.give(110, Input::Drained);
    let actions = rig.answer(120, granted(1));
    assert!(vacated(&actions).is_some());
    assert!(matches!(sends(&actions), Some(Op::Read { .. })), "at once: it does not step back");
}

#[test]
fn campaigning_twice_is_campaigning_once() {
    let mut rig = Rig::campaigning();
    rig.answer(10, refused(7, 2_000));
    let before = rig.machine.clone();
    rig.give(20, Input::Campaign);
    assert_eq!(rig.machine, before);
}

#[test]
fn a_duplicate_label_is_reported_once_and_only_if_it_renews() {
    let twin = candidate("me", 2);
    let mut rig = Rig::campaigning();
    let sight = |remaining_ms| Outcome::Refused(held_by(&twin, 7, remaining_ms));
    assert_eq!(reports(&rig.answer(10, sight(2_000))), [], "it may be our own dead self");
    rig.give(500, Input::Hint);
    assert_eq!(reports(&rig.answer(510, sight(1_505))), [], "it runs out as it should");
    rig.give(1_000, Input::Hint);
    let holder = Holder::from(&twin);
    assert_eq!(reports(&rig.answer(1_010, sight(2_900))), [Report::DuplicateLabel { holder }]);
    rig.give(1_500, Input::Hint);
    assert_eq!(reports(&rig.answer(1_510, sight(2_900))), [], "once is enough");
}

#[test]
fn a_dead_twin_seen_by_a_fast_clock_is_no_duplicate() {
    // Ours runs 1 % faster than the store's: after 2 s the lease seems to end 20 ms later.
    let twin = candidate("me", 2);
    let mut rig = Rig::campaigning();
    rig.answer(1, Outcome::Refused(held_by(&twin, 7, 2_900)));
    rig.give(2_000, Input::Hint);
    let actions = rig.answer(2_001, Outcome::Refused(held_by(&twin, 7, 2_900 - 1_980)));
    assert_eq!(reports(&actions), []);
}

#[test]
fn other_labels_and_foreign_holders_are_no_duplicates() {
    let mut rig = Rig::campaigning();
    rig.answer(0, refused(7, 1_000));
    rig.give(10, Input::Hint);
    assert_eq!(reports(&rig.answer(20, refused(7, 2_900))), []);
    let mut sight = held_by(&me(), 7, 1_000);
    sight.lease.as_mut().unwrap().holder = Holder::new("me");
    sight.lease.as_mut().unwrap().term = None;
    for remaining_ms in [1_000, 2_900] {
        rig.give(30, Input::Hint);
        sight.lease.as_mut().unwrap().remaining = ms(remaining_ms);
        assert_eq!(reports(&rig.answer(30, Outcome::Refused(sight.clone()))), []);
    }
}
