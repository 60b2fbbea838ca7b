//! Those who ask whether they lead, and the driver that steps down (I8, L1).

use std::sync::Arc as StdArc;

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::lead_word::LeadWord;
use crate::reign_words::reign_meant;

const UNTIL: u64 = 1_000;

/// A `true` answer is always seen by the step-down that follows it, or comes after a renewal that
/// kept it; none is given after the step-down.
#[test]
fn no_answer_slips_through_a_step_down() {
    loom::model(|| {
        let word = Arc::new(LeadWord::new());
        word.begin(UNTIL, false);
        let askers: Vec<_> = (0..2)
            .map(|_| {
                let word = word.clone();
                thread::spawn(move || word.vouch(|| 10))
            })
            .collect();
        let driver = {
            let word = word.clone();
            thread::spawn(move || {
                word.extend(UNTIL * 2);
                word.end()
            })
        };
        let told: Vec<bool> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
        let relied = driver.join().unwrap();
        assert!(
            relied || !told.contains(&true),
            "somebody was told, and the step-down did not see it"
        );
        assert!(!word.vouch(|| 10), "nobody is told after the step-down");
    });
}

/// A renewal that comes at the same time as the first answer loses nothing of it.
#[test]
fn a_renewal_keeps_what_was_told() {
    loom::model(|| {
        let word = Arc::new(LeadWord::new());
        word.begin(UNTIL, false);
        let asker = {
            let word = word.clone();
            thread::spawn(move || word.vouch(|| 10))
        };
        word.extend(UNTIL * 2);
        assert!(asker.join().unwrap());
        assert!(word.is_relied_upon());
        assert!(word.peek(|| UNTIL + 10), "and the instant moved");
    });
}

/// An answer that comes after "done" counts again; "done" never speaks for a later reign.
#[test]
fn done_speaks_for_answers_before_it_only() {
    loom::model(|| {
        let word = Arc::new(LeadWord::new());
        word.begin(UNTIL, true);
        word.done(|| true);
        let asker = {
            let word = word.clone();
            thread::spawn(move || word.vouch(|| 10))
        };
        let relied = word.end();
        assert_eq!(asker.join().unwrap(), relied, "told and seen go together");
        word.begin(UNTIL * 3, true);
        assert!(!word.done(|| false), "it is another reign's word");
        assert!(word.end());
    });
}

/// An answer with a term relies on the reign of that very term, also while one reign follows
/// another.
#[test]
fn an_answer_with_a_term_is_about_the_reign_of_that_term() {
    loom::model(|| {
        let word = Arc::new(LeadWord::new());
        let status = Arc::new(Mutex::new(Some(StdArc::new(1))));
        word.begin(UNTIL, false);
        let asker = {
            let (word, status) = (word.clone(), status.clone());
            thread::spawn(move || {
                let present = || status.lock().unwrap().clone();
                reign_meant(present, || word.vouch(|| 10)).map(|term| *term)
            })
        };
        let first_relied = word.end();
        *status.lock().unwrap() = None;
        word.begin(UNTIL * 2, false);
        *status.lock().unwrap() = Some(StdArc::new(2));
        let told = asker.join().unwrap();
        let second_relied = word.end();
        match told {
            Some(1) => assert!(first_relied, "told term 1, and its step-down did not see it"),
            Some(_) => assert!(second_relied, "told term 2, and its step-down did not see it"),
            None => {}
        }
    });
}
