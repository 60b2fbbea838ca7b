//! Whatever people and stores hand in: it is taken or refused with a sentence, never a panic.
//!
//! Each target runs for a moment here. `long_` runs all of them for minutes.

use std::time::Duration;

use bolero::check;
use tenure_core::{
    CandidateId, Error, ErrorKind, Holder, Metadata, Name, Term, Time, Timing, parse_duration,
    show_duration,
};

/// How long a target runs in every test run, and how long on demand.
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(30);

#[track_caller]
fn assert_is_a_sentence(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.message().len() > 10, "{error}");
}

/// Puts pieces together, so that the generator gets past the first letter.
fn put_together(picks: &[u8], pieces: &[&str]) -> String {
    picks.iter().take(12).map(|pick| pieces[usize::from(*pick) % pieces.len()]).collect()
}

fn durations(time: Duration) {
    const PIECES: [&str; 14] = [
        "1",
        "0",
        "90",
        "999999",
        "18446744073709551616",
        "ns",
        "us",
        "ms",
        "s",
        "m",
        "h",
        "-",
        ".",
        "µ",
    ];
    check!().with_test_time(time).with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
        for text in [put_together(picks, &PIECES), free.clone()] {
            match parse_duration(&text) {
                Ok(span) => assert_eq!(parse_duration(&show_duration(span)).ok(), Some(span)),
                Err(error) => assert_is_a_sentence(&error),
            }
        }
    });
}

fn timings(time: Duration) {
    /// Any duration, short ones as often as long ones.
    fn span((seconds, nanos): (u64, u32)) -> Duration {
        Duration::new(seconds >> (nanos % 64), nanos % 1_000_000_000)
    }
    type Part = (u64, u32);
    check!().with_test_time(time).with_type::<([Part; 4], u64)>().for_each(|(parts, at)| {
        let [ttl, renew_every, margin, drain] = parts.map(span);
        let sent_at = Time::from_nanos(at >> 1);
        for timing in [Timing { ttl, renew_every, margin, drain }, Timing::new(ttl)] {
            match timing.check() {
                Ok(()) => {
                    assert!(timing.step_down_at(sent_at) <= timing.trust_ends_at(sent_at));
                    assert!(timing.trust_ends_at(sent_at) <= timing.expires_at(sent_at));
                    assert!(timing.call_timeout() < timing.renew_every);
                }
                Err(error) => assert_is_a_sentence(&error),
            }
        }
    });
}

fn identities(time: Duration) {
    check!().with_test_time(time).with_type::<(String, u128)>().for_each(|(text, incarnation)| {
        let is_fine = |max: usize| {
            !text.is_empty() && text.len() <= max && !text.chars().any(char::is_control)
        };
        assert_eq!(Name::new(text).is_ok(), is_fine(Name::MAX_BYTES));
        match CandidateId::new(text, *incarnation) {
            Ok(id) => {
                assert_eq!((id.label(), id.incarnation().len()), (text.as_str(), 32));
                let holder = Holder::new(id.as_str());
                assert!(holder.is(&id) && !holder.shares_label(&id));
                assert_eq!(holder.label(), text);
            }
            Err(error) => {
                assert!(!is_fine(CandidateId::MAX_LABEL_BYTES));
                assert_is_a_sentence(&error);
            }
        }
        // What a store tells may be anything.
        assert!(Holder::new(text.as_str()).label().len() <= text.len());
    });
}

fn metadata(time: Duration) {
    const PIECES: [&str; 12] =
        ["{", "}", "[", "]", "\"a\"", ":", ",", "1e999", "null", "\\u0000", " ", "\"\\ud800\""];
    check!().with_test_time(time).with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
        let nested = "[".repeat(picks.len() * 40);
        for text in [put_together(picks, &PIECES), free.clone(), nested] {
            match Metadata::new(&text) {
                Ok(metadata) => assert_eq!(metadata.as_str(), text),
                Err(error) => assert_is_a_sentence(&error),
            }
        }
    });
}

fn terms(time: Duration) {
    check!().with_test_time(time).with_type::<(u64, u64, u32)>().for_each(
        |(last, floor, shift)| {
            let term = |number: &u64| Term::new(number >> (shift % 64));
            let (last, floor) = (term(last), term(floor));
            if let Some(next) = Term::successor(last, floor) {
                assert!(
                    last.is_none_or(|last| next > last) && floor.is_none_or(|floor| next >= floor)
                );
            }
        },
    );
}

#[test]
fn durations_are_read_or_refused() {
    durations(SHORT);
}

#[test]
fn timings_work_or_are_refused() {
    timings(SHORT);
}

#[test]
fn names_and_labels_are_taken_or_refused() {
    identities(SHORT);
}

#[test]
fn metadata_is_an_object_or_refused() {
    metadata(SHORT);
}

#[test]
fn the_next_term_is_higher_than_all_before() {
    terms(SHORT);
}

#[needs(long)]
#[test]
fn long_fuzz_of_what_people_write() {
    for target in [durations, timings, identities, metadata, terms] {
        target(LONG);
    }
}
