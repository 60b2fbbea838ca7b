//! LISTEN, on a connection that also carries calls: hints, notices and asks to resign come in here.
//!
//! A task keeps it up while anybody wants to hear something. It sends LISTEN on the session that
//! there is, again on the one that follows it, and UNLISTEN for what nobody wants any more. The
//! first time, it also makes sure that what others notify is heard: behind a pooler in transaction
//! mode LISTEN succeeds and nothing ever comes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::clock::pause;
use crate::config::PostgresConfig;
use crate::connector::Connector;
use crate::error;
use crate::names::identifier;
use crate::notifications::Notifications;
use crate::random::jittered;

/// How long to wait before it is tried again: at first, at most, and at most where LISTEN itself
/// ends the connection, which calls need.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MAX_LETHAL: Duration = Duration::from_secs(60);

/// Whether notifications of others are heard: it is not known, they are not, they are.
const UNKNOWN: u8 = 0;
const DEAF: u8 = 1;
const HEARS: u8 = 2;

/// Has the server end a session that listens and whose client does not read any more, frozen
/// perhaps: it would hold a snapshot, so that nothing is vacuumed, and the queue of notifications.
/// Over TCP only; a limit of the server's own is kept.
const BOUND: &str = "SELECT pg_catalog.set_config('tcp_user_timeout', '30s', false) \
                     WHERE pg_catalog.current_setting('tcp_user_timeout') = '0';";

/// Keeps LISTEN up.
pub(crate) struct NotifyListener {
    config: Arc<PostgresConfig>,
    connector: Arc<Connector>,
    notifications: Arc<Notifications>,
    listening: watch::Sender<Listening>,
    /// Told when somebody wants to hear something else.
    changed: Notify,
    closing: Notify,
    state: Mutex<State>,
    hears: AtomicU8,
}

#[derive(Default)]
struct State {
    /// Whether a task keeps it up, or is about to.
    started: bool,
    closed: bool,
}

/// Which channels are listened to, and on which session.
#[derive(Clone, Default)]
struct Listening {
    session: Option<u64>,
    channels: BTreeSet<String>,
    failures: u64,
    error: Option<Error>,
}

impl NotifyListener {
    pub(crate) fn new(config: Arc<PostgresConfig>, connector: Arc<Connector>) -> NotifyListener {
        NotifyListener {
            notifications: connector.notifications().clone(),
            config,
            connector,
            listening: watch::Sender::default(),
            changed: Notify::new(),
            closing: Notify::new(),
            state: Mutex::default(),
            hears: AtomicU8::new(UNKNOWN),
        }
    }

    /// To subscribe to.
    pub(crate) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Whether it was found that notifications of others are not heard here.
    pub(crate) fn is_deaf(&self) -> bool {
        self.hears.load(Ordering::Relaxed) == DEAF
    }

    /// That there is no pooler in between is found out by others.
    pub(crate) fn assume_direct(&self) {
        self.hears.store(HEARS, Ordering::Relaxed);
    }

    /// Somebody wants to hear something else than before.
    pub(crate) fn refresh(&self) {
        self.changed.notify_one();
    }

    /// Starts the task that keeps it up, unless one does already. `false` if there is no runtime
    /// here, or the store is closed.
    pub(crate) fn start(self: &Arc<NotifyListener>) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let mut state = lock(&self.state);
        if state.started || state.closed {
            return !state.closed;
        }
        state.started = true;
        drop(state);
        let kept = Kept(self.clone());
        runtime.spawn(async move {
            tokio::select! {
                () = kept.0.keep() => {}
                () = kept.0.closing.notified() => {}
            }
        });
        true
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.closing.notify_waiters();
        self.closing.notify_one();
    }

    /// Waits until these channels, which somebody has subscribed to, are listened to.
    pub(crate) async fn until_listening(
        self: &Arc<NotifyListener>,
        channels: impl IntoIterator<Item = &str>,
    ) -> Result<(), Error> {
        let mut listening = self.listening.subscribe();
        let failures = listening.borrow().failures;
        if !self.start() {
            return Err(error::new(ErrorKind::Config, "notices need a tokio runtime; use one"));
        }
        self.refresh();
        let channels: Vec<&str> = channels.into_iter().collect();
        let hears = |now: &Listening| channels.iter().all(|name| now.channels.contains(*name));
        let settled = |now: &Listening| hears(now) || now.failures > failures;
        let now = listening.wait_for(settled).await.map(|now| now.clone());
        match now {
            Ok(now) if hears(&now) => Ok(()),
            Ok(Listening { error: Some(error), .. }) => Err(error),
            _ => Err(error::new(ErrorKind::Unavailable, "listening was interrupted; try again")),
        }
    }

    /// Tells itself something, on another connection, and does `then` at the place at which it
    /// hears that: behind all that was notified before (M1).
    pub(crate) async fn hear_itself(
        &self,
        sender: &Connector,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let mut expected = self.notifications.expect(then);
        let (control, limit) = (self.notifications.control(), self.config.call_timeout);
        let values = [(&control as _, Type::TEXT), (&expected.nonce as _, Type::TEXT)];
        sender.query(include_str!("sql/notify.sql"), &values).await?;
        match timeout(limit, expected.heard()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(error::not_heard(&self.config, limit)),
        }
    }

    /// Listens for ever, on one session after the other.
    async fn keep(self: &Arc<NotifyListener>) {
        let (mut current, mut wait) = (self.connector.current(), PAUSE_MIN);
        loop {
            current.borrow_and_update();
            match self.listen().await {
                Ok(()) => {
                    wait = PAUSE_MIN;
                    tokio::select! {
                        _ = current.changed() => {}
                        () = self.changed.notified() => {}
                    }
                    if current.borrow().is_none() && self.has_lost() {
                        pause(jittered(PAUSE_MIN)).await;
                    }
                }
                Err((error, lethal)) => {
                    tracing::debug!(%error, "LISTEN fails; no hints for the time being");
                    self.has_lost();
                    self.listening.send_modify(|now| {
                        now.failures += 1;
                        now.error = Some(error);
                    });
                    current.borrow_and_update();
                    // Others may connect first, and then there is no reason to wait.
                    tokio::select! {
                        () = pause(jittered(wait)) => {}
                        () = self.changed.notified(), if !lethal => {}
                        () = is_opened(&mut current), if !lethal => {}
                    }
                    wait = (wait * 2).min(if lethal { PAUSE_MAX_LETHAL } else { PAUSE_MAX });
                }
            }
        }
    }

    /// Notes that the session is gone that was listened on, if it is.
    fn has_lost(&self) -> bool {
        let current = *self.connector.current().borrow();
        self.listening.send_if_modified(|now| {
            let lost = now.session.is_some() && now.session != current;
            if lost {
                (now.session, now.channels) = (None, BTreeSet::new());
            }
            lost
        })
    }

    /// Has the session listen to what is wanted. What fails comes with whether it took the session
    /// along.
    async fn listen(self: &Arc<NotifyListener>) -> Result<(), (Error, bool)> {
        let (wanted, before) = (self.notifications.wanted(), self.listening.borrow().clone());
        if wanted.is_empty() && before.channels.is_empty() {
            return Ok(());
        }
        let session = self.connector.session().await.map_err(|error| (error, false))?;
        let number = session.number();
        let is_new = before.session != Some(number);
        let had = if is_new { BTreeSet::new() } else { before.channels };
        if is_new {
            // Both would hear it: what the old session says from now on is not wanted.
            self.notifications.mute();
        }
        let unwanted =
            had.difference(&wanted).map(|name| format!("UNLISTEN {};", identifier(name)));
        let missing = wanted.difference(&had).map(|name| format!("LISTEN {};", identifier(name)));
        let hears = self.hears.load(Ordering::Relaxed) == HEARS;
        let bound = (is_new && hears).then(|| BOUND.to_owned());
        let sql: String = unwanted.chain(missing).chain(bound).collect();
        if !sql.is_empty() {
            let done = self.connector.execute_on(&session, &sql).await;
            done.map_err(|error| (error, session.is_closed()))?;
        }
        drop(session);
        if is_new {
            self.notifications.open(number);
        }
        let failures = before.failures;
        let now = Listening { session: Some(number), channels: wanted, failures, error: None };
        self.listening.send_replace(now);
        if is_new && self.hears.load(Ordering::Relaxed) != HEARS {
            let listener = Arc::downgrade(self);
            Handle::current().spawn(async move {
                if let Some(listener) = listener.upgrade() {
                    listener.check_hearing(number).await;
                }
            });
        }
        Ok(())
    }

    /// Finds out whether what others notify is heard, from a connection that is opened for it.
    async fn check_hearing(&self, session: u64) {
        let elsewhere = Connector::new(self.config.clone());
        let checked = self.hear_itself(&elsewhere, || {}).await;
        match checked {
            Ok(()) => {
                self.hears.store(HEARS, Ordering::Relaxed);
                // Sessions are not shared here: what is set stays with this one.
                let Ok(now) = self.connector.session().await else { return };
                if now.number() == session
                    && let Err(error) = self.connector.execute_on(&now, BOUND).await
                {
                    tracing::debug!(%error, "a session that listens has no bound of its own");
                }
            }
            Err(error) if !error::is_not_heard(&error) => {
                tracing::debug!(%error, "it is not known whether notifications are heard");
            }
            Err(_) if self.listening.borrow().session != Some(session) => {}
            Err(error) => {
                if self.hears.swap(DEAF, Ordering::Relaxed) != DEAF {
                    tracing::warn!(%error, "no hints: followers wait until the lease runs out");
                }
            }
        }
    }
}

/// Waits until another session is open.
async fn is_opened(current: &mut watch::Receiver<Option<u64>>) {
    while current.changed().await.is_ok() && current.borrow().is_none() {}
}

/// Says so when the task is gone, with its runtime perhaps, so that another can be started.
struct Kept(Arc<NotifyListener>);

impl Drop for Kept {
    fn drop(&mut self) {
        let listener = &self.0;
        let closed = {
            let mut state = lock(&listener.state);
            state.started = false;
            state.closed
        };
        listener.listening.send_modify(|now| {
            (now.session, now.channels) = (None, BTreeSet::new());
            now.failures += 1;
        });
        listener.notifications.mute();
        if !closed {
            // What is polled next starts another, on its own runtime.
            listener.notifications.missed();
        }
    }
}
