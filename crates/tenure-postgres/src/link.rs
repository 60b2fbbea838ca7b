//! The one connection that carries all ops, and what to do when it breaks.
//!
//! Nothing waits in line for a server that is away: a call that finds no connection makes one
//! attempt within its own deadline, and further calls fail at once until it is time to try again.
//! Nor does it wait behind a call that is not answered: the network may have forgotten a connection
//! without a word, and a short lease has no time to find that out. A new one is made beside it, and
//! whichever answers first is used.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Connection, Row, Socket};

use crate::config::PostgresConfig;
use crate::error;
use crate::pool::Pool;
use crate::tls::Stream;

/// A connection that has left a call unanswered for this long is under suspicion.
const SILENT_MAX: Duration = Duration::from_millis(300);

/// A connection that took longer than this to answer is not warmed up: whoever asks next would wait
/// for that, and where answers take long it gains little.
pub(crate) const QUICK: Duration = Duration::from_millis(50);

/// How long to leave a server alone after the first failed attempt, and at most.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A connection that is made when it is needed.
pub(crate) struct Link {
    config: Arc<PostgresConfig>,
    state: Mutex<State>,
    pool: Option<Pool>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The one before, while calls on it are under way; there is never another.
    before: Weak<Session>,
    failures: u32,
    /// Why the last attempt failed, and when to make the next.
    rest: Option<(Instant, Error)>,
}

/// One open connection.
struct Session {
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

impl Link {
    pub(crate) fn new(config: Arc<PostgresConfig>, pool: Option<Pool>) -> Link {
        Link { config, state: Mutex::default(), pool }
    }

    /// Whether the user's pool lends connections.
    pub(crate) fn is_lent(&self) -> bool {
        self.pool.is_some()
    }

    /// As [`query`](Link::query), on a connection of the user's pool if there is one to be had.
    pub(crate) async fn query_lent(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        if let Some(pool) = &self.pool {
            if !pool.is_known() {
                self.compare(pool).await?;
            }
            // Half of the time is left for the connection of our own.
            let lent = pool.query(sql, values, self.config.call_timeout / 2).await;
            match lent {
                // A session of theirs that is read-only is theirs to end (P7).
                Err(error) if error::is_read_only(&error) => {}
                Err(error) => return Err(error::from_postgres(&self.config, error)),
                Ok(Some(rows)) => return Ok(rows),
                Ok(None) => {}
            }
        }
        self.query(sql, values).await
    }

    /// Refuses a pool that leads to another place than the URL: acquires here and renewals there
    /// would never make a leader.
    async fn compare(&self, pool: &Pool) -> Result<(), Error> {
        let sql = self.config.names.render(include_str!("sql/deployment.sql"));
        let which = |rows: &[Row]| {
            rows.first().and_then(|row| row.try_get::<_, String>(0).ok()).unwrap_or_default()
        };
        let ours = which(&self.query(&sql, &[]).await?);
        let lent = pool.query(&sql, &[], self.config.call_timeout / 2).await;
        match lent.map_err(|error| error::from_postgres(&self.config, error))? {
            // It lends nothing at present.
            None => Ok(()),
            Some(rows) if which(&rows) == ours => {
                pool.know();
                Ok(())
            }
            Some(_) => Err(error::new(
                ErrorKind::Config,
                format!(
                    "the pool leads to another database than {}; make them the same",
                    self.config.address()
                ),
            )),
        }
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
        let limit = self.config.call_timeout;
        let (call, began) = (session.begin(), Instant::now());
        match timeout(limit, session.client.query_typed(sql, values)).await {
            Ok(answer) => {
                session.answered(call);
                if began.elapsed() > QUICK {
                    session.warm.store(true, Ordering::Relaxed);
                }
                answer.map_err(|error| {
                    // It was a primary. Whoever is one now is found by a new connection (P7).
                    if error::is_read_only(&error) {
                        self.discard(session);
                    }
                    error::from_postgres(&self.config, error)
                })
            }
            Err(_) => {
                self.discard(session);
                Err(error::timed_out(&self.config, "an answer of", limit))
            }
        }
    }

    async fn session(&self) -> Result<Arc<Session>, Error> {
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
            && Instant::now() < *until
        {
            return silent.ok_or_else(|| error.clone());
        }
        let connected = match &silent {
            None => connect(&self.config).await,
            Some(silent) => tokio::select! {
                () = silent.answers.notified() => return Ok(silent.clone()),
                connected = connect(&self.config) => connected,
            },
        };
        match connected {
            Ok((client, task)) => {
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
                let session = Arc::new(Session::new(client, task));
                *state = State { session: Some(session.clone()), before, ..State::default() };
                Ok(session)
            }
            Err(error) => {
                let rest = BACKOFF_MIN * 2_u32.saturating_pow(state.failures.min(16));
                state.failures = state.failures.saturating_add(1);
                state.rest = Some((Instant::now() + rest.min(BACKOFF_MAX), error.clone()));
                silent.filter(|silent| !silent.client.is_closed()).ok_or(error)
            }
        }
    }

    /// The open connection, if nobody has warmed it up yet. Whoever asks does so.
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
        // Whoever is at it now, connecting perhaps, finds it closed.
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.session.as_ref().is_some_and(|held| Arc::ptr_eq(held, session)) {
            state.session = None;
        }
    }
}

impl Session {
    fn new(client: Client, task: AbortHandle) -> Session {
        let (calls, answers) = (StdMutex::default(), Notify::new());
        Session { client, task, calls, answers, warm: AtomicBool::new(false) }
    }

    /// Notes a call that is about to be sent. Unless it is answered, the connection is under
    /// suspicion after a while, also if the call is dropped.
    fn begin(&self) -> u64 {
        let mut calls = held(&self.calls);
        calls.last += 1;
        let call = calls.last;
        calls.unanswered.push_back((call, Instant::now()));
        call
    }

    /// This call was answered, and so were those that were sent before it.
    fn answered(&self, call: u64) {
        held(&self.calls).unanswered.retain(|(number, _)| *number > call);
        self.answers.notify_waiters();
    }

    fn is_silent(&self) -> bool {
        let calls = held(&self.calls);
        calls.unanswered.front().is_some_and(|(_, sent)| sent.elapsed() > SILENT_MAX)
    }
}

/// Opens a connection and lets the current runtime carry it.
pub(crate) async fn connect(config: &PostgresConfig) -> Result<(Client, AbortHandle), Error> {
    let (client, connection) = open(config).await?;
    let task = runtime()?.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to Postgres has ended");
        }
    });
    Ok((client, task.abort_handle()))
}

/// A connection that somebody has yet to carry.
pub(crate) type Open = (Client, Connection<Socket, Stream<Socket>>);

/// Opens a connection to the first server that will do. Each has its share of the time, and the
/// next call, also after this one was dropped, begins behind the last that was tried.
pub(crate) async fn open(config: &PostgresConfig) -> Result<Open, Error> {
    runtime()?;
    let (hosts, limit) = (&config.hosts, config.connect_timeout);
    let deadline = Instant::now() + limit;
    let mut refusals = Vec::new();
    for left in (1..=hosts.count()).rev() {
        let index = hosts.take_turn();
        let server = hosts.server(index)?;
        let share = deadline.saturating_duration_since(Instant::now()) / left as u32;
        let error = match timeout(share, server.connect(config.tls.clone())).await {
            Ok(Ok(opened)) => {
                hosts.stay(index);
                return Ok(opened);
            }
            Ok(Err(error)) => error::from_connecting(config, index, error),
            Err(_) if hosts.count() == 1 => error::timed_out(config, "connecting to", limit),
            Err(_) => error::no_answer(config, index, share),
        };
        refusals.push(error);
    }
    Err(error::nobody(refusals))
}

fn runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        error::new(ErrorKind::Config, "the postgres store needs a tokio runtime; call it from one")
    })
}

/// Locks, also after a panic elsewhere: what is kept behind these is never half changed.
pub(crate) fn held<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
