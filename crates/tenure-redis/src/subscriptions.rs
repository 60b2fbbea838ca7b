//! The connections of a subscriber, one for each server that is listened to: made when somebody
//! listens, made again when they break, and ended when nobody listens any more.
//!
//! Nothing waits for a server that hangs. What is done about one takes its time in a step of its
//! own, and the others are heard meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{BoxFuture, Error, ErrorKind};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::cluster::Map;
use crate::connector::Conn;
use crate::deadline::now;
use crate::error;
use crate::primary::{Node, Primary};
use crate::router::changed;
use crate::subscribe::{Subscribed, subscribe};
use crate::subscriber::Subscriber;

/// How long to wait before a server is tried again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// So often the servers are asked whether they are there, and still the ones that have leases.
const UPKEEP: Duration = Duration::from_secs(15);

/// Once the hints of one server are heard, the others have this long before the news is passed on.
const GRACE: Duration = Duration::from_millis(100);

/// Something that happened to what is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody listens who did not, or does not any more.
    Wanted,
    /// A connection has ended.
    Lost(u64),
    /// A server took a channel off a connection: its slot has moved.
    Unsubscribed(u64),
    /// The hints of a server are heard, and were not before.
    HintsOn,
}

/// All connections of one subscriber, and what is done about them.
pub(crate) struct Subscriptions {
    subscriber: Arc<Subscriber>,
    number: u64,
    events: mpsc::UnboundedReceiver<Event>,
    /// Tells when other servers may have leases than before.
    changes: Option<watch::Receiver<u64>>,
    /// Who has what, as it was told last.
    map: Option<Arc<Map>>,
    conns: HashMap<Node, Conn>,
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    /// Whether one of the steps looks for the servers.
    is_looking: bool,
    /// The servers that a step is about.
    busy: HashSet<Node>,
    /// When to look for the servers.
    look_at: Option<Instant>,
    /// Those that could not be subscribed to, and when to try again.
    retries: HashMap<Node, Retry>,
    /// The same for looking.
    look_retry: Retry,
    /// When to pass on at the latest that hints are heard.
    hints_on_at: Option<Instant>,
    upkeep_at: Instant,
    has_warned: bool,
}

/// When to try again, and how long to wait after that.
#[derive(Clone, Copy)]
struct Retry {
    at: Instant,
    pause: Duration,
}

impl Retry {
    fn new() -> Retry {
        Retry { at: now(), pause: PAUSE_MIN }
    }

    fn failed(&mut self) {
        self.at = now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// What the task wakes for.
enum Happened {
    Event(Event),
    Done(Step),
    /// Other servers may have leases.
    Changed,
    Due,
    Replaced,
}

/// Something that was done.
enum Step {
    Looked(Result<Arc<Map>, Error>),
    /// The channels that were to be subscribed to are told with the error.
    Subscribed(Primary, Result<Subscribed, (Vec<String>, Error)>),
    /// Whether a connection is of use.
    Pinged(u64, bool),
}

impl Subscriptions {
    pub(crate) fn new(
        subscriber: Arc<Subscriber>,
        number: u64,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> Subscriptions {
        Subscriptions {
            changes: subscriber.router.changes(),
            subscriber,
            number,
            events,
            map: None,
            conns: HashMap::new(),
            steps: FuturesUnordered::new(),
            is_looking: false,
            busy: HashSet::new(),
            look_at: Some(now()),
            retries: HashMap::new(),
            look_retry: Retry::new(),
            hints_on_at: None,
            upkeep_at: now() + UPKEEP,
            has_warned: false,
        }
    }

    /// Keeps the connections until nobody listens, or another task does this.
    pub(crate) async fn run(mut self) {
        while !self.subscriber.is_over(self.number) {
            self.begin_what_is_due();
            match self.next().await {
                Happened::Event(event) => self.on(event),
                Happened::Done(step) => self.done(step),
                Happened::Changed => self.look_now(),
                Happened::Due => {}
                Happened::Replaced => return,
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let happened = timeout_at(self.due(), async {
            tokio::select! {
                // What was pushed before a step ended counts first.
                biased;
                event = self.events.recv() => event.map_or(Happened::Replaced, Happened::Event),
                Some(step) = self.steps.next() => Happened::Done(step),
                () = changed(&mut self.changes) => Happened::Changed,
            }
        });
        happened.await.unwrap_or(Happened::Due)
    }

    fn due(&self) -> Instant {
        let due = [self.look_due(), self.hints_on_at].into_iter().flatten();
        due.fold(self.upkeep_at, Instant::min)
    }

    /// When to look for the servers next, and then to subscribe where that failed.
    fn look_due(&self) -> Option<Instant> {
        if self.is_looking {
            return None;
        }
        let idle = self.retries.iter().filter(|(node, _)| !self.busy.contains(*node));
        let at = idle.map(|(_, retry)| retry.at).chain(self.look_at).min()?;
        Some(at.max(self.look_retry.at))
    }

    /// Begins what is to be done by now, and waits for none of it.
    fn begin_what_is_due(&mut self) {
        let now = now();
        if self.hints_on_at.is_some_and(|at| at <= now || self.busy.is_empty()) {
            self.hints_on_at = None;
            self.subscriber.hints_are_on();
        }
        let is_upkeep = self.upkeep_at <= now;
        if is_upkeep {
            self.upkeep_at = now + UPKEEP;
            self.ask_whether_there();
        }
        if is_upkeep && !self.is_looking || self.look_due().is_some_and(|at| at <= now) {
            self.look(is_upkeep);
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Wanted => {
                // A new listener does not wait for the next try.
                let now = now();
                self.look_retry.at = now;
                self.retries.values_mut().for_each(|retry| retry.at = now);
                self.look_now();
            }
            Event::Lost(conn) => self.lost(conn),
            Event::Unsubscribed(conn) => {
                if let Some(node) = self.node_of(conn) {
                    self.subscriber.router.distrust(&node);
                }
                self.look_now();
            }
            Event::HintsOn => {
                self.hints_on_at.get_or_insert_with(|| now() + GRACE);
            }
        }
    }

    fn done(&mut self, step: Step) {
        match step {
            Step::Looked(Ok(map)) => {
                self.is_looking = false;
                self.look_retry = Retry::new();
                self.map = Some(map);
                self.subscribe();
            }
            Step::Looked(Err(error)) => {
                self.is_looking = false;
                self.look_retry.failed();
                self.look_now();
                self.subscriber.refuse(None, &error);
                self.warn(&error);
            }
            Step::Subscribed(primary, subscribed) => self.subscribed(&primary, subscribed),
            Step::Pinged(_, true) => {}
            Step::Pinged(conn, false) => self.lost(conn),
        }
    }

    fn subscribed(
        &mut self,
        primary: &Primary,
        subscribed: Result<Subscribed, (Vec<String>, Error)>,
    ) {
        let node = &primary.node;
        self.busy.remove(node);
        let refused = match subscribed {
            Ok(Subscribed { conn, refused }) => {
                self.conns.insert(node.clone(), conn);
                refused
            }
            Err((channels, error)) => {
                self.drop_conn(node);
                channels.into_iter().map(|channel| (channel, error.clone())).collect()
            }
        };
        if refused.is_empty() {
            self.retries.remove(node);
            // More may be wanted by now.
            return self.subscribe();
        }
        let retry = self.retries.entry(node.clone()).or_insert_with(Retry::new);
        retry.failed();
        if refused.iter().any(|(_, error)| error.is_retryable()) {
            self.subscriber.router.distrust(node);
        } else {
            // People have to change something first.
            retry.at = now() + UPKEEP;
        }
        for (channel, error) in &refused {
            self.subscriber.refuse(Some(channel), error);
            self.warn(error);
        }
    }

    /// Begins to subscribe to what is wanted and not heard, and to give up what is not wanted.
    fn subscribe(&mut self) {
        let Some(map) = self.map.clone() else { return };
        let plan = self.plan(&map);
        let unused = self.conns.keys().filter(|node| !plan.contains_key(*node));
        for node in unused.cloned().collect::<Vec<_>>() {
            self.drop_conn(&node);
        }
        self.retries.retain(|node, _| plan.contains_key(node));
        let now = now();
        for (node, (primary, channels)) in plan {
            let waits = self.retries.get(&node).is_some_and(|retry| retry.at > now);
            if waits || self.busy.contains(&node) {
                continue;
            }
            let conn = self.conns.get(&node).cloned();
            let number = conn.as_ref().map(|conn| conn.number);
            let (missing, excess) = self.subscriber.changes(number, &channels);
            if missing.is_empty() && excess.is_empty() {
                self.retries.remove(&node);
                continue;
            }
            self.busy.insert(node);
            let (subscriber, task) = (self.subscriber.clone(), self.number);
            self.steps.push(Box::pin(async move {
                let done = subscribe(&subscriber, task, &primary, conn, (&missing, &excess)).await;
                Step::Subscribed(primary, done.map_err(|error| (missing, error)))
            }));
        }
        if self.busy.is_empty() && self.retries.is_empty() {
            self.has_warned = false;
        }
    }

    /// Which channels are wanted of which server.
    fn plan(&mut self, map: &Map) -> HashMap<Node, (Primary, HashSet<String>)> {
        let wanted = self.subscriber.wanted();
        let mut plan: HashMap<Node, (Primary, HashSet<String>)> = HashMap::new();
        let mut add = |primary: &Primary, channel: String| {
            let new = || (primary.clone(), HashSet::new());
            plan.entry(primary.node.clone()).or_insert_with(new).1.insert(channel);
        };
        if wanted.hints {
            map.primaries.iter().for_each(|primary| add(primary, primary.channel.clone()));
        }
        for channel in wanted.channels {
            if let Some(primary) = map.primary_of(&channel) {
                add(primary, channel);
                continue;
            }
            let router = &self.subscriber.router;
            let error = error::new(ErrorKind::Unavailable, error::in_flux(router.address()));
            self.subscriber.refuse(Some(&channel), &error);
            map.primaries.iter().for_each(|primary| router.distrust(&primary.node));
            self.look_retry.failed();
            self.look_at = Some(self.look_retry.at);
        }
        plan
    }

    /// Looks for the servers that have leases, and first asks whether others have them by now if
    /// `refresh` says so.
    fn look(&mut self, refresh: bool) {
        self.look_at = None;
        self.is_looking = true;
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
        let (router, within) = (self.subscriber.router.clone(), self.subscriber.connect_timeout);
        self.steps.push(Box::pin(async move {
            if refresh {
                router.refresh(within).await;
            }
            Step::Looked(router.map(within).await)
        }));
    }

    fn look_now(&mut self) {
        self.look_at = Some(now());
    }

    /// Asks the servers whether they are there.
    fn ask_whether_there(&mut self) {
        let within = self.subscriber.connect_timeout;
        for conn in self.conns.values() {
            let mut conn = conn.clone();
            self.steps.push(Box::pin(async move {
                let ping = redis::cmd("PING");
                let answer = timeout(within, conn.connection.send_packed_command(&ping)).await;
                Step::Pinged(conn.number, matches!(answer, Ok(Ok(_))))
            }));
        }
    }

    fn lost(&mut self, conn: u64) {
        if let Some(node) = self.node_of(conn) {
            self.drop_conn(&node);
            self.look_now();
        }
    }

    fn node_of(&self, number: u64) -> Option<Node> {
        let found = self.conns.iter().find(|(_, conn)| conn.number == number);
        found.map(|(node, _)| node.clone())
    }

    fn drop_conn(&mut self, node: &Node) {
        if let Some(conn) = self.conns.remove(node) {
            self.subscriber.closed(conn.number);
        }
    }

    /// Says once what follows.
    fn warn(&mut self, error: &Error) {
        if !self.has_warned {
            tracing::warn!(%error, "no hints for now, so hand-overs are slow; notices are missed");
            self.has_warned = true;
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.subscriber.ended(self.number);
    }
}
