//! Learning at once that a holder's session has ended: one wait for each session that is followed.
//!
//! The wait is for the liveness lock of that session and never for the lock of an election, which
//! a follower that is frozen would then be granted. It is shared and ends with its message.
//!
//! A wait has a snapshot, and VACUUM keeps what that could see. So no wait lasts long: it is
//! begun again, with a new one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{Error, Name};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::config::AdvisoryConfig;
use super::hints::Notifier;
use crate::clock::pause;
use crate::config::PostgresConfig;
use crate::connection;
use crate::error;
use crate::random::jittered;

/// How long to leave it after a wait that failed: those who follow would try again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// For how long a connection that is not needed stays open.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The sessions that this store waits for.
pub(super) struct HolderWaits {
    config: Arc<PostgresConfig>,
    /// How long one statement waits.
    limit: Duration,
    /// How many sessions are waited for at once; each takes a connection. Further holders are
    /// polled.
    most: usize,
    notifier: Arc<Notifier>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the pid of the session.
    waits: HashMap<i32, HolderWait>,
    /// Counts the waits.
    last: u64,
    /// A connection that has waited and may do so again.
    free: Option<Connected>,
    /// Whether those that are idle are about to be closed.
    closes_idle: bool,
    closed: bool,
}

/// One session that is waited for.
struct HolderWait {
    /// Which wait this is: pids come again.
    number: u64,
    /// The elections that it was seen to hold.
    names: HashSet<Name>,
    /// Told to stop waiting and to leave the connection to others.
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl HolderWait {
    /// Stops waiting.
    async fn end(self) {
        self.stop.notify_one();
        let _ended = self.task.await;
    }
}

/// An open connection. Dropping it ends it.
struct Connected(Client, AbortHandle);

impl Connected {
    /// Has the server give up the statement that runs here.
    async fn cancel(&self, config: &PostgresConfig) {
        let token = self.0.cancel_token();
        let canceled = timeout(config.connect_timeout, token.cancel_query(config.tls.clone()));
        if !matches!(canceled.await, Ok(Ok(()))) {
            self.1.abort();
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.1.abort();
    }
}

impl HolderWaits {
    pub(super) fn new(config: &AdvisoryConfig, notifier: Arc<Notifier>) -> HolderWaits {
        let (limit, most) = (config.wait_limit, config.watched_holders);
        HolderWaits { config: config.base.clone(), limit, most, notifier, state: Mutex::default() }
    }

    /// Has everybody hinted at when this session, which holds this election, ends. `false` if too
    /// many are waited for.
    pub(super) fn watch(self: &Arc<HolderWaits>, pid: i32, election: &Name) -> bool {
        let Ok(runtime) = Handle::try_current() else { return true };
        if !self.notifier.is_listened_to() {
            return true;
        }
        let mut state = lock(&self.state);
        for (_, wait) in state.waits.iter_mut().filter(|(other, _)| **other != pid) {
            wait.names.remove(election);
        }
        if let Some(wait) = state.waits.get_mut(&pid) {
            wait.names.insert(election.clone());
            return true;
        }
        let mut before = None;
        if state.waits.len() >= self.most {
            // One that is not followed any more makes room.
            let idle = state.waits.iter().find(|(_, wait)| wait.names.is_empty());
            let Some(idle) = idle.map(|(pid, _)| *pid) else { return false };
            before = state.waits.remove(&idle);
        }
        if state.closed {
            return true;
        }
        state.last += 1;
        let number = state.last;
        let waiting = Waiting { waits: self.clone(), pid, number };
        let stop: Arc<Notify> = Arc::default();
        let stopped = stop.clone();
        let task = runtime.spawn(async move {
            if let Some(before) = before {
                before.end().await;
            }
            if let Err(error) = waiting.waits.wait_for(pid, &stopped).await {
                tracing::debug!(%error, pid, "a holder can't be waited for");
                pause(jittered(PAUSE)).await;
            }
            drop(waiting);
        });
        let names = HashSet::from([election.clone()]);
        state.waits.insert(pid, HolderWait { number, names, stop, task });
        true
    }

    /// We lead this election: nobody need be waited for on its account. A connection that is not
    /// needed for a while is closed; it may be soon, so not at once.
    pub(super) fn lead(self: &Arc<HolderWaits>, election: &Name) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = lock(&self.state);
        for wait in state.waits.values_mut() {
            wait.names.remove(election);
        }
        let idle = state.free.is_some() || state.waits.values().any(|wait| wait.names.is_empty());
        if !idle || std::mem::replace(&mut state.closes_idle, true) {
            return;
        }
        let waits = Arc::downgrade(self);
        runtime.spawn(async move {
            pause(IDLE_MAX).await;
            if let Some(waits) = waits.upgrade() {
                waits.close_idle();
            }
        });
    }

    /// Closes connections that wait for nobody who matters.
    fn close_idle(&self) {
        let (idle, free) = {
            let mut state = lock(&self.state);
            state.closes_idle = false;
            let idle: Vec<HolderWait> =
                state.waits.extract_if(|_, wait| wait.names.is_empty()).map(|(_, w)| w).collect();
            (idle, state.free.take())
        };
        for wait in idle {
            wait.task.abort();
        }
        drop(free);
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        let (waits, free) = {
            let mut state = lock(&self.state);
            state.closed = true;
            (std::mem::take(&mut state.waits), state.free.take())
        };
        for wait in waits.into_values() {
            wait.task.abort();
        }
        drop(free);
    }

    /// Waits until this session has ended, or until it is told to stop.
    async fn wait_for(&self, pid: i32, stop: &Notify) -> Result<(), Error> {
        let free = lock(&self.state).free.take();
        let failed = |error| error::from_postgres(&self.config, error);
        let connected = match free.filter(|free| !free.0.is_closed()) {
            Some(free) => free,
            None => {
                let (client, task) = connection::connect(&self.config).await?;
                let connected = Connected(client, task);
                // Not 0, which would be no limit.
                let limit = self.limit.as_millis().clamp(1, i32::MAX as u128).to_string();
                let values: [(&(dyn ToSql + Sync), Type); 1] = [(&limit, Type::TEXT)];
                let sql = include_str!("sql/patient.sql");
                connected.0.query_typed(sql, &values).await.map_err(failed)?;
                connected
            }
        };
        let sql = include_str!("sql/wait.sql").replace("@pid@", &pid.to_string());
        loop {
            let mut waiting = std::pin::pin!(connected.0.simple_query(&sql));
            let over = tokio::select! {
                answer = &mut waiting => is_over(&answer.map_err(failed)?),
                () = stop.notified() => {
                    connected.cancel(&self.config).await;
                    // Whatever the answer is: the connection is free again, or it is closed.
                    let answered = timeout(self.config.call_timeout, waiting).await;
                    let limit = self.config.call_timeout;
                    let silent = |_| error::timed_out(&self.config, "an answer of", limit);
                    answered.map(|_| true).map_err(silent)?
                }
            };
            if over {
                break;
            }
        }
        let mut state = lock(&self.state);
        if !state.closed {
            state.free = Some(connected);
        }
        Ok(())
    }
}

/// Whether the session has ended, as the last statement of a wait tells.
fn is_over(answer: &[SimpleQueryMessage]) -> bool {
    answer.iter().any(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
        _ => false,
    })
}

/// One wait. When it is over, however that came, those who follow look for themselves.
struct Waiting {
    waits: Arc<HolderWaits>,
    pid: i32,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let ended = {
            let mut state = lock(&self.waits.state);
            let ours = state.waits.get(&self.pid).is_some_and(|wait| wait.number == self.number);
            if ours { state.waits.remove(&self.pid) } else { None }
        };
        if let Some(wait) = ended {
            self.waits.notifier.hint_at(wait.names.iter());
        }
    }
}
