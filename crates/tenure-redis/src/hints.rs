//! Hints: releases and asks are told by their scripts, and heard on connections of their own, one
//! for each server that has leases.
//!
//! Nothing here decides anything (I5). Without the connections, or without the permission to
//! publish or subscribe, the store is slower and just as right.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{PushInfo, PushKind, Value};
use tenure_core::{BoxFuture, Error, Hint, Hints, Name, Op};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::dial::Wire;
use crate::lines::held;
use crate::link::{Link, changed};
use crate::place::{Node, Spot};

/// How many names are kept; beyond that every hint counts.
const NAMES_MAX: usize = 100_000;

/// How long to wait before a connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// So often the servers are asked whether they are there, and still the ones that have leases.
const UPKEEP: Duration = Duration::from_secs(15);

/// Once one server is listened to, the others have this long before the news is passed on.
const GRACE: Duration = Duration::from_millis(100);

/// What the handles of one store know about hints.
pub(crate) struct Hub {
    link: Arc<Link>,
    connect_within: Duration,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    asked_about: HashSet<Name>,
    full: bool,
}

impl Hub {
    pub(crate) fn new(link: Arc<Link>, connect_within: Duration) -> Hub {
        Hub { link, connect_within, names: Mutex::default() }
    }

    /// Remembers which elections we are asked about.
    pub(crate) fn remember(&self, ops: &[Op]) {
        let mut names = held(&self.names);
        for election in ops.iter().map(Op::election) {
            if names.asked_about.contains(election) {
                continue;
            }
            if names.asked_about.len() < NAMES_MAX {
                names.asked_about.insert(election.clone());
            } else {
                names.full = true;
            }
        }
    }

    /// A new stream. The connections are made when it is first polled, and go with it.
    pub(crate) fn listen(self: &Arc<Hub>) -> Box<dyn Hints> {
        let (tell, told) = unbounded_channel();
        let session = Session {
            hub: self.clone(),
            spots: Vec::new(),
            ears: HashMap::new(),
            tell,
            told,
            changes: self.link.changes(),
            steps: FuturesUnordered::new(),
            looking: false,
            trying: HashSet::new(),
            look_at: None,
            missed: None,
            upkeep_at: None,
            pause: PAUSE_MIN,
            warned: false,
        };
        Box::new(Listener { next: Box::pin(next(session)) })
    }

    /// What a message is to us.
    fn hint(&self, push: &PushInfo) -> Option<Hint> {
        let Some(Value::BulkString(payload)) = push.data.last() else { return None };
        let name = std::str::from_utf8(payload).ok();
        let name = name.and_then(|name| Name::new(name).ok())?;
        let names = held(&self.names);
        (names.full || names.asked_about.contains(&name)).then_some(Hint::Election(name))
    }
}

/// One stream.
struct Listener {
    next: Pin<Box<dyn Future<Output = (Session, Hint)> + Send>>,
}

impl Hints for Listener {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        if Handle::try_current().is_err() {
            tracing::warn!("hints of the Redis store need a tokio runtime, so there are none");
            return Poll::Ready(None);
        }
        let Poll::Ready((session, hint)) = self.next.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.next = Box::pin(next(session));
        Poll::Ready(Some(hint))
    }
}

/// The connections of one stream, now and then broken.
struct Session {
    hub: Arc<Hub>,
    /// All servers that have leases, as they were told last.
    spots: Vec<Spot>,
    /// Those that are listened to.
    ears: HashMap<Node, (Spot, Wire)>,
    tell: UnboundedSender<(Node, PushInfo)>,
    told: UnboundedReceiver<(Node, PushInfo)>,
    changes: Option<watch::Receiver<u64>>,
    /// What is done to hear more. What is told meanwhile does not wait for it: one server that
    /// hangs must not make the others deaf.
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    /// Whether one of the steps asks for the servers.
    looking: bool,
    /// The servers that are being connected to.
    trying: HashSet<Node>,
    /// When to look for servers that are not listened to; at once at first.
    look_at: Option<Instant>,
    /// When to say at the latest that a server is listened to which was not before.
    missed: Option<Instant>,
    upkeep_at: Option<Instant>,
    pause: Duration,
    warned: bool,
}

/// Something that was done.
enum Step {
    Looked(Result<Vec<Spot>, Error>),
    Subscribed(Spot, Result<Wire, Error>),
    /// Whether a server answers.
    Pinged(Node, bool),
    Refreshed,
}

/// Something that happened.
enum Event {
    Told(Node, PushInfo),
    Done(Step),
    Changed,
    Due,
}

/// Waits for the next hint, connecting as often as need be.
async fn next(mut session: Session) -> (Session, Hint) {
    if session.upkeep_at.is_none() {
        session.look_now();
    }
    loop {
        session.begin_what_is_due(Instant::now());
        let overdue = session.missed.is_some_and(|at| at <= Instant::now());
        if overdue || (session.missed.is_some() && session.trying.is_empty()) {
            // Whatever was told before is missed.
            session.missed = None;
            return (session, Hint::Any);
        }
        match session.event().await {
            Event::Told(node, push) => {
                if let Some(hint) = session.heard(&node, &push) {
                    return (session, hint);
                }
            }
            Event::Done(step) => session.done(step),
            Event::Changed => session.look_now(),
            Event::Due => {}
        }
    }
}

impl Session {
    /// Waits for something to happen.
    async fn event(&mut self) -> Event {
        let due = [self.look_at.filter(|_| !self.looking), self.missed, self.upkeep_at];
        let due = due.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + UPKEEP);
        let happened = timeout_at(due, async {
            tokio::select! {
                Some((node, push)) = self.told.recv() => Event::Told(node, push),
                Some(step) = self.steps.next() => Event::Done(step),
                () = changed(&mut self.changes) => Event::Changed,
                else => std::future::pending().await,
            }
        });
        happened.await.unwrap_or(Event::Due)
    }

    /// Begins what is to be done by now, and waits for none of it.
    fn begin_what_is_due(&mut self, now: Instant) {
        let within = self.hub.connect_within;
        if !self.looking && self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.looking = true;
            if let Some(changes) = &mut self.changes {
                changes.mark_unchanged();
            }
            let hub = self.hub.clone();
            let look = async move { Step::Looked(hub.link.spots(within).await) };
            self.steps.push(Box::pin(look));
        }
        if self.upkeep_at.is_none_or(|at| at <= now) {
            let is_first = self.upkeep_at.replace(now + UPKEEP).is_none();
            if !is_first {
                self.ask_whether_there(within);
            }
        }
    }

    /// Asks the servers whether they are there, and whether they still are the ones.
    fn ask_whether_there(&mut self, within: Duration) {
        for (node, (_, wire)) in &self.ears {
            let (node, mut connection) = (node.clone(), wire.connection.clone());
            self.steps.push(Box::pin(async move {
                let ping = redis::cmd("PING");
                let answer = timeout(within, connection.send_packed_command(&ping)).await;
                Step::Pinged(node, matches!(answer, Ok(Ok(_))))
            }));
        }
        let hub = self.hub.clone();
        self.steps.push(Box::pin(async move {
            hub.link.refresh(within).await;
            Step::Refreshed
        }));
    }

    fn done(&mut self, step: Step) {
        match step {
            Step::Looked(Ok(spots)) => {
                self.looking = false;
                self.ears.retain(|_, (spot, _)| spots.contains(spot));
                self.spots = spots;
                self.connect();
            }
            Step::Looked(Err(error)) => {
                self.looking = false;
                self.later(&error);
            }
            Step::Subscribed(spot, subscribed) => {
                self.trying.remove(&spot.node);
                match subscribed {
                    Ok(wire) if self.spots.contains(&spot) => {
                        self.ears.insert(spot.node.clone(), (spot, wire));
                        self.missed.get_or_insert_with(|| Instant::now() + GRACE);
                    }
                    // It has another channel by now, or no leases any more.
                    Ok(_) => self.look_now(),
                    Err(error) => self.later(&error),
                }
            }
            Step::Pinged(node, is_there) => {
                if !is_there && self.ears.remove(&node).is_some() {
                    self.look_now();
                }
            }
            Step::Refreshed => {}
        }
        if !self.spots.is_empty() && self.spots.len() == self.ears.len() {
            self.pause = PAUSE_MIN;
            self.warned = false;
        }
    }

    /// Begins to connect to the servers that are not listened to.
    fn connect(&mut self) {
        let within = self.hub.connect_within;
        for spot in &self.spots {
            if self.ears.contains_key(&spot.node) || !self.trying.insert(spot.node.clone()) {
                continue;
            }
            let (hub, spot, tell) = (self.hub.clone(), spot.clone(), self.tell.clone());
            self.steps.push(Box::pin(async move {
                let wire = hub.link.subscribe(&spot, tell, within).await;
                Step::Subscribed(spot, wire)
            }));
        }
    }

    /// What a push is to us.
    fn heard(&mut self, node: &Node, push: &PushInfo) -> Option<Hint> {
        match push.kind {
            PushKind::Message | PushKind::SMessage => self.hub.hint(push),
            // It ended, or its channel has moved to another server.
            PushKind::Disconnection | PushKind::SUnsubscribe => {
                self.ears.remove(node);
                self.look_now();
                None
            }
            _ => None,
        }
    }

    /// Some server is not listened to: look for it at once.
    fn look_now(&mut self) {
        self.look_at = Some(Instant::now());
    }

    /// Some server can't be listened to: look for it later.
    fn later(&mut self, error: &Error) {
        if self.look_at.is_none() {
            self.look_at = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        self.warn(error);
    }

    /// Says once why there are no hints.
    fn warn(&mut self, error: &Error) {
        if !self.warned {
            tracing::warn!(%error, "no hints for now, so hand-overs are slow");
            self.warned = true;
        }
    }
}
