//! One candidate's part in one election.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tenure::{Error, ErrorKind, Metadata, Name, OnceOptions, OnceOutcome, Store, Term, Timing};

use crate::call::{Caller, Calls, Ended, What};
use crate::candidate::{Candidate, CandidateShared};
use crate::error::raise;
use crate::op::Op;
use crate::reign::{Reign, Work};
use crate::values;

/// The part of an election that is native. Typed Python derives from it.
#[pyclass(frozen, subclass, module = "tenure._native")]
pub(crate) struct Election {
    shared: Arc<Shared>,
}

struct Shared {
    plan: OnceLock<Plan>,
    // A std mutex: held while the election is built, which those who come second wait for.
    building: Mutex<Vec<Handler>>,
    built: OnceLock<Built>,
    calls: Calls,
}

struct Built {
    election: tenure::Election,
    store: Arc<dyn Store>,
}

/// How an election is to be built.
struct Plan {
    name: String,
    candidate: Arc<CandidateShared>,
    timing: Timing,
    metadata: Option<String>,
    term_floor: Option<Term>,
    fail_closed: bool,
    at_once: bool,
    callbacks: Vec<String>,
    post_tries: Option<u32>,
    post_timeout: Option<Duration>,
}

struct Handler {
    channel: String,
    posts: bool,
}

impl Election {
    /// The election, once it was opened.
    pub(crate) fn opened(&self) -> Option<&tenure::Election> {
        self.shared.built.get().map(|built| &built.election)
    }

    pub(crate) fn caller(&self) -> Caller {
        self.shared.calls.caller()
    }

    /// Builds the election and opens its store, if nobody has yet.
    pub(crate) fn open(
        &self,
    ) -> impl Future<Output = Result<(tenure::Election, Arc<dyn Store>), Error>> + Send + use<>
    {
        let shared = self.shared.clone();
        async move {
            if shared.built.get().is_none() {
                let builder = shared.clone();
                // Opening a file may block.
                let building = tokio::task::spawn_blocking(move || builder.build());
                building.await.map_err(|_| {
                    Error::new(ErrorKind::Crashed, "opening the store panicked; report it")
                })??;
            }
            let built = shared.built.get().ok_or_else(not_open)?;
            built.election.check_process()?;
            Ok((built.election.clone(), built.store.clone()))
        }
    }

    /// The election of somebody who can't wait for it to be opened.
    fn here(&self, py: Python<'_>) -> PyResult<tenure::Election> {
        let election = self.opened().ok_or_else(|| raise(py, &not_open()))?;
        election.check_process().map_err(|error| raise(py, &error))?;
        Ok(election.clone())
    }
}

impl Shared {
    fn build(&self) -> Result<(), Error> {
        let handlers = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if self.built.get().is_some() {
            return Ok(());
        }
        let plan = self.plan.get().ok_or_else(not_open)?;
        let opened = plan.candidate.open()?;
        let Timing { ttl, renew_every, margin, drain, .. } = plan.timing;
        let mut builder = opened.candidate.election(&plan.name);
        builder = builder.ttl(ttl).renew_every(renew_every).margin(margin).drain(drain);
        builder = builder.fail_closed(plan.fail_closed);
        if let Some(metadata) = &plan.metadata {
            builder = builder.metadata(metadata.clone());
        }
        if let Some(floor) = plan.term_floor {
            builder = builder.term_floor(floor);
        }
        if plan.at_once {
            builder = builder.at_once();
        }
        if let Some(tries) = plan.post_tries {
            builder = builder.post_tries(tries);
        }
        if let Some(timeout) = plan.post_timeout {
            builder = builder.post_timeout(timeout);
        }
        for callback in &plan.callbacks {
            let caller = self.calls.caller();
            builder = match callback.as_str() {
                "on_elected" => {
                    builder.on_elected(move |term| caller.callback(What::Elected(term)))
                }
                "on_lost" => builder.on_lost(move |term| caller.callback(What::Lost(term))),
                "on_change" => builder.on_change(move |term| caller.callback(What::Change(term))),
                _ => builder.on_error(move |error| caller.callback(What::Error(error))),
            };
        }
        for Handler { channel, posts } in handlers.iter() {
            let caller = self.calls.caller();
            builder = if *posts {
                builder.on_post(channel, move |message| {
                    let call = caller.call(What::Post(message));
                    async move {
                        match call.await {
                            Ended::Ok => Ok(()),
                            Ended::Failed(reason) => Err(reason),
                            Ended::Lost => Err("leadership was lost".to_owned()),
                        }
                    }
                })
            } else {
                builder.on_notify(channel, move |message| caller.callback(What::Notice(message)))
            };
        }
        let built = Built { election: builder.build()?, store: opened.store };
        // Nobody else builds: the lock is held.
        let _first = self.built.set(built);
        Ok(())
    }
}

#[pymethods]
impl Election {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Election {
        let shared = Shared {
            plan: OnceLock::new(),
            building: Mutex::default(),
            built: OnceLock::new(),
            calls: Calls::new(),
        };
        Election { shared: Arc::new(shared) }
    }

    /// Checks everything, and remembers it for when the election is opened.
    #[expect(clippy::too_many_arguments, reason = "one for each argument of the constructor")]
    fn _plan(
        &self,
        py: Python<'_>,
        name: String,
        candidate: &Candidate,
        profile: Option<&str>,
        durations: [Option<f64>; 4],
        metadata: Option<String>,
        term_floor: Option<u64>,
        fail_closed: bool,
        at_once: bool,
        callbacks: Vec<String>,
        post_tries: Option<u32>,
        post_timeout: Option<f64>,
    ) -> PyResult<()> {
        let candidate = candidate.shared.clone();
        let plan = || -> Result<Plan, Error> {
            Name::new(&name)?;
            let timing = timing(profile, durations)?;
            timing.check_store_minimum(candidate.min_ttl())?;
            metadata.as_deref().map(Metadata::new).transpose()?;
            let term_floor = term_floor.map(term).transpose()?;
            let post_timeout = post_timeout.map(|it| seconds("post_timeout", it)).transpose()?;
            Ok(Plan {
                name,
                candidate,
                timing,
                metadata,
                term_floor,
                fail_closed,
                at_once,
                callbacks,
                post_tries,
                post_timeout,
            })
        };
        let plan = plan().map_err(|error| raise(py, &error))?;
        let _once = self.shared.plan.set(plan);
        Ok(())
    }

    /// Adds the handler of a channel, before the election is opened.
    fn _handle(&self, py: Python<'_>, channel: String, posts: bool) -> PyResult<()> {
        let mut handlers = self.shared.building.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.built.get().is_some() {
            let message = "handlers of messages are given before the election is started";
            return Err(raise(py, &Error::config(message)));
        }
        handlers.push(Handler { channel, posts });
        Ok(())
    }

    /// May I start something? False by itself when trust ends. No I/O. The answer is relied upon.
    #[getter]
    fn is_leader(&self) -> bool {
        self.opened().is_some_and(tenure::Election::is_leader)
    }

    /// A method that does nothing, to measure the others by.
    fn _nothing(&self) -> bool {
        false
    }

    /// The term this instance leads now, or `None`. The answer is relied upon.
    #[getter]
    fn term(&self) -> Option<u64> {
        self.opened().and_then(tenure::Election::term).map(Term::get)
    }

    /// The same for showing it, and not for acting on it: nobody is taken to rely on it.
    #[getter]
    fn peek_term(&self) -> Option<u64> {
        self.opened().and_then(tenure::Election::peek).map(|standing| standing.term.get())
    }

    /// The name of the election.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.shared.plan.get().map(|plan| plan.name.as_str())
    }

    /// Who this is, once the election was opened.
    #[getter]
    fn id(&self) -> Option<String> {
        self.opened().map(|election| election.candidate().as_str().to_owned())
    }

    /// The durations of the lease, in seconds: ttl, renew_every, margin, drain.
    #[getter]
    fn _timing(&self) -> Option<[f64; 4]> {
        let timing = &self.shared.plan.get()?.timing;
        let Timing { ttl, renew_every, margin, drain, .. } = timing;
        Some([ttl, renew_every, margin, drain].map(Duration::as_secs_f64))
    }

    /// Refuses to be used in a forked child.
    fn _check(&self, py: Python<'_>) -> PyResult<()> {
        match self.opened() {
            Some(election) => election.check_process().map_err(|error| raise(py, &error)),
            None => Ok(()),
        }
    }

    fn _open(&self, py: Python<'_>) -> PyResult<Op> {
        let open = self.open();
        Op::unit(py, async move { open.await.map(drop) })
    }

    fn _start(&self, py: Python<'_>) -> PyResult<Op> {
        let open = self.open();
        Op::unit(py, async move { open.await?.0.start().await })
    }

    fn _stop(&self, py: Python<'_>) -> PyResult<Op> {
        let opened = self.opened().cloned();
        Op::unit(py, async move {
            match opened {
                Some(election) => election.stop().await,
                None => Ok(()),
            }
        })
    }

    fn _resign(&self, py: Python<'_>) -> PyResult<Op> {
        let election = self.here(py)?;
        Op::unit(py, async move { election.resign().await })
    }

    fn _done(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        let done = term(number).and_then(|term| match self.opened() {
            Some(election) => election.done(term),
            None => Ok(()),
        });
        done.map_err(|error| raise(py, &error))
    }

    /// Renewals depend on this being polled, as long as it is there. It never ends.
    fn _vouch(&self, py: Python<'_>) -> PyResult<Op> {
        let vouch = self.here(py)?.vouch();
        Op::unit(py, async move { match vouch.await {} })
    }

    /// Waits until this instance leads.
    fn _campaign(&self, py: Python<'_>) -> PyResult<Op> {
        let election = self.here(py)?;
        let campaign = async move { election.campaign().await };
        Op::new(py, campaign, |py, tenure| Ok(Py::new(py, Reign::new(tenure))?.into_any()))
    }

    /// Registers work in the present reign; `None` if this instance does not lead.
    fn _enter(&self, py: Python<'_>) -> PyResult<Option<Work>> {
        Work::enter(py, &self.here(py)?)
    }

    fn _current_leader(&self, py: Python<'_>) -> PyResult<Op> {
        let open = self.open();
        let ask = async move { open.await?.0.current_leader().await };
        Op::new(py, ask, |py, leader| values::maybe_leader(py, leader.as_ref()))
    }

    #[pyo3(signature = (vouches=true))]
    fn _events(&self, py: Python<'_>, vouches: bool) -> PyResult<Events> {
        let election = self.here(py)?;
        let events = if vouches { election.events() } else { election.peek_events() };
        Ok(Events { events: Arc::new(tokio::sync::Mutex::new(events)) })
    }

    /// The next call that Python is to make.
    fn _next_call(&self, py: Python<'_>) -> PyResult<Op> {
        self.shared.calls.next(py)
    }

    /// Has the work of `ticket` done once for a key. Returns what came of it, how often it was
    /// tried, and what the last try here said.
    fn _once(
        &self,
        py: Python<'_>,
        key: String,
        tries: u32,
        wait: Option<f64>,
        ticket: u64,
    ) -> PyResult<Op> {
        let wait = wait.map(|wait| seconds("wait", wait)).transpose();
        let mut options = OnceOptions::new().tries(tries);
        if let Some(wait) = wait.map_err(|error| raise(py, &error))? {
            options = options.wait(wait);
        }
        let (open, caller) = (self.open(), self.caller());
        let once = async move {
            let (election, _) = open.await?;
            let work = |run| {
                let call = caller.call(What::Once(run, ticket));
                async move {
                    match call.await {
                        Ended::Ok => Ok(()),
                        Ended::Failed(reason) => Err(reason),
                        // The side that told it to stop gives the run up.
                        Ended::Lost => std::future::pending().await,
                    }
                }
            };
            election.once_with(&key, options, work).await
        };
        Op::new(py, once, |py, outcome| {
            let said = match outcome {
                OnceOutcome::Ran(()) => ("ran", 0, None),
                OnceOutcome::Already => ("already", 0, None),
                OnceOutcome::Failed { attempts, error } => ("failed", attempts, error),
                _ => ("elsewhere", 0, None),
            };
            Ok(said.into_pyobject(py)?.into_any().unbind())
        })
    }

    fn _notify(&self, py: Python<'_>, channel: String, json: String) -> PyResult<Op> {
        let open = self.open();
        Op::unit(py, async move { open.await?.0.notify(&channel, &json).await })
    }

    fn _post(&self, py: Python<'_>, channel: String, json: String, key: String) -> PyResult<Op> {
        let open = self.open();
        let post = async move { open.await?.0.post(&channel, &json, &key).await };
        Op::new(py, post, |py, posted| {
            Ok((posted.id, posted.is_new).into_pyobject(py)?.into_any().unbind())
        })
    }
}

/// What happens in an election.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Events {
    events: Arc<tokio::sync::Mutex<tenure::Events>>,
}

#[pymethods]
impl Events {
    /// The next event: its name and a dict; `None` once the election is gone.
    fn next(&self, py: Python<'_>) -> PyResult<Op> {
        let events = self.events.clone();
        let next = async move { Ok(events.lock().await.next().await) };
        Op::new(py, next, |py, event| match event {
            Some(event) => values::event(py, &event),
            None => Ok(py.None()),
        })
    }
}

/// Explicit durations over the profile over the defaults; of each what does not fit is named.
fn timing(profile: Option<&str>, durations: [Option<f64>; 4]) -> Result<Timing, Error> {
    let base = profile.map_or_else(|| Ok(Timing::default()), Timing::profile)?;
    let read = |at: usize, what: &str| durations[at].map(|it| seconds(what, it)).transpose();
    let mut timing = read(0, "ttl")?.map_or(base, Timing::new);
    timing.renew_every = read(1, "renew_every")?.unwrap_or(timing.renew_every);
    timing.margin = read(2, "margin")?.unwrap_or(timing.margin);
    timing.drain = read(3, "drain")?.unwrap_or(timing.drain);
    timing.check()?;
    Ok(timing)
}

/// A duration that Python gave in seconds.
pub(crate) fn seconds(what: &str, given: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(given).map_err(|_| {
        Error::config(format!("{what} is {given} seconds; give a number from 0 to a day"))
    })
}

pub(crate) fn term(number: u64) -> Result<Term, Error> {
    Term::new(number).ok_or_else(|| {
        let most = Term::MAX.get();
        Error::config(format!("{number} is no term; terms are from 1 to {most}"))
    })
}

fn not_open() -> Error {
    Error::new(ErrorKind::Stopped, "the election was not started; start it, or use `async with`")
}
