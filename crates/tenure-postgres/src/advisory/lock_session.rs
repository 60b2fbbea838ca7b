//! One session that holds election locks, and the statements that run on it.
//!
//! Each is one message and ends its own transaction, so that a client may freeze at any point and
//! the server still finds the session idle (A2).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{CandidateId, Error, ErrorKind, Name, Term};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::config::AdvisoryConfig;
use super::key;
use super::lease::Lease;
use super::sight::{self, Seen};
use super::tables;
use crate::clock::now;
use crate::{connection, connector, error};

/// The first server that ends silent sessions, and the first that numbers transactions as needed.
const SERVER_EVICTS: i32 = 140_000;
const SERVER_MIN: i32 = 130_000;

/// What ends a silent session, and what is set instead where there is no such thing.
const EVICTS: &str = "idle_session_timeout";
const EVICTS_NOT: &str = "tenure.idle_session_timeout";

/// The longest ttl that the server can keep, in milliseconds.
const TTL_MS_MAX: u128 = i32::MAX as u128;

/// Why a statement failed.
pub(super) enum Trouble {
    /// The server said no. The session and its locks are as they were.
    Said(Error),
    /// The session is of no use any more.
    Lost(Error),
}

impl Trouble {
    pub(super) fn into_error(self) -> Error {
        match self {
            Trouble::Said(error) | Trouble::Lost(error) => error,
        }
    }
}

/// One session. Dropping it ends it, and so frees its locks.
pub(super) struct LockSession {
    pub(super) id: u64,
    pub(super) pid: i32,
    /// How long it may be silent; the longest ttl of its leases.
    pub(super) ttl: Duration,
    /// What it holds, by the number of the lock.
    pub(super) leases: HashMap<i64, Lease>,
    /// Since when fenced transactions, and of which term, keep it out of elections that nobody
    /// leads (P3).
    pub(super) fenced: HashMap<Name, (Option<Term>, Instant)>,
    pub(super) config: AdvisoryConfig,
    pub(super) candidate: CandidateId,
    client: Client,
    task: AbortHandle,
    evicts: &'static str,
    /// `tenure migrate` was here, and this role may use it: grants leave their terms in a table.
    pub(super) tables: bool,
    /// Planned once: some of these take longer to plan than to run.
    prepared: Option<Prepared>,
    /// Whether it was warmed up, or had better not be.
    warm: AtomicBool,
}

/// The statements of which hand-overs are made.
pub(super) struct Prepared {
    tried: Statement,
    beat: Statement,
    /// Begins a term: in the table, where there is one.
    pub(super) issue: Statement,
    unlock: Statement,
    tell: Statement,
}

impl Prepared {
    async fn new(
        client: &Client,
        (issue, of_issue): (&str, &[Type]),
    ) -> Result<Prepared, tokio_postgres::Error> {
        let tried = concat!(include_str!("sql/tried.sql"), include_str!("sql/sight.sql"));
        let of_try = [Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8, Type::TEXT, Type::TEXT];
        let of_unlock =
            [Type::INT8_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::TEXT, Type::TEXT];
        let (tried, beat, issue, unlock, tell) = tokio::try_join!(
            client.prepare_typed(tried, &of_try),
            client.prepare_typed(include_str!("sql/beat.sql"), &[Type::INT8_ARRAY]),
            client.prepare_typed(issue, of_issue),
            client.prepare_typed(include_str!("sql/unlock.sql"), &of_unlock),
            client
                .prepare_typed(include_str!("../sql/announce_one.sql"), &[Type::TEXT, Type::TEXT]),
        )?;
        Ok(Prepared { tried, beat, issue, unlock, tell })
    }
}

impl LockSession {
    /// Opens a session for a candidate. `ended` is told its `id` when the connection ends, and
    /// `direct` whether it is known that there is no pooler in between.
    pub(super) async fn open(
        config: &AdvisoryConfig,
        candidate: &CandidateId,
        ttl: Duration,
        direct: bool,
        id: u64,
        ended: mpsc::UnboundedSender<u64>,
    ) -> Result<LockSession, Error> {
        let (client, connection) = connection::open(&config.base).await?;
        let task = Handle::current().spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a session with election locks has ended");
            }
            let _gone = ended.send(id);
        });
        let (task, leases) = (task.abort_handle(), HashMap::new());
        let config = config.clone();
        let (evicts, tables, prepared) = (EVICTS, false, None);
        let mut session = LockSession {
            id,
            pid: 0,
            ttl,
            leases,
            fenced: HashMap::new(),
            config,
            candidate: candidate.clone(),
            client,
            task,
            evicts,
            tables,
            prepared,
            warm: AtomicBool::new(false),
        };
        session.set_up(direct).await.map_err(Trouble::into_error)?;
        Ok(session)
    }

    async fn set_up(&mut self, direct: bool) -> Result<(), Trouble> {
        let schema = self.config.base.names.schema().to_owned();
        let table = self.config.base.names.table().to_owned();
        let rows = self.query(tables::SERVER_SQL, &tables::of(&schema, &table)).await?;
        let row = one(&rows)?;
        let version: i32 = column(row, 0)?;
        self.evicts = evicts(version, self.config.frozen_may_stay).map_err(Trouble::Said)?;
        if column(row, 1)? {
            return Err(Trouble::Said(sight::standby()));
        }
        if !direct {
            self.refuse_pooler(column(row, 2)?).await?;
        }
        self.tables = tables::usable(row, &schema).map_err(Trouble::Said)?;
        let mut settings = self.settings();
        settings.push(("application_name", key::application_name(&self.candidate)));
        settings.push((self.evicts, "0".to_owned()));
        for (name, value) in [
            ("default_transaction_read_only", "off"),
            ("transaction_timeout", "0"),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_nestloop", "off"),
            ("jit", "off"),
        ] {
            settings.push((name, value.to_owned()));
        }
        let (names, values) = split(settings);
        let ttl_ms = millis(self.ttl);
        let rows = self
            .query(
                include_str!("sql/session.sql"),
                &[(&ttl_ms, Type::INT4), (&names, Type::TEXT_ARRAY), (&values, Type::TEXT_ARRAY)],
            )
            .await?;
        let row = one(&rows)?;
        let (live, known): (bool, bool) = (column(row, 0)?, column(row, 1)?);
        if !live || !known {
            // Somebody waits for an earlier session of this number, for an instant.
            return Err(Trouble::Lost(error::new(
                ErrorKind::Unavailable,
                "the lock that shows this session to others is taken; try again",
            )));
        }
        self.pid = column(row, 2)?;
        let limit = self.limit();
        let (issue, of_issue) = self.issue_sql();
        let prepared = timeout(limit, Prepared::new(&self.client, (&issue, of_issue))).await;
        let prepared = prepared.map_err(|_| self.silent(limit))?;
        self.prepared = Some(prepared.map_err(|error| self.failed(error))?);
        Ok(())
    }

    /// What bounds the silence of this session, however it comes about.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let ms = millis(self.ttl);
        // All probes together take no less than the ttl.
        let seconds = (ms.cast_unsigned().div_ceil(3_000)).max(1).to_string();
        vec![
            ("statement_timeout", ms.to_string()),
            ("idle_in_transaction_session_timeout", ms.to_string()),
            ("tcp_user_timeout", ms.to_string()),
            ("tcp_keepalives_idle", seconds.clone()),
            ("tcp_keepalives_interval", seconds),
            ("tcp_keepalives_count", "2".to_owned()),
        ]
    }

    /// Refuses a pooler that lends a backend per transaction: two connections of ours then meet
    /// at one backend, or one of them wanders.
    async fn refuse_pooler(&self, pid: i32) -> Result<(), Trouble> {
        let failed = |error| self.failed(error);
        let opened = connection::connect(&self.config.base).await.map_err(Trouble::Said)?;
        let (other, _task) = (opened.0, Ends(opened.1));
        let limit = self.limit();
        let begun = timeout(limit, other.batch_execute("BEGIN")).await;
        begun.map_err(|_| self.silent(limit))?.map_err(failed)?;
        let sql = "SELECT pg_catalog.pg_backend_pid()";
        let rows = timeout(limit, other.query_typed(sql, &[])).await;
        let rows = rows.map_err(|_| self.silent(limit))?.map_err(failed)?;
        let mut wanders = column::<i32>(one(&rows)?, 0)? == pid;
        for _ in 0..2 {
            if !wanders {
                let rows = self.query(sql, &[]).await?;
                wanders = column::<i32>(one(&rows)?, 0)? != pid;
            }
        }
        let _ended = timeout(limit, other.batch_execute("ROLLBACK")).await;
        if wanders { Err(Trouble::Lost(pooled())) } else { Ok(()) }
    }

    /// Tries for locks that this session does not hold; what others hold comes with its holder.
    pub(super) async fn try_locks(&self, keys: &[i64]) -> Result<Vec<Seen>, Trouble> {
        let masks: Vec<i64> = keys.iter().map(|key| shown(key::mask(*key).0)).collect();
        let offset = self.offset();
        let ttl_ms = millis(self.ttl).to_string();
        let values: [&(dyn ToSql + Sync); 5] = [&keys, &masks, &offset, &self.evicts, &ttl_ms];
        let rows = self.run(|prepared| &prepared.tried, &values).await?;
        rows.iter().map(|row| Seen::from_row(row, keys).map_err(Trouble::Said)).collect()
    }

    /// Which of these locks the session holds, and the server's clock. That it was asked is what
    /// keeps the session.
    pub(super) async fn beat(&self, keys: &[i64]) -> Result<(HashSet<usize>, Duration), Trouble> {
        let rows = self.run(|prepared| &prepared.beat, &[&keys]).await?;
        let row = one(&rows)?;
        if column::<i32>(row, 0)? != self.pid {
            return Err(Trouble::Lost(pooled()));
        }
        let held: Vec<i64> = column(row, 2)?;
        let place = |place: i64| usize::try_from(place - 1).ok();
        Ok((held.into_iter().filter_map(place).collect(), span(column(row, 1)?)))
    }

    /// Gives locks back; which of them it still held.
    pub(super) async fn unlock(&self, locks: &[(i64, Option<Term>)]) -> Result<Vec<bool>, Trouble> {
        let keys: Vec<i64> = locks.iter().map(|(key, _)| *key).collect();
        let term_lock = |(key, term): &(i64, Option<Term>)| {
            term.map_or((0, 0), |term| key::term_lock(*key, term))
        };
        let (his, los): (Vec<i32>, Vec<i32>) = locks.iter().map(term_lock).unzip();
        let empty = self.leases.keys().all(|key| keys.contains(key));
        let silence = if empty { "0".to_owned() } else { millis(self.ttl).to_string() };
        let values: [&(dyn ToSql + Sync); 5] = [&keys, &his, &los, &self.evicts, &silence];
        let rows = self.run(|prepared| &prepared.unlock, &values).await?;
        rows.iter().map(|row| column(row, 0)).collect()
    }

    /// Forgets terms that were followed by others.
    pub(super) async fn forget(&self, terms: &[(i64, Term)]) -> Result<(), Trouble> {
        let lock = |(key, term): &(i64, Term)| key::term_lock(*key, *term);
        let (his, los): (Vec<i32>, Vec<i32>) = terms.iter().map(lock).unzip();
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&his, Type::INT4_ARRAY), (&los, Type::INT4_ARRAY)];
        self.query(include_str!("sql/forget.sql"), &values).await.map(|_| ())
    }

    /// Another ttl.
    pub(super) async fn retune(&mut self, ttl: Duration) -> Result<(), Trouble> {
        let (old_ms, new_ms) = (millis(self.ttl), millis(ttl));
        self.ttl = ttl;
        if old_ms == new_ms {
            return Ok(());
        }
        let mut settings = self.settings();
        let silence = if self.leases.is_empty() { 0 } else { new_ms };
        settings.push((self.evicts, silence.to_string()));
        let (names, values) = split(settings);
        self.query(
            include_str!("sql/retune.sql"),
            &[
                (&new_ms, Type::INT4),
                (&old_ms, Type::INT4),
                (&names, Type::TEXT_ARRAY),
                (&values, Type::TEXT_ARRAY),
            ],
        )
        .await
        .map(|_| ())
    }

    /// Has a new session do once what takes longer the first time: a hand-over would wait for it.
    pub(super) async fn warm_up(&self) {
        if self.warm.swap(true, Ordering::Relaxed) || !self.tables {
            return;
        }
        let sql = self.config.base.names.render(include_str!("sql/warm_up.sql"));
        if let Err(trouble) = self.query(&sql, &[]).await {
            // Whether the session is lost, the next op finds out.
            let error = trouble.into_error();
            tracing::debug!(%error, "a session could not be warmed up");
        }
    }

    /// Tells other stores something. What is lost costs time only (I5).
    pub(super) async fn tell(&self, payload: &str) {
        let told = self.run(|prepared| &prepared.tell, &[&key::CHANNEL, &payload]).await;
        if let Err(trouble) = told {
            let error = trouble.into_error();
            tracing::warn!(%error, "other stores could not be told");
        }
    }

    /// A statement that was prepared.
    pub(super) async fn run(
        &self,
        which: impl Fn(&Prepared) -> &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        let Some(prepared) = &self.prepared else {
            let message = "the session was not set up; report this as a bug";
            return Err(Trouble::Lost(error::new(ErrorKind::Corrupt, message)));
        };
        let (limit, began) = (self.limit(), now());
        match timeout(limit, self.client.query(which(prepared), values)).await {
            Ok(answer) => {
                if began.elapsed() > connector::QUICK {
                    self.warm.store(true, Ordering::Relaxed);
                }
                answer.map_err(|error| self.failed(error))
            }
            Err(_) => Err(self.silent(limit)),
        }
    }

    /// A statement. Locks are waited for as long as they could be trusted: a server that hangs
    /// for a while must not cost them.
    pub(super) async fn query(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Trouble> {
        let limit = self.limit();
        match timeout(limit, self.client.query_typed(sql, values)).await {
            Ok(answer) => answer.map_err(|error| self.failed(error)),
            Err(_) => Err(self.silent(limit)),
        }
    }

    fn limit(&self) -> Duration {
        if self.leases.is_empty() { self.config.base.call_timeout } else { self.ttl }
    }

    fn silent(&self, limit: Duration) -> Trouble {
        Trouble::Lost(error::timed_out(&self.config.base, "an answer of", limit))
    }

    fn failed(&self, error: tokio_postgres::Error) -> Trouble {
        let fatal = error.as_db_error().is_none_or(|db| {
            matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        });
        let full = error.code().is_some_and(|code| code.code() == "53200");
        // It was a primary; who is one now, a new session finds out (P7).
        let fatal = fatal || error::is_read_only(&error);
        let error = error::from_postgres(&self.config.base, error);
        if full {
            return Trouble::Said(error::new(
                ErrorKind::Unavailable,
                "the server has no room for more locks; raise max_locks_per_transaction, each \
                 election takes two of them",
            ));
        }
        if fatal { Trouble::Lost(error) } else { Trouble::Said(error) }
    }

    pub(super) fn offset(&self) -> i64 {
        i64::try_from(self.config.term_offset).unwrap_or(i64::MAX)
    }
}

impl Drop for LockSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends a connection that was opened for a moment.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Which setting makes a server end silent sessions; refuses one that has none, in a sentence.
fn evicts(version: i32, frozen_may_stay: bool) -> Result<&'static str, Error> {
    let major = version / 10_000;
    match version {
        SERVER_EVICTS.. => Ok(EVICTS),
        SERVER_MIN.. if frozen_may_stay => Ok(EVICTS_NOT),
        SERVER_MIN.. => Err(error::new(
            ErrorKind::Unsupported,
            format!(
                "the server is PostgreSQL {major}, and only 14 and later end the session of a \
                 leader that is frozen or cut off; upgrade it, use postgres://, or accept that \
                 such a leader keeps the lock: frozen_leaders=stay in the URL"
            ),
        )),
        _ => Err(error::new(
            ErrorKind::Unsupported,
            format!("the server is PostgreSQL {major}, and 13 is the oldest that will do"),
        )),
    }
}

fn pooled() -> Error {
    error::new(
        ErrorKind::Unsupported,
        "there is a pooler in transaction mode before the server, and a lock needs a session of \
         its own; connect to the server itself, or to a pooler in session mode, or use postgres://",
    )
}

/// Milliseconds, rounded up: a lease may last longer than asked for, never shorter.
pub(super) fn millis(span: Duration) -> i32 {
    let ms = span.as_nanos().div_ceil(1_000_000).min(TTL_MS_MAX);
    i32::try_from(ms).unwrap_or(i32::MAX)
}

/// Half of a lock's number, as `pg_locks` shows it.
pub(super) fn shown(half: i32) -> i64 {
    i64::from(half.cast_unsigned())
}

pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn split(settings: Vec<(&'static str, String)>) -> (Vec<&'static str>, Vec<String>) {
    settings.into_iter().unzip()
}

pub(super) fn one(rows: &[Row]) -> Result<&Row, Trouble> {
    rows.first().ok_or_else(|| Trouble::Lost(error::new(ErrorKind::Corrupt, "no row came back")))
}

pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    index: usize,
) -> Result<T, Trouble> {
    row.try_get(index).map_err(|error| {
        let message = "the server answers in another shape; report this as a bug";
        Trouble::Lost(error::new(ErrorKind::Corrupt, message).caused_by(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_silent_sessions_is_refused_unless_that_is_accepted() {
        assert_eq!(evicts(150_018, false).unwrap(), EVICTS);
        assert_eq!(evicts(140_000, true).unwrap(), EVICTS);
        let error = evicts(130_011, false).unwrap_err();
        assert!(error.message().contains("PostgreSQL 13"), "{error}");
        assert!(error.message().contains("frozen_leaders=stay"), "{error}");
        assert_eq!(evicts(130_011, true).unwrap(), EVICTS_NOT);
        assert!(evicts(120_000, true).is_err());
    }

    #[test]
    fn a_ttl_is_never_shortened() {
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::MAX), i32::MAX);
    }
}
