//! The words that are read without a lock, one thread at a time. What several threads do to them is
//! in `tests/loom`, which includes their files: so these tests are not in there.

use std::cell::Cell;
use std::sync::Arc;

use tenure_core::Reason;

use crate::bell::Bell;
use crate::lead_word::LeadWord;
use crate::phase::{Phase, Phases};
use crate::reign_words::{ReignWords, reign_meant};
use crate::watched::Watched;

#[test]
fn nobody_leads_before_a_reign_begins_and_after_it_has_ended() {
    let word = LeadWord::new();
    for _ in 0..2 {
        let asked = Cell::new(false);
        let clock = || {
            asked.set(true);
            0
        };
        assert!(!word.vouch(clock) && !word.peek(clock) && !word.is_relied_upon());
        assert!(!asked.get(), "a follower reads no clock");
        word.rely();
        word.extend(100);
        assert!(!word.done(|| true), "there is no reign to be done with");
        assert!(!word.vouch(|| 0) && !word.is_relied_upon(), "neither begins a reign");
        word.begin(100, false);
        assert!(word.vouch(|| 99));
        assert!(word.end() && !word.end(), "it was relied upon, and has ended");
    }
}

#[test]
fn leading_ends_at_its_instant_whether_or_not_somebody_relies_on_it() {
    for relied in [false, true] {
        let word = LeadWord::new();
        word.begin(100, relied);
        assert!(word.peek(|| 0) && word.peek(|| 99));
        assert!(!word.peek(|| 100) && !word.peek(|| 101) && !word.peek(|| u64::MAX));
        assert!(!word.vouch(|| 100) && !word.vouch(|| 101) && !word.vouch(|| u64::MAX));
        assert_eq!(word.is_relied_upon(), relied, "a look and a no are not relied upon");
        assert!(word.vouch(|| 99) && word.is_relied_upon());
        assert!(word.vouch(|| 99) && word.is_relied_upon(), "a second answer changes nothing");
        assert!(!word.vouch(|| 100) && word.peek(|| 99));
        word.extend(200);
        assert!(word.is_relied_upon() && word.vouch(|| 199) && !word.vouch(|| 200));
        assert!(word.peek(|| 199) && !word.peek(|| 200));
        assert!(word.end());
    }
}

#[test]
fn an_odd_instant_is_rounded_down_and_tells_of_nobody() {
    let word = LeadWord::new();
    word.begin(101, false);
    assert!(!word.is_relied_upon() && word.peek(|| 99) && !word.peek(|| 100));
    word.extend(201);
    assert!(!word.is_relied_upon() && word.peek(|| 199) && !word.peek(|| 200));
    // The least instant is no follower's word.
    word.begin(0, false);
    assert!(word.peek(|| 1) && !word.peek(|| 2) && !word.is_relied_upon());
    word.extend(1);
    assert!(word.peek(|| 1) && !word.peek(|| 2) && !word.is_relied_upon());
    word.rely();
    word.rely();
    assert!(word.is_relied_upon() && word.peek(|| 1), "told twice is told");
    word.extend(300);
    assert!(word.is_relied_upon() && word.peek(|| 299) && !word.peek(|| 300));
}

#[test]
fn who_is_done_is_done_with_the_reign_that_is_meant() {
    let word = LeadWord::new();
    word.begin(100, true);
    assert!(!word.done(|| false) && word.is_relied_upon());
    assert!(word.done(|| true) && !word.is_relied_upon());
    assert!(word.peek(|| 99) && !word.peek(|| 100), "it goes on");
    assert!(word.done(|| true) && !word.is_relied_upon(), "twice is once");
    assert!(word.vouch(|| 99) && word.is_relied_upon(), "an answer since counts anew");
    // The word changes between the look and the change: it is looked at again.
    let looks = Cell::new(0);
    let done = word.done(|| {
        looks.set(looks.get() + 1);
        if looks.get() == 1 {
            word.extend(200);
        }
        true
    });
    assert!(done && looks.get() == 2 && !word.is_relied_upon() && word.peek(|| 199));
}

#[test]
fn an_answer_that_meets_a_change_looks_again() {
    type Change = fn(&LeadWord);
    let changes: [(Change, bool); 4] = [
        (|word| word.extend(200), true),
        (|word| word.rely(), true),
        (|word| word.extend(50), false),
        (
            |word| {
                word.end();
            },
            false,
        ),
    ];
    for (change, wanted) in changes {
        let word = LeadWord::new();
        word.begin(100, false);
        let reads = Cell::new(0);
        let told = word.vouch(|| {
            reads.set(reads.get() + 1);
            if reads.get() == 1 {
                change(&word);
            }
            60
        });
        assert_eq!((told, word.is_relied_upon()), (wanted, wanted));
    }
}

#[test]
fn work_is_counted_until_the_reign_is_closed_and_the_last_one_tells() {
    let words = ReignWords::new(7);
    assert!(words.is_open() && !words.has_work() && !words.is_claimed());
    assert!(words.enter() && words.has_work());
    assert!(!words.exit() && !words.has_work(), "the reign goes on");
    assert!(words.claim() && words.is_claimed() && words.has_work());
    assert!(!words.claim(), "it is taken");
    assert!(words.enter());
    words.close();
    words.close();
    assert!(!words.is_open() && words.has_work() && !words.enter());
    assert!(!words.exit() && words.has_work(), "one still works");
    assert!(words.exit() && !words.has_work() && !words.is_open());
    let late = ReignWords::new(7);
    late.close();
    assert!(!late.claim() && !late.has_work() && late.is_claimed());
    let unwanted = ReignWords::new(7);
    assert!(unwanted.deny_claims() && !unwanted.claim() && !unwanted.has_work());
    let wanted = ReignWords::new(7);
    assert!(wanted.claim() && !wanted.deny_claims(), "who claimed it keeps it");
}

#[test]
fn when_trust_ended_is_known_after_it_has() {
    let words = ReignWords::new(7);
    assert_eq!((words.trust_until(), words.trust_ended()), (7, 7));
    words.set_trust_until(9);
    assert_eq!((words.trust_until(), words.trust_ended()), (9, 9));
    words.set_trust_until(0);
    assert_eq!((words.trust_until(), words.trust_ended()), (0, 9));
}

#[test]
fn the_reign_that_is_meant_is_there_before_and_after_the_question() {
    let (one, two) = (Arc::new(1), Arc::new(2));
    assert_eq!(reign_meant(|| None::<Arc<i32>>, || true), None);
    assert_eq!(reign_meant(|| Some(one.clone()), || false), None);
    assert_eq!(reign_meant(|| Some(one.clone()), || true), Some(one.clone()));
    // It changes once, while the question is asked.
    let looks = Cell::new(0);
    let present = || {
        looks.set(looks.get() + 1);
        Some(if looks.get() == 1 { one.clone() } else { two.clone() })
    };
    assert_eq!(reign_meant(present, || true), Some(two.clone()));
    let looks = Cell::new(0);
    let gone = || {
        looks.set(looks.get() + 1);
        (looks.get() == 1).then(|| one.clone())
    };
    assert_eq!(reign_meant(gone, || true), None);
}

#[test]
fn a_bell_is_silent_since_the_first_ring_that_nobody_answered() {
    let bell = Bell::new();
    assert_eq!(bell.rung_at(), None);
    assert!(bell.ring(5) && !bell.ring(9));
    assert_eq!(bell.rung_at(), Some(5));
    bell.answer();
    assert_eq!(bell.rung_at(), None);
    assert!(bell.ring(0));
    assert_eq!(bell.rung_at(), Some(1), "the first instant of all is no silence");
}

#[test]
fn a_phase_goes_forward_once_and_keeps_its_reason() {
    let (asked, lost) = (Reason::Asked, Reason::NotRenewed);
    assert_eq!(Phase::Leading.reason(), lost);
    let phase = Watched::new(Phase::Leading);
    assert!(!phase.advance(Phase::Leading));
    assert!(phase.advance(Phase::Draining(asked)) && !phase.advance(Phase::Draining(lost)));
    assert!(!phase.advance(Phase::Leading) && *phase.borrow() == Phase::Draining(asked));
    assert!(phase.advance_to_end() && !phase.advance_to_end());
    assert!(!phase.advance(Phase::Over(lost)) && !phase.advance(Phase::Draining(lost)));
    assert_eq!((*phase.borrow(), phase.borrow().reason()), (Phase::Over(asked), asked));
    let phase = Watched::new(Phase::Leading);
    assert!(phase.advance(Phase::Over(asked)) && *phase.borrow() == Phase::Over(asked));
    let phase = Watched::new(Phase::Leading);
    assert!(phase.advance_to_end() && *phase.borrow() == Phase::Over(lost));
}
