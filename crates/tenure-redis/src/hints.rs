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

use futures_util::future::join_all;
use redis::{PushInfo, PushKind, Value};
use tenure_core::{Error, Hint, Hints, Name, Op};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::dial::Wire;
use crate::lines::held;
use crate::link::Link;
use crate::place::{Node, Spot};

/// How many names are kept; beyond that every hint counts.
const NAMES_MAX: usize = 100_000;

/// How long to wait before a connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// After so much silence the servers are asked whether they are still there.
const QUIET_MAX: Duration = Duration::from_secs(15);

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
            ears: HashMap::new(),
            tell,
            told,
            changes: self.link.changes(),
            complete: false,
            retry_at: None,
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
    ears: HashMap<Node, (Spot, Wire)>,
    tell: UnboundedSender<(Node, PushInfo)>,
    told: UnboundedReceiver<(Node, PushInfo)>,
    changes: Option<watch::Receiver<u64>>,
    /// Whether every server is listened to.
    complete: bool,
    /// When to look for the missing ones again; at once if not set.
    retry_at: Option<Instant>,
    pause: Duration,
    warned: bool,
}

/// Waits for the next hint, connecting as often as need be.
async fn next(mut session: Session) -> (Session, Hint) {
    loop {
        let due = session.retry_at.is_none_or(|at| at <= Instant::now());
        if !session.complete && due && session.connect().await {
            // Whatever was told before is missed.
            return (session, Hint::Any);
        }
        if let Some(hint) = session.hear().await {
            return (session, hint);
        }
    }
}

impl Session {
    /// Connects to the servers that are not listened to. Whether there is one more now.
    async fn connect(&mut self) -> bool {
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
        let within = self.hub.connect_within;
        let spots = match self.hub.link.spots(within).await {
            Ok(spots) => spots,
            Err(error) => {
                self.later(&error);
                return false;
            }
        };
        self.ears.retain(|_, (spot, _)| spots.contains(spot));
        let missing = spots.iter().filter(|spot| !self.ears.contains_key(&spot.node));
        let tries = missing.map(|spot| async {
            (spot.clone(), self.hub.link.subscribe(spot, self.tell.clone(), within).await)
        });
        let tried = join_all(tries).await;
        self.complete = true;
        let (mut more, mut trouble) = (false, None);
        for (spot, wire) in tried {
            match wire {
                Ok(wire) => {
                    self.ears.insert(spot.node.clone(), (spot, wire));
                    more = true;
                }
                Err(error) => {
                    self.complete = false;
                    trouble = Some(error);
                }
            }
        }
        match trouble {
            Some(error) => self.later(&error),
            None => {
                self.pause = PAUSE_MIN;
                self.warned = false;
            }
        }
        more
    }

    /// Waits for something that is told; `None` once it is time to look after the connections.
    async fn hear(&mut self) -> Option<Hint> {
        let quiet = Instant::now() + QUIET_MAX;
        let until = self.retry_at.filter(|_| !self.complete).map_or(quiet, |at| at.min(quiet));
        loop {
            let told = match &mut self.changes {
                None => timeout_at(until, self.told.recv()).await,
                Some(changes) => tokio::select! {
                    told = timeout_at(until, self.told.recv()) => told,
                    Ok(()) = changes.changed() => {
                        self.missing();
                        return None;
                    }
                },
            };
            let Ok(Some((node, push))) = told else {
                if self.complete {
                    self.ask_whether_there().await;
                }
                return None;
            };
            match push.kind {
                PushKind::Message | PushKind::SMessage => {
                    if let Some(hint) = self.hub.hint(&push) {
                        return Some(hint);
                    }
                }
                // It ended, or its channel has moved to another server.
                PushKind::Disconnection | PushKind::SUnsubscribe => {
                    self.ears.remove(&node);
                    self.missing();
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Lets go of servers that do not answer.
    async fn ask_whether_there(&mut self) {
        let within = self.hub.connect_within;
        let pings = self.ears.iter().map(|(node, (_, wire))| async move {
            let mut connection = wire.connection.clone();
            let ping = redis::cmd("PING");
            let answer = timeout(within, connection.send_packed_command(&ping)).await;
            (node.clone(), matches!(answer, Ok(Ok(_))))
        });
        for (node, there) in join_all(pings).await {
            if !there {
                self.ears.remove(&node);
                self.missing();
            }
        }
    }

    /// Some server is not listened to: look for it at once.
    fn missing(&mut self) {
        self.complete = false;
        self.retry_at = None;
    }

    /// Some server can't be listened to: look for it later.
    fn later(&mut self, error: &Error) {
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
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
