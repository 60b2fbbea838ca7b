//! Work that is done once for a key. The decisions are made by the script `lua/once.lua`; this owns
//! the words.

use tenure_core::{Error, ErrorKind, Name, OnceMark, OnceRecord, OnceState, OnceStep, Term};

use crate::error;
use crate::script::{self, Call, Kind};
use crate::store::RedisStore;

impl RedisStore {
    /// The keys that the scripts begin with.
    fn once_keys(&self, election: &Name) -> Result<Vec<String>, Error> {
        let of = self.keys().of(election)?;
        let once = ["", ":time"].map(|end| format!("{}:once{end}", of.companion));
        Ok([of.lease, of.companion].into_iter().chain(once).collect())
    }

    pub(crate) async fn once_step(
        &self,
        election: &Name,
        term: Term,
        step: &OnceStep,
    ) -> Result<OnceMark, Error> {
        let columns = step.columns();
        let args = vec![
            term.to_string(),
            columns.verb.to_owned(),
            columns.key.to_owned(),
            script::or_empty(columns.run),
            script::or_empty(columns.tries),
            script::or_empty(columns.attempt),
            script::or_empty(columns.word),
            script::or_empty(columns.code),
        ];
        let call = Call::new(Kind::Once, self.once_keys(election)?, args);
        let words = self.words(call, "once").await?;
        let mark = match words.as_slice() {
            [word, attempt, ..] => attempt.parse().ok().zip(Some(word)),
            _ => None,
        };
        let mark = mark.and_then(|(attempt, word)| OnceMark::from_columns(word, attempt));
        mark.ok_or_else(error::odd_answer)
    }

    /// The record of one key, or the records of all.
    pub(crate) async fn once_records(
        &self,
        election: &Name,
        key: Option<&str>,
        limit: usize,
    ) -> Result<Vec<OnceRecord>, Error> {
        if limit == 0 || key == Some("") {
            return Ok(Vec::new());
        }
        let args = vec![key.unwrap_or_default().to_owned(), limit.to_string()];
        let call = Call::new(Kind::OnceRead, self.once_keys(election)?, args);
        let words = self.words(call, "once").await?;
        let pair = |pair: &[String]| record(pair.first()?, pair.get(1)?);
        words.chunks(2).map(|words| pair(words).ok_or_else(lost_notes)).collect()
    }
}

/// A key as the scripts keep it.
fn record(key: &str, value: &str) -> Option<OnceRecord> {
    let parts: Vec<&str> = value.split('|').collect();
    let [word, code, term, attempt, run, claimed, ended] = parts.as_slice() else { return None };
    let term = Term::new(term.parse().ok()?)?;
    let mut record = OnceRecord::new(key, term, attempt.parse().ok()?, run.parse().ok()?);
    record.state = OnceState::from_columns(word, code.parse().ok())?;
    record.claimed_unix_ms = claimed.parse().ok();
    record.ended_unix_ms = ended.parse().ok();
    Some(record)
}

fn lost_notes() -> Error {
    error::new(
        ErrorKind::Corrupt,
        "the keys that end in :once beside the lease do not hold what tenure wrote",
    )
}
