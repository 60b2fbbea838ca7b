//! Sets up an election: checked once, as a whole.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Metadata, Name, Secret, Settings, Store, Term, Timing};
use tokio::sync::mpsc;

use crate::callback::{CallbackResult, Callbacks, callback};
use crate::channels::{Dispatcher, Handlers};
use crate::command::{Command, NewSlot};
use crate::election::Inner;
use crate::relay::{ROOM, Relay};
use crate::runtime::{Runtime, Threads};
use crate::shared::Shared;
use crate::witness::{Registration, WitnessConfig};
use crate::{Candidate, Election, Stores};

/// Sets up an [`Election`]. Nothing is checked before [`build`](ElectionBuilder::build) or
/// [`start`](ElectionBuilder::start), which then check everything.
#[must_use = "a builder does nothing until build() or start()"]
pub struct ElectionBuilder {
    source: Source,
    name: String,
    profile: Option<String>,
    ttl: Option<Duration>,
    renew_every: Option<Duration>,
    margin: Option<Duration>,
    drain: Option<Duration>,
    metadata: Option<String>,
    term_floor: Option<Term>,
    fail_closed: bool,
    at_once: bool,
    per_election_metrics: bool,
    witness: Option<WitnessConfig>,
    #[cfg(feature = "sabotage")]
    sabotage: Option<tenure_core::Sabotage>,
    #[cfg(feature = "sabotage")]
    fault: Option<crate::Fault>,
    callbacks: Callbacks,
    pub(crate) handlers: Handlers,
}

pub(crate) enum Source {
    Candidate(Candidate),
    Store { store: Arc<dyn Store>, label: Option<String> },
    Url { url: Secret, label: Option<String> },
}

impl Source {
    fn candidate(self, timing: &Timing) -> Result<Candidate, Error> {
        let (store, label) = match self {
            Source::Candidate(candidate) => return Ok(candidate),
            Source::Store { store, label } => (store, label),
            Source::Url { url, label } => {
                let url = Stores::built_in().parse(url)?;
                // Before it is opened, which may leave a file behind.
                timing.check_store_minimum(url.min_ttl())?;
                (url.open()?, label)
            }
        };
        timing.check_store_minimum(store.info().min_ttl)?;
        let builder = Candidate::builder(store);
        match label {
            Some(label) => builder.label(label).build(),
            None => builder.build(),
        }
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        match self {
            Source::Candidate(candidate) => candidate.runtime().clone(),
            Source::Store { .. } | Source::Url { .. } => Arc::new(Threads),
        }
    }
}

impl ElectionBuilder {
    pub(crate) fn new(source: Source, name: &str) -> ElectionBuilder {
        ElectionBuilder {
            source,
            name: name.to_owned(),
            profile: None,
            ttl: None,
            renew_every: None,
            margin: None,
            drain: None,
            metadata: None,
            term_floor: None,
            fail_closed: false,
            at_once: false,
            per_election_metrics: false,
            witness: None,
            #[cfg(feature = "sabotage")]
            sabotage: None,
            #[cfg(feature = "sabotage")]
            fault: None,
            callbacks: Callbacks::default(),
            handlers: Handlers::default(),
        }
    }

    /// The readable part of the candidate's identity; `host:pid` if not given. Only for an election
    /// that was set up on a store: a [`Candidate`] has its label already.
    pub fn label(mut self, new: impl Into<String>) -> ElectionBuilder {
        if let Source::Store { label, .. } | Source::Url { label, .. } = &mut self.source {
            *label = Some(new.into());
        }
        self
    }

    /// A named set of durations: `fast`, `normal` or `unreliable-network`. Durations given one by
    /// one override it.
    pub fn profile(mut self, name: impl Into<String>) -> ElectionBuilder {
        self.profile = Some(name.into());
        self
    }

    /// How long a lease lasts without being renewed. The other durations follow from it unless
    /// given.
    pub fn ttl(mut self, ttl: Duration) -> ElectionBuilder {
        self.ttl = Some(ttl);
        self
    }

    /// How often the lease is renewed; at most a third of the ttl.
    pub fn renew_every(mut self, every: Duration) -> ElectionBuilder {
        self.renew_every = Some(every);
        self
    }

    /// How long before the lease expires its holder stops trusting it.
    pub fn margin(mut self, margin: Duration) -> ElectionBuilder {
        self.margin = Some(margin);
        self
    }

    /// How long work has to wind up.
    pub fn drain(mut self, drain: Duration) -> ElectionBuilder {
        self.drain = Some(drain);
        self
    }

    /// A JSON object of at most 4 KiB that others see while this instance leads.
    pub fn metadata(mut self, json: impl Into<String>) -> ElectionBuilder {
        self.metadata = Some(json.into());
        self
    }

    /// Terms are at least this one. For moving an election to another store: the last term of the
    /// old one, plus one.
    pub fn term_floor(mut self, floor: Term) -> ElectionBuilder {
        self.term_floor = Some(floor);
        self
    }

    /// Step down at the first renewal whose outcome is unknown, instead of trying again while trust
    /// lasts.
    pub fn fail_closed(mut self, fail_closed: bool) -> ElectionBuilder {
        self.fail_closed = fail_closed;
        self
    }

    /// Gives the lease back at once after an orderly end, although
    /// [`is_leader`](Election::is_leader) or a feed said that this instance leads. For programs
    /// that have stopped what they do on such answers *before* they call
    /// [`stop`](Election::stop) or [`resign`](Election::resign), and in which nobody else asks this
    /// election to resign. Registered work is waited for all the same.
    pub fn at_once(mut self) -> ElectionBuilder {
        self.at_once = true;
        self
    }

    /// Counts this election by a label `election` of its own, beside `key_class`. A series for each
    /// name: for those who have few elections.
    pub fn per_election_metrics(mut self, wanted: bool) -> ElectionBuilder {
        self.per_election_metrics = wanted;
        self
    }

    /// Makes what is around the machine wrong on purpose, for tests of the checkers.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    pub fn fault(mut self, fault: crate::Fault) -> ElectionBuilder {
        self.fault = Some(fault);
        self
    }

    /// Has a process beside this one give the lease back when this one is killed: see
    /// [`WitnessConfig`], and what it declares. On a store that was not opened by a URL, or whose
    /// leases end with a connection, nothing changes.
    pub fn witness(mut self, config: WitnessConfig) -> ElectionBuilder {
        self.witness = Some(config);
        self
    }

    /// Makes the candidate wrong on purpose, for tests of the checkers.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    pub fn sabotage(mut self, fault: tenure_core::Sabotage) -> ElectionBuilder {
        self.sabotage = Some(fault);
        self
    }

    /// Called when this instance begins to lead. If it returns a future, that is dropped when
    /// leadership is lost before it ends. A panic resigns.
    ///
    /// Give an [`on_lost`](ElectionBuilder::on_lost), too, which returns when the work has ended.
    /// Without one, nobody says when that is, and an orderly hand-over waits for
    /// [`Election::done`] or until the drain is over.
    pub fn on_elected<K, R: CallbackResult<K>>(
        mut self,
        call: impl Fn(Term) -> R + Send + Sync + 'static,
    ) -> ElectionBuilder {
        self.callbacks.elected = Some(callback(call));
        self
    }

    /// Called when this instance no longer leads, and only if it did. The lease is kept while the
    /// returned future winds up, at most for the drain; then it is dropped, and the lease runs out.
    ///
    /// When it returns, that says for the whole reign that nobody works on: the lease is given
    /// back, even if others were told that this instance leads.
    pub fn on_lost<K, R: CallbackResult<K>>(
        mut self,
        call: impl Fn(Term) -> R + Send + Sync + 'static,
    ) -> ElectionBuilder {
        self.callbacks.lost = Some(callback(call));
        self
    }

    /// Called at each change: with the term when this instance begins to lead, with `None` when it
    /// no longer does.
    pub fn on_change<K, R: CallbackResult<K>>(
        mut self,
        call: impl Fn(Option<Term>) -> R + Send + Sync + 'static,
    ) -> ElectionBuilder {
        self.callbacks.change = Some(callback(call));
        self
    }

    /// Called when a call to the store fails or a callback panics.
    pub fn on_error<K, R: CallbackResult<K>>(
        mut self,
        call: impl Fn(Error) -> R + Send + Sync + 'static,
    ) -> ElectionBuilder {
        self.callbacks.error = Some(callback(call));
        self
    }

    /// Checks everything and makes the election, without taking part yet. Callbacks run on the
    /// tokio runtime that this is called on.
    ///
    /// # Errors
    /// `Config`, one sentence for what does not fit; the first such thing only.
    pub fn build(self) -> Result<Election, Error> {
        let name = Name::new(&self.name)?;
        let timing = self.timing()?;
        let metadata = self.metadata.as_deref().map(Metadata::new).transpose()?;
        let tasks = self.source.runtime().tasks();
        if tasks.is_none() && !(self.callbacks.is_empty() && self.handlers.is_empty()) {
            return Err(Error::config(
                "callbacks and handlers need a tokio runtime to run on; build the election inside \
                 one",
            ));
        }
        let candidate = self.source.candidate(&timing)?;
        timing.check_store_minimum(candidate.store_info().min_ttl)?;
        self.handlers.check(&**candidate.store())?;
        candidate.reserve(&name)?;
        let mut settings = Settings::new(name.clone(), candidate.id().clone(), timing);
        settings.metadata = metadata.clone();
        settings.term_floor = self.term_floor;
        settings.fail_closed = self.fail_closed || candidate.store_info().fail_closed;
        #[cfg(feature = "sabotage")]
        {
            settings.sabotage = self.sabotage;
        }
        let id = candidate.next_slot();
        let clock = candidate.clock().clone();
        let mut shared =
            Shared::new(name, candidate.id().clone(), timing, clock, candidate.origin());
        shared.process = candidate.runtime().process();
        shared.metadata = metadata;
        shared.per_election_metrics = self.per_election_metrics;
        shared.at_once = self.at_once;
        shared.faults = candidate.faults();
        #[cfg(feature = "sabotage")]
        if let Some(fault) = self.fault {
            shared.faults = crate::sabotage::Faults::only(fault);
        }
        let shared = Arc::new(shared);
        let dispatcher = tasks.as_ref().filter(|_| !self.handlers.is_empty()).map(|tasks| {
            let commands = candidate.commands().downgrade();
            let (store, shared) = (candidate.store().clone(), shared.clone());
            let place = tasks.clone();
            let (dispatcher, orders) =
                Dispatcher::new(store, shared, self.handlers, commands, id, place);
            tasks.spawn(Box::pin(dispatcher.run()));
            orders
        });
        let callbacks = self.callbacks.promises();
        let relay = tasks.filter(|_| !self.callbacks.is_empty()).map(|tasks| {
            let (notices, queue) = mpsc::channel(ROOM);
            let commands = candidate.commands().downgrade();
            let relay = Relay::new(self.callbacks, queue, &shared, commands, id);
            tasks.spawn(Box::pin(relay.run()));
            notices
        });
        let new = NewSlot { id, settings, shared: shared.clone(), relay, callbacks, dispatcher };
        let witness = self.witness.and_then(|config| {
            Registration::new(&config, &**candidate.store(), &shared.election, candidate.id())
        });
        candidate.command(Command::Add(Box::new(new)))?;
        Ok(Election::new(Inner { id, shared, candidate, witness }))
    }

    /// Builds the election and starts it: see [`Election::start`].
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future withdraws.
    ///
    /// # Errors
    /// As for [`build`](ElectionBuilder::build) and [`Election::start`].
    pub async fn start(self) -> Result<Election, Error> {
        let election = self.build()?;
        election.start().await?;
        Ok(election)
    }

    /// Explicit durations over the profile over the defaults.
    fn timing(&self) -> Result<Timing, Error> {
        let base = match &self.profile {
            Some(profile) => Timing::profile(profile)?,
            None => Timing::default(),
        };
        let mut timing = self.ttl.map_or(base, Timing::new);
        timing.renew_every = self.renew_every.unwrap_or(timing.renew_every);
        timing.margin = self.margin.unwrap_or(timing.margin);
        timing.drain = self.drain.unwrap_or(timing.drain);
        timing.check()?;
        Ok(timing)
    }
}

impl fmt::Debug for ElectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
