//! The one connection that carries all ops, and what to do when it breaks.
//!
//! Nothing waits in line for a server that is away: a call that finds no connection makes one
//! attempt within its own deadline, and further calls fail at once until it is time to try again.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Connection, Row, Socket};

use crate::config::PostgresConfig;
use crate::error;
use crate::tls::Stream;

/// A connection that has left a dropped call unanswered for this long is not used again.
const SILENT_MAX: Duration = Duration::from_millis(500);

/// How long to leave a server alone after the first failed attempt, and at most.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A connection that is made when it is needed.
pub(crate) struct Link {
    config: Arc<PostgresConfig>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failures: u32,
    /// Why the last attempt failed, and when to make the next.
    rest: Option<(Instant, Error)>,
}

/// One open connection.
struct Session {
    client: Client,
    task: AbortHandle,
    /// When the oldest call was sent that was dropped before it was answered.
    unanswered: StdMutex<Option<Instant>>,
}

impl Link {
    pub(crate) fn new(config: Arc<PostgresConfig>) -> Link {
        Link { config, state: Mutex::default() }
    }

    /// Sends one statement, unnamed and with its types, in one round trip.
    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        let limit = self.config.call_timeout;
        let call = Call { session: &session, sent: Instant::now(), done: false };
        match timeout(limit, session.client.query_typed(sql, values)).await {
            Ok(answer) => {
                call.answered();
                answer.map_err(|error| error::from_postgres(&self.config, error))
            }
            Err(_) => {
                drop(call);
                self.discard(&session).await;
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
        if let Some(session) = &state.session {
            if session.is_usable() {
                return Ok(session.clone());
            }
            session.task.abort();
            state.session = None;
        }
        if let Some((until, error)) = &state.rest
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match connect(&self.config).await {
            Ok((client, task)) => {
                let session = Arc::new(Session { client, task, unanswered: StdMutex::default() });
                *state = State { session: Some(session.clone()), ..State::default() };
                Ok(session)
            }
            Err(error) => {
                let rest = BACKOFF_MIN * 2_u32.saturating_pow(state.failures.min(16));
                state.failures = state.failures.saturating_add(1);
                state.rest = Some((Instant::now() + rest.min(BACKOFF_MAX), error.clone()));
                Err(error)
            }
        }
    }

    /// Gives up a connection that does not answer.
    async fn discard(&self, session: &Arc<Session>) {
        session.task.abort();
        let mut state = self.state.lock().await;
        if state.session.as_ref().is_some_and(|held| Arc::ptr_eq(held, session)) {
            state.session = None;
        }
    }
}

impl Session {
    fn is_usable(&self) -> bool {
        let silent = held(&self.unanswered).is_some_and(|since| since.elapsed() > SILENT_MAX);
        !self.client.is_closed() && !silent
    }
}

/// A call under way. If it is dropped, the connection is under suspicion until it answers.
struct Call<'a> {
    session: &'a Session,
    sent: Instant,
    done: bool,
}

impl Call<'_> {
    fn answered(mut self) {
        self.done = true;
        *held(&self.session.unanswered) = None;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.done {
            held(&self.session.unanswered).get_or_insert(self.sent);
        }
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

/// Opens a connection.
pub(crate) async fn open(config: &PostgresConfig) -> Result<Open, Error> {
    runtime()?;
    match timeout(config.connect_timeout, config.server.connect(config.tls.clone())).await {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(error)) => Err(error::from_postgres(config, error)),
        Err(_) => Err(error::timed_out(config, "connecting to", config.connect_timeout)),
    }
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
