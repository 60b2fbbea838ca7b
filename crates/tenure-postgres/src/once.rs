//! Work that is done once for a key. The decisions are made by the function `tenure_once_step` in
//! the database; this owns the words.

use tenure_core::{Error, Name, OnceMark, OnceRecord, OnceState, OnceStep, Term};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::ledger::{PostgresLedger, odd};

impl PostgresLedger {
    pub(crate) async fn once_step(
        &self,
        election: &Name,
        term: Term,
        step: &OnceStep,
    ) -> Result<OnceMark, Error> {
        let columns = step.columns();
        let name = election.as_str();
        let term = i64::try_from(term.get()).unwrap_or(i64::MAX);
        let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let (run, tries) = (columns.run.map(u64::cast_signed), columns.tries.map(number));
        let attempt = columns.attempt.map(number);
        let values: [(&(dyn ToSql + Sync), Type); 9] = [
            (&name, Type::TEXT),
            (&term, Type::INT8),
            (&columns.verb, Type::TEXT),
            (&columns.key, Type::TEXT),
            (&run, Type::INT8),
            (&tries, Type::INT4),
            (&attempt, Type::INT4),
            (&columns.word, Type::TEXT),
            (&columns.code, Type::INT4),
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
    OnceMark::from_columns(word, u32::try_from(attempt).ok()?)
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
