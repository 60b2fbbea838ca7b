//! What a leader hears: one subscription of its own, made again when it breaks.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tenure_core::{Arrival, Error, Inbox, Name};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::dial::Wire;
use crate::link::{Link, changed, pause};
use crate::place::{Node, Spot};

/// How long to wait before a connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// After so much silence the server is asked whether it is still there.
const QUIET_MAX: Duration = Duration::from_secs(15);

/// Something that happened to a subscription.
enum Event {
    Told(PushInfo),
    Quiet,
    Ended,
    /// Other servers may have leases.
    Changed,
}

/// One inbox.
pub(crate) struct RedisInbox {
    next: Pin<Box<dyn Future<Output = (Ear, Arrival)> + Send>>,
}

/// Whom it listens for, and its connection.
struct Ear {
    link: Arc<Link>,
    election: Name,
    /// Where the election's messages are told.
    told_on: String,
    channels: HashSet<String>,
    within: Duration,
    changes: Option<watch::Receiver<u64>>,
    line: Option<Line>,
}

/// A subscription, and with whom.
struct Line {
    node: Node,
    wire: Wire,
    told: UnboundedReceiver<(Node, PushInfo)>,
}

impl RedisInbox {
    /// Subscribes. The server confirms it, and pushes what is told from then on (M1).
    pub(crate) async fn open(
        link: &Arc<Link>,
        election: &Name,
        told_on: String,
        channels: &[String],
        within: Duration,
    ) -> Result<RedisInbox, Error> {
        let mut ear = Ear {
            link: link.clone(),
            election: election.clone(),
            told_on,
            channels: channels.iter().cloned().collect(),
            within,
            changes: link.changes(),
            line: None,
        };
        ear.subscribe().await?;
        Ok(RedisInbox { next: Box::pin(next(ear)) })
    }
}

impl Inbox for RedisInbox {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let Poll::Ready((ear, arrival)) = self.next.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.next = Box::pin(next(ear));
        Poll::Ready(Some(arrival))
    }
}

impl Ear {
    async fn subscribe(&mut self) -> Result<(), Error> {
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
        let spot = self.link.spot_of(&self.told_on, self.within).await?;
        let (node, channel) = (spot.node.clone(), self.told_on.clone());
        let (tell, told) = unbounded_channel();
        let wire = self.link.subscribe(&Spot { channel, ..spot }, tell, self.within).await?;
        self.line = Some(Line { node, wire, told });
        Ok(())
    }

    /// Waits for something to happen on a subscription.
    async fn event(&mut self, line: &mut Line) -> Event {
        tokio::select! {
            told = timeout(QUIET_MAX, line.told.recv()) => match told {
                Ok(Some((_, push))) => Event::Told(push),
                Ok(None) => Event::Ended,
                Err(_) => Event::Quiet,
            },
            () = changed(&mut self.changes) => Event::Changed,
        }
    }

    /// Whether a subscription is still of use.
    async fn is_sound(&self, line: &Line, event: &Event) -> bool {
        match event {
            Event::Told(_) => true,
            Event::Ended => false,
            Event::Quiet => {
                let (mut connection, ping) = (line.wire.connection.clone(), redis::cmd("PING"));
                let answer = timeout(self.within, connection.send_packed_command(&ping)).await;
                matches!(answer, Ok(Ok(_)))
            }
            // Others may have leases now; this election may still be where it was.
            Event::Changed => match self.link.spot_of(&self.told_on, self.within).await {
                Ok(spot) => spot.node == line.node,
                Err(_) => true,
            },
        }
    }

    /// What a push is to us; `Err` once the connection is of no use any more.
    fn arrival(&self, push: &PushInfo) -> Result<Option<Arrival>, ()> {
        match push.kind {
            PushKind::Message | PushKind::SMessage => Ok(self.read(push)),
            PushKind::Disconnection | PushKind::SUnsubscribe => Err(()),
            _ => Ok(None),
        }
    }

    fn read(&self, push: &PushInfo) -> Option<Arrival> {
        let Some(Value::BulkString(message)) = push.data.last() else { return None };
        if message.is_empty() {
            return Some(Arrival::Posted);
        }
        let message = String::from_utf8_lossy(message);
        let (channel, payload) = message.split_once('\n')?;
        let (channel, payload) = (channel.to_owned(), payload.to_owned());
        self.channels.contains(&channel).then_some(Arrival::Notice { channel, payload })
    }
}

/// Waits for the next arrival, connecting as often as need be.
async fn next(mut ear: Ear) -> (Ear, Arrival) {
    let mut wait = PAUSE_MIN;
    loop {
        let Some(mut line) = ear.line.take() else {
            match ear.subscribe().await {
                Ok(()) => return (ear, Arrival::Gap),
                Err(error) => {
                    tracing::debug!(election = %ear.election, %error, "no notices for now");
                    pause(wait).await;
                    wait = (wait * 2).min(PAUSE_MAX);
                }
            }
            continue;
        };
        let event = ear.event(&mut line).await;
        if !ear.is_sound(&line, &event).await {
            continue;
        }
        let arrival = match event {
            // Otherwise it ended, or its channel has moved to another server: connect again.
            Event::Told(push) => match ear.arrival(&push) {
                Ok(arrival) => arrival,
                Err(()) => continue,
            },
            _ => None,
        };
        ear.line = Some(line);
        if let Some(arrival) = arrival {
            return (ear, arrival);
        }
    }
}
