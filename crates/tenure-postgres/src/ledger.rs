//! The cron ledger. The decisions are made by the function `tenure_ledger_record` in the database;
//! this owns the words.

use std::sync::Arc;

use tenure_core::{
    BoxFuture, Error, ErrorKind, JobProgress, LEDGER_OPEN_MAX, Ledger, LedgerStep, Marked, Name,
    OnceMark, OnceRecord, OnceStep, STEER_AHEAD_MS, Steer, Term, Tick, TickRecord, TickState,
    Transactions,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::config::PostgresConfig;
use crate::connector::Connector;
use crate::error;

/// The ledger of one schema. It shares a connection with the messages, made by the first call: a
/// batch of ticks never stands in the way of a renewal (C3).
pub(crate) struct PostgresLedger {
    config: Arc<PostgresConfig>,
    connector: Arc<Connector>,
}

impl PostgresLedger {
    pub(crate) fn new(config: Arc<PostgresConfig>, connector: Arc<Connector>) -> PostgresLedger {
        PostgresLedger { config, connector }
    }

    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
        what: &'static str,
    ) -> Result<Vec<Row>, Error> {
        let sql = self.config.names.render(sql);
        self.connector.query(&sql, values).await.map_err(|error| error.during(what))
    }

    async fn write(
        &self,
        election: &Name,
        term: Term,
        steps: &[LedgerStep],
    ) -> Result<Vec<Marked>, Error> {
        let columns = Columns::new(steps);
        let (name, term) = (election.as_str(), i64::try_from(term.get()).unwrap_or(i64::MAX));
        let mut values: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&name, Type::TEXT), (&term, Type::INT8)];
        values.extend(columns.values());
        let sql = include_str!("sql/ledger_record.sql");
        let rows = self.query(sql, &values, "record").await?;
        let mut marks = vec![None; steps.len()];
        for row in &rows {
            let (place, marked) = mark(row).ok_or_else(odd)?;
            *marks.get_mut(place).ok_or_else(odd)? = Some(marked);
        }
        marks.into_iter().collect::<Option<_>>().ok_or_else(odd)
    }

    /// Hints to the leader, once the request is durable. A hint that is lost costs time only (I5).
    async fn announce(&self, election: &Name) {
        let channel = self.config.names.channel();
        let name = election.as_str();
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&channel, Type::TEXT), (&name, Type::TEXT)];
        let sql = include_str!("sql/announce_one.sql");
        if let Err(error) = self.query(sql, &values, "hint").await {
            tracing::warn!(%error, "no hint could be sent to the leader");
        }
    }
}

/// Steps as columns, each at the same place in all of them.
#[derive(Default)]
struct Columns<'a> {
    verbs: Vec<&'static str>,
    jobs: Vec<&'a str>,
    instants: Vec<i64>,
    attempts: Vec<Option<i32>>,
    words: Vec<Option<&'a str>>,
    codes: Vec<Option<i32>>,
    throughs: Vec<Option<i64>>,
    counts: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn new(steps: &'a [LedgerStep]) -> Columns<'a> {
        let mut columns = Columns::default();
        for step in steps {
            columns.push(step);
        }
        columns
    }

    fn push(&mut self, step: &'a LedgerStep) {
        let columns = step.columns();
        let number = |attempt: u32| i32::try_from(attempt).unwrap_or(i32::MAX);
        let long = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.verbs.push(columns.verb);
        self.jobs.push(columns.job);
        self.instants.push(columns.at_unix_ms.unwrap_or(0));
        self.attempts.push(columns.attempt.map(number));
        self.words.push(columns.word);
        self.codes.push(columns.code);
        self.throughs.push(columns.through_unix_ms);
        self.counts.push(columns.count.map(long));
    }

    fn values(&self) -> [(&(dyn ToSql + Sync), Type); 8] {
        [
            (&self.verbs, Type::TEXT_ARRAY),
            (&self.jobs, Type::TEXT_ARRAY),
            (&self.instants, Type::INT8_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.words, Type::TEXT_ARRAY),
            (&self.codes, Type::INT4_ARRAY),
            (&self.throughs, Type::INT8_ARRAY),
            (&self.counts, Type::INT8_ARRAY),
        ]
    }
}

/// A row of the answer: the place of the step, and what it came to.
fn mark(row: &Row) -> Option<(usize, Marked)> {
    let place: i64 = row.try_get(0).ok()?;
    let word: &str = row.try_get(1).ok()?;
    let attempt: i32 = row.try_get(2).ok()?;
    let marked = Marked::from_columns(word, u32::try_from(attempt).ok()?)?;
    Some((usize::try_from(place).ok()?.checked_sub(1)?, marked))
}

fn record(row: &Row) -> Option<TickRecord> {
    let count: Option<i64> = row.try_get(5).ok()?;
    let count = count.and_then(|count| u64::try_from(count).ok());
    let word: &str = row.try_get(2).ok()?;
    let state = TickState::from_columns(word, row.try_get(3).ok()?, row.try_get(4).ok()?, count)?;
    let job: String = row.try_get(0).ok()?;
    let mut record = TickRecord::new(Tick::new(job, row.try_get(1).ok()?), state);
    let term: Option<i64> = row.try_get(7).ok()?;
    let attempt: i32 = row.try_get(8).ok()?;
    record.manual = row.try_get(6).ok()?;
    record.term = term.and_then(|term| u64::try_from(term).ok()).and_then(Term::new);
    record.attempt = u32::try_from(attempt).ok()?;
    record.claimed_unix_ms = row.try_get(9).ok()?;
    record.started_unix_ms = row.try_get(10).ok()?;
    record.ended_unix_ms = row.try_get(11).ok()?;
    Some(record)
}

fn records(rows: &[Row]) -> Result<Vec<TickRecord>, Error> {
    rows.iter().map(|row| record(row).ok_or_else(odd)).collect()
}

pub(crate) fn odd() -> Error {
    error::new(ErrorKind::Corrupt, "the ledger holds or answers what tenure did not write")
}

impl Ledger for PostgresLedger {
    fn transactions(&self) -> Transactions {
        Transactions::Same
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        Box::pin(self.write(election, term, steps))
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(async move {
            let name = election.as_str();
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&name, Type::TEXT), (&job, Type::TEXT)];
            let rows =
                self.query(include_str!("sql/ledger_request.sql"), &values, "request").await?;
            let at = rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(odd)?;
            self.announce(election).await;
            Ok(Tick::new(job, at))
        })
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let (name, verb) = (election.as_str(), steer.as_str());
            let values: [(&(dyn ToSql + Sync), Type); 4] = [
                (&name, Type::TEXT),
                (&job, Type::TEXT),
                (&verb, Type::TEXT),
                (&STEER_AHEAD_MS, Type::INT8),
            ];
            let rows = self.query(include_str!("sql/ledger_steer.sql"), &values, "steer").await?;
            let known = rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(odd)?;
            self.announce(election).await;
            Ok(known)
        })
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move {
            let (name, most) = (election.as_str(), LEDGER_OPEN_MAX as i64);
            let at = after.map(|after| after.scheduled_unix_ms);
            let job = after.map(|after| after.job.as_str());
            let values: [(&(dyn ToSql + Sync), Type); 4] =
                [(&name, Type::TEXT), (&most, Type::INT8), (&at, Type::INT8), (&job, Type::TEXT)];
            records(&self.query(include_str!("sql/ledger_open.sql"), &values, "open").await?)
        })
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(async move {
            let name = election.as_str();
            let values: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
            let sql = include_str!("sql/ledger_latest.sql");
            let rows = self.query(sql, &values, "latest").await?;
            let progress = |row: &Row| {
                let job: String = row.try_get(0).ok()?;
                let mut progress = JobProgress::new(job, row.try_get(1).ok()?);
                progress.schedule = row.try_get(2).ok()?;
                progress.paused_unix_ms = row.try_get(3).ok()?;
                progress.anew_unix_ms = row.try_get(4).ok()?;
                Some(progress)
            };
            rows.iter().map(|row| progress(row).ok_or_else(odd)).collect()
        })
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move {
            let (name, limit) = (election.as_str(), i64::try_from(limit).unwrap_or(i64::MAX));
            let mut values: Vec<(&(dyn ToSql + Sync), Type)> =
                vec![(&name, Type::TEXT), (&limit, Type::INT8)];
            let sql = match &job {
                Some(job) => {
                    values.push((job, Type::TEXT));
                    include_str!("sql/ledger_history_of_job.sql")
                }
                None => include_str!("sql/ledger_history.sql"),
            };
            records(&self.query(sql, &values, "history").await?)
        })
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        Box::pin(self.once_step(election, term, step))
    }

    fn once_record<'a>(
        &'a self,
        election: &'a Name,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>> {
        Box::pin(self.once_find(election, key))
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        Box::pin(self.once_all(election, limit))
    }
}
