//! The cron ledger. The decisions are made by the scripts `lua/ledger*.lua`; this owns the words.
//!
//! All of it is subject to what a Redis server may lose: see the store's residual windows (K2).

use redis::Value;
use tenure_core::{
    BoxFuture, Error, ErrorKind, JobProgress, LEDGER_OPEN_MAX, Ledger, LedgerStep, Marked, Name,
    OnceMark, OnceRecord, OnceStep, STEER_AHEAD_MS, Steer, Term, Tick, TickRecord, TickState,
    Transactions,
};

use crate::error;
use crate::pool::text;
use crate::script::{self, Call, Kind};
use crate::store::RedisStore;

impl RedisStore {
    /// The keys that every script of the ledger begins with.
    fn ledger_keys(&self, election: &Name) -> Result<Vec<String>, Error> {
        let of = self.keys().of(election)?;
        let ledger = ["", ":time", ":open", ":jobs", ":schedules", ":steered"];
        let ledger = ledger.map(|end| format!("{}:ticks{end}", of.companion));
        Ok([of.lease, of.companion].into_iter().chain(ledger).collect())
    }

    /// Where the ticks of one job are.
    fn job_key(&self, election: &Name, job: &str) -> Result<String, Error> {
        Ok(format!("{}:ticks:of:{job}", self.keys().of(election)?.companion))
    }

    /// Calls one script, whose answer is a list of words.
    pub(crate) async fn words(&self, call: Call, what: &'static str) -> Result<Vec<String>, Error> {
        let answer = self.call_one(&call).await;
        let words = match answer {
            Ok(Value::Array(words)) => Ok(words.iter().map(text).collect()),
            // A protocol with maps answers HGETALL as one.
            Ok(Value::Map(pairs)) => {
                Ok(pairs.iter().flat_map(|(key, value)| [text(key), text(value)]).collect())
            }
            Ok(Value::ServerError(error)) => Err(error::from_server(&self.address(), &error)),
            Ok(_) => Err(error::odd_answer()),
            Err(error) => Err(error),
        };
        words.map_err(|error| error.in_store(error::STORE).during(what))
    }

    async fn write(
        &self,
        election: &Name,
        term: Term,
        steps: &[LedgerStep],
    ) -> Result<Vec<Marked>, Error> {
        let mut keys = self.ledger_keys(election)?;
        let mut args = vec![term.to_string()];
        for step in steps {
            keys.push(self.job_key(election, step.job())?);
            args.extend(words_of(step));
        }
        let answers = self.words(Call::new(Kind::Ledger, keys, args), "record").await?;
        let marks: Option<Vec<Marked>> = answers.iter().map(|answer| mark(answer)).collect();
        marks.filter(|marks| marks.len() == steps.len()).ok_or_else(error::odd_answer)
    }

    async fn tell(
        &self,
        election: &Name,
        what: &'static str,
        job: Option<&str>,
        limit: usize,
        after: Option<&Tick>,
    ) -> Result<Vec<String>, Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut keys = self.ledger_keys(election)?;
        if let Some(job) = job {
            keys.push(self.job_key(election, job)?);
        }
        let word = if job.is_some() { "of job" } else { what };
        let at = after.map(|after| after.scheduled_unix_ms.to_string()).unwrap_or_default();
        let of = after.map(|after| after.job.clone()).unwrap_or_default();
        let args = vec![word.to_owned(), limit.to_string(), at, of];
        self.words(Call::new(Kind::LedgerRead, keys, args), what).await
    }
}

/// A step as the script takes it: verb, job, instant, attempt, word, code, through, count.
fn words_of(step: &LedgerStep) -> [String; 8] {
    let columns = step.columns();
    [
        columns.verb.to_owned(),
        columns.job.to_owned(),
        script::or_empty(columns.at_unix_ms),
        script::or_empty(columns.attempt),
        script::or_empty(columns.word),
        script::or_empty(columns.code),
        script::or_empty(columns.through_unix_ms),
        script::or_empty(columns.count),
    ]
}

/// What `done 2`, `refused` or `stale` says.
fn mark(answer: &str) -> Option<Marked> {
    match answer.split_once(' ') {
        Some((word, attempt)) => Marked::from_columns(word, attempt.parse().ok()?),
        None if answer == "done" => None,
        None => Marked::from_columns(answer, 0),
    }
}

/// A tick as the scripts keep it.
fn record(field: &str, value: &str) -> Option<TickRecord> {
    let (at, job) = field.split_once(' ')?;
    let parts: Vec<&str> = value.split('|').collect();
    let [word, manual, term, attempt, code, through, count, claimed, started, ended] =
        parts.as_slice()
    else {
        return None;
    };
    let count = count.parse().ok();
    let state = TickState::from_columns(word, code.parse().ok(), through.parse().ok(), count)?;
    let mut record = TickRecord::new(Tick::new(job, at.parse().ok()?), state);
    record.manual = *manual == "1";
    record.term = term.parse().ok().and_then(Term::new);
    record.attempt = attempt.parse().ok()?;
    record.claimed_unix_ms = claimed.parse().ok();
    record.started_unix_ms = started.parse().ok();
    record.ended_unix_ms = ended.parse().ok();
    Some(record)
}

fn records(words: &[String]) -> Result<Vec<TickRecord>, Error> {
    let pair = |pair: &[String]| record(pair.first()?, pair.get(1)?);
    words.chunks(2).map(|words| pair(words).ok_or_else(lost_notes)).collect()
}

fn lost_notes() -> Error {
    error::new(
        ErrorKind::Corrupt,
        "the keys that end in :ticks beside the lease do not hold what tenure wrote; delete them",
    )
}

impl Ledger for RedisStore {
    fn transactions(&self) -> Transactions {
        Transactions::None
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        Box::pin(async move {
            if steps.is_empty() {
                return Ok(Vec::new());
            }
            self.write(election, term, steps).await
        })
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(async move {
            let mut keys = self.ledger_keys(election)?;
            keys.push(self.job_key(election, job)?);
            let args = vec![job.to_owned(), election.to_string()];
            let call = Call::new(Kind::LedgerRequest, keys, args);
            let words = self.words(call, "request").await?;
            let at = words.first().and_then(|at| at.parse().ok());
            Ok(Tick::new(job, at.ok_or_else(error::odd_answer)?))
        })
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let mut keys = self.ledger_keys(election)?;
            keys.push(self.job_key(election, job)?);
            let (verb, ahead) = (steer.as_str().to_owned(), STEER_AHEAD_MS.to_string());
            let args = vec![job.to_owned(), verb, election.to_string(), ahead];
            let words = self.words(Call::new(Kind::LedgerSteer, keys, args), "steer").await?;
            Ok(words.first().is_some_and(|known| known == "1"))
        })
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move {
            records(&self.tell(election, "open", None, LEDGER_OPEN_MAX, after).await?)
        })
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(async move {
            let words = self.tell(election, "latest", None, 1, None).await?;
            let progress = |part: &[String]| {
                let mut progress = JobProgress::new(part.first()?, part.get(1)?.parse().ok()?);
                progress.schedule = part.get(2).filter(|words| !words.is_empty()).cloned();
                let (paused, anew) = part.get(3)?.split_once('|')?;
                progress.paused_unix_ms = paused.parse().ok();
                progress.anew_unix_ms = anew.parse().ok();
                Some(progress)
            };
            words.chunks(4).map(|part| progress(part).ok_or_else(lost_notes)).collect()
        })
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move { records(&self.tell(election, "history", job, limit, None).await?) })
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
        Box::pin(async move { Ok(self.once_records(election, Some(key), 1).await?.pop()) })
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        Box::pin(self.once_records(election, None, limit))
    }
}
