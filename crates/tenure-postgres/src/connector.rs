//! The one connection that carries all ops and notifications, and what to do when it breaks.
//!
//! Nothing waits in line for a server that is away: a call that finds no connection makes one
//! attempt within its own deadline, and further calls fail at once until it is time to try again.
//! Nor does it wait behind a call that is not answered: the network may have forgotten a connection
//! without a word, and a short lease has no time to find that out. A new one is made beside it, and
//! the first of them that answers is used.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, Weak};
use std::time::Duration;

use tenure_core::Error;
use tenure_core::sync::lock;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error as PostgresError, Row, Socket};

use crate::clock::now;
use crate::config::PostgresConfig;
use crate::connection;
use crate::error;
use crate::notifications::Notifications;
use crate::random::jittered;
use crate::tls::Stream;

/// A connection that has left a call unanswered for this long is under suspicion.
const SILENT_MAX: Duration = Duration::from_millis(300);

/// A connection that took longer than this to answer is not warmed up: the next call would wait for
/// that, and where answers take long it gains little.
pub(crate) const QUICK: Duration = Duration::from_millis(50);

/// How long to leave a server alone after the first failed attempt, and at most.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A connection that is made when it is needed.
pub(crate) struct Connector {
    config: Arc<PostgresConfig>,
    state: Mutex<State>,
    /// The number of the session that is open.
    current: Arc<watch::Sender<Option<u64>>>,
    /// Where notifications go.
    notifications: Arc<Notifications>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The one before, while calls on it are under way; there is never another.
    before: Weak<Session>,
    /// How many were made so far.
    opened: u64,
    failures: u32,
    /// Why the last attempt failed, and when to make the next.
    rest: Option<(Instant, Error)>,
}

/// One open connection.
pub(crate) struct Session {
    number: u64,
    client: Client,
    task: AbortHandle,
    calls: StdMutex<Calls>,
    /// Told with each answer.
    answers: Notify,
    /// Whether it was warmed up, or somebody is at it, or it had better not be.
    warm: AtomicBool,
}

/// A connection that has yet to be warmed up.
pub(crate) struct Cold(Arc<Session>);

/// Which calls of a connection are not answered, in the order in which they were sent. One that was
/// dropped is among them.
#[derive(Default)]
struct Calls {
    last: u64,
    unanswered: VecDeque<(u64, Instant)>,
}

impl Connector {
    /// Nothing is connected before it is used.
    pub(crate) fn new(config: Arc<PostgresConfig>) -> Connector {
        let (current, notifications) = (Arc::default(), Arc::new(Notifications::new()));
        Connector { config, state: Mutex::default(), current, notifications }
    }

    /// What is notified on this connection.
    pub(crate) fn notifications(&self) -> &Arc<Notifications> {
        &self.notifications
    }

    /// The number of the session that is open, as it changes.
    pub(crate) fn current(&self) -> watch::Receiver<Option<u64>> {
        self.current.subscribe()
    }

    /// Sends one statement, unnamed and with its types, in one round trip.
    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        self.query_on(&session, sql, values).await
    }

    async fn query_on(
        &self,
        session: &Arc<Session>,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let answer = self.bounded(session, session.client.query_typed(sql, values)).await?;
        answer.map_err(|error| {
            // It was a primary. A new connection finds the one that is primary now (P7).
            if error::is_read_only(&error) {
                self.discard(session);
            }
            error::from_postgres(&self.config, error)
        })
    }

    /// Runs statements on this session and on no other.
    pub(crate) async fn execute_on(&self, session: &Arc<Session>, sql: &str) -> Result<(), Error> {
        let answer = self.bounded(session, session.client.batch_execute(sql)).await?;
        answer.map_err(|error| error::from_postgres(&self.config, error))
    }

    /// Waits for the answer to a call, for as long as a call may take. A session that does not give
    /// one is given up.
    async fn bounded<T>(
        &self,
        session: &Arc<Session>,
        call: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<Result<T, PostgresError>, Error> {
        let limit = self.config.call_timeout;
        let (number, began) = (session.begin(), now());
        let Ok(answer) = timeout(limit, call).await else {
            self.discard(session);
            return Err(error::timed_out(&self.config, "an answer of", limit));
        };
        session.answered(number);
        if began.elapsed() > QUICK {
            session.warm.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// The session that there is, or a new one.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Error> {
        let waited = timeout(self.config.connect_timeout, self.state.lock()).await;
        let Ok(mut state) = waited else {
            return Err(error::timed_out(
                &self.config,
                "connecting to",
                self.config.connect_timeout,
            ));
        };
        let silent = match &state.session {
            Some(session) if session.client.is_closed() => {
                session.task.abort();
                state.session = None;
                None
            }
            Some(session) if session.is_silent() && state.before.strong_count() == 0 => {
                Some(session.clone())
            }
            Some(session) => return Ok(session.clone()),
            None => None,
        };
        if let Some((until, error)) = &state.rest
            && now() < *until
        {
            return silent.ok_or_else(|| error.clone());
        }
        let number = state.opened + 1;
        let connected = match &silent {
            None => self.open(number).await,
            Some(silent) => tokio::select! {
                () = silent.answers.notified() => return Ok(silent.clone()),
                connected = self.open(number) => connected,
            },
        };
        match connected {
            Ok(session) => {
                state.session = None;
                let before = match silent {
                    // Calls on it are let end; where there are none, nobody misses it.
                    Some(silent) if Arc::strong_count(&silent) > 1 => Arc::downgrade(&silent),
                    Some(silent) => {
                        silent.task.abort();
                        Weak::new()
                    }
                    None => Weak::new(),
                };
                let (kept, opened) = (Some(session.clone()), number);
                *state = State { session: kept, before, opened, ..State::default() };
                Ok(session)
            }
            Err(error) => {
                let rest = BACKOFF_MIN * 2_u32.saturating_pow(state.failures.min(16));
                state.failures = state.failures.saturating_add(1);
                state.rest = Some((now() + jittered(rest.min(BACKOFF_MAX)), error.clone()));
                silent.filter(|silent| !silent.client.is_closed()).ok_or(error)
            }
        }
    }

    /// Opens a session, which the current runtime carries.
    async fn open(&self, number: u64) -> Result<Arc<Session>, Error> {
        let (client, connection) = connection::open(&self.config).await?;
        let runtime = connection::runtime()?;
        self.current.send_replace(Some(number));
        let (current, notifications) = (self.current.clone(), self.notifications.clone());
        let carrier = Carrier { number, current, notifications };
        let task = runtime.spawn(async move { carrier.carry(connection).await });
        Ok(Arc::new(Session::new(number, client, task.abort_handle())))
    }

    /// The open connection, if nobody has warmed it up yet. The caller does so.
    pub(crate) fn take_cold(&self) -> Option<Cold> {
        let session = self.state.try_lock().ok()?.session.clone()?;
        (!session.warm.swap(true, Ordering::Relaxed)).then_some(Cold(session))
    }

    /// Has a new connection do once what takes longer the first time.
    pub(crate) async fn warm_up(&self, Cold(session): Cold) {
        let sql = self.config.names.render(include_str!("sql/warm_up.sql"));
        if let Err(error) = self.query_on(&session, &sql, &[]).await {
            tracing::debug!(%error, "a connection could not be warmed up");
        }
    }

    /// Gives up a connection that does not answer, or that nothing can be written through.
    fn discard(&self, session: &Arc<Session>) {
        session.task.abort();
        // A call that is at it now, connecting perhaps, finds it closed.
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.session.as_ref().is_some_and(|held| Arc::ptr_eq(held, session)) {
            state.session = None;
        }
    }
}

impl Session {
    fn new(number: u64, client: Client, task: AbortHandle) -> Session {
        let (calls, answers) = (StdMutex::default(), Notify::new());
        Session { number, client, task, calls, answers, warm: AtomicBool::new(false) }
    }

    /// Which session of its connector this is.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Notes a call that is about to be sent. Unless it is answered, the connection is under
    /// suspicion after a while, also if the call is dropped.
    fn begin(&self) -> u64 {
        let mut calls = lock(&self.calls);
        calls.last += 1;
        let call = calls.last;
        calls.unanswered.push_back((call, now()));
        call
    }

    /// This call was answered, and so were those that were sent before it.
    fn answered(&self, call: u64) {
        lock(&self.calls).unanswered.retain(|(number, _)| *number > call);
        self.answers.notify_waiters();
    }

    fn is_silent(&self) -> bool {
        let calls = lock(&self.calls);
        calls.unanswered.front().is_some_and(|(_, sent)| sent.elapsed() > SILENT_MAX)
    }
}

/// Carries the bytes of one session, and hands on what is notified on it.
struct Carrier {
    number: u64,
    current: Arc<watch::Sender<Option<u64>>>,
    notifications: Arc<Notifications>,
}

impl Carrier {
    async fn carry(&self, mut connection: Connection<Socket, Stream<Socket>>) {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(note)) => {
                    self.notifications.hear(self.number, note.channel(), note.payload());
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "a connection to Postgres has ended");
                    return;
                }
            }
        }
    }
}

/// However it ended, with its runtime perhaps.
impl Drop for Carrier {
    fn drop(&mut self) {
        self.current.send_if_modified(|current| {
            let ended = *current == Some(self.number);
            if ended {
                *current = None;
            }
            ended
        });
    }
}
