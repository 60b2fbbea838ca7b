//! Which terms are led: healed ones, new ones, and none that may have been led before (C1, C5).

use super::*;

fn acquire(op: &Op) -> (u64, Option<Term>, Option<Term>) {
    match op {
        Op::Acquire { seq, above, floor, .. } => (*seq, *above, *floor),
        other => panic!("no acquire but {other:?}"),
    }
}

#[test]
fn a_lost_reply_is_healed_with_the_same_term() {
    let mut rig = Rig::campaigning();
    assert_eq!(acquire(rig.op()), (1, None, None));
    let (_, to) = wake(&rig.answer(500, Outcome::Unknown));
    rig.tick(to.as_nanos().div_ceil(1_000_000));
    assert_eq!(acquire(rig.op()), (2, None, None));
    assert_eq!(leads(&rig.answer(700, granted(1))), Some(term(1)));
}

#[test]
fn after_a_reign_only_terms_above_it_will_do() {
    let mut rig = Rig::leading();
    rig.give(100, Input::Resign);
    rig.give(110, Input::Drained);
    rig.answer(120, granted(1));
    rig.tick(1_200);
    assert_eq!(acquire(rig.op()), (2, Some(term(1)), None));
    let actions = rig.answer(1_210, granted(1));
    assert_eq!(leads(&actions), None, "C1: never the same term twice");
    let fell = Report::TermFell { granted: term(1), least: term(2) };
    assert_eq!(reports(&actions), [fell]);
    assert!(matches!(sends(&actions), Some(Op::Release { term: Some(t), .. }) if *t == term(1)));
}

#[test]
fn terms_stay_above_every_term_seen_in_other_hands() {
    let mut rig = Rig::campaigning();
    rig.answer(10, refused(7, 100));
    rig.tick(160);
    assert_eq!(acquire(rig.op()), (2, None, Some(term(8))), "a store may lose its memory (C5)");
    let actions = rig.answer(170, granted(3));
    assert_eq!(leads(&actions), None);
    assert_eq!(reports(&actions), [Report::TermFell { granted: term(3), least: term(8) }]);
    rig.answer(180, granted(3));
    rig.tick(2_000);
    assert_eq!(leads(&rig.answer(2_010, granted(8))), Some(term(8)));
}

#[test]
fn a_vacant_election_tells_its_last_term_too() {
    let mut rig = Rig::campaigning();
    let sight = Sight { last_term: Some(term(41)), ..Sight::default() };
    rig.answer(0, Outcome::Refused(sight));
    rig.tick(200);
    assert_eq!(acquire(rig.op()), (2, None, Some(term(42))));
}

#[test]
fn the_floor_of_the_settings_holds_from_the_start() {
    let mut rig = Rig::new(Settings { term_floor: Some(term(100)), ..settings() });
    rig.give(0, Input::Campaign);
    assert_eq!(acquire(rig.op()), (1, None, Some(term(100))));
    assert_eq!(leads(&rig.answer(10, granted(99))), None);
    let mut rig = Rig::new(Settings { term_floor: Some(term(100)), ..settings() });
    rig.give(0, Input::Campaign);
    assert_eq!(leads(&rig.answer(10, granted(100))), Some(term(100)));
}

#[test]
fn our_own_lease_seen_in_the_store_does_not_forbid_its_term() {
    let mut rig = Rig::new(settings());
    rig.give(0, Input::Observe);
    rig.answer(10, Outcome::Seen(held_by(&me(), 5, 1_000)));
    rig.give(20, Input::Campaign);
    assert_eq!(leads(&rig.answer(30, granted(5))), Some(term(5)), "granted, its reply was lost");
}

#[test]
fn a_term_that_was_given_up_is_never_led() {
    // The release may be on its way still. Were the same term healed and led, the release would
    // take the lease from under its leader (I1).
    let mut rig = Rig::campaigning();
    rig.give(5, Input::Withdraw);
    assert!(matches!(sends(&rig.answer(10, granted(1))), Some(Op::Release { .. })));
    rig.give(15, Input::Campaign);
    let mut actions = rig.answer(500, Outcome::Unknown);
    while vacated(&actions).is_none() {
        actions = rig.tick(wake(&actions).1.as_nanos().div_ceil(1_000_000));
        let now_ms = rig.now.as_nanos() / 1_000_000;
        if rig.flight.is_some() {
            actions = rig.answer(now_ms, Outcome::Unknown);
        }
    }
    assert_eq!(acquire(rig.op()), (2, Some(term(1)), None), "the store must issue a new one");
    let now_ms = rig.now.as_nanos().div_ceil(1_000_000);
    assert_eq!(leads(&rig.answer(now_ms + 1, granted(1))), None);
}

#[test]
fn metadata_travels_with_each_acquire() {
    let metadata = crate::Metadata::new("{\"port\":1}").ok();
    let mut rig = Rig::new(Settings { metadata: metadata.clone(), ..settings() });
    rig.give(0, Input::Campaign);
    assert!(matches!(rig.op(), Op::Acquire { metadata: sent, .. } if *sent == metadata));
}
