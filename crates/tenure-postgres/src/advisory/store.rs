//! The handle that users hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{
    BoxFuture, CandidateId, Channels, Checkup, Elections, Error, ErrorKind, Expiry, Hints, Ledger,
    Migrate, Name, Op, Reply, Sight, Store, StoreInfo, Term, Witness,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};

use super::candidate::{Answer, Answers, CandidateTask, Command, Ops};
use super::config::AdvisoryConfig;
use super::details::{Details, Known};
use super::hints::{self, Notifier};
use super::key;
use super::lease;
use super::lock_session::shown;
use super::sight::Seen;
use super::tables;
use super::waits::HolderWaits;
use crate::clock::now;
use crate::connector::Connector;
use crate::error;
use crate::store::PostgresStore;

/// How often a holder is asked that does not answer. Being asked twice is being asked once.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// How many ops one call carries.
const BATCH_LIMIT: usize = 10_000;

/// The shortest ttl: sessions are ended by a timer of the server, some milliseconds late.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(500);

/// Of how many elections the last term is remembered.
const TERMS_MAX: usize = 100_000;

/// Elections by advisory locks of PostgreSQL: no table is needed.
///
/// A clone is another handle onto the same sessions. Each candidate has one session, made by its
/// first acquire, that holds any number of locks. Beside it there is one connection that reads and
/// listens, and, while it follows, one that waits for the session of the leader.
///
/// # Guarantees
/// The contract of [`Store`], except where [`StoreInfo::residual`] says less: the lock lives with
/// the session, and a candidate with this process.
///
/// # Examples
/// ```no_run
/// use tenure_core::{Name, StoreExt};
/// use tenure_postgres::AdvisoryConfig;
///
/// # async fn example() -> Result<(), tenure_core::Error> {
/// let store = AdvisoryConfig::from_url("postgres+advisory://app:secret@db/shop")?.open();
/// let sight = store.read(&Name::new("invoices")?).await?;
/// assert!(sight.lease.is_none(), "nobody leads yet");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AdvisoryStore(Arc<Shared>);

struct Shared {
    config: AdvisoryConfig,
    connector: Arc<Connector>,
    notifier: Arc<Notifier>,
    waits: Arc<HolderWaits>,
    details: Details,
    /// What else is kept in the same database, once `tenure migrate` was there.
    tables: PostgresStore,
    known: Arc<Known>,
    terms: Mutex<HashMap<Name, Term>>,
}

impl AdvisoryStore {
    pub(super) fn open_with(config: AdvisoryConfig) -> AdvisoryStore {
        let known: Arc<Known> = Arc::default();
        // Reads, hints and asks share the one connection of the tables' store.
        let tables = PostgresStore::new((*config.base).clone());
        let connector = tables.connector().clone();
        let listener = tables.listener().clone();
        // Candidates refuse a pooler in transaction mode by themselves.
        listener.assume_direct();
        let notifier = Notifier::new(connector.clone(), listener);
        AdvisoryStore(Arc::new(Shared {
            waits: Arc::new(HolderWaits::new(&config, notifier.clone())),
            notifier,
            details: Details::new(config.base.clone(), connector.clone(), known.clone()),
            tables,
            connector,
            known,
            terms: Mutex::default(),
            config,
        }))
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        self.0.config.address()
    }

    pub(crate) fn tables(&self) -> &PostgresStore {
        &self.0.tables
    }

    pub(crate) fn frozen_may_stay(&self) -> bool {
        self.0.config.frozen_may_stay
    }

    /// Checks that the server can be reached and will do, and that candidates may campaign there:
    /// where `tenure migrate` has made its tables, only with them.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// Whatever keeps the store from working, in a sentence that says what to do.
    pub async fn check(&self) -> Result<(), Error> {
        let checked = async {
            self.look(&[0]).await?;
            let names = &self.0.config.base.names;
            let (schema, table) = (names.schema().to_owned(), names.table().to_owned());
            let rows =
                self.0.connector.query(tables::SERVER_SQL, &tables::of(&schema, &table)).await?;
            rows.first().map_or(Ok(false), |row| tables::usable(row, &schema)).map(|_| ())
        };
        checked.await.map_err(|error: Error| error.during("check"))
    }

    /// The names of all elections that somebody led here since `tenure migrate`, in order. A lock
    /// does not tell its name.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// # Errors
    /// `Unsupported` without the tables.
    pub async fn elections(&self) -> Result<Vec<Name>, Error> {
        self.0.details.elections().await.map_err(|error| error.during("list"))
    }

    /// Has each candidate's task do its part, and waits for all of them.
    async fn work(&self, ops: &[Op]) -> Result<Answers, Error> {
        let mut by_candidate: HashMap<&CandidateId, Ops> = HashMap::new();
        for (place, op) in ops.iter().enumerate() {
            if unfit(op).is_some() {
                continue;
            }
            if let Op::Acquire { candidate, .. }
            | Op::Renew { candidate, .. }
            | Op::Release { candidate, .. } = op
            {
                by_candidate.entry(candidate).or_default().push((place, op.clone()));
            }
        }
        let mut waiting = Vec::new();
        for (candidate, ops) in by_candidate {
            let (done, answers) = oneshot::channel();
            let places: Vec<usize> = ops.iter().map(|(place, _)| *place).collect();
            self.send(candidate, Command::Work { ops, done })?;
            waiting.push((places, answers));
        }
        let limit = self.0.config.base.call_timeout;
        let deadline = now() + limit;
        let mut all = Answers::new();
        for (places, answers) in waiting {
            match timeout_at(deadline, answers).await {
                Ok(Ok(answers)) => all.extend(answers),
                _ => {
                    let error = error::timed_out(&self.0.config.base, "an answer of", limit);
                    let unknown = |place| {
                        let op: &Op = &ops[place];
                        (place, Answer::Reply(Reply::Unknown(error.clone().during(op.verb()))))
                    };
                    all.extend(places.into_iter().map(unknown));
                }
            }
        }
        Ok(all)
    }

    fn send(&self, candidate: &CandidateId, command: Command) -> Result<(), Error> {
        let shared = &self.0;
        let task = match shared.notifier.task(candidate) {
            Some(task) => task,
            None => {
                if Handle::try_current().is_err() {
                    let message = "the store needs a tokio runtime; call it from one";
                    return Err(error::new(ErrorKind::Config, message));
                }
                let (config, known) = (shared.config.clone(), shared.known.clone());
                let task =
                    CandidateTask::start(config, candidate.clone(), shared.notifier.clone(), known);
                shared.notifier.put_task(candidate.clone(), task.clone());
                task
            }
        };
        task.send(command).map_err(|_| error::new(ErrorKind::Unavailable, "the store is closing"))
    }

    /// Who holds these locks, in their order.
    async fn look(&self, keys: &[i64]) -> Result<Vec<Seen>, Error> {
        let masks: Vec<i64> = keys.iter().map(|key| shown(key::mask(*key).0)).collect();
        let offset = i64::try_from(self.0.config.term_offset).unwrap_or(i64::MAX);
        let sql = concat!(include_str!("sql/looked.sql"), include_str!("sql/sight.sql"));
        let values: [(&(dyn ToSql + Sync), Type); 3] =
            [(&keys, Type::INT8_ARRAY), (&masks, Type::INT8_ARRAY), (&offset, Type::INT8)];
        let rows = self.0.connector.query(sql, &values).await?;
        let mut seen: Vec<Option<Seen>> = keys.iter().map(|_| None).collect();
        for row in &rows {
            let one = Seen::from_row(row, keys)?;
            let term = |seen: &Seen| seen.holder.as_ref().and_then(|held| held.term);
            let place = one.place;
            if seen[place].as_ref().is_none_or(|other| term(&one) > term(other)) {
                seen[place] = Some(one);
            }
        }
        let missing = || error::new(ErrorKind::Corrupt, "the server left out a lock");
        seen.into_iter().map(|seen| seen.ok_or_else(missing)).collect()
    }

    async fn carry_out(&self, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        let mut answers: Vec<Option<Answer>> = ops.iter().map(unfit).collect();
        for (place, answer) in self.work(ops).await? {
            answers[place] = Some(answer);
        }
        let unseen = |place: &usize| matches!(answers[*place], None | Some(Answer::Refused(None)));
        let places: Vec<usize> = (0..ops.len()).filter(unseen).collect();
        let keys: Vec<i64> = places.iter().map(|place| lease::key(&ops[*place])).collect();
        let looked = if keys.is_empty() { Ok(Vec::new()) } else { self.look(&keys).await };
        let mut seen: HashMap<usize, Seen> = HashMap::new();
        let mut blind = None;
        match looked {
            Ok(looked) => seen.extend(places.into_iter().zip(looked)),
            Err(error) => blind = Some(error),
        }
        let known: HashMap<String, CandidateId> = self
            .0
            .notifier
            .candidates()
            .into_iter()
            .map(|candidate| (key::application_name(&candidate), candidate))
            .collect();
        let mut replies: Vec<(&Name, Reply)> = Vec::with_capacity(ops.len());
        for (place, op) in ops.iter().enumerate() {
            let seen = match answers[place].take() {
                Some(Answer::Reply(reply)) => {
                    self.note(op, &reply);
                    replies.push((op.election(), reply));
                    continue;
                }
                Some(Answer::Refused(Some(seen))) => Some(seen),
                _ => seen.remove(&place),
            };
            let reply = self.reply(op, seen, blind.as_ref(), &known).await;
            replies.push((op.election(), reply));
        }
        self.0.details.complete(&mut replies).await;
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    /// The reply to an op that was not granted, or that only asks.
    async fn reply(
        &self,
        op: &Op,
        seen: Option<Seen>,
        blind: Option<&Error>,
        known: &HashMap<String, CandidateId>,
    ) -> Reply {
        let last_term = lock(&self.0.terms).get(op.election()).copied();
        let Some(seen) = seen else {
            return match (op, blind) {
                (Op::Read { .. } | Op::Ask { .. }, Some(error)) => {
                    Reply::Unknown(error.clone().during(op.verb()))
                }
                // It is not ours any more: that is known without the server.
                _ => Reply::Refused(Sight { last_term, ..Sight::default() }),
            };
        };
        let watched = match seen.holder.as_ref().filter(|held| held.live) {
            Some(held) => self.0.waits.watch(held.pid, op.election()),
            None => false,
        };
        let sight = seen.sight(lease::ttl(op), last_term, watched, |name| known.get(name).cloned());
        if let Some(term) = sight.last_term {
            self.remember(op.election(), term);
        }
        match op {
            Op::Read { .. } => Reply::Seen(sight),
            Op::Ask { election, term } => self.ask(election, *term, &seen, sight).await,
            _ => Reply::Refused(sight),
        }
    }

    /// Asks the process of the holder, and waits for its answer.
    async fn ask(&self, election: &Name, term: Option<Term>, seen: &Seen, sight: Sight) -> Reply {
        let Some(holder) = &seen.holder else { return Reply::Refused(sight) };
        let other = holder.term.is_some_and(|held| term.is_some_and(|term| term != held));
        if other {
            return Reply::Refused(sight);
        }
        let failed = |error: Error| Reply::Unknown(error.during("ask"));
        if !holder.live {
            return failed(error::new(
                ErrorKind::Unsupported,
                format!("backend {} holds the lock by itself and can't be asked", holder.pid),
            ));
        }
        let limit = self.0.config.base.call_timeout;
        let asked = timeout(limit, async {
            let notifier = &self.0.notifier;
            notifier.until_listening().await?;
            let (nonce, mut answer) = notifier.expect_answer();
            let payload = hints::ask_payload(election, holder.pid, term, &nonce);
            loop {
                notifier.tell(&payload).await?;
                // It may just have lost the connection that it listens on.
                if let Ok(answer) = timeout(ASK_AGAIN, &mut answer).await {
                    return Ok(answer.ok());
                }
            }
        });
        match asked.await {
            Ok(Ok(Some(asked))) => match asked.0 {
                Some(term) => Reply::Granted(tenure_core::Grant::new(term)),
                None => Reply::Refused(sight),
            },
            Ok(Err(error)) => failed(error),
            Ok(Ok(None)) | Err(_) => failed(error::new(
                ErrorKind::Unavailable,
                "the holder was asked and does not answer; is it frozen?",
            )),
        }
    }

    fn note(&self, op: &Op, reply: &Reply) {
        if let Reply::Granted(grant) = reply {
            self.remember(op.election(), grant.term);
            if matches!(op, Op::Acquire { .. }) {
                self.0.waits.lead(op.election());
            }
        }
    }

    fn remember(&self, election: &Name, term: Term) {
        let mut terms = lock(&self.0.terms);
        if let Some(known) = terms.get_mut(election) {
            *known = term.max(*known);
        } else if terms.len() < TERMS_MAX {
            terms.insert(election.clone(), term);
        }
    }
}

/// Why an op can't be sent at all; it would spoil the whole batch.
fn unfit(op: &Op) -> Option<Answer> {
    let error = crate::lease::unfit(op)?;
    Some(Answer::Reply(Reply::Unknown(error.during(op.verb()))))
}

impl Store for AdvisoryStore {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            if ops.is_empty() {
                return Vec::new();
            }
            let done = if ops.len() > BATCH_LIMIT {
                Err(Error::batch_too_large(ops.len(), BATCH_LIMIT).in_store(error::STORE))
            } else {
                self.carry_out(ops).await
            };
            done.unwrap_or_else(|error| {
                ops.iter().map(|op| Reply::Unknown(error.clone().during(op.verb()))).collect()
            })
        })
    }

    fn hints(&self) -> Box<dyn Hints> {
        self.0.notifier.listen()
    }

    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo::new("postgres+advisory", self.address());
        info.expiry = Expiry::Connection;
        info.durable_terms = true;
        info.survives_restart = false;
        info.sees_death = true;
        info.hints = true;
        info.batch_limit = BATCH_LIMIT;
        info.min_ttl = TTL_MIN;
        info.fencing = Some(
            "SELECT tenure_fence(name, term), first in your transaction, after `tenure migrate`",
        );
        info.channels = true;
        info.ledger = true;
        info.residual = RESIDUAL.to_vec();
        if self.0.config.frozen_may_stay {
            info.residual.push(FROZEN_STAY);
        }
        info
    }

    fn channels(&self) -> Option<&dyn Channels> {
        self.0.tables.channels()
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.0.tables.ledger()
    }

    fn elections(&self) -> Option<&dyn Elections> {
        Some(self)
    }

    fn witness(&self) -> Option<&dyn Witness> {
        None
    }

    fn checkup(&self) -> Option<&dyn Checkup> {
        Some(self)
    }

    fn migrate(&self) -> Option<&dyn Migrate> {
        Some(self)
    }
}

/// What is not promised.
const RESIDUAL: [&str; 12] = [
    "the lock lives with a session: if the server ends that, by an administrator's hand or because \
     one of its processes crashed, the lock is free at once, and two may trust themselves until \
     the first notices, at the latest when its trust ends; only a fence stops that",
    "silent sessions are ended by the wall clock of the server: a forward step of more than the \
     margin ends them early",
    "a restart of the server ends every reign",
    "a process that dies frees its locks at once, also while children of it still run; only a \
     fence stops those",
    "terms are numbers of transactions: durable over crashes, but a restored backup or a standby \
     that lagged can issue some again; raise them then, with `tenure migrate --terms-above`",
    "without the tables of `tenure migrate` a floor above the number of the next transaction can't \
     be honoured, and is refused with the term_offset that would",
    "the last term of a vacant election is known to those who saw it only",
    "foreign clients that take the lock by themselves are polled for, can't be asked to resign, \
     and have no term",
    "the fence, metadata, posts and the ledger need the tables of `tenure migrate`, and the rights \
     that roles.sql grants: where somebody has made the tables, a candidate without them is \
     refused",
    "each election that is led takes two places in the server's table of locks, which has \
     max_locks_per_transaction * (max_connections + max_prepared_transactions) of them",
    "a follower that waits for the end of a leader has a snapshot for up to 30 s at a time, and \
     VACUUM keeps what was deleted since",
    "a pooler in session mode will do, one in transaction mode is refused",
];

const FROZEN_STAY: &str = "frozen_leaders=stay: on a server older than PostgreSQL 14 a frozen \
    leader keeps the lock until its session is given up by TCP or by somebody";

impl Drop for Shared {
    fn drop(&mut self) {
        self.waits.close();
        self.notifier.close();
    }
}

impl fmt::Debug for AdvisoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryStore").field("address", &self.address()).finish_non_exhaustive()
    }
}
