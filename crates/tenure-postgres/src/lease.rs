//! What an op is in SQL, and what a row of the answer means.
//!
//! The decisions are made by the function `tenure_apply` in the database; this owns the words.

use std::time::Duration;

use tenure_core::{
    CandidateId, Error, ErrorKind, Grant, Holder, Lease, Metadata, Op, Reply, Sight, Term,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::error;

/// The longest ttl that is kept, in microseconds: a hundred years.
const TTL_US_MAX: i64 = 100 * 365 * 86_400 * 1_000_000;

/// A batch as columns, each op at the same place in all of them.
#[derive(Default)]
pub(crate) struct Columns {
    verbs: Vec<&'static str>,
    names: Vec<String>,
    candidates: Vec<Option<String>>,
    seqs: Vec<Option<i64>>,
    terms: Vec<Option<i64>>,
    floors: Vec<Option<i64>>,
    ttls: Vec<Option<i64>>,
    metadata: Vec<Option<String>>,
}

impl Columns {
    pub(crate) fn new<'a>(ops: impl Iterator<Item = &'a Op>) -> Columns {
        let mut columns = Columns::default();
        for op in ops {
            columns.push(op);
        }
        columns
    }

    /// The values and their types, as `tenure_apply` takes them.
    pub(crate) fn values(&self) -> [(&(dyn ToSql + Sync), Type); 8] {
        [
            (&self.verbs, Type::TEXT_ARRAY),
            (&self.names, Type::TEXT_ARRAY),
            (&self.candidates, Type::TEXT_ARRAY),
            (&self.seqs, Type::INT8_ARRAY),
            (&self.terms, Type::INT8_ARRAY),
            (&self.floors, Type::INT8_ARRAY),
            (&self.ttls, Type::INT8_ARRAY),
            (&self.metadata, Type::TEXT_ARRAY),
        ]
    }

    fn push(&mut self, op: &Op) {
        let text = |candidate: &CandidateId| Some(candidate.as_str().to_owned());
        let (candidate, seq, term, floor, ttl, metadata) = match op {
            Op::Acquire { candidate, seq, above, floor, ttl, metadata, .. } => {
                let metadata = metadata.as_ref().map(|json| json.as_str().to_owned());
                (text(candidate), Some(*seq), *above, *floor, Some(*ttl), metadata)
            }
            Op::Renew { candidate, term, ttl, .. } => {
                (text(candidate), None, Some(*term), None, Some(*ttl), None)
            }
            Op::Release { candidate, term, seq, .. } => {
                (text(candidate), Some(*seq), *term, None, None, None)
            }
            Op::Read { .. } => (None, None, None, None, None, None),
            Op::Ask { term, .. } => (None, None, *term, None, None, None),
        };
        self.verbs.push(op.verb());
        self.names.push(op.election().as_str().to_owned());
        self.candidates.push(candidate);
        self.seqs.push(seq.map(column));
        self.terms.push(term.map(|term| column(term.get())));
        self.floors.push(floor.map(|floor| column(floor.get())));
        self.ttls.push(ttl.map(micros));
        self.metadata.push(metadata);
    }
}

/// The answer to one op.
pub(crate) struct Answer {
    /// Which op of the batch, from 0.
    pub(crate) place: usize,
    pub(crate) reply: Reply,
    /// Others were at the row: nothing was done.
    pub(crate) busy: bool,
    /// How long the lease has been over, if a fenced transaction keeps us out of it (P3).
    pub(crate) fenced: Option<Duration>,
}

/// Why an op can't be sent at all; it would spoil the whole batch.
pub(crate) fn unfit(op: &Op) -> Option<Error> {
    let Op::Acquire { metadata: Some(metadata), .. } = op else {
        return None;
    };
    // Only this one escape can't be kept in a jsonb.
    let suspect = metadata.as_str().contains("\\u0000");
    let value = || serde_json::from_str(metadata.as_str()).ok();
    (suspect && value().is_none_or(|value| has_nul(&value))).then(|| {
        error::new(
            ErrorKind::Config,
            "the metadata has the character \\u0000 in it, which Postgres can't keep; remove it",
        )
    })
}

/// Reads one row of the answer to a batch of `ops`.
pub(crate) fn answer(row: &Row, ops: &[&Op], grace: Duration) -> Result<Answer, Error> {
    let broken = |error: tokio_postgres::Error| {
        error::new(ErrorKind::Corrupt, "tenure_apply answers in another shape; update tenure")
            .caused_by(error)
    };
    let place: i64 = row.try_get(0).map_err(broken)?;
    let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
    let Some(op) = ops.get(place) else {
        return Err(error::new(ErrorKind::Corrupt, "tenure_apply answers what was not asked"));
    };
    let outcome: &str = row.try_get(1).map_err(broken)?;
    let clock: Option<i64> = row.try_get(2).map_err(broken)?;
    let store_clock = clock.map(span);
    let term: Option<i64> = row.try_get(3).map_err(broken)?;
    let term = term.and_then(|term| u64::try_from(term).ok()).and_then(Term::new);
    let (mut busy, mut fenced) = (false, None);
    let reply = match (outcome, term) {
        ("granted", Some(term)) => {
            let asked: Option<bool> = row.try_get(4).map_err(broken)?;
            let expired: Option<i64> = row.try_get(5).map_err(broken)?;
            let tells = matches!(op, Op::Acquire { .. } | Op::Renew { .. });
            Reply::Granted(Grant {
                term,
                asked: tells && asked.unwrap_or(false),
                expired: expired.map(span),
                store_clock,
            })
        }
        ("refused" | "seen", last_term) => {
            let lease = lease(row, term).map_err(broken)?;
            let sight = Sight { lease, last_term, store_clock, ..Sight::default() };
            if outcome == "seen" { Reply::Seen(sight) } else { Reply::Refused(sight) }
        }
        ("busy", _) => {
            let since: Option<i64> = row.try_get(11).map_err(broken)?;
            let pids: Option<Vec<i32>> = row.try_get(12).map_err(broken)?;
            match (since, pids.filter(|pids| !pids.is_empty())) {
                (Some(since), Some(pids)) if since >= 0 => {
                    fenced = Some(span(since));
                    // It may be about to end: one that was refused is, a moment after it was told.
                    busy = span(since) < grace;
                    Reply::Unknown(error::fenced(&pids, span(since), grace).during(op.verb()))
                }
                _ => {
                    busy = true;
                    let pids: Option<String> = row.try_get(13).map_err(broken)?;
                    Reply::Unknown(error::busy(pids.as_deref()).during(op.verb()))
                }
            }
        }
        ("elsewhere", _) => {
            let holder: Option<String> = row.try_get(13).map_err(broken)?;
            let holder = holder.unwrap_or_default();
            Reply::Unknown(error::led_by_lock(op.election(), &holder).during(op.verb()))
        }
        ("used up", _) => Reply::Unknown(error::used_up().during(op.verb())),
        _ => {
            return Err(error::new(
                ErrorKind::Corrupt,
                format!("tenure_apply answers {outcome:?}; update tenure"),
            ));
        }
    };
    Ok(Answer { place, reply, busy, fenced })
}

/// Who holds it, if somebody does.
fn lease(row: &Row, term: Option<Term>) -> Result<Option<Lease>, tokio_postgres::Error> {
    let Some(holder) = row.try_get::<_, Option<String>>(6)? else {
        return Ok(None);
    };
    let remaining: Option<i64> = row.try_get(7)?;
    let ttl: Option<i64> = row.try_get(8)?;
    let since: Option<i64> = row.try_get(9)?;
    let metadata: Option<String> = row.try_get(10)?;
    Ok(Some(Lease {
        holder: Holder::new(holder),
        term,
        remaining: span(remaining.unwrap_or(0)),
        ttl: ttl.map(span),
        since_unix_ms: since.and_then(|ms| u64::try_from(ms).ok()),
        metadata: metadata.and_then(|json| published(&json)),
    }))
}

/// What stands beside a lease, without the spaces that Postgres puts into it. What a foreign client
/// publishes need not be what ours would: then there is nothing.
pub(crate) fn published(json: &str) -> Option<Metadata> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    Metadata::new(&value.to_string()).ok()
}

fn has_nul(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains('\0'),
        serde_json::Value::Array(values) => values.iter().any(has_nul),
        serde_json::Value::Object(fields) => {
            fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value))
        }
        _ => false,
    }
}

/// Microseconds, rounded up: a lease may last longer than asked for, never shorter.
fn micros(span: Duration) -> i64 {
    let micros = span.as_nanos().div_ceil(1_000);
    i64::try_from(micros).unwrap_or(i64::MAX).min(TTL_US_MAX)
}

fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::Name;

    use super::*;

    fn acquire(metadata: &str) -> Op {
        Op::Acquire {
            election: Name::new("a").unwrap(),
            candidate: CandidateId::new("a", 1).unwrap(),
            seq: 1,
            above: None,
            floor: None,
            ttl: Duration::from_secs(1),
            metadata: Some(Metadata::new(metadata).unwrap()),
        }
    }

    #[test]
    fn a_nul_in_the_metadata_is_refused_before_it_spoils_the_batch() {
        assert!(unfit(&acquire(r#"{"a":[{"b":"x\u0000y"}]}"#)).is_some());
        assert!(unfit(&acquire(r#"{"\u0000":1}"#)).is_some());
        assert!(unfit(&acquire(r#"{"a":"\\u0000"}"#)).is_none(), "an escaped backslash is none");
        assert!(unfit(&acquire("{}")).is_none());
    }

    #[test]
    fn a_ttl_is_never_shortened() {
        assert_eq!(micros(Duration::from_nanos(1_001)), 2);
        assert_eq!(micros(Duration::MAX), TTL_US_MAX);
    }
}
