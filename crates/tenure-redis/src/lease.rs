//! What the contract of `tenure_core::Store` means in scripts: what an op calls, and what the
//! answer says. The decisions themselves are in `lua/`.

use std::time::Duration;

use redis::Value;
use tenure_core::{
    Error, ErrorKind, Grant, Holder, Lease, Metadata, Op, RELEASE_MEMORY, Reply, Sight, Term,
};

use crate::config::Settle;
use crate::error;
use crate::keys::Keys;
use crate::pool::text;
use crate::script::{Call, Kind};

/// A foreign key without an expiry holds forever, as far as anybody knows: look again then.
const FOREVER: Duration = Duration::from_secs(10);

/// The call that carries out an op.
///
/// # Errors
/// `Config` if the election can't have this name here.
pub(crate) fn call(op: &Op, keys: &Keys, settle: Settle) -> Result<Call, Error> {
    let of = keys.of(op.election())?;
    let call = match op {
        Op::Acquire { candidate, seq, above, floor, ttl, metadata, .. } => {
            let (released, kept) = (of.released(candidate), of.kept());
            Call {
                kind: Kind::Acquire,
                keys: vec![of.lease, of.companion, released, kept],
                args: vec![
                    candidate.to_string(),
                    seq.to_string(),
                    number(*above),
                    number(*floor),
                    millis(*ttl),
                    metadata.as_ref().map(|json| json.as_str().to_owned()).unwrap_or_default(),
                    settle_for(settle, *ttl),
                ],
            }
        }
        Op::Renew { candidate, term, ttl, .. } => Call {
            kind: Kind::Renew,
            keys: vec![of.lease, of.companion],
            args: vec![candidate.to_string(), number(Some(*term)), millis(*ttl)],
        },
        Op::Release { election, candidate, term, seq } => {
            let released = of.released(candidate);
            Call {
                kind: Kind::Release,
                keys: vec![of.lease, of.companion, released],
                args: vec![
                    candidate.to_string(),
                    number(*term),
                    seq.to_string(),
                    millis(RELEASE_MEMORY),
                    election.to_string(),
                ],
            }
        }
        Op::Read { .. } => {
            let kept = of.kept();
            Call {
                kind: Kind::Read,
                keys: vec![of.lease, of.companion, kept],
                args: vec![settle_for(settle, Duration::ZERO)],
            }
        }
        Op::Ask { election, term } => Call {
            kind: Kind::Ask,
            keys: vec![of.lease, of.companion],
            args: vec![number(*term), election.to_string()],
        },
    };
    Ok(call)
}

/// What a script's answer means.
///
/// # Errors
/// What the server said instead of an answer, or `Corrupt` for one that no script gives.
pub(crate) fn reply(answer: &Value, address: &str) -> Result<Reply, Error> {
    let words = match answer {
        Value::ServerError(error) => return Err(error::from_server(address, error)),
        Value::Array(words) => words.iter().map(text).collect::<Vec<_>>(),
        _ => return Err(error::odd_answer()),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["few", have, wanted] = words.as_slice() {
        return Err(error::too_few_replicas(address, have, wanted));
    }
    let [kind, secs, micros, rest @ ..] = words.as_slice() else {
        return Err(error::odd_answer());
    };
    let store_clock = Some(clock(secs, micros)?);
    match (*kind, rest) {
        ("granted", [number, asked, expired, hinted @ ..]) => {
            if hinted == ["0"] {
                tracing::warn!(
                    %address,
                    "this user may not publish hints, so hand-overs are slow; grant +publish and \
                     the channel"
                );
            }
            let mut grant = Grant::new(term(number)?.ok_or_else(lost_notes)?);
            grant.asked = *asked == "1";
            grant.expired = span(expired)?;
            grant.store_clock = store_clock;
            Ok(Reply::Granted(grant))
        }
        ("refused" | "seen", [last_term, settling, lease @ ..]) => {
            let sight = Sight {
                lease: standing(lease)?,
                last_term: term(last_term)?,
                settling: span(settling)?.filter(|left| !left.is_zero()),
                store_clock,
            };
            Ok(if *kind == "seen" { Reply::Seen(sight) } else { Reply::Refused(sight) })
        }
        _ => Err(error::odd_answer()),
    }
}

/// The ttl that an op asks for.
pub(crate) fn ttl(op: &Op) -> Option<Duration> {
    match op {
        Op::Acquire { ttl, .. } | Op::Renew { ttl, .. } => Some(*ttl),
        _ => None,
    }
}

/// The lease in an answer; a foreign holder tells nothing but its name (R5).
fn standing(words: &[&str]) -> Result<Option<Lease>, Error> {
    let [holder, left, number, ttl, since, metadata] = words else {
        return if words.is_empty() { Ok(None) } else { Err(error::odd_answer()) };
    };
    let remaining = match left.parse::<i64>() {
        Ok(-1) => FOREVER,
        // It still held when it was looked at.
        Ok(left) => Duration::from_millis(u64::try_from(left).unwrap_or(0).max(1)),
        Err(_) => return Err(error::odd_answer()),
    };
    Ok(Some(Lease {
        holder: Holder::new(*holder),
        term: term(number)?,
        remaining,
        ttl: span(ttl)?,
        since_unix_ms: since.parse().ok(),
        metadata: Metadata::new(metadata).ok(),
    }))
}

fn term(word: &str) -> Result<Option<Term>, Error> {
    match word {
        "" => Ok(None),
        word => word.parse().ok().and_then(Term::new).map(Some).ok_or_else(lost_notes),
    }
}

fn span(word: &str) -> Result<Option<Duration>, Error> {
    match word {
        "" => Ok(None),
        word => word.parse().map(Duration::from_millis).map(Some).map_err(|_| lost_notes()),
    }
}

fn clock(secs: &str, micros: &str) -> Result<Duration, Error> {
    match (secs.parse(), micros.parse::<u32>()) {
        (Ok(secs), Ok(micros)) if micros < 1_000_000 => Ok(Duration::new(secs, micros * 1_000)),
        _ => Err(error::odd_answer()),
    }
}

fn lost_notes() -> Error {
    error::new(
        ErrorKind::Corrupt,
        "the key that ends in :tenure beside the lease does not hold what tenure wrote; delete it \
         while nobody leads",
    )
}

fn number(term: Option<Term>) -> String {
    term.map(|term| term.get().to_string()).unwrap_or_default()
}

/// Whole milliseconds, rounded up: a lease never ends early.
fn millis(span: Duration) -> String {
    span.as_nanos().div_ceil(1_000_000).max(1).to_string()
}

/// At least the ttl of the candidate that asks: an old leader may trust itself for as long (R2).
fn settle_for(settle: Settle, ttl: Duration) -> String {
    match settle {
        Settle::Off => "off".to_owned(),
        Settle::Ttl => ttl.as_millis().to_string(),
        Settle::For(settle) => settle.max(ttl).as_millis().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(words: &[&str]) -> Result<Reply, Error> {
        let words = words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect();
        reply(&Value::Array(words), "redis://h/0")
    }

    #[test]
    fn a_grant_carries_its_term_and_the_server_s_clock() {
        let words = ["granted", "1700000000", "250000", "1700000000250", "1", "30000"];
        let Ok(Reply::Granted(grant)) = answer(&words) else { panic!("not a grant") };
        assert_eq!(grant.term.get(), 1_700_000_000_250);
        assert!(grant.asked);
        assert_eq!(grant.expired, Some(Duration::from_secs(30)));
        assert_eq!(grant.store_clock, Some(Duration::from_micros(1_700_000_000_250_000)));
    }

    #[test]
    fn a_foreign_holder_has_no_term_and_no_ttl() {
        let words = ["refused", "1", "0", "42", "0", "host-7", "900", "", "", "", ""];
        let Ok(Reply::Refused(sight)) = answer(&words) else { panic!("not refused") };
        assert_eq!(sight.last_term, Term::new(42));
        assert_eq!(sight.settling, None);
        let lease = sight.lease.unwrap();
        assert_eq!((lease.term, lease.ttl, lease.metadata), (None, None, None));
        assert_eq!(lease.remaining, Duration::from_millis(900));
    }

    #[test]
    fn an_answer_that_no_script_gives_is_no_outcome() {
        for words in [
            &["granted", "1", "0", "0", "0", ""][..],
            &["granted", "1", "0", "9007199254740992", "0", ""],
            &["granted", "1", "x", "5", "0", ""],
            &["refused", "1", "0", "", "0", "somebody"],
            &["maybe", "1", "0"],
            &[],
        ] {
            assert_eq!(answer(words).unwrap_err().kind(), ErrorKind::Corrupt, "{words:?}");
        }
    }

    /// Whatever a server, a proxy or somebody's own commands make of the keys.
    #[test]
    fn answers_of_any_content_are_read_or_refused() {
        const WORDS: [&str; 18] = [
            "granted",
            "refused",
            "seen",
            "few",
            "",
            "0",
            "1",
            "-1",
            "-2",
            "999999",
            "1000000",
            "1700000000",
            "9007199254740991",
            "9007199254740992",
            "18446744073709551615",
            "18446744073709551616",
            "{\"a\":1}",
            "c1#1",
        ];
        let check = bolero::check!().with_test_time(Duration::from_millis(500));
        check.with_type::<(Vec<u8>, Vec<String>)>().for_each(|(picks, free)| {
            let pick = |pick: &u8| WORDS[usize::from(*pick) % WORDS.len()];
            let picked: Vec<&str> = picks.iter().take(14).map(pick).collect();
            let kinds = picks.iter().take(1).map(|first| WORDS[usize::from(*first) % 3]);
            let likely: Vec<&str> = kinds.chain(picked.iter().copied().skip(1)).collect();
            let free: Vec<&str> = free.iter().map(String::as_str).collect();
            for words in [picked, likely, free] {
                match answer(&words) {
                    Ok(Reply::Granted(_)) => assert_eq!(words[0], "granted"),
                    Ok(_) => assert!(["refused", "seen"].contains(&words[0]), "{words:?}"),
                    Err(error) => assert!(error.message().len() > 10, "{words:?}: {error}"),
                }
            }
        });
    }

    #[test]
    fn a_ttl_is_rounded_up() {
        assert_eq!(millis(Duration::from_micros(1_001)), "2");
        assert_eq!(millis(Duration::from_millis(30_000)), "30000");
    }

    #[test]
    fn settling_is_never_shorter_than_the_ttl() {
        let settle = Settle::For(Duration::from_secs(30));
        assert_eq!(settle_for(settle, Duration::from_secs(90)), "90000");
        assert_eq!(settle_for(settle, Duration::from_secs(3)), "30000");
        assert_eq!(settle_for(Settle::Ttl, Duration::from_secs(3)), "3000");
        assert_eq!(settle_for(Settle::Off, Duration::from_secs(90)), "off");
    }
}
