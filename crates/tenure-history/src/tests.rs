//! For each invariant a history that breaks it and must be rejected, and a sound one beside it.

use super::*;

const TTL: Duration = Duration::from_secs(10);
const MARGIN: Duration = Duration::from_secs(1);

fn at(secs: u64) -> Time {
    Time::ZERO + Duration::from_secs(secs)
}

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

fn lead(number: u64, until: u64) -> Kind {
    Kind::Lead { term: term(number), until: at(until) }
}

fn extend(until: u64) -> Kind {
    Kind::Extend { until: at(until) }
}

fn step_down(until: u64) -> Kind {
    Kind::StepDown { reason: "not renewed".to_owned(), until: at(until), resigning: false }
}

fn resign(until: u64) -> Kind {
    Kind::StepDown { reason: "resigned".to_owned(), until: at(until), resigning: true }
}

fn granted(request: Request, number: u64, sent_at: u64) -> Kind {
    Kind::Granted { request, term: term(number), sent_at: at(sent_at), ttl: TTL, margin: MARGIN }
}

fn acquired(number: u64, sent_at: u64) -> Kind {
    granted(Request::Acquire, number, sent_at)
}

fn renewed(number: u64, sent_at: u64) -> Kind {
    granted(Request::Renew, number, sent_at)
}

fn released(number: u64) -> Kind {
    Kind::Released { term: Some(term(number)) }
}

fn history(events: impl IntoIterator<Item = (u64, &'static str, Kind)>) -> History {
    let election = Name::new("e").unwrap();
    events
        .into_iter()
        .map(|(secs, candidate, kind)| Event::new(at(secs), &election, candidate, kind))
        .collect()
}

#[track_caller]
fn sound(events: impl IntoIterator<Item = (u64, &'static str, Kind)>) {
    if let Err(violations) = history(events).check() {
        panic!("a sound history was rejected: {violations:#?}");
    }
}

/// Exactly this invariant is broken, once, and the sentence says so.
#[track_caller]
fn broken(
    invariant: &str,
    says: &str,
    events: impl IntoIterator<Item = (u64, &'static str, Kind)>,
) {
    let violations = history(events).check().expect_err("a broken history was accepted");
    let [violation] = &violations[..] else { panic!("not one violation: {violations:#?}") };
    assert_eq!(violation.invariant, invariant, "{violation}");
    assert!(violation.sentence.contains(says), "{violation}");
}

#[test]
fn i1_two_may_not_trust_themselves_at_one_instant() {
    let first = [(1, "a", lead(1, 10)), (4, "a", extend(13))];
    sound(first.clone().into_iter().chain([
        (12, "a", step_down(13)),
        (13, "b", lead(2, 22)),
        (15, "b", extend(24)),
    ]));
    broken(
        "I1",
        "a (term 1) and b (term 2) both trust themselves from 12.000000000s to 13.000000000s",
        first.clone().into_iter().chain([(9, "a", step_down(13)), (12, "b", lead(2, 21))]),
    );
    sound(first.into_iter().chain([(9, "a", Kind::Killed), (12, "b", lead(2, 21))]));
}

#[test]
fn i1_a_release_ends_trust_and_a_drain_does_not() {
    let resigned = [(1, "a", lead(1, 10)), (3, "a", resign(10)), (4, "a", extend(13))];
    sound(resigned.clone().into_iter().chain([(6, "a", released(1)), (6, "b", lead(2, 15))]));
    broken(
        "I1",
        "from 6.000000000s to 13.000000000s",
        resigned.into_iter().chain([(6, "b", lead(2, 15))]),
    );
}

#[test]
fn i2_terms_strictly_increase_and_are_never_reused() {
    let first = [(1, "a", lead(5, 10)), (10, "a", step_down(10))];
    sound(first.clone().into_iter().chain([(11, "a", lead(6, 20))]));
    for again in [4, 5] {
        let says = format!("leads term {again} from 11");
        broken("I2", &says, first.clone().into_iter().chain([(11, "a", lead(again, 20))]));
    }
}

#[test]
fn i2_holds_for_grants_that_nobody_led_by() {
    sound([(1, "a", acquired(3, 0)), (2, "a", acquired(3, 1)), (20, "b", acquired(4, 19))]);
    let says = "term 3 was granted to a at 1.000000000s and to b at 20.000000000s";
    broken("I2", says, [(1, "a", acquired(3, 0)), (20, "b", acquired(3, 19))]);
    let says = "b was granted term 2 at 20.000000000s, after a had been granted term 3";
    broken("I2", says, [(1, "a", acquired(3, 0)), (20, "b", acquired(2, 19))]);
    // Sent before the other's grant arrived: they crossed, and the order is not known.
    sound([(20, "a", acquired(3, 19)), (21, "b", acquired(2, 0))]);
}

#[test]
fn i3_trust_ends_at_sent_at_plus_ttl_minus_margin() {
    sound([
        (1, "a", acquired(1, 0)),
        (1, "a", lead(1, 9)),
        (4, "a", renewed(1, 3)),
        (4, "a", extend(12)),
    ]);
    let says = "until 10.000000000s, but its grants last until 9.000000000s only";
    broken("I3", says, [(1, "a", acquired(1, 0)), (1, "a", lead(1, 10))]);
    broken(
        "I3",
        "until 13.000000000s",
        [
            (1, "a", acquired(1, 0)),
            (1, "a", lead(1, 9)),
            (4, "a", renewed(1, 3)),
            (4, "a", extend(13)),
        ],
    );
    broken(
        "I3",
        "no grant of it had arrived",
        [(1, "b", acquired(1, 0)), (1, "b", released(1)), (2, "a", lead(2, 9))],
    );
}

#[test]
fn i3_a_late_grant_revives_nothing() {
    let says = "revives its trust in term 1 at 11.000000000s, though it had ended at 10";
    broken("I3", says, [(1, "a", lead(1, 10)), (11, "a", extend(19)), (11, "a", step_down(19))]);
    let says = "though its step-down at 8.000000000s was final";
    broken("I3", says, [(1, "a", lead(1, 10)), (8, "a", step_down(10)), (9, "a", extend(18))]);
    sound([(1, "a", lead(1, 10)), (8, "a", resign(10)), (9, "a", extend(18))]);
}

#[test]
fn i3_nobody_is_seen_to_trust_itself_outside_its_reign() {
    let trusts = Kind::Trusts { term: term(1) };
    let reign = [(1, "a", lead(1, 10)), (8, "a", step_down(10))];
    sound(reign.clone().into_iter().chain([(9, "a", trusts.clone())]));
    let says = "seen to trust itself in term 1 at 10.000000000s, outside its reign";
    broken("I3", says, reign.clone().into_iter().chain([(10, "a", trusts.clone())]));
    broken("I3", "b was seen", reign.into_iter().chain([(9, "b", trusts)]));
}

#[test]
fn i4_a_stale_renewal_or_release_is_never_granted() {
    let hands_changed = [(1, "a", acquired(1, 0)), (12, "b", acquired(2, 11))];
    let crossed = [(12, "a", renewed(1, 9))];
    sound(hands_changed.clone().into_iter().chain(crossed));
    let says = "a renewal of term 1 by a, sent at 13.000000000s, was granted, though b had";
    broken("I4", says, hands_changed.clone().into_iter().chain([(14, "a", renewed(1, 13))]));
    let stale = Kind::ReleaseGranted { term: term(1), sent_at: at(13) };
    let says = "a release of term 1 by a";
    broken("I4", says, hands_changed.into_iter().chain([(14, "a", stale)]));
}

#[test]
fn i6_each_lead_is_followed_by_exactly_one_step_down() {
    sound([(1, "a", lead(1, 10)), (5, "a", step_down(10)), (11, "a", lead(2, 20))]);
    broken("I6", "never stepped down from term 1", [(1, "a", lead(1, 10)), (11, "a", lead(2, 20))]);
    broken(
        "I6",
        "steps down at 6.000000000s (not renewed), and does not lead",
        [(1, "a", lead(1, 10)), (5, "a", step_down(10)), (6, "a", step_down(10))],
    );
    broken("I6", "steps down at 1.000000000s", [(1, "a", step_down(10))]);
    broken("I6", "extends its trust at 1.000000000s, and does not lead", [(1, "a", extend(10))]);
}

#[test]
fn i6_a_reign_may_be_open_only_while_it_lasts_or_if_its_process_died() {
    let end = (12, "b", Kind::WriteFenced { term: term(1), accepted: false });
    sound([(1, "a", lead(1, 20)), end.clone()]);
    sound([(1, "a", lead(1, 10)), (5, "a", Kind::Killed), end.clone()]);
    let says = "never stepped down from term 1, though its trust ended at 10.000000000s";
    broken("I6", says, [(1, "a", lead(1, 10)), end]);
    let says = "releases term 1 at 5.000000000s before it stepped down";
    broken("I6", says, [(1, "a", lead(1, 10)), (5, "a", released(1))]);
}

#[test]
fn i7_an_unknown_outcome_extends_nothing() {
    let unknown = Kind::Unknown { sent_at: at(3), ttl: TTL, margin: MARGIN };
    let reign = [(1, "a", acquired(1, 0)), (1, "a", lead(1, 9)), (4, "a", unknown)];
    sound(reign.clone().into_iter().chain([(6, "a", renewed(1, 5)), (6, "a", extend(14))]));
    let says = "until 12.000000000s, but its grants last until 9.000000000s only";
    broken("I7", says, reign.into_iter().chain([(4, "a", extend(12))]));
}

#[test]
fn a_lease_is_not_granted_while_another_lasts() {
    let held = [(1, "a", acquired(1, 0)), (4, "a", renewed(1, 3))];
    sound(held.clone().into_iter().chain([(13, "b", acquired(2, 12))]));
    sound(held.clone().into_iter().chain([(5, "a", released(1)), (6, "b", acquired(2, 5))]));
    sound(held.clone().into_iter().chain([(5, "a", Kind::Killed), (6, "b", acquired(2, 5))]));
    let says = "b was granted term 2 at 12.000000000s, though a held term 1 until 13.000000000s";
    broken("lease", says, held.into_iter().chain([(12, "b", acquired(2, 11))]));
}

#[test]
fn fenced_writes_never_go_back_in_term() {
    let write = |number, accepted| Kind::WriteFenced { term: term(number), accepted };
    let newer = [(1, "a", write(1, true)), (2, "b", write(2, true)), (3, "a", write(1, false))];
    sound(newer.clone());
    let says = "a write of term 1 by a passed at 4.000000000s, after one of term 2 by b";
    broken("fence", says, newer.into_iter().chain([(4, "a", write(1, true))]));
}

#[test]
fn elections_are_judged_apart_and_events_may_come_out_of_order() {
    let mut both = history([(9, "a", step_down(10)), (1, "a", lead(1, 10))]);
    let other = Name::new("other").unwrap();
    both.record(Event::new(at(2), &other, "b", lead(1, 10)));
    both.check().unwrap();
    assert_eq!(both.events().len(), 3);
}
