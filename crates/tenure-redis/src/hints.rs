//! Hints: releases and asks are published by their scripts, and heard on a connection of its own.
//!
//! Nothing here decides anything (I5). Without the connection, or without the permission to
//! publish or subscribe, the store is slower and just as right.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use redis::Msg;
use redis::aio::PubSub;
use tenure_core::{Error, Hint, Hints, Name, Op};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::error;
use crate::keys::Keys;
use crate::link::{Link, held};

/// How many names are kept; beyond that every hint counts.
const NAMES_MAX: usize = 100_000;

/// How long to wait before the connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// After so much silence the server is asked whether it is still there.
const QUIET_MAX: Duration = Duration::from_secs(15);

/// What the handles of one store know about hints.
pub(crate) struct Hub {
    link: Arc<Link>,
    channel: String,
    connect_within: Duration,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    asked_about: HashSet<Name>,
    full: bool,
}

impl Hub {
    pub(crate) fn new(link: Arc<Link>, keys: &Keys, connect_within: Duration) -> Hub {
        Hub { link, channel: keys.channel(), connect_within, names: Mutex::default() }
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

    /// A new stream. The connection is made when it is first polled, and goes with it.
    pub(crate) fn listen(self: &Arc<Hub>) -> Box<dyn Hints> {
        let session = Session { hub: self.clone(), line: None, pause: PAUSE_MIN, warned: false };
        Box::new(Listener { next: Box::pin(next(session)) })
    }

    /// What a message is to us.
    fn hint(&self, message: &Msg) -> Option<Hint> {
        let name = std::str::from_utf8(message.get_payload_bytes()).ok();
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

/// The connection of one stream, now and then broken.
struct Session {
    hub: Arc<Hub>,
    line: Option<PubSub>,
    pause: Duration,
    warned: bool,
}

/// Waits for the next hint, connecting as often as need be.
async fn next(mut session: Session) -> (Session, Hint) {
    loop {
        let Some(mut line) = session.line.take() else {
            match subscribe(&session.hub).await {
                Ok(line) => {
                    session.line = Some(line);
                    session.pause = PAUSE_MIN;
                    session.warned = false;
                    // Whatever was told before is missed.
                    return (session, Hint::Any);
                }
                Err(error) => session.rest(&error).await,
            }
            continue;
        };
        let message = timeout(QUIET_MAX, line.on_message().next()).await;
        match message {
            Ok(Some(message)) => {
                let hint = session.hub.hint(&message);
                session.line = Some(line);
                if let Some(hint) = hint {
                    return (session, hint);
                }
            }
            // It ended: connect again.
            Ok(None) => {}
            Err(_) => {
                let ping = timeout(session.hub.connect_within, line.ping::<redis::Value>()).await;
                if matches!(ping, Ok(Ok(_))) {
                    session.line = Some(line);
                }
            }
        }
    }
}

async fn subscribe(hub: &Hub) -> Result<PubSub, Error> {
    let address = hub.link.address();
    let subscribed = timeout(hub.connect_within, async {
        let mut line = hub.link.client().get_async_pubsub().await?;
        line.subscribe(&hub.channel).await?;
        Ok(line)
    });
    match subscribed.await {
        Ok(line) => line.map_err(|error| error::from_driver(address, error)),
        Err(_) => Err(error::silent(address, "subscribe", hub.connect_within)),
    }
}

impl Session {
    /// Waits before the next attempt; says once why.
    async fn rest(&mut self, error: &Error) {
        if !self.warned {
            tracing::warn!(%error, "no hints for now, so hand-overs are slow");
            self.warned = true;
        }
        let _elapsed = timeout(self.pause, pending::<()>()).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
