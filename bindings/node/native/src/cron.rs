//! Jobs that fire on the leader.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use napi::bindgen_prelude::Either4;
use napi_derive::napi;
use serde_json::json;
use tenure::{Error, Term};
use tenure_cron::{Job, Outcome, Run, Schedule};

use crate::call::{Calls, What};
use crate::election::Election;
use crate::error::raise;
use crate::op::Op;
use crate::values::duration;

/// The jobs of one election.
#[napi]
pub struct Cron {
    // A std mutex: only the thread of the environment locks it.
    jobs: Mutex<Vec<Job>>,
    built: Arc<OnceLock<tenure_cron::Cron>>,
}

/// What may be said about a job. Durations are in milliseconds.
#[napi(object)]
pub struct JobOptions {
    pub zone: String,
    pub delivery: Option<String>,
    pub missed: Option<String>,
    pub overlap: Option<String>,
    pub timeout: Option<f64>,
    pub jitter: Option<f64>,
    pub grace: Option<f64>,
    pub keep: Option<u32>,
}

/// When a schedule fires next after an instant, in milliseconds of Unix time.
#[napi]
pub fn next_ticks(
    schedule: String,
    zone: String,
    after_unix_ms: i64,
    count: u32,
) -> napi::Result<Vec<i64>> {
    let schedule = Schedule::new(&schedule, &zone).map_err(|error| raise(&error))?;
    let next = |after: &i64| schedule.next_after(*after);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(std::iter::successors(next(&after_unix_ms), next).take(count).collect())
}

impl Cron {
    /// The jobs, ready to run; made when they are first needed.
    fn open(
        &self,
        election: &Election,
    ) -> impl Future<Output = Result<tenure_cron::Cron, Error>> + Send + use<> {
        let open = election.open();
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let built = self.built.clone();
        async move {
            let election = open.await?;
            if let Some(cron) = built.get() {
                return Ok(cron.clone());
            }
            let cron = tenure_cron::Cron::builder(&election).jobs(jobs).build()?;
            Ok(built.get_or_init(|| cron).clone())
        }
    }
}

#[napi]
impl Cron {
    #[napi(constructor)]
    pub fn new() -> Cron {
        Cron { jobs: Mutex::default(), built: Arc::default() }
    }

    /// Adds a job, before they run.
    #[napi]
    pub fn add(
        &self,
        election: &Election,
        name: String,
        schedule: String,
        options: JobOptions,
    ) -> napi::Result<()> {
        let job = || -> Result<Job, Error> {
            let schedule = Schedule::new(&schedule, &options.zone)?;
            let mut job = Job::new(name, schedule, work(election.calls()));
            if let Some(delivery) = options.delivery {
                job = job.delivery(delivery.parse()?);
            }
            if let Some(missed) = options.missed {
                job = job.missed(missed.parse()?);
            }
            if let Some(overlap) = options.overlap {
                job = job.overlap(overlap.parse()?);
            }
            if let Some(timeout) = options.timeout {
                job = job.timeout(duration("timeout", timeout)?);
            }
            if let Some(jitter) = options.jitter {
                job = job.jitter(duration("jitter", jitter)?);
            }
            if let Some(grace) = options.grace {
                job = job.grace(duration("grace", grace)?);
            }
            if let Some(keep) = options.keep {
                job = job.keep(keep);
            }
            Ok(job)
        };
        let job = job().map_err(|error| raise(&error))?;
        if self.built.get().is_some() {
            let message = "jobs are given before the cron runs; give this one earlier";
            return Err(raise(&Error::config(message)));
        }
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        Ok(())
    }

    /// Fires the jobs each time this instance leads, until the election is stopped.
    #[napi]
    pub fn run(&self, election: &Election) -> napi::Result<Op> {
        let open = self.open(election);
        Op::unit(async move { open.await?.run().await })
    }

    /// Asks the leader to run a job now. Ends with the instant that it counts as scheduled for.
    #[napi]
    pub fn trigger(&self, election: &Election, job: String) -> napi::Result<Op> {
        let open = self.open(election);
        let ask = async move { open.await?.trigger(&job).await };
        Op::new(ask, |tick| Ok(Either4::B(tick.scheduled_unix_ms.to_string())))
    }

    /// What happened to the ticks of a job, or of all, the latest first: JSON text.
    #[napi]
    pub fn history(
        &self,
        election: &Election,
        job: Option<String>,
        limit: u32,
    ) -> napi::Result<Op> {
        let open = self.open(election);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let ask = async move { open.await?.history(job.as_deref(), limit).await };
        Op::new(ask, |records| {
            let all = records.iter().map(|record| {
                json!({
                    "job": record.tick.job,
                    "scheduledUnixMs": record.tick.scheduled_unix_ms,
                    "attempt": record.attempt,
                    "term": record.term.map(Term::get),
                    "state": record.state.as_str(),
                })
            });
            Ok(Either4::B(all.collect::<serde_json::Value>().to_string()))
        })
    }
}

/// The work of every job: JavaScript does it.
fn work(
    calls: Calls,
) -> impl Fn(Run) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync {
    move |run| {
        let call = calls.call(What::Job(run));
        Box::pin(async move { call.await.into() })
    }
}
