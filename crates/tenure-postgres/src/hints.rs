//! Hints: NOTIFY after a release or an ask, LISTEN on a connection of its own.
//!
//! Nothing here decides anything (I5). Without it, behind a pooler say, the store is slower and
//! just as right.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::{Error, Hint, Hints, Name, Op};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;

use crate::config::PostgresConfig;
use crate::error;
use crate::link::{self, held};

/// How many hints wait for one listener before they become a single [`Hint::Any`].
const QUEUE_MAX: usize = 256;

/// How many names are kept; beyond that a hint about any other says only "any".
const NAMES_MAX: usize = 100_000;

/// How long to wait before the connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the handles of one store know about hints.
pub(crate) struct Hub {
    config: Arc<PostgresConfig>,
    state: Mutex<State>,
    closing: Notify,
}

#[derive(Default)]
struct State {
    /// The elections that we were asked about.
    names: HashSet<Name>,
    names_full: bool,
    listeners: Vec<Weak<Listener>>,
    /// Whether a task carries the connection, or is about to.
    started: bool,
    closed: bool,
}

impl Hub {
    pub(crate) fn new(config: Arc<PostgresConfig>) -> Hub {
        Hub { config, state: Mutex::default(), closing: Notify::new() }
    }

    /// Remembers which elections we are asked about.
    pub(crate) fn remember(&self, ops: &[&Op]) {
        let mut state = held(&self.state);
        for op in ops {
            if state.names.contains(op.election()) {
                continue;
            }
            if state.names.len() < NAMES_MAX {
                state.names.insert(op.election().clone());
            } else {
                state.names_full = true;
            }
        }
    }

    /// A new stream. The connection is made now, or when a runtime polls for the first hint.
    pub(crate) fn listen(self: &Arc<Hub>) -> Box<dyn Hints> {
        let listener = Arc::new(Listener::default());
        {
            let mut state = held(&self.state);
            state.listeners.retain(|listener| listener.strong_count() > 0);
            state.listeners.push(Arc::downgrade(&listener));
            if state.closed {
                listener.close();
            }
        }
        self.start();
        Box::new(PostgresHints { hub: Arc::downgrade(self), listener })
    }

    /// Ends the connection and all streams.
    pub(crate) fn close(&self) {
        let listeners = {
            let mut state = held(&self.state);
            state.closed = true;
            std::mem::take(&mut state.listeners)
        };
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.close();
        }
        self.closing.notify_waiters();
        self.closing.notify_one();
    }

    /// Starts the task that listens, unless one does already or there is no runtime here.
    fn start(self: &Arc<Hub>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut state = held(&self.state);
        if state.started || state.closed {
            return;
        }
        state.started = true;
        let carried = Carried(self.clone());
        runtime.spawn(async move {
            let hub = &carried.0;
            tokio::select! {
                () = hub.carry() => {}
                () = hub.closing.notified() => {}
            }
        });
    }

    /// Listens for ever, and connects again whenever that ends.
    async fn carry(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            if let Err(error) = self.hear_all(&mut pause).await {
                tracing::debug!(%error, "no hints for the time being");
            }
            let _ = timeout(pause, std::future::pending::<()>()).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One connection, from LISTEN until it ends. Once it listens, there is no reason to wait long
    /// before the next.
    async fn hear_all(&self, pause: &mut Duration) -> Result<(), Error> {
        let (client, mut connection) = link::open(&self.config).await?;
        let sql = self.config.names.render("LISTEN @channel@");
        let mut listening = std::pin::pin!(client.batch_execute(&sql));
        let mut waiting = true;
        loop {
            // The connection moves only while it is polled; so the LISTEN is polled beside it.
            let message = poll_fn(|cx| {
                if waiting && let Poll::Ready(done) = listening.as_mut().poll(cx) {
                    waiting = false;
                    if let Err(error) = done {
                        return Poll::Ready(Some(Err(error)));
                    }
                    *pause = PAUSE_MIN;
                    // What happened before is not known.
                    self.emit(&Hint::Any);
                }
                connection.poll_message(cx)
            });
            match message.await {
                None => return Ok(()),
                Some(Err(error)) => return Err(error::from_postgres(&self.config, error)),
                Some(Ok(AsyncMessage::Notification(note))) => self.hear(note.payload()),
                Some(Ok(_)) => {}
            }
        }
    }

    /// A notification has come in. Anybody may have sent it.
    fn hear(&self, payload: &str) {
        if payload.is_empty() {
            return self.emit(&Hint::Any);
        }
        let Ok(name) = Name::new(payload) else {
            return;
        };
        let (known, full) = {
            let state = held(&self.state);
            (state.names.contains(&name), state.names_full)
        };
        if known {
            self.emit(&Hint::Election(name));
        } else if full {
            self.emit(&Hint::Any);
        }
    }

    fn emit(&self, hint: &Hint) {
        let listeners = held(&self.state).listeners.clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.hear(hint);
        }
    }
}

/// Says so when the task is gone, with its runtime perhaps, so that another can be started.
struct Carried(Arc<Hub>);

impl Drop for Carried {
    fn drop(&mut self) {
        held(&self.0.state).started = false;
    }
}

/// One stream's end of the hints.
#[derive(Default)]
pub(crate) struct Listener(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    hints: VecDeque<Hint>,
    waker: Option<Waker>,
    closed: bool,
}

impl Listener {
    pub(crate) fn hear(&self, hint: &Hint) {
        self.change(|queue| {
            if queue.hints.len() == QUEUE_MAX {
                queue.hints = VecDeque::from([Hint::Any]);
            } else if !queue.hints.contains(hint) {
                queue.hints.push_back(hint.clone());
            }
        });
    }

    pub(crate) fn close(&self) {
        self.change(|queue| queue.closed = true);
    }

    /// The next hint, if one waits; otherwise whoever polls is woken by it.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut queue = held(&self.0);
        match queue.hints.pop_front() {
            Some(hint) => Poll::Ready(Some(hint)),
            None if queue.closed => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let waker = {
            let mut queue = held(&self.0);
            change(&mut queue);
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct PostgresHints {
    hub: Weak<Hub>,
    listener: Arc<Listener>,
}

impl Hints for PostgresHints {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let polled = self.listener.poll(cx);
        if let (Poll::Pending, Some(hub)) = (&polled, self.hub.upgrade()) {
            hub.start();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub() -> Arc<Hub> {
        Arc::new(Hub::new(Arc::new(PostgresConfig::from_url("postgres://h/d").unwrap())))
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn an_overfull_stream_says_any_and_a_closed_one_ends() {
        let hub = hub();
        let mut stream = hub.listen();
        for n in 0..=QUEUE_MAX {
            hub.emit(&Hint::Election(name(&n.to_string())));
        }
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.close();
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(None));
        assert_eq!(hub.listen().poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn hints_are_only_about_elections_that_we_were_asked_about() {
        let hub = hub();
        let mut stream = hub.listen();
        let mut cx = Context::from_waker(Waker::noop());
        hub.hear("a");
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.remember(&[&Op::Read { election: name("a") }]);
        hub.hear("a");
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Election(name("a")))));
        hub.hear("");
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
        hub.hear("no\u{7}name");
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
    }
}
