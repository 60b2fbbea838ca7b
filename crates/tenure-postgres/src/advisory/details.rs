//! What stands beside the terms, where `tenure migrate` has made a table for it: who holds it in
//! full, since when, and what it published. None of it changes while a term lasts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind, Holder, Lease, Metadata, Name, Reply, Sight, Term};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::config::PostgresConfig;
use crate::connector::Connector;
use crate::error;

/// Of how many elections details are kept.
const KEPT_MAX: usize = 100_000;

/// What one connection has found out and others need not ask again.
#[derive(Default)]
pub(super) struct Known {
    /// There is no pooler in between.
    pub(super) direct: AtomicBool,
    /// Whether the table is there and may be read: 0 as long as nobody has looked, 1 if not, 2 if
    /// so.
    table: AtomicU8,
}

impl Known {
    pub(super) fn note_table(&self, there: bool) {
        self.table.store(1 + u8::from(there), Ordering::Relaxed);
    }

    fn table(&self) -> Option<bool> {
        match self.table.load(Ordering::Relaxed) {
            0 => None,
            noted => Some(noted == 2),
        }
    }
}

/// What is known of the last terms of elections.
pub(super) struct Details {
    config: Arc<PostgresConfig>,
    connector: Arc<Connector>,
    known: Arc<Known>,
    kept: Mutex<HashMap<Name, Detail>>,
}

#[derive(Clone)]
struct Detail {
    term: Term,
    holder: Holder,
    since_unix_ms: Option<u64>,
    metadata: Option<Metadata>,
}

impl Details {
    pub(super) fn new(
        config: Arc<PostgresConfig>,
        connector: Arc<Connector>,
        known: Arc<Known>,
    ) -> Details {
        Details { config, connector, known, kept: Mutex::default() }
    }

    /// Adds to replies what the table has to say; without it they are right as they are.
    pub(super) async fn complete(&self, replies: &mut [(&Name, Reply)]) {
        let lacks = |(name, reply): &(&Name, Reply)| match sight(reply) {
            Some(Sight { lease: Some(lease), .. }) => {
                let known = lock(&self.kept).get(*name).map(|detail| detail.term);
                // One far above the numbers of transactions does not show in the locks.
                if lease.term.is_none() { is_ours(lease) } else { known != lease.term }
            }
            Some(_) => true,
            None => false,
        };
        let names: Vec<&str> =
            replies.iter().filter(|reply| lacks(reply)).map(|(name, _)| name.as_str()).collect();
        if !names.is_empty()
            && let Err(error) = self.fetch(names).await
        {
            tracing::debug!(%error, "the details of elections can't be read");
        }
        let kept = lock(&self.kept);
        for (name, reply) in replies {
            let (Reply::Refused(sight) | Reply::Seen(sight)) = reply else { continue };
            let Some(detail) = kept.get(*name) else { continue };
            sight.last_term = sight.last_term.max(Some(detail.term));
            let is_its = |lease: &&mut Lease| match lease.term {
                Some(term) => term == detail.term,
                None => is_ours(lease) && incarnation(&lease.holder) == incarnation(&detail.holder),
            };
            if let Some(lease) = sight.lease.as_mut().filter(is_its) {
                lease.term = Some(detail.term);
                lease.holder = detail.holder.clone();
                lease.since_unix_ms = detail.since_unix_ms;
                lease.metadata = detail.metadata.clone();
            }
        }
    }

    /// The names of all elections that have a row.
    pub(super) async fn elections(&self) -> Result<Vec<Name>, Error> {
        if !self.has_table().await? {
            let message = "a lock does not tell the name of its election; name the election, or \
                           run `tenure migrate` to have the names kept";
            return Err(error::new(ErrorKind::Unsupported, message));
        }
        let sql = self.config.names.render(include_str!("sql/elections.sql"));
        let rows = self.connector.query(&sql, &[]).await?;
        let name = |row: &Row| Name::new(row.try_get::<_, &str>(0).ok()?).ok();
        Ok(rows.iter().filter_map(name).collect())
    }

    async fn has_table(&self) -> Result<bool, Error> {
        if let Some(there) = self.known.table() {
            return Ok(there);
        }
        let schema = self.config.names.schema();
        let sql = include_str!("sql/table.sql");
        let rows = self.connector.query(sql, &[(&schema, Type::TEXT)]).await?;
        let there = rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
        self.known.note_table(there);
        Ok(there)
    }

    async fn fetch(&self, names: Vec<&str>) -> Result<(), Error> {
        if !self.has_table().await? {
            return Ok(());
        }
        let sql = self.config.names.render(include_str!("sql/details.sql"));
        let rows = self.connector.query(&sql, &[(&names, Type::TEXT_ARRAY)]).await?;
        let mut kept = lock(&self.kept);
        for (name, detail) in rows.iter().filter_map(read) {
            if kept.len() < KEPT_MAX || kept.contains_key(&name) {
                kept.insert(name, detail);
            }
        }
        Ok(())
    }
}

/// A holder whose session has a liveness lock, and not somebody who knows of no terms.
fn is_ours(lease: &Lease) -> bool {
    lease.ttl.is_some()
}

/// What tells two holders apart whatever was cut off their labels (A5).
fn incarnation(holder: &Holder) -> Option<&str> {
    holder.as_str().rsplit_once('#').map(|(_, incarnation)| incarnation)
}

fn sight(reply: &Reply) -> Option<&Sight> {
    match reply {
        Reply::Refused(sight) | Reply::Seen(sight) => Some(sight),
        _ => None,
    }
}

fn read(row: &Row) -> Option<(Name, Detail)> {
    let name = Name::new(row.try_get::<_, &str>(0).ok()?).ok()?;
    let term = Term::new(u64::try_from(row.try_get::<_, i64>(1).ok()?).ok()?)?;
    let holder = Holder::new(row.try_get::<_, String>(2).ok()?);
    let since: i64 = row.try_get(3).ok()?;
    let metadata: Option<String> = row.try_get(4).ok()?;
    let metadata = metadata.and_then(|json| crate::lease::published(&json));
    let since_unix_ms = u64::try_from(since).ok();
    Some((name, Detail { term, holder, since_unix_ms, metadata }))
}
