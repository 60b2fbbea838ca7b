//! Work that is done once for a key: rows beside the cron ledger, under the same fence.

use rusqlite::{Connection, OptionalExtension, Row};
use tenure_core::{Name, OnceMark, OnceRecord, OnceState, OnceStep, Term, decide_once};

/// Carries out a step of a term that holds, in a changing transaction.
pub(crate) fn step(
    conn: &Connection,
    election: &Name,
    term: Term,
    now: Option<i64>,
    step: &OnceStep,
) -> rusqlite::Result<OnceMark> {
    let found = find(conn, election, step.key())?;
    let (mark, record) = decide_once(found.as_ref(), term, now, step);
    if let Some(record) = record {
        conn.prepare_cached(include_str!("sql/once_write.sql"))?.execute((
            election.as_str(),
            &record.key,
            record.state.as_str(),
            record.state.code(),
            i64::try_from(record.term.get()).unwrap_or(i64::MAX),
            record.attempt,
            record.run.cast_signed(),
            record.claimed_unix_ms,
            record.ended_unix_ms,
        ))?;
    }
    Ok(mark)
}

pub(crate) fn find(
    conn: &Connection,
    election: &Name,
    key: &str,
) -> rusqlite::Result<Option<OnceRecord>> {
    let mut read = conn.prepare_cached(include_str!("sql/once_read.sql"))?;
    read.query_row((election.as_str(), key), record).optional()
}

pub(crate) fn history(
    conn: &Connection,
    election: &Name,
    limit: usize,
) -> rusqlite::Result<Vec<OnceRecord>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut read = conn.prepare_cached(include_str!("sql/once_history.sql"))?;
    read.query_map((election.as_str(), limit), record)?.collect()
}

fn record(row: &Row<'_>) -> rusqlite::Result<OnceRecord> {
    let word: String = row.get(1)?;
    let odd = || rusqlite::Error::InvalidColumnName(format!("the state of a key is {word}"));
    let state = OnceState::from_columns(&word, row.get(2)?).ok_or_else(odd)?;
    let term = u64::try_from(row.get::<_, i64>(3)?).ok().and_then(Term::new).ok_or_else(odd)?;
    let run: i64 = row.get(5)?;
    let key: String = row.get(0)?;
    let mut record = OnceRecord::new(key, term, row.get(4)?, run.cast_unsigned());
    record.state = state;
    record.claimed_unix_ms = row.get(6)?;
    record.ended_unix_ms = row.get(7)?;
    Ok(record)
}
