//! Jobs that fire on the leader.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tenure::Error;
use tenure_cron::{Job, Outcome, Run, Schedule};

use crate::call::{Caller, What};
use crate::election::{Election, seconds};
use crate::error::raise;
use crate::op::Op;

/// The jobs of one election.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Cron {
    election: Py<Election>,
    // Locked only while attached to the interpreter, and for a look.
    jobs: Mutex<Vec<Job>>,
    built: Arc<OnceLock<tenure_cron::Cron>>,
}

/// When a schedule fires next after an instant, in milliseconds of Unix time.
#[pyfunction]
pub(crate) fn next_ticks(
    py: Python<'_>,
    schedule: &str,
    zone: &str,
    after_unix_ms: i64,
    count: usize,
) -> PyResult<Vec<i64>> {
    let schedule = Schedule::new(schedule, zone).map_err(|error| raise(py, &error))?;
    let next = |after: &i64| schedule.next_after(*after);
    Ok(std::iter::successors(next(&after_unix_ms), next).take(count).collect())
}

impl Cron {
    /// The jobs, ready to run; made when they are first needed.
    fn open(&self) -> impl Future<Output = Result<tenure_cron::Cron, Error>> + Send + use<> {
        let open = self.election.get().open();
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let built = self.built.clone();
        async move {
            let (election, _) = open.await?;
            if let Some(cron) = built.get() {
                return Ok(cron.clone());
            }
            let cron = tenure_cron::Cron::builder(&election).jobs(jobs).build()?;
            Ok(built.get_or_init(|| cron).clone())
        }
    }
}

#[pymethods]
impl Cron {
    #[new]
    fn new(election: Py<Election>) -> Cron {
        Cron { election, jobs: Mutex::default(), built: Arc::default() }
    }

    /// Adds a job, before they run.
    #[expect(clippy::too_many_arguments, reason = "one for each argument of `job`")]
    fn add(
        &self,
        py: Python<'_>,
        name: String,
        schedule: &str,
        zone: &str,
        delivery: &str,
        missed: &str,
        overlap: Option<&str>,
        timeout: Option<f64>,
        jitter: Option<f64>,
        grace: Option<f64>,
        keep: Option<u32>,
    ) -> PyResult<()> {
        let caller = self.election.get().caller();
        let job = || -> Result<Job, Error> {
            let mut job = Job::new(name, Schedule::new(schedule, zone)?, work(caller))
                .delivery(delivery.parse()?)
                .missed(missed.parse()?);
            if let Some(overlap) = overlap {
                job = job.overlap(overlap.parse()?);
            }
            if let Some(timeout) = timeout {
                job = job.timeout(seconds("timeout", timeout)?);
            }
            if let Some(jitter) = jitter {
                job = job.jitter(seconds("jitter", jitter)?);
            }
            if let Some(grace) = grace {
                job = job.grace(seconds("grace", grace)?);
            }
            if let Some(keep) = keep {
                job = job.keep(keep);
            }
            Ok(job)
        };
        let job = job().map_err(|error| raise(py, &error))?;
        if self.built.get().is_some() {
            let message = "jobs are given before the cron runs; give this one earlier";
            return Err(raise(py, &Error::config(message)));
        }
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        Ok(())
    }

    /// Fires the jobs each time this instance leads, until the election is stopped.
    fn run(&self, py: Python<'_>) -> PyResult<Op> {
        let open = self.open();
        Op::unit(py, async move { open.await?.run().await })
    }

    /// Asks the leader to run a job now. Returns the instant that it counts as scheduled for.
    fn trigger(&self, py: Python<'_>, job: String) -> PyResult<Op> {
        let open = self.open();
        let ask = async move { open.await?.trigger(&job).await };
        Op::new(py, ask, |py, tick| {
            Ok(tick.scheduled_unix_ms.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// What happened to the ticks of a job, or of all, the latest first.
    fn history(&self, py: Python<'_>, job: Option<String>, limit: usize) -> PyResult<Op> {
        let open = self.open();
        let ask = async move { open.await?.history(job.as_deref(), limit).await };
        Op::new(py, ask, |py, records| {
            let mut all = Vec::with_capacity(records.len());
            for record in records {
                let dict = PyDict::new(py);
                dict.set_item("job", &record.tick.job)?;
                dict.set_item("scheduled_unix_ms", record.tick.scheduled_unix_ms)?;
                dict.set_item("attempt", record.attempt)?;
                dict.set_item("term", record.term.map(tenure::Term::get))?;
                dict.set_item("state", record.state.as_str())?;
                all.push(dict);
            }
            Ok(all.into_pyobject(py)?.into_any().unbind())
        })
    }
}

/// The work of every job: Python does it.
fn work(
    caller: Caller,
) -> impl Fn(Run) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync {
    move |run| {
        let call = caller.call(What::Job(run));
        Box::pin(async move { call.await.into() })
    }
}
