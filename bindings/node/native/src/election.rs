//! One candidate's part in one election.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use napi::bindgen_prelude::Either4;
use napi_derive::napi;
use serde_json::json;
use tenure::core::{LedgerStep, Marked, Tick, TickEnd};
use tenure::{Error, ErrorKind, Metadata, Name, OnceOptions, OnceOutcome, Term, Timing};

use crate::call::{Calls, Ended, What};
use crate::candidate::{Candidate, CandidateShared, blocking};
use crate::environment::{Ends, Membership};
use crate::error::raise;
use crate::op::Op;
use crate::reign::{Reign, Work, number};
use crate::values;

/// The part of an election that is native.
#[napi]
pub struct Election {
    shared: Arc<Shared>,
}

struct Shared {
    _membership: Membership,
    plan: Plan,
    // A std mutex: held while the election is built, which those who come second wait for.
    building: Mutex<Vec<Handler>>,
    built: OnceLock<tenure::Election>,
    calls: Calls,
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
    post_tries: Option<u32>,
    post_timeout: Option<Duration>,
}

/// What may be said about an election. Durations are in milliseconds.
#[napi(object)]
pub struct Options {
    pub profile: Option<String>,
    pub ttl: Option<f64>,
    pub renew_every: Option<f64>,
    pub margin: Option<f64>,
    pub drain: Option<f64>,
    pub metadata: Option<String>,
    pub term_floor: Option<f64>,
    pub fail_closed: Option<bool>,
    pub at_once: Option<bool>,
    pub post_tries: Option<u32>,
    pub post_timeout: Option<f64>,
}

struct Handler {
    channel: String,
    posts: bool,
}

impl Ends for Shared {
    fn end(&self) {
        self.calls.close();
    }

    fn election(&self) -> Option<tenure::Election> {
        self.built.get().cloned()
    }
}

impl Shared {
    fn build(&self) -> Result<(), Error> {
        let handlers = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if self.built.get().is_some() {
            return Ok(());
        }
        let plan = &self.plan;
        let candidate = plan.candidate.open()?;
        let Timing { ttl, renew_every, margin, drain, .. } = plan.timing;
        let mut builder = candidate.election(&plan.name);
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
        for Handler { channel, posts } in handlers.iter() {
            let calls = self.calls.clone();
            builder = if *posts {
                builder.on_post(channel, move |message| {
                    let call = calls.call(What::Post(message));
                    async move { ended(call.await) }
                })
            } else {
                builder.on_notify(channel, move |message| calls.callback(What::Notice(message)))
            };
        }
        let _first = self.built.set(builder.build()?);
        Ok(())
    }
}

impl Election {
    /// The election, once it was built.
    fn built(&self) -> Option<&tenure::Election> {
        self.shared.built.get()
    }

    pub(crate) fn calls(&self) -> Calls {
        self.shared.calls.clone()
    }

    /// Builds the election and opens its store, if nobody has yet.
    pub(crate) fn open(
        &self,
    ) -> impl Future<Output = Result<tenure::Election, Error>> + Send + use<> {
        let shared = self.shared.clone();
        async move {
            if shared.built.get().is_none() {
                let builder = shared.clone();
                blocking(move || builder.build()).await?;
            }
            shared.built.get().cloned().ok_or_else(not_open)
        }
    }

    /// The election of somebody who can't wait for it to be built.
    fn here(&self) -> napi::Result<tenure::Election> {
        self.built().cloned().ok_or_else(|| raise(&not_open()))
    }
}

#[napi]
impl Election {
    /// Checks everything, and remembers it for when the election is built.
    #[napi(constructor)]
    pub fn new(name: String, candidate: &Candidate, options: Options) -> napi::Result<Election> {
        let candidate = candidate.shared.clone();
        let made = || -> Result<Arc<Shared>, Error> {
            Name::new(&name)?;
            let timing = timing(&options)?;
            timing.check_store_minimum(candidate.min_ttl())?;
            options.metadata.as_deref().map(Metadata::new).transpose()?;
            let term_floor = options.term_floor.map(values::term).transpose()?;
            let timeout = options.post_timeout;
            let plan = Plan {
                name,
                candidate,
                timing,
                metadata: options.metadata,
                term_floor,
                fail_closed: options.fail_closed.unwrap_or(false),
                at_once: options.at_once.unwrap_or(false),
                post_tries: options.post_tries,
                post_timeout: timeout.map(|it| values::duration("postTimeout", it)).transpose()?,
            };
            Membership::enter(|_membership| Shared {
                _membership,
                plan,
                building: Mutex::default(),
                built: OnceLock::new(),
                calls: Calls::new(),
            })
        };
        Ok(Election { shared: made().map_err(|error| raise(&error))? })
    }

    /// Adds the handler of a channel, before the election is built.
    #[napi]
    pub fn handle(&self, channel: String, posts: bool) -> napi::Result<()> {
        let mut handlers = self.shared.building.lock().unwrap_or_else(PoisonError::into_inner);
        if self.built().is_some() {
            let message = "handlers of messages are given before the election takes part: right \
                           after `open`, or before `start()` with `start: false`";
            return Err(raise(&Error::config(message)));
        }
        handlers.push(Handler { channel, posts });
        Ok(())
    }

    /// May I start something? False by itself when trust ends. No I/O. The answer is relied upon.
    #[napi]
    pub fn is_leader(&self) -> bool {
        self.built().is_some_and(tenure::Election::is_leader)
    }

    /// A method that does nothing, to measure the others by.
    #[napi]
    pub fn nothing(&self) -> bool {
        false
    }

    /// The term this instance leads now, or `null`. The answer is relied upon.
    #[napi]
    pub fn term(&self) -> Option<f64> {
        self.built().and_then(tenure::Election::term).map(number)
    }

    /// The same for showing it, and not for acting on it: nobody is taken to rely on it.
    #[napi]
    pub fn peek_term(&self) -> Option<f64> {
        self.built().and_then(tenure::Election::peek).map(|standing| number(standing.term))
    }

    /// Who this is, once the election was built.
    #[napi]
    pub fn id(&self) -> Option<String> {
        self.built().map(|election| election.candidate().as_str().to_owned())
    }

    /// The durations of the lease: JSON text.
    #[napi]
    pub fn timing(&self) -> String {
        values::timing(&self.shared.plan.timing).to_string()
    }

    /// Builds it, and opens its store.
    #[napi]
    pub fn build(&self) -> napi::Result<Op> {
        let open = self.open();
        Op::unit(async move { open.await.map(drop) })
    }

    /// Takes part from now on; ends after the first attempt.
    #[napi]
    pub fn start(&self) -> napi::Result<Op> {
        let open = self.open();
        Op::unit(async move { open.await?.start().await })
    }

    /// Takes no further part; ends when the lease is given back.
    #[napi]
    pub fn stop(&self) -> napi::Result<Op> {
        let built = self.built().cloned();
        Op::unit(async move {
            match built {
                Some(election) => election.stop().await,
                None => Ok(()),
            }
        })
    }

    /// Gives up the present reign.
    #[napi]
    pub fn resign(&self) -> napi::Result<Op> {
        let open = self.open();
        Op::unit(async move { open.await?.resign().await })
    }

    /// Says that what was started on unregistered answers in this term has ended.
    #[napi]
    pub fn done(&self, term: f64) -> napi::Result<()> {
        let done = values::term(term).and_then(|term| match self.built() {
            Some(election) => election.done(term),
            None => Ok(()),
        });
        done.map_err(|error| raise(&error))
    }

    /// Renewals depend on this being polled, as long as it is there. It never ends.
    #[napi]
    pub fn vouch(&self) -> napi::Result<Op> {
        let vouch = self.here()?.vouch();
        Op::unit(async move { match vouch.await {} })
    }

    /// Waits until this instance leads.
    #[napi]
    pub fn campaign(&self) -> napi::Result<Op> {
        let election = self.here()?;
        let campaign = async move { election.campaign().await };
        Op::new(campaign, |tenure| Reign::new(tenure).map(Either4::C))
    }

    /// Registers work in the present reign; `null` if this instance does not lead.
    #[napi]
    pub fn enter(&self) -> napi::Result<Option<Work>> {
        self.built().map_or(Ok(None), Work::enter)
    }

    /// Asks the store who leads: JSON text.
    #[napi]
    pub fn current_leader(&self) -> napi::Result<Op> {
        let open = self.open();
        let ask = async move { open.await?.current_leader().await };
        Op::new(ask, |who| Ok(Either4::B(json!(who.as_ref().map(values::leader)).to_string())))
    }

    /// What happens from now on. With `vouches`, a reign that it tells of is relied upon.
    #[napi]
    pub fn events(&self, vouches: bool) -> napi::Result<Events> {
        let election = self.here()?;
        let events = if vouches { election.events() } else { election.peek_events() };
        Ok(Events { events: Arc::new(tokio::sync::Mutex::new(events)) })
    }

    /// The next call that JavaScript is to make.
    #[napi]
    pub fn next_call(&self) -> napi::Result<Op> {
        self.shared.calls.next()
    }

    /// Has the work of `ticket` done once for a key. Ends with JSON text: what came of it, how
    /// often it was tried, and what the last try here said.
    #[napi]
    pub fn once(
        &self,
        key: String,
        tries: u32,
        wait: Option<f64>,
        ticket: u32,
    ) -> napi::Result<Op> {
        let wait = wait.map(|wait| values::duration("wait", wait)).transpose();
        let mut options = OnceOptions::new().tries(tries);
        if let Some(wait) = wait.map_err(|error| raise(&error))? {
            options = options.wait(wait);
        }
        let (open, calls) = (self.open(), self.calls());
        let once = async move {
            let work = |run| {
                let call = calls.call(What::Once(run, ticket));
                async move {
                    match call.await {
                        // The side that told it to stop gives the run up.
                        Ended::Lost => std::future::pending().await,
                        other => ended(other),
                    }
                }
            };
            open.await?.once_with(&key, options, work).await
        };
        Op::new(once, |outcome| {
            let said = match outcome {
                OnceOutcome::Ran(()) => json!(["ran", 0, null]),
                OnceOutcome::Already => json!(["already", 0, null]),
                OnceOutcome::Failed { attempts, error } => json!(["failed", attempts, error]),
                _ => json!(["elsewhere", 0, null]),
            };
            Ok(Either4::B(said.to_string()))
        })
    }

    /// Claims and starts one tick of a job that something else schedules, in this term. Ends with
    /// JSON text: the attempt, or `null` if it was claimed before or the term is over.
    #[napi]
    pub fn claim_tick(&self, job: String, scheduled_unix_ms: i64, led: f64) -> napi::Result<Op> {
        let (election, led) = (self.here()?, values::term(led).map_err(|error| raise(&error))?);
        let claim = async move {
            let tick = Tick::new(job, scheduled_unix_ms);
            let claim = LedgerStep::Claim { tick: tick.clone(), again: false };
            let Marked::Done { attempt } = record(&election, led, claim).await? else {
                return Ok(None);
            };
            let start = LedgerStep::Start { tick, attempt };
            let is_started = matches!(record(&election, led, start).await?, Marked::Done { .. });
            // Once more: the claim took its time.
            let leads = election.peek().is_some_and(|standing| standing.term == led);
            Ok((is_started && leads).then_some(attempt))
        };
        Op::new(claim, |attempt| Ok(Either4::B(json!(attempt).to_string())))
    }

    /// Says that such a tick has ended.
    #[napi]
    pub fn end_tick(
        &self,
        job: String,
        scheduled_unix_ms: i64,
        led: f64,
        attempt: u32,
    ) -> napi::Result<Op> {
        let (election, led) = (self.here()?, values::term(led).map_err(|error| raise(&error))?);
        Op::unit(async move {
            let tick = Tick::new(job, scheduled_unix_ms);
            let end = LedgerStep::End { tick, attempt, end: TickEnd::Ok };
            record(&election, led, end).await.map(drop)
        })
    }

    /// Sends JSON text to the leader.
    #[napi]
    pub fn notify(&self, channel: String, json: String) -> napi::Result<Op> {
        let open = self.open();
        Op::unit(async move { open.await?.notify(&channel, &json).await })
    }

    /// Keeps JSON text until a leader has handled it. Ends with JSON text: number and novelty.
    #[napi]
    pub fn post(&self, channel: String, json: String, key: String) -> napi::Result<Op> {
        let open = self.open();
        let post = async move { open.await?.post(&channel, &json, &key).await };
        Op::new(post, |posted| Ok(Either4::B(json!([posted.id, posted.is_new]).to_string())))
    }
}

/// What happens in an election.
#[napi]
pub struct Events {
    events: Arc<tokio::sync::Mutex<tenure::Events>>,
}

#[napi]
impl Events {
    /// The next event: JSON text; `false` once the election is gone.
    #[napi]
    pub fn next(&self) -> napi::Result<Op> {
        let events = self.events.clone();
        let next = async move { Ok(events.lock().await.next().await) };
        Op::new(next, |event| match event {
            Some(event) => Ok(Either4::B(values::event(&event).to_string())),
            None => Ok(Either4::A(false)),
        })
    }
}

/// Writes one step to the ledger of the store.
async fn record(
    election: &tenure::Election,
    term: Term,
    step: LedgerStep,
) -> Result<Marked, Error> {
    let store = election.store().clone();
    let ledger = store.ledger().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "this store keeps no ledger of ticks; use another one")
    })?;
    let marked = ledger.record(election.name(), term, &[step]).await?;
    marked.first().copied().ok_or_else(|| Error::new(ErrorKind::Corrupt, "the ledger said nothing"))
}

fn ended(ended: Ended) -> Result<(), String> {
    match ended {
        Ended::Ok => Ok(()),
        Ended::Failed(reason) => Err(reason),
        Ended::Lost => Err("leadership was lost".to_owned()),
    }
}

/// Explicit durations over the profile over the defaults; of each what does not fit is named.
fn timing(options: &Options) -> Result<Timing, Error> {
    let profile = options.profile.as_deref();
    let base = profile.map_or_else(|| Ok(Timing::default()), Timing::profile)?;
    let read = |what: &str, given: Option<f64>| {
        given.map(|given| values::duration(what, given)).transpose()
    };
    let mut timing = read("ttl", options.ttl)?.map_or(base, Timing::new);
    timing.renew_every = read("renewEvery", options.renew_every)?.unwrap_or(timing.renew_every);
    timing.margin = read("margin", options.margin)?.unwrap_or(timing.margin);
    timing.drain = read("drain", options.drain)?.unwrap_or(timing.drain);
    timing.check()?;
    Ok(timing)
}

fn not_open() -> Error {
    Error::new(ErrorKind::Stopped, "the election was not opened; await `Election.open` first")
}
