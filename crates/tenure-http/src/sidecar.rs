//! Watches elections, and makes routes of what it sees.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{self, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use tenure::core::sync::lock;
use tenure::{Election, Error, Name};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};

use crate::api;
use crate::events::Clients;
use crate::gate::{self, Gate, Peer};
use crate::hub::Hub;
use crate::reply;
use crate::token::Token;

/// How many listen to events at most, unless said otherwise.
const LISTENERS_MAX: usize = 1024;

/// Elections as HTTP sees them. Cloning gives another handle to the same.
///
/// It watches from [`build`](SidecarBuilder::build) until the last handle, and the last router that
/// came of it, is dropped.
#[derive(Clone)]
pub struct Sidecar(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) hub: Arc<Hub>,
    pub(crate) gate: Gate,
    pub(crate) metrics: Option<Render>,
    pub(crate) health_only: bool,
    runtime: Handle,
    tasks: Mutex<Tasks>,
}

/// What goes on beside the requests. Aborted when the last handle is dropped.
#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    /// Those that follow an election.
    following: HashMap<Name, AbortHandle>,
}

type Render = Box<dyn Fn() -> String + Send + Sync>;

impl Sidecar {
    /// Sets one up.
    pub fn builder() -> SidecarBuilder {
        SidecarBuilder {
            elections: Vec::new(),
            gate: Gate::default(),
            metrics: None,
            health_only: false,
            waiting: false,
            listeners_max: LISTENERS_MAX,
        }
    }

    /// Watches one more election.
    ///
    /// # Errors
    /// `Config` if one of that name is watched already.
    pub fn watch(&self, election: Election) -> Result<(), Error> {
        // Before anything is looked at, so that nothing is missed in between.
        let (name, events) = (election.name().clone(), election.peek_events());
        let Some(watched) = self.0.hub.watch(election) else {
            return Err(Error::config(format!("the election {name:?} is watched twice")));
        };
        self.0.hub.tell_of(&watched);
        let follows = self.0.hub.clone().follow(watched, events);
        let mut tasks = lock(&self.0.tasks);
        let task = tasks.all.spawn_on(follows, &self.0.runtime);
        tasks.following.insert(name, task);
        // Those that ended are let go of here, because nobody waits for them.
        while tasks.all.try_join_next().is_some() {}
        Ok(())
    }

    /// Watches the election of this name no more.
    pub fn forget(&self, name: &Name) {
        let following = lock(&self.0.tasks).following.remove(name);
        if let Some(following) = following {
            following.abort();
        }
        self.0.hub.forget(name.as_str());
    }

    /// Whether the store does not tell which elections there are. Meanwhile every question about an
    /// election that is not known is answered with 503; so is `/readyz`, until it has told once.
    pub fn set_waiting(&self, waiting: bool) {
        self.0.hub.set_waiting(waiting);
    }

    /// The routes, to be merged into a service of one's own. Requests to them pass its rules about
    /// hosts and tokens; other routes do not.
    pub fn routes(&self) -> Router {
        let gate = from_fn_with_state(self.0.clone(), gate::pass);
        api::routes(self.0.health_only).layer(gate).with_state(self.0.clone())
    }

    /// The routes and nothing else: other paths are answered with a problem.
    pub(crate) fn service(&self) -> Router {
        let gate = from_fn_with_state(self.0.clone(), gate::pass);
        let routes = api::routes(self.0.health_only).fallback(api::not_found);
        routes.layer(gate).with_state(self.0.clone())
    }

    /// From now on `/leader` and `/readyz` answer 503, even on the leader: the first thing to do
    /// when the process is to end, before it resigns.
    pub fn start_draining(&self) {
        self.0.hub.start_draining();
    }

    /// Asks for another token from now on.
    pub fn set_token(&self, token: Token) {
        self.0.gate.set_token(token);
    }

    /// Ends all streams of events, so that a server can end.
    pub fn close_streams(&self) {
        self.0.hub.clients.close();
    }
}

impl Sidecar {
    /// The answer that load balancers ask for again and again, without the way through the router:
    /// the same rules and the same words. `None` for everything else.
    pub(crate) fn quick<B>(&self, request: &http::Request<B>, peer: Peer) -> Option<Response> {
        let path = request.uri().path().strip_prefix("/leader").filter(|_| !self.0.health_only)?;
        // Tokens are left to the routes: few requests have one.
        let plain = !request.headers().contains_key(header::AUTHORIZATION);
        if request.method() != Method::GET || request.uri().query().is_some() || !plain {
            return None;
        }
        let list = self.0.hub.list();
        let watched = match (path.strip_prefix('/'), &list.all[..]) {
            (None, [one]) if path.is_empty() => one,
            // The router would take a `/` for the end of the name.
            (Some(name), _) if !name.contains(['%', '/']) => list.find(name)?,
            _ => return None,
        };
        if self.0.hub.is_draining() || self.0.gate.check(request, Some(peer)).is_err() {
            return None;
        }
        let mut response = reply::json(StatusCode::OK, watched.vouched_body()?);
        gate::harden(&mut response);
        Some(response)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&self.tasks).all.abort_all();
    }
}

impl fmt::Debug for Sidecar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.0.hub.list();
        let names = list.all.iter().map(|watched| watched.election.name());
        f.debug_struct("Sidecar")
            .field("elections", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Sets up a [`Sidecar`].
#[must_use = "a builder does nothing until build()"]
pub struct SidecarBuilder {
    elections: Vec<Election>,
    gate: Gate,
    metrics: Option<Render>,
    health_only: bool,
    waiting: bool,
    listeners_max: usize,
}

impl SidecarBuilder {
    /// Watches this election, in the order given.
    pub fn election(mut self, election: Election) -> SidecarBuilder {
        self.elections.push(election);
        self
    }

    /// The secret that calls which change something need. Without one they are refused, save over
    /// a unix socket.
    pub fn token(self, token: Token) -> SidecarBuilder {
        self.gate.set_token(token);
        self
    }

    /// Reading needs the token, too; only health, readiness, the empty page and the description are
    /// open then.
    pub fn token_for_reading(mut self, needed: bool) -> SidecarBuilder {
        self.gate.token_for_reading = needed;
        self
    }

    /// A name by which this service is reached. Addresses and `localhost` always work; other names
    /// are refused without the token, so that a page of another site can't have its own name
    /// resolve to this service and read it.
    pub fn host(mut self, name: impl Into<String>) -> SidecarBuilder {
        self.gate.hosts.push(name.into());
        self
    }

    /// Any name will do. For services that check it themselves.
    pub fn any_host(mut self) -> SidecarBuilder {
        self.gate.any_host = true;
        self
    }

    /// Has `/metrics` answer what this renders, in the text format of Prometheus.
    pub fn metrics(
        mut self,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> SidecarBuilder {
        self.metrics = Some(Box::new(render));
        self
    }

    /// Only `/healthz`, `/readyz` and `/metrics`: for a process that must be watched, and that
    /// nobody is to ask who leads. No answer of these is relied upon.
    pub fn health_only(mut self) -> SidecarBuilder {
        self.health_only = true;
        self
    }

    /// The elections are not known yet; see [`Sidecar::set_waiting`].
    pub fn waiting(mut self) -> SidecarBuilder {
        self.waiting = true;
        self
    }

    /// How many may listen to events at once.
    pub fn listeners_max(mut self, listeners_max: usize) -> SidecarBuilder {
        self.listeners_max = listeners_max;
        self
    }

    /// Begins to watch, on the tokio runtime that this is called on.
    ///
    /// # Errors
    /// `Config` if an election was given twice, or if there is no tokio runtime.
    pub fn build(self) -> Result<Sidecar, Error> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::config("a sidecar needs a tokio runtime to run on; build it inside one")
        })?;
        let SidecarBuilder { elections, gate, metrics, health_only, waiting, listeners_max } = self;
        let hub = Arc::new(Hub::new(Clients::new(listeners_max)));
        hub.set_waiting(waiting);
        let mut tasks = Tasks::default();
        if !health_only {
            tasks.all.spawn_on(hub.clone().look(), &runtime);
        }
        let tasks = Mutex::new(tasks);
        let sidecar = Sidecar(Arc::new(Inner { hub, gate, metrics, health_only, runtime, tasks }));
        for election in elections {
            sidecar.watch(election)?;
        }
        Ok(sidecar)
    }
}

impl fmt::Debug for SidecarBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SidecarBuilder").field("gate", &self.gate).finish_non_exhaustive()
    }
}
