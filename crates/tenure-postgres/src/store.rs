//! The handle that users hold.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    BoxFuture, Channels, Checkup, Elections, Error, ErrorKind, Expiry, Hints, Ledger, Migrate,
    Migrated, Name, Op, Reply, Secret, Store, StoreInfo, Term, Witness,
};
use tokio::runtime::Handle;
use tokio_postgres::types::{ToSql, Type};

use crate::channels::PostgresChannels;
use crate::clock::pause;
use crate::config::PostgresConfig;
use crate::connection;
use crate::connector::Connector;
use crate::error;
use crate::hints::HintHub;
use crate::lease::{self, Columns};
use crate::ledger::PostgresLedger;
use crate::listener::NotifyListener;
use crate::migrate;
use crate::names::Names;
use crate::notifications::Subscriber;
use crate::shape;

/// How many ops one call carries.
const BATCH_LIMIT: usize = 10_000;

/// The shortest ttl that is taken.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(100);

/// How many elections of one batch are hinted at by name; more become a single "any".
const ANNOUNCE_MAX: usize = 64;

/// How long to leave a row alone that others are at, before it is asked for once more.
const BUSY_PAUSE: Duration = Duration::from_millis(3);

/// Leases in a table of PostgreSQL.
///
/// A clone is another handle onto the same connection. It has one connection, made by the first
/// op, that carries all ops and hears all hints; and a second one once messages or the ledger are
/// used.
///
/// # Guarantees
/// The whole contract of [`Store`]; the crate's documentation has the table.
///
/// # Examples
/// ```no_run
/// use tenure_core::{Name, StoreExt};
/// use tenure_postgres::PostgresConfig;
///
/// # async fn example() -> Result<(), tenure_core::Error> {
/// let store = PostgresConfig::from_url("postgres://app:secret@db/shop")?.open();
/// store.migrate().await?;
/// let sight = store.read(&Name::new("invoices")?).await?;
/// assert!(sight.lease.is_none(), "nobody leads yet");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Shared>);

struct Shared {
    config: Arc<PostgresConfig>,
    connector: Arc<Connector>,
    listener: Arc<NotifyListener>,
    hub: Arc<HintHub>,
    channels: PostgresChannels,
    ledger: PostgresLedger,
    apply_sql: String,
}

impl PostgresStore {
    pub(crate) fn new(config: PostgresConfig) -> PostgresStore {
        let config = Arc::new(config);
        let connector = Arc::new(Connector::new(config.clone()));
        let listener = Arc::new(NotifyListener::new(config.clone(), connector.clone()));
        let hub = Arc::new(HintHub::new(config.names.channel()));
        let subscriber: Arc<dyn Subscriber> = hub.clone();
        listener.notifications().subscribe(Arc::downgrade(&subscriber));
        // What is no election has a connection of its own (C3).
        let second = Arc::new(Connector::new(config.clone()));
        PostgresStore(Arc::new(Shared {
            channels: PostgresChannels::new(config.clone(), second.clone(), connector.clone()),
            ledger: PostgresLedger::new(config.clone(), second),
            apply_sql: config.names.render(include_str!("sql/apply.sql")),
            config,
            connector,
            listener,
            hub,
        }))
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        self.0.config.address()
    }

    /// Creates the table and the functions, or brings them up to date. Any number of instances
    /// may do so at once; leaders go on leading.
    ///
    /// # Cancel safety
    /// Cancel safe: it is done as a whole or not at all.
    ///
    /// # Errors
    /// - `Denied`: the role may not create tables; see [`migration_sql`](Self::migration_sql).
    /// - `Config`: a table of that name has another shape, or there is no such database.
    /// - `Unsupported`: the server is too old.
    /// - `Unavailable`: the server is away, or others kept the table for a minute.
    pub async fn migrate(&self) -> Result<Migrated, Error> {
        migrate::migrate(&self.0.config).await.map_err(|error| error.during("migrate"))
    }

    /// What of the schema is not as this version of tenure makes it, in a sentence each:
    /// functions with another body, triggers that are disabled, columns that are missing, and so
    /// on. [`migrate`](Self::migrate) puts it right.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the server from answering.
    pub async fn differences(&self) -> Result<Vec<String>, Error> {
        let config = &self.0.config;
        let (client, task) = connection::connect(config).await?;
        let differs = shape::differences(&client, &config.names, false).await;
        task.abort();
        let differs = differs.map_err(|error| error::from_postgres(config, error))?;
        Ok(differs.iter().map(|differs| differs.says(&config.names)).collect())
    }

    /// What [`migrate`](Self::migrate) does, as one statement of SQL for the owner of the schema.
    pub fn migration_sql(&self) -> String {
        migrate::script(&self.0.config)
    }

    /// Has every term that is issued here from now on be above this one, in all elections and for
    /// both kinds of stores: for moving here from another store (C5). A term that is held stays
    /// what it is until its reign ends. Returns the greatest that was ever given; it never falls.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped it may be done or not. Doing it again is harmless.
    ///
    /// # Errors
    /// - `Denied`: the role may not write to `tenure_floor`; the owner may.
    /// - `Config`: the schema was not migrated, or no term is left above this one.
    /// - `Unavailable`: the server is away.
    pub async fn raise_terms(&self, above: Term) -> Result<Term, Error> {
        if above == Term::MAX {
            let message = "no term is left above that one; give a lower one";
            return Err(error::new(ErrorKind::Config, message).during("raise"));
        }
        let sql = self.0.config.names.render(include_str!("sql/raise_terms.sql"));
        let number = i64::try_from(above.get()).unwrap_or(i64::MAX);
        let rows = self.0.connector.query(&sql, &[(&number, Type::INT8)]).await;
        let rows = rows.map_err(|error| error.during("raise"))?;
        let least = rows.first().and_then(|row| row.try_get::<_, i64>(0).ok());
        let least = least.and_then(|least| u64::try_from(least).ok()).and_then(Term::new);
        least.ok_or_else(|| error::new(ErrorKind::Corrupt, "tenure_raise_terms answers oddly"))
    }

    /// What [`raise_terms`](Self::raise_terms) does, as a statement for `psql`.
    pub fn raise_terms_sql(&self, above: Term) -> String {
        let sql = self.0.config.names.render(include_str!("sql/raise_terms.sql"));
        format!("{};\n", sql.trim_end().replace("$1", &above.get().to_string()))
    }

    pub(crate) fn config(&self) -> &PostgresConfig {
        &self.0.config
    }

    pub(crate) fn names(&self) -> &Names {
        &self.0.config.names
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.0.connector
    }

    pub(crate) fn listener(&self) -> &Arc<NotifyListener> {
        &self.0.listener
    }

    /// Checks that the server can be reached and is set up.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever keeps the store from working, in a sentence that says what to do.
    pub async fn check(&self) -> Result<(), Error> {
        let checked = async {
            let number = |rows: Vec<tokio_postgres::Row>| {
                rows.first().and_then(|row| row.try_get::<_, i32>(0).ok()).unwrap_or(0)
            };
            let server = self.0.connector.query(migrate::SERVER_SQL, &[]).await?;
            migrate::check_server(number(server))?;
            let sql = self.0.config.names.render(include_str!("sql/version.sql"));
            let version = number(self.0.connector.query(&sql, &[]).await?);
            let latest = migrate::latest();
            if version >= latest {
                return Ok(());
            }
            Err(error::new(
                ErrorKind::Config,
                format!(
                    "the schema at {} is of version {version}, not {latest}; run `tenure migrate`",
                    self.address()
                ),
            ))
        };
        checked.await.map_err(|error: Error| error.during("check"))
    }

    /// The names of all elections that somebody ever led here, in order.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever kept the table from being read.
    pub async fn elections(&self) -> Result<Vec<Name>, Error> {
        let sql = self.0.config.names.render(include_str!("sql/elections.sql"));
        let rows = self.0.connector.query(&sql, &[]).await.map_err(|error| error.during("list"))?;
        // Names that tenure would refuse belong to others.
        let name = |row: &tokio_postgres::Row| row.try_get::<_, String>(0).ok();
        Ok(rows.iter().filter_map(name).filter_map(|name| Name::new(name).ok()).collect())
    }

    /// Carries out ops that fit; one reply for each. What others were at is asked once more: most
    /// of them are done in a moment, and nothing was done of it here.
    async fn rounds(&self, ops: &[&Op]) -> Result<Vec<Reply>, Error> {
        // A renewal does not wait for what others are told (C3).
        let renews = ops.iter().any(|op| matches!(op, Op::Renew { .. }));
        let (mut replies, busy) = self.round(ops, renews).await?;
        if !busy.is_empty() {
            pause(BUSY_PAUSE).await;
            let again: Vec<&Op> = busy.iter().map(|place| ops[*place]).collect();
            let second = match self.round(&again, renews).await {
                Ok((second, _)) => second,
                Err(error) => unknown(again.into_iter(), &error),
            };
            for (place, reply) in busy.into_iter().zip(second) {
                replies[place] = reply;
            }
        }
        Ok(replies)
    }

    /// One statement for all ops: the replies, and which of them others were at.
    async fn round(&self, ops: &[&Op], renews: bool) -> Result<(Vec<Reply>, Vec<usize>), Error> {
        let grace = self.0.config.fence_grace;
        let columns = Columns::new(ops.iter().copied());
        let connector = &self.0.connector;
        let values = columns.values();
        // Others are told behind a release, on the same connection and without waiting for its
        // answer; after it has committed all the same (M2). It is for nothing if it was refused.
        let is_told = |op: &&Op| matches!(op, Op::Release { .. } | Op::Ask { .. });
        let at_once = ops.iter().all(is_told);
        let rows = if at_once {
            let names = ops.iter().map(|op| op.election().as_str()).collect();
            let apply = connector.query(&self.0.apply_sql, &values);
            tokio::join!(apply, self.announce(names)).0?
        } else {
            connector.query(&self.0.apply_sql, &values).await?
        };
        let mut replies: Vec<Option<Reply>> = ops.iter().map(|_| None).collect();
        let (mut after, mut busy) = (After::default(), Vec::new());
        for row in &rows {
            let answer = lease::answer(row, ops, grace)?;
            let op = ops[answer.place];
            if !at_once && is_told(&op) && matches!(answer.reply, Reply::Granted(_)) {
                after.announce.push(op.election().clone());
            }
            if answer.busy {
                busy.push(answer.place);
            }
            if answer.fenced.is_some_and(|since| since >= grace) {
                after.end_fences.push(op.election().clone());
            }
            replies[answer.place] = Some(answer.reply);
        }
        // A process that only gives up waits until others are told: it may be the last that it
        // does. A renewal never waits for that (C3).
        let (now, later) =
            if renews { (After::default(), after) } else { (after, After::default()) };
        self.follow_up(now).await;
        let cold = connector.take_cold();
        if let (Ok(runtime), true) = (Handle::try_current(), cold.is_some() || !later.is_empty()) {
            let store = self.clone();
            runtime.spawn(async move {
                store.follow_up(later).await;
                if let Some(cold) = cold {
                    store.0.connector.warm_up(cold).await;
                }
            });
        }
        let missing = || error::new(ErrorKind::Corrupt, "tenure_apply left out an op");
        let reply = |reply: Option<Reply>| reply.unwrap_or_else(|| Reply::Unknown(missing()));
        Ok((replies.into_iter().map(reply).collect(), busy))
    }

    async fn follow_up(&self, after: After) {
        if !after.announce.is_empty() {
            self.announce(after.announce.iter().map(Name::as_str).collect()).await;
        }
        for election in &after.end_fences {
            self.end_fence(election).await;
        }
    }

    /// Hints to others, once the change has committed (M2). A hint that is lost costs time only
    /// (I5), so nobody waits until this commit is on the disk.
    async fn announce(&self, elections: Vec<&str>) {
        let payloads = if elections.len() > ANNOUNCE_MAX { vec![""] } else { elections };
        let channel = self.0.config.names.channel();
        // One is what nearly every hand-over is about, and takes half as long to plan.
        let (sql, of_payload): (_, (&(dyn ToSql + Sync), Type)) = match &payloads[..] {
            [payload] => (include_str!("sql/announce_one.sql"), (payload, Type::TEXT)),
            _ => (include_str!("sql/announce.sql"), (&payloads, Type::TEXT_ARRAY)),
        };
        let values = [(&channel as &(dyn ToSql + Sync), Type::TEXT), of_payload];
        if let Err(error) = self.0.connector.query(sql, &values).await {
            tracing::warn!(%error, "no hint could be sent to others");
        }
    }

    /// Ends transactions that have fenced a lease for too long after its end (P3).
    async fn end_fence(&self, election: &Name) {
        let sql = self.0.config.names.render(include_str!("sql/end_fence.sql"));
        let grace = i64::try_from(self.0.config.fence_grace.as_micros()).unwrap_or(i64::MAX);
        let name = election.as_str();
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&grace, Type::INT8)];
        match self.0.connector.query(&sql, &values).await {
            Ok(rows) => {
                // A prepared transaction has no pid, and can't be ended like this.
                let pids = rows.first().and_then(|row| row.try_get::<_, Vec<Option<i32>>>(0).ok());
                let pids: Vec<i32> = pids.into_iter().flatten().flatten().collect();
                tracing::warn!(%election, ?pids, "ended fenced transactions of a lease long over");
            }
            Err(error) => {
                tracing::warn!(%election, %error, "a fenced transaction could not be ended");
            }
        }
    }
}

/// What is to be done once the ops are answered.
#[derive(Default)]
struct After {
    /// Elections that others are to be told about.
    announce: Vec<Name>,
    /// Elections whose fences have lasted for too long.
    end_fences: Vec<Name>,
}

impl After {
    fn is_empty(&self) -> bool {
        self.announce.is_empty() && self.end_fences.is_empty()
    }
}

impl Store for PostgresStore {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            if ops.is_empty() {
                return Vec::new();
            }
            if ops.len() > BATCH_LIMIT {
                return unknown(
                    ops.iter(),
                    &Error::batch_too_large(ops.len(), BATCH_LIMIT).in_store(error::STORE),
                );
            }
            let unfit: Vec<Option<Error>> = ops.iter().map(lease::unfit).collect();
            let fit: Vec<&Op> = ops
                .iter()
                .zip(&unfit)
                .filter(|(_, unfit)| unfit.is_none())
                .map(|(op, _)| op)
                .collect();
            self.0.hub.remember(&fit);
            let done = if fit.is_empty() { Ok(Vec::new()) } else { self.rounds(&fit).await };
            let mut done =
                done.unwrap_or_else(|error| unknown(fit.iter().copied(), &error)).into_iter();
            let lost = || error::new(ErrorKind::Corrupt, "a reply was lost; report this as a bug");
            let reply = |(op, unfit): (&Op, Option<Error>)| match unfit {
                Some(error) => Reply::Unknown(error.during(op.verb())),
                None => done.next().unwrap_or_else(|| Reply::Unknown(lost())),
            };
            ops.iter().zip(unfit).map(reply).collect()
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        self.0.hub.listen(&self.0.listener)
    }

    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo::new("postgres", self.address());
        info.expiry = Expiry::StoreClock;
        info.durable_terms = true;
        info.survives_restart = true;
        info.witness = true;
        info.hints = !self.0.listener.is_deaf();
        info.batch_limit = BATCH_LIMIT;
        info.min_ttl = TTL_MIN;
        info.fencing = Some("SELECT tenure_fence(name, term), first in your transaction");
        info.channels = true;
        info.ledger = true;
        info.residual = RESIDUAL.to_vec();
        info
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(&self.0.channels)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(&self.0.ledger)
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    fn witness(&self) -> Option<&dyn Witness> {
        Some(self)
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        Some(self)
    }

    fn migrate(&self) -> Option<&dyn Migrate> {
        Some(self)
    }
}

impl Witness for PostgresStore {
    fn url(&self) -> Option<Secret> {
        Some(self.0.config.url.clone())
    }
}

/// What is not promised.
const RESIDUAL: [&str; 7] = [
    "what a leader had sent to a server is carried out there after its death (D4): where a witness \
     gives its lease back, the next leader may begin before that; a fence stops it, and --linger \
     makes it unlikely",
    "leases run out by the wall clock of the server: a forward step of more than the margin ends \
     them early, and two may trust themselves until the first is refused; only a fence stops that",
    "after a failover terms and leases are only kept if the standby is synchronous",
    "a leader that died is not seen: its lease has to run out",
    "a fenced statement that is still running keeps successors out, until fence_grace after the \
     lease at most; a prepared transaction until somebody ends it",
    "behind a pooler in transaction mode there are no hints, which is noticed and logged, and \
     followers wait for the lease to run out",
    "clients that write to the table by other means keep their own faults; the table refuses what \
     would give it two leaders",
];

impl Drop for Shared {
    fn drop(&mut self) {
        self.listener.close();
        self.hub.close();
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("address", &self.address()).finish_non_exhaustive()
    }
}

fn unknown<'a>(ops: impl Iterator<Item = &'a Op>, error: &Error) -> Vec<Reply> {
    ops.map(|op| Reply::Unknown(error.clone().during(op.verb()))).collect()
}
