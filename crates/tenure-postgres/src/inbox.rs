//! Where notices come in: one connection that LISTENs, for all leaders of this process.
//!
//! It is opened by the first who listens and closed with the last. When it breaks, it is made
//! again, and everybody is told that something may be missing.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::{Arrival, Error, ErrorKind, Inbox, Name};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Notification};

use crate::config::PostgresConfig;
use crate::error;
use crate::link::{self, Open, held};
use crate::names::identifier;

/// How many arrivals wait for one inbox; beyond that they are lost, and it is told so.
const ARRIVALS_MAX: usize = 10_000;

/// How long to wait before the connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The connection and all who listen on it.
pub(crate) struct Switchboard {
    config: Arc<PostgresConfig>,
    /// On this channel only this board listens: its own notices to itself (M1).
    control: String,
    nonces: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slips: Vec<Weak<Slip>>,
    /// The task that carries the connection, or is about to.
    carry: Option<Arc<Carry>>,
    closed: bool,
}

/// One task that carries the connection.
struct Carry {
    line: watch::Sender<Line>,
    stop: Notify,
}

/// How the connection is.
#[derive(Clone)]
enum Line {
    Opening,
    Open(Arc<Client>),
    Broken(Error),
}

impl Switchboard {
    pub(crate) fn new(config: Arc<PostgresConfig>) -> Switchboard {
        Switchboard {
            config,
            control: format!("tenure-inbox:{:016x}", RandomState::new().build_hasher().finish()),
            nonces: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Listens. Ends when the board has heard itself, behind everything that was sent before.
    pub(crate) async fn listen(
        self: &Arc<Switchboard>,
        election: &Name,
        channels: &[String],
    ) -> Result<Box<dyn Inbox>, Error> {
        let slip = Arc::new(Slip {
            election: election.clone(),
            channels: channels.iter().cloned().collect(),
            nonce: self.nonces.fetch_add(1, Ordering::Relaxed).to_string(),
            hears: AtomicBool::new(false),
            heard_itself: Notify::new(),
            arrivals: Mutex::default(),
        });
        let inbox = PostgresInbox { board: self.clone(), slip };
        {
            let mut state = held(&self.state);
            state.slips.retain(|slip| slip.strong_count() > 0);
            state.slips.push(Arc::downgrade(&inbox.slip));
        }
        let Some(carry) = self.start() else {
            return Err(error::new(ErrorKind::Config, "notices need a tokio runtime; use one"));
        };
        let limit = self.config.connect_timeout + self.config.call_timeout;
        match timeout(limit, self.tune_in(&carry, &inbox.slip)).await {
            Ok(tuned_in) => tuned_in.map(|()| Box::new(inbox) as Box<dyn Inbox>),
            Err(_) => Err(error::timed_out(&self.config, "listening at", limit)),
        }
    }

    async fn tune_in(&self, carry: &Carry, slip: &Slip) -> Result<(), Error> {
        let client = self.client(carry).await?;
        let failed = |error| error::from_postgres(&self.config, error);
        let sql = listen_sql(slip.channels.iter().map(String::as_str));
        client.batch_execute(&sql).await.map_err(failed)?;
        client
            .query_typed(
                include_str!("sql/notify.sql"),
                &[(&self.control, Type::TEXT), (&slip.nonce, Type::TEXT)],
            )
            .await
            .map_err(failed)?;
        slip.heard_itself.notified().await;
        Ok(())
    }

    async fn client(&self, carry: &Carry) -> Result<Arc<Client>, Error> {
        let mut line = carry.line.subscribe();
        let opened = line.wait_for(|line| !matches!(line, Line::Opening)).await;
        match opened.map(|line| line.clone()) {
            Ok(Line::Open(client)) => Ok(client),
            Ok(Line::Broken(error)) => Err(error),
            Ok(Line::Opening) | Err(_) => {
                Err(error::timed_out(&self.config, "listening at", Duration::ZERO))
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        let mut state = held(&self.state);
        state.closed = true;
        if let Some(carry) = state.carry.take() {
            carry.stop.notify_one();
        }
    }

    /// The task that carries the connection; started if there is none. `None` without a runtime.
    fn start(self: &Arc<Switchboard>) -> Option<Arc<Carry>> {
        let runtime = Handle::try_current().ok()?;
        let mut state = held(&self.state);
        if state.closed {
            return None;
        }
        if let Some(carry) = &state.carry {
            return Some(carry.clone());
        }
        let line = watch::Sender::new(Line::Opening);
        let carry = Arc::new(Carry { line, stop: Notify::new() });
        state.carry = Some(carry.clone());
        drop(state);
        let carried = Carried { board: self.clone(), carry: carry.clone() };
        runtime.spawn(async move {
            let Carried { board, carry } = &carried;
            tokio::select! {
                () = board.carry(carry) => {}
                () = carry.stop.notified() => {}
            }
        });
        Some(carry)
    }

    /// Carries one connection after the other while anybody listens.
    async fn carry(&self, carry: &Carry) {
        let mut pause = PAUSE_MIN;
        while self.is_wanted() {
            let mut listened = false;
            let heard = match link::open(&self.config).await {
                Ok(opened) => self.hear_all(carry, opened, &mut listened).await,
                Err(error) => Err(error),
            };
            if listened {
                pause = PAUSE_MIN;
                carry.line.send_replace(Line::Opening);
            }
            if let Err(error) = heard {
                tracing::debug!(%error, "no notices for the time being");
                if !listened {
                    carry.line.send_replace(Line::Broken(error));
                }
            }
            // Also if it could be opened: a server that then refuses is left alone, too.
            let _ = timeout(pause, std::future::pending::<()>()).await;
            pause = (pause * 2).min(PAUSE_MAX);
            carry.line.send_replace(Line::Opening);
        }
    }

    /// One connection, from LISTEN until it ends; `listened` is set once it hears.
    async fn hear_all(
        &self,
        carry: &Carry,
        (client, mut connection): Open,
        listened: &mut bool,
    ) -> Result<(), Error> {
        let client = Arc::new(client);
        let sql = {
            let slips = self.slips();
            let wanted: HashSet<&str> =
                slips.iter().flat_map(|slip| &slip.channels).map(String::as_str).collect();
            let posts = self.config.names.posts_channel();
            listen_sql(wanted.into_iter().chain([&*self.control, &*posts]))
        };
        let listening = client.clone();
        let mut listening = std::pin::pin!(async move { listening.batch_execute(&sql).await });
        let mut waiting = true;
        loop {
            // The connection moves only while it is polled; so the LISTEN is polled beside it.
            let message = poll_fn(|cx| {
                if waiting && let Poll::Ready(done) = listening.as_mut().poll(cx) {
                    waiting = false;
                    if let Err(error) = done {
                        return Poll::Ready(Some(Err(error)));
                    }
                    *listened = true;
                    // Those who heard on the connection before this one have missed something.
                    self.slips().iter().for_each(|slip| slip.put(Arrival::Gap));
                    carry.line.send_replace(Line::Open(client.clone()));
                }
                connection.poll_message(cx)
            });
            match message.await {
                None => return Ok(()),
                Some(Err(error)) => return Err(error::from_postgres(&self.config, error)),
                Some(Ok(AsyncMessage::Notification(note))) => self.hear(&note),
                Some(Ok(_)) => {}
            }
        }
    }

    fn hear(&self, note: &Notification) {
        let (channel, payload) = (note.channel(), note.payload());
        let slips = self.slips();
        if channel == self.control {
            if let Some(slip) = slips.iter().find(|slip| slip.nonce == payload) {
                slip.hears.store(true, Ordering::Release);
                slip.heard_itself.notify_one();
            }
            return;
        }
        if channel == self.config.names.posts_channel() {
            let told = slips.iter().filter(|slip| slip.election.as_str() == payload);
            return told.for_each(|slip| slip.put(Arrival::Posted));
        }
        for slip in slips.iter().filter(|slip| slip.channels.contains(channel)) {
            let (channel, payload) = (channel.to_owned(), payload.to_owned());
            slip.put(Arrival::Notice { channel, payload });
        }
    }

    fn slips(&self) -> Vec<Arc<Slip>> {
        held(&self.state).slips.iter().filter_map(Weak::upgrade).collect()
    }

    fn is_wanted(&self) -> bool {
        let state = held(&self.state);
        !state.closed && state.slips.iter().any(|slip| slip.strong_count() > 0)
    }
}

/// Says so when the task is gone, with its runtime perhaps, so that another can be started.
struct Carried {
    board: Arc<Switchboard>,
    carry: Arc<Carry>,
}

impl Drop for Carried {
    fn drop(&mut self) {
        let gone = error::new(ErrorKind::Unavailable, "listening was interrupted; try again");
        self.carry.line.send_replace(Line::Broken(gone));
        {
            let mut state = held(&self.board.state);
            state.carry.take_if(|carry| Arc::ptr_eq(carry, &self.carry));
        }
        // Whoever still listens starts another, on its own runtime.
        self.board.slips().iter().for_each(|slip| slip.wake());
    }
}

/// What one inbox wants, and what came for it.
struct Slip {
    election: Name,
    channels: HashSet<String>,
    nonce: String,
    /// Set once the board has heard the nonce: before that, everything is dropped (M1).
    hears: AtomicBool,
    heard_itself: Notify,
    arrivals: Mutex<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    queue: VecDeque<Arrival>,
    waker: Option<Waker>,
}

impl Slip {
    fn put(&self, arrival: Arrival) {
        if !self.hears.load(Ordering::Acquire) {
            return;
        }
        {
            let queue = &mut held(&self.arrivals).queue;
            match (queue.len(), &arrival) {
                // One hint says as much as many.
                (_, Arrival::Posted) if queue.back() == Some(&arrival) => {}
                (length, _) if length < ARRIVALS_MAX => queue.push_back(arrival),
                (ARRIVALS_MAX, _) => queue.push_back(Arrival::Gap),
                _ => {}
            }
        }
        self.wake();
    }

    fn wake(&self) {
        let waker = held(&self.arrivals).waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct PostgresInbox {
    board: Arc<Switchboard>,
    slip: Arc<Slip>,
}

impl Inbox for PostgresInbox {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        {
            let mut arrivals = held(&self.slip.arrivals);
            if let Some(arrival) = arrivals.queue.pop_front() {
                return Poll::Ready(Some(arrival));
            }
            arrivals.waker = Some(cx.waker().clone());
        }
        let _without_a_runtime = self.board.start();
        Poll::Pending
    }
}

impl Drop for PostgresInbox {
    fn drop(&mut self) {
        let mut state = held(&self.board.state);
        let mine = Arc::downgrade(&self.slip);
        state.slips.retain(|slip| slip.strong_count() > 0 && !slip.ptr_eq(&mine));
        if state.slips.is_empty()
            && let Some(carry) = state.carry.take()
        {
            carry.stop.notify_one();
        }
    }
}

fn listen_sql<'a>(channels: impl Iterator<Item = &'a str>) -> String {
    channels.map(|channel| format!("LISTEN {};", identifier(channel))).collect()
}
