//! From names to lock numbers, and what else is written in locks.
//!
//! Processes of different versions meet at these numbers: never change them.

use tenure_core::{CandidateId, Name, Term};

/// The first half of the lock that each holder session has, beside its backend's pid.
#[cfg(test)]
pub(super) const LIVE: i32 = 0x7465_6e75;

/// The first half of the shared lock that tells a session's ttl in milliseconds.
#[cfg(test)]
pub(super) const LASTS: i32 = LIVE - 1;

/// The channel on which stores of this kind talk to each other.
pub(super) const CHANNEL: &str = "tenure:advisory";

/// The longest `application_name`, in bytes (A5).
const APPLICATION_NAME_MAX: usize = 63;

/// The number of an election's lock: the name itself if it is a canonical decimal, so that
/// clients which call `pg_try_advisory_lock(42)` take part in the election "42"; else a hash.
pub(super) fn key(name: &Name) -> i64 {
    let text = name.as_str();
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number,
        _ => mix(fnv1a(text)).cast_signed(),
    }
}

/// What an election's term is masked with in its term lock, so that the locks of many elections
/// in one session can be told apart.
pub(super) fn mask(key: i64) -> (i32, i32) {
    halves(mix(key.cast_unsigned() ^ 0x9e37_79b9_7f4a_7c15))
}

/// The two halves of the term lock: the term under the mask of the election.
pub(super) fn term_lock(key: i64, term: Term) -> (i32, i32) {
    let ((hi, lo), (term_hi, term_lo)) = (mask(key), halves(term.get()));
    (hi ^ term_hi, lo ^ term_lo)
}

/// Undoes [`term_lock`], from the halves as `pg_locks` shows them.
pub(super) fn unmask(key: i64, hi: i64, lo: i64) -> Option<Term> {
    let (mask_hi, mask_lo) = mask(key);
    let half = |shown: i64, mask: i32| u64::from(shown as u32 ^ mask.cast_unsigned());
    Term::new(half(hi, mask_hi) << 32 | half(lo, mask_lo))
}

/// By which `application_name` a holder is known: the whole candidate where it fits and is plain,
/// else as much of the label as does, and always the incarnation.
pub(super) fn application_name(candidate: &CandidateId) -> String {
    let incarnation = candidate.incarnation();
    let room = APPLICATION_NAME_MAX - incarnation.len() - 1;
    let plain = |letter: char| if matches!(letter, ' '..='~') { letter } else { '?' };
    let label: String = candidate.label().chars().map(plain).take(room).collect();
    format!("{label}#{incarnation}")
}

fn halves(number: u64) -> (i32, i32) {
    (((number >> 32) as u32).cast_signed(), (number as u32).cast_signed())
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Spreads every bit over all of them (the finisher of splitmix64).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(text: &str) -> i64 {
        key(&Name::new(text).unwrap())
    }

    #[test]
    fn only_canonical_decimals_are_lock_numbers_themselves() {
        for (text, number) in [
            ("0", 0),
            ("42", 42),
            ("-7", -7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(key_of(text), number);
        }
        for odd in ["042", "+42", "-0", " 42", "42 ", "9223372036854775808", "4_2", "٤٢", "0x2a"]
        {
            assert!(![0, 42].contains(&key_of(odd)), "{odd}");
        }
    }

    #[test]
    fn the_numbers_of_names_are_pinned() {
        for (text, number) in PINNED {
            assert_eq!(key_of(text), number, "{text}");
        }
    }

    const PINNED: [(&str, i64); 4] = [
        ("invoices", -2_407_602_562_984_740_030),
        ("billing:invoices", -4_477_475_895_434_765_998),
        ("Büro", -4_584_293_164_170_379_869),
        ("042", -1_591_430_447_515_618_858),
    ];

    #[test]
    fn terms_are_read_back_from_their_locks() {
        for term in [1, 726, u64::from(u32::MAX), 1 << 32, (1 << 53) - 1] {
            let term = Term::new(term).unwrap();
            for name in ["a", "42", "-1", "invoices"] {
                let key = key_of(name);
                let (hi, lo) = term_lock(key, term);
                let shown = |half: i32| i64::from(half.cast_unsigned());
                assert_eq!(unmask(key, shown(hi), shown(lo)), Some(term));
            }
        }
    }

    #[test]
    fn a_holder_is_known_by_63_plain_bytes_with_the_whole_incarnation() {
        let short = CandidateId::new("web-1:4711", 7).unwrap();
        assert_eq!(application_name(&short), short.as_str());
        for label in ["é".repeat(90), "x".repeat(200)] {
            let id = CandidateId::new(&label, u128::MAX).unwrap();
            let name = application_name(&id);
            assert!(name.is_ascii() && name.len() == 63, "{name}");
            assert!(name.ends_with(&format!("#{}", id.incarnation())));
        }
    }

    #[test]
    fn the_numbers_in_the_statements_are_these() {
        for sql in [include_str!("sql/session.sql"), include_str!("sql/sight.sql")] {
            assert!(sql.contains(&LIVE.to_string()) && sql.contains(&LASTS.to_string()));
        }
        assert!(include_str!("sql/wait.sql").contains(&LIVE.to_string()));
    }
}
