//! Work that is done once for a key. The decisions are made by the function `tenure_once_step` in
//! the database; this owns the words.

use tenure_core::{Error, Name, OnceMark, OnceRecord, OnceState, OnceStep, Term, check_once_key};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::ledger::{Book, odd};

impl Book {
    pub(crate) async fn once_step(
        &self,
        election: &Name,
        term: Term,
        step: &OnceStep,
    ) -> Result<OnceMark, Error> {
        check_once_key(step.key())?;
        let (name, key) = (election.as_str(), step.key());
        let term = i64::try_from(term.get()).unwrap_or(i64::MAX);
        let number = |number: u32| Some(i32::try_from(number).unwrap_or(i32::MAX));
        let (mut run, mut tries, mut attempt, mut word, mut code) = (None, None, None, None, None);
        let verb = match step {
            OnceStep::Claim { run: drawn, tries: most, .. } => {
                (run, tries) = (Some(drawn.cast_signed()), number(*most));
                "claim"
            }
            OnceStep::End { attempt: which, end, .. } => {
                let state = OnceState::Ended(*end);
                (attempt, word, code) = (number(*which), Some(state.as_str()), state.code());
                "end"
            }
            _ => return Ok(OnceMark::Refused),
        };
        let values: [(&(dyn ToSql + Sync), Type); 9] = [
            (&name, Type::TEXT),
            (&term, Type::INT8),
            (&verb, Type::TEXT),
            (&key, Type::TEXT),
            (&run, Type::INT8),
            (&tries, Type::INT4),
            (&attempt, Type::INT4),
            (&word, Type::TEXT),
            (&code, Type::INT4),
        ];
        let rows = self.query(include_str!("sql/once_step.sql"), &values, "once").await?;
        rows.first().and_then(mark).ok_or_else(odd)
    }

    pub(crate) async fn once_find(
        &self,
        election: &Name,
        key: &str,
    ) -> Result<Option<OnceRecord>, Error> {
        let name = election.as_str();
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&key, Type::TEXT)];
        let rows = self.query(include_str!("sql/once_read.sql"), &values, "once").await?;
        rows.first().map(|row| record(row).ok_or_else(odd)).transpose()
    }

    pub(crate) async fn once_all(
        &self,
        election: &Name,
        limit: usize,
    ) -> Result<Vec<OnceRecord>, Error> {
        let (name, limit) = (election.as_str(), i64::try_from(limit).unwrap_or(i64::MAX));
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&limit, Type::INT8)];
        let rows = self.query(include_str!("sql/once_history.sql"), &values, "once").await?;
        rows.iter().map(|row| record(row).ok_or_else(odd)).collect()
    }
}

fn mark(row: &Row) -> Option<OnceMark> {
    let word: &str = row.try_get(0).ok()?;
    let attempt: i32 = row.try_get(1).ok()?;
    let attempt = u32::try_from(attempt).ok()?;
    Some(match word {
        "done" => OnceMark::Done { attempt },
        "already" => OnceMark::Already,
        "running" => OnceMark::Running,
        "spent" => OnceMark::Spent { attempt },
        "refused" => OnceMark::Refused,
        "stale" => OnceMark::Stale,
        "busy" => OnceMark::Busy,
        _ => return None,
    })
}

fn record(row: &Row) -> Option<OnceRecord> {
    let key: String = row.try_get(0).ok()?;
    let word: &str = row.try_get(1).ok()?;
    let term: i64 = row.try_get(3).ok()?;
    let term = u64::try_from(term).ok().and_then(Term::new)?;
    let attempt: i32 = row.try_get(4).ok()?;
    let run: i64 = row.try_get(5).ok()?;
    let attempt = u32::try_from(attempt).ok()?;
    let mut record = OnceRecord::new(key, term, attempt, run.cast_unsigned());
    record.state = OnceState::from_columns(word, row.try_get(2).ok()?)?;
    record.claimed_unix_ms = row.try_get(6).ok()?;
    record.ended_unix_ms = row.try_get(7).ok()?;
    Some(record)
}
