//! Learning at once that a holder's session has ended: one wait for each session that is followed.
//!
//! The wait is for the liveness lock of that session and never for the lock of an election, which
//! a follower that is frozen would then be granted. It is shared and ends with its message.
//!
//! Whoever waits has a snapshot, and VACUUM keeps what that could see. So no wait lasts long: it is
//! begun again, with a new one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Error, Name};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::ears::Ears;
use crate::config::PostgresConfig;
use crate::error;
use crate::link::{self, held};

/// How many sessions are waited for at once; each takes a connection. Holders beyond that are
/// polled.
const WAITS_MAX: usize = 8;

/// How long to leave it after a wait that failed: those who follow would try again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// The sessions that this store waits for.
pub(super) struct Waits {
    config: Arc<PostgresConfig>,
    /// How long one statement waits.
    limit: Duration,
    ears: Arc<Ears>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the pid of the session.
    waits: HashMap<i32, Wait>,
    /// Counts the waits.
    last: u64,
    /// A connection that has waited and may do so again.
    free: Option<Connected>,
    closed: bool,
}

/// One session that is waited for.
struct Wait {
    /// Which wait this is: pids come again.
    number: u64,
    /// The elections that it was seen to hold.
    names: HashSet<Name>,
    task: Option<AbortHandle>,
}

/// An open connection. Dropping it ends it.
struct Connected(Client, AbortHandle);

impl Drop for Connected {
    fn drop(&mut self) {
        self.1.abort();
    }
}

impl Waits {
    pub(super) fn new(config: Arc<PostgresConfig>, limit: Duration, ears: Arc<Ears>) -> Waits {
        Waits { config, limit, ears, state: Mutex::default() }
    }

    /// Has everybody hinted at when this session, which holds this election, ends. `false` if too
    /// many are waited for.
    pub(super) fn watch(self: &Arc<Waits>, pid: i32, election: &Name) -> bool {
        let Ok(runtime) = Handle::try_current() else { return true };
        if !self.ears.is_listened_to() {
            return true;
        }
        let mut state = held(&self.state);
        for (_, wait) in state.waits.iter_mut().filter(|(other, _)| **other != pid) {
            wait.names.remove(election);
        }
        if let Some(wait) = state.waits.get_mut(&pid) {
            wait.names.insert(election.clone());
            return true;
        }
        if state.waits.len() >= WAITS_MAX {
            // Whoever is not followed any more makes room.
            let idle = state.waits.iter().find(|(_, wait)| wait.names.is_empty());
            let Some(idle) = idle.map(|(pid, _)| *pid) else { return false };
            if let Some(task) = state.waits.remove(&idle).and_then(|wait| wait.task) {
                task.abort();
            }
        }
        if state.closed {
            return true;
        }
        state.last += 1;
        let number = state.last;
        let waiting = Waiting { waits: self.clone(), pid, number };
        let task = runtime.spawn(async move {
            if let Err(error) = waiting.waits.wait_for(pid).await {
                tracing::debug!(%error, pid, "a holder can't be waited for");
                let _ = timeout(PAUSE, std::future::pending::<()>()).await;
            }
            drop(waiting);
        });
        let names = HashSet::from([election.clone()]);
        state.waits.insert(pid, Wait { number, names, task: Some(task.abort_handle()) });
        true
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        let (waits, free) = {
            let mut state = held(&self.state);
            state.closed = true;
            (std::mem::take(&mut state.waits), state.free.take())
        };
        for task in waits.into_values().filter_map(|wait| wait.task) {
            task.abort();
        }
        drop(free);
    }

    async fn wait_for(&self, pid: i32) -> Result<(), Error> {
        let free = held(&self.state).free.take();
        let failed = |error| error::from_postgres(&self.config, error);
        let connected = match free.filter(|free| !free.0.is_closed()) {
            Some(free) => free,
            None => {
                let (client, task) = link::connect(&self.config).await?;
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
        while !is_over(&connected.0.simple_query(&sql).await.map_err(failed)?) {}
        let mut state = held(&self.state);
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
    waits: Arc<Waits>,
    pid: i32,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let ended = {
            let mut state = held(&self.waits.state);
            let ours = state.waits.get(&self.pid).is_some_and(|wait| wait.number == self.number);
            if ours { state.waits.remove(&self.pid) } else { None }
        };
        if let Some(wait) = ended {
            self.waits.ears.emit_all(wait.names.iter());
        }
    }
}
