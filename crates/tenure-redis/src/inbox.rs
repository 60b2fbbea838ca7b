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
use tokio::time::timeout;

use crate::dial::Wire;
use crate::link::{Link, pause};
use crate::place::{Node, Spot};

/// How long to wait before a connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// After so much silence the server is asked whether it is still there.
const QUIET_MAX: Duration = Duration::from_secs(15);

/// One inbox.
pub(crate) struct RedisInbox {
    next: Pin<Box<dyn Future<Output = (Ear, Arrival)> + Send>>,
}

/// Whom it listens for, and its connection.
struct Ear {
    link: Arc<Link>,
    election: Name,
    lease: String,
    channels: HashSet<String>,
    within: Duration,
    line: Option<(Wire, UnboundedReceiver<(Node, PushInfo)>)>,
}

impl RedisInbox {
    /// Subscribes. The server confirms it, and pushes what is told from then on (M1).
    pub(crate) async fn open(
        link: &Arc<Link>,
        election: &Name,
        lease: String,
        channels: &[String],
        within: Duration,
    ) -> Result<RedisInbox, Error> {
        let mut ear = Ear {
            link: link.clone(),
            election: election.clone(),
            lease,
            channels: channels.iter().cloned().collect(),
            within,
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
        let spot = self.link.spot_of(&self.lease, self.within).await?;
        let channel = format!("{}:mail:{}", spot.channel, self.election);
        let (tell, told) = unbounded_channel();
        let wire = self.link.subscribe(&Spot { channel, ..spot }, tell, self.within).await?;
        self.line = Some((wire, told));
        Ok(())
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
        let Some((wire, mut told)) = ear.line.take() else {
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
        match timeout(QUIET_MAX, told.recv()).await {
            Ok(Some((_, push))) => {
                // Otherwise it ended, or its channel has moved to another server: connect again.
                if let Ok(arrival) = ear.arrival(&push) {
                    ear.line = Some((wire, told));
                    if let Some(arrival) = arrival {
                        return (ear, arrival);
                    }
                }
            }
            Ok(None) => {}
            Err(_) => {
                let (mut connection, ping) = (wire.connection.clone(), redis::cmd("PING"));
                let answer = timeout(ear.within, connection.send_packed_command(&ping)).await;
                if matches!(answer, Ok(Ok(_))) {
                    ear.line = Some((wire, told));
                }
            }
        }
    }
}
