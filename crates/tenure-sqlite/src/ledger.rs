//! The cron ledger: rows beside the leases, written in transactions that look at the lease first.

use rusqlite::{Connection, OptionalExtension, Row};
use tenure_core::{
    BoxFuture, Error, JobProgress, LEDGER_OPEN_MAX, Ledger, LedgerStep, Marked, Name, OnceMark,
    OnceRecord, OnceStep, STEER_AHEAD_MS, Steer, Term, Tick, TickRecord, TickState,
    Transactions,
};

use crate::lease::{Round, unix_ms};
use crate::once;
use crate::store::SqliteStore;
use crate::worker::answered;

fn request(round: &mut Round<'_>, election: Name, job: String) -> rusqlite::Result<Tick> {
    let values = (election.as_str(), &job, unix_ms().unwrap_or(0));
    let mut request = round.conn.prepare_cached(include_str!("sql/tick_request.sql"))?;
    let scheduled: i64 = request.query_row(values, |row| row.get(0))?;
    round.news.announce.push(election);
    Ok(Tick::new(job, scheduled))
}

fn records(
    conn: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Vec<TickRecord>> {
    conn.prepare_cached(sql)?.query_map(values, record)?.collect()
}

fn latest(conn: &Connection, election: &Name) -> rusqlite::Result<Vec<JobProgress>> {
    let mut select = conn.prepare_cached(include_str!("sql/tick_jobs.sql"))?;
    let progress = |row: &Row<'_>| {
        let mut progress = JobProgress::new(row.get::<_, String>(0)?, row.get(1)?);
        progress.schedule = row.get(2)?;
        progress.paused_unix_ms = row.get(3)?;
        progress.anew_unix_ms = row.get(4)?;
        Ok(progress)
    };
    select.query_map([election.as_str()], progress)?.collect()
}

/// Whether the job was known, and is as it was asked for.
fn steer_job(conn: &Connection, of: &Name, job: &str, steer: Steer) -> rusqlite::Result<bool> {
    let (election, now) = (of.as_str(), unix_ms().unwrap_or(0));
    let mut change = conn.prepare_cached(include_str!("sql/tick_steer.sql"))?;
    let ahead = now + STEER_AHEAD_MS;
    let known = change.execute((election, job, steer.as_str(), now, ahead))? > 0;
    if known && steer == Steer::FromNow {
        let mut forget = conn.prepare_cached(include_str!("sql/tick_forget_later.sql"))?;
        forget.execute((election, job, ahead))?;
    }
    Ok(known)
}

/// The steps of one term, in one transaction.
struct StepWriter<'a> {
    conn: &'a Connection,
    election: &'a Name,
    term: Term,
    now: Option<i64>,
}

/// Where a tick stands.
struct Found {
    state: String,
    manual: bool,
    term: Option<i64>,
    attempt: u32,
}

impl<'a> StepWriter<'a> {
    /// `None` if this term does not hold the lease any more.
    fn of(
        round: &Round<'a>,
        election: &'a Name,
        term: Term,
    ) -> rusqlite::Result<Option<StepWriter<'a>>> {
        let writer = StepWriter { conn: round.conn, election, term, now: unix_ms() };
        let mut holds = writer.conn.prepare_cached(include_str!("sql/tick_holds.sql"))?;
        let holds = holds.exists((election.as_str(), writer.term(), round.now_ns))?;
        Ok(holds.then_some(writer))
    }

    fn step(&self, step: &LedgerStep) -> rusqlite::Result<Marked> {
        match step {
            LedgerStep::Claim { tick, again } => self.claim(tick, *again),
            LedgerStep::Start { tick, attempt } => self.start(tick, *attempt),
            LedgerStep::End { tick, attempt, end } => {
                self.leave(tick, *attempt, TickState::Finished(*end))
            }
            LedgerStep::Retry { tick, attempt, code } => {
                self.leave(tick, *attempt, TickState::Retrying { code: *code })
            }
            LedgerStep::Confirm { tick, attempt } => Ok(match self.find(tick)? {
                Some(found) if found.state == "ok" && found.attempt == *attempt => done(*attempt),
                _ => Marked::Refused,
            }),
            LedgerStep::Skip { tick, through_unix_ms, count } => {
                self.skip(tick, *through_unix_ms, *count)
            }
            LedgerStep::Follow { job, schedule, from_unix_ms } => {
                let values = (self.election.as_str(), job, *from_unix_ms, schedule);
                self.execute(include_str!("sql/tick_follow.sql"), values)?;
                Ok(done(0))
            }
            LedgerStep::Abandon { tick } => self.abandon(tick),
            LedgerStep::Trim { job, keep } => {
                let values = (self.election.as_str(), job, *keep);
                self.execute(include_str!("sql/tick_trim.sql"), values)?;
                Ok(done(0))
            }
            _ => Ok(Marked::Refused),
        }
    }

    fn claim(&self, tick: &Tick, again: bool) -> rusqlite::Result<Marked> {
        let (election, job, at) = self.key(tick);
        let mut new = self.conn.prepare_cached(include_str!("sql/tick_claim_new.sql"))?;
        if new.execute((election, job, at, self.term(), self.now))? > 0 {
            self.note(job, at)?;
            return Ok(done(1));
        }
        let found = self.find(tick)?;
        let attempt = match &found {
            // It is not claimed, because the job is paused.
            None => 1,
            Some(found) => match found.state.as_str() {
                "requested" => 1,
                "claimed" if self.is_ours(found) => return Ok(done(found.attempt)),
                "claimed" | "started" if again && !self.is_ours(found) => found.attempt + 1,
                "retrying" => found.attempt + 1,
                _ => return Ok(Marked::Refused),
            },
        };
        if !found.is_some_and(|found| found.manual) {
            if self.is_paused(job)? {
                return Ok(Marked::Paused);
            }
            self.note(job, at)?;
        }
        let values = (election, job, at, self.term(), attempt, self.now);
        self.execute(include_str!("sql/tick_claim.sql"), values)?;
        Ok(done(attempt))
    }

    fn start(&self, tick: &Tick, attempt: u32) -> rusqlite::Result<Marked> {
        match self.find(tick)? {
            Some(found) if self.is_running(&found, attempt) => {
                let (election, job, at) = self.key(tick);
                let values = (election, job, at, self.now);
                self.execute(include_str!("sql/tick_start.sql"), values)?;
                Ok(done(attempt))
            }
            _ => Ok(Marked::Refused),
        }
    }

    /// A run is over, and the tick is left in this state.
    fn leave(&self, tick: &Tick, attempt: u32, state: TickState) -> rusqlite::Result<Marked> {
        let Some(found) = self.find(tick)? else { return Ok(Marked::Refused) };
        if found.state == state.as_str() && self.is_ours(&found) && found.attempt == attempt {
            return Ok(done(attempt));
        }
        if !self.is_running(&found, attempt) {
            return Ok(Marked::Refused);
        }
        self.finish(tick, state)?;
        Ok(done(attempt))
    }

    fn skip(&self, tick: &Tick, through: i64, count: u64) -> rusqlite::Result<Marked> {
        match self.find(tick)? {
            Some(found) if found.state == "skipped" => return Ok(done(0)),
            Some(_) => return Ok(Marked::Refused),
            None => {}
        }
        self.note(&tick.job, tick.scheduled_unix_ms.max(through))?;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let (election, job, at) = self.key(tick);
        let values = (election, job, at, self.term(), through, count, self.now);
        self.execute(include_str!("sql/tick_skip.sql"), values)?;
        Ok(done(0))
    }

    fn abandon(&self, tick: &Tick) -> rusqlite::Result<Marked> {
        let Some(found) = self.find(tick)? else { return Ok(Marked::Refused) };
        match found.state.as_str() {
            "abandoned" => {}
            "requested" | "retrying" => self.finish(tick, TickState::Abandoned)?,
            "claimed" | "started" if !self.is_ours(&found) => {
                self.finish(tick, TickState::Abandoned)?;
            }
            _ => return Ok(Marked::Refused),
        }
        Ok(done(found.attempt))
    }

    fn finish(&self, tick: &Tick, state: TickState) -> rusqlite::Result<()> {
        let (election, job, at) = self.key(tick);
        let values = (election, job, at, state.as_str(), state.code(), self.now);
        self.execute(include_str!("sql/tick_end.sql"), values)
    }

    fn is_paused(&self, job: &str) -> rusqlite::Result<bool> {
        let mut paused = self.conn.prepare_cached(include_str!("sql/tick_paused.sql"))?;
        paused.exists((self.election.as_str(), job))
    }

    fn note(&self, job: &str, at: i64) -> rusqlite::Result<()> {
        self.execute(include_str!("sql/tick_latest.sql"), (self.election.as_str(), job, at))
    }

    fn find(&self, tick: &Tick) -> rusqlite::Result<Option<Found>> {
        let mut read = self.conn.prepare_cached(include_str!("sql/tick_read.sql"))?;
        read.query_row(self.key(tick), |row| {
            Ok(Found {
                state: row.get(0)?,
                manual: row.get(1)?,
                term: row.get(2)?,
                attempt: row.get(3)?,
            })
        })
        .optional()
    }

    fn is_ours(&self, found: &Found) -> bool {
        found.term == Some(self.term())
    }

    fn is_running(&self, found: &Found, attempt: u32) -> bool {
        let runs = matches!(found.state.as_str(), "claimed" | "started");
        runs && self.is_ours(found) && found.attempt == attempt
    }

    fn key<'t>(&'t self, tick: &'t Tick) -> (&'t str, &'t str, i64) {
        (self.election.as_str(), &tick.job, tick.scheduled_unix_ms)
    }

    fn term(&self) -> i64 {
        i64::try_from(self.term.get()).unwrap_or(i64::MAX)
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(values).map(drop)
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<TickRecord> {
    let word: String = row.get(2)?;
    let count: Option<i64> = row.get(5)?;
    let count = count.and_then(|count| u64::try_from(count).ok());
    let state = TickState::from_columns(&word, row.get(3)?, row.get(4)?, count);
    let odd = || rusqlite::Error::InvalidColumnName(format!("the state of a tick is {word}"));
    let mut record =
        TickRecord::new(Tick::new(row.get::<_, String>(0)?, row.get(1)?), state.ok_or_else(odd)?);
    let term: Option<i64> = row.get(7)?;
    record.manual = row.get(6)?;
    record.term = term.and_then(|term| u64::try_from(term).ok()).and_then(Term::new);
    record.attempt = row.get(8)?;
    record.claimed_unix_ms = row.get(9)?;
    record.started_unix_ms = row.get(10)?;
    record.ended_unix_ms = row.get(11)?;
    Ok(record)
}

const fn done(attempt: u32) -> Marked {
    Marked::Done { attempt }
}

fn column(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Ledger for SqliteStore {
    fn transactions(&self) -> Transactions {
        Transactions::Beside
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        let (election, steps) = (election.clone(), steps.to_vec());
        let marks = move |round: &mut Round<'_>| match StepWriter::of(round, &election, term)? {
            Some(writer) => steps.iter().map(|step| writer.step(step)).collect(),
            None => Ok(vec![Marked::Stale; steps.len()]),
        };
        Box::pin(async move { answered(self.jobs().write(marks), "record").await })
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        let (election, job) = (election.clone(), job.to_owned());
        let tick = move |round: &mut Round<'_>| request(round, election, job);
        Box::pin(async move { answered(self.jobs().write(tick), "request").await })
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let (election, job) = (election.clone(), job.to_owned());
        let known = move |round: &mut Round<'_>| {
            let known = steer_job(round.conn, &election, &job, steer)?;
            round.news.announce.push(election);
            Ok(known)
        };
        Box::pin(async move { answered(self.jobs().write(known), "steer").await })
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        let (election, after) = (election.clone(), after.cloned());
        let open = move |conn: &Connection| {
            let at = after.as_ref().map(|after| after.scheduled_unix_ms);
            let job = after.as_ref().map(|after| after.job.as_str());
            let values = (election.as_str(), column(LEDGER_OPEN_MAX), at, job);
            records(conn, include_str!("sql/tick_open.sql"), values)
        };
        Box::pin(async move { answered(self.jobs().read(open), "open").await })
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        let election = election.clone();
        let latest = move |conn: &Connection| latest(conn, &election);
        Box::pin(async move { answered(self.jobs().read(latest), "latest").await })
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        let (election, job) = (election.clone(), job.map(str::to_owned));
        let history = move |conn: &Connection| {
            let (name, limit) = (election.as_str(), column(limit));
            match job {
                None => records(conn, include_str!("sql/tick_history.sql"), (name, limit)),
                Some(job) => {
                    let values = (name, limit, job);
                    records(conn, include_str!("sql/tick_history_of_job.sql"), values)
                }
            }
        };
        Box::pin(async move { answered(self.jobs().read(history), "history").await })
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        let (election, step) = (election.clone(), step.clone());
        let mark = move |round: &mut Round<'_>| match StepWriter::of(round, &election, term)? {
            Some(writer) => once::step(round.conn, &election, term, writer.now, &step),
            None => Ok(OnceMark::Stale),
        };
        Box::pin(async move { answered(self.jobs().write(mark), "once").await })
    }

    fn once_record<'a>(
        &'a self,
        election: &'a Name,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>> {
        let (election, key) = (election.clone(), key.to_owned());
        let record = move |conn: &Connection| once::find(conn, &election, &key);
        Box::pin(async move { answered(self.jobs().read(record), "once").await })
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        let election = election.clone();
        let history = move |conn: &Connection| once::history(conn, &election, limit);
        Box::pin(async move { answered(self.jobs().read(history), "once").await })
    }
}

#[cfg(test)]
mod tests {
    use crate::db::{Db, OPEN_TIMEOUT};
    use crate::host::Host;

    #[test]
    fn a_request_is_never_at_an_instant_that_a_schedule_could_have() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let db = Db::open(&path, &Host::detect().unwrap(), OPEN_TIMEOUT, OPEN_TIMEOUT).unwrap();
        let request = |now: i64| -> i64 {
            let sql = include_str!("sql/tick_request.sql");
            db.conn.query_row(sql, ("e", "j", now), |row| row.get(0)).unwrap()
        };
        assert_eq!([5_000, 5_000, 5_000].map(request), [5_001, 5_002, 5_003]);
        assert_eq!([70_999, 70_999, 70_999].map(request), [70_999, 71_001, 71_002]);
    }
}
