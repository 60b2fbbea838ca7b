//! The store's own thread, where SQLite may block without keeping anybody from renewing.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind, Forgotten, Name, Op, Reply};

use crate::config::SqliteConfig;
use crate::db::{self, Db};
use crate::error;
use crate::hints::{self, Hub};
use crate::host::Host;
use crate::lease::{Me, News, Round};
use crate::observe::Watch;
use crate::witness::HolderProcess;

/// How many calls may wait. A driver has one or two in flight; more means that nobody waits for
/// the answers, and a queue of stale calls would only keep the next one from being answered.
const QUEUE_MAX: usize = 64;

/// The way to the thread. The thread ends when the last one is dropped.
#[derive(Debug)]
pub(crate) struct Jobs(SyncSender<Job>);

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

impl Jobs {
    /// Starts the thread with a connection that was opened before.
    pub(crate) fn start(
        config: SqliteConfig,
        host: Host,
        db: Db,
        hub: Arc<Hub>,
    ) -> Result<Jobs, Error> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let witness = HolderProcess::new(&host, config.childless);
        let me = Me { id: random()?, witness, new_here: true };
        let worker = Worker { config, host, hub, me, watch: RefCell::default(), db: Some(db) };
        thread::Builder::new()
            .name("tenure-sqlite".to_owned())
            .spawn(move || worker.run(receiver))
            .map_err(|error| {
                let message = "the store's thread can't be started; raise the limit on processes";
                error::new(ErrorKind::Unavailable, message).caused_by(error)
            })?;
        Ok(Jobs(sender))
    }

    /// Hands over a batch.
    pub(crate) fn apply(&self, ops: Vec<Op>) -> Result<Answer<Vec<Reply>>, Error> {
        self.send(move |worker| worker.apply(&ops))
    }

    /// Asks for the names of all elections.
    pub(crate) fn list(&self) -> Result<Answer<Result<Vec<Name>, Error>>, Error> {
        self.send(Worker::list)
    }

    /// Asks for an election to be forgotten.
    pub(crate) fn forget(&self, election: Name) -> Result<Answer<Result<Forgotten, Error>>, Error> {
        self.send(move |worker| worker.forget(&election))
    }

    /// Reads, in a transaction of its own.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Answer<Result<T, Error>>, Error> {
        self.send(move |worker| worker.read(look))
    }

    /// Writes, in a changing transaction.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Round<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Answer<Result<T, Error>>, Error> {
        self.send(move |worker| worker.write(change))
    }

    /// Has the thread do this. It is done even if the answer is no longer waited for.
    fn send<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<Answer<T>, Error> {
        let (answer, promised) = promise();
        let job: Job = Box::new(move |worker| answer.keep(act(worker)));
        self.0.try_send(job).map_err(|failure| match failure {
            TrySendError::Full(_) => error::new(
                ErrorKind::Unavailable,
                format!("{QUEUE_MAX} calls wait for the file already; is its disk stuck?"),
            ),
            TrySendError::Disconnected(_) => thread_ended(),
        })?;
        Ok(promised)
    }
}

/// Waits for what a thread was asked.
pub(crate) async fn answered<T>(
    asked: Result<Answer<Result<T, Error>>, Error>,
    what: &'static str,
) -> Result<T, Error> {
    let answer = match asked {
        Ok(answer) => answer.await.unwrap_or_else(|| Err(thread_ended())),
        Err(error) => Err(error),
    };
    answer.map_err(|error| error.during(what))
}

/// What to say when the thread is gone although the store is not.
pub(crate) fn thread_ended() -> Error {
    let message = "the store's thread has ended; open the store again, and report this as a bug";
    error::new(ErrorKind::Unavailable, message)
}

struct Worker {
    config: SqliteConfig,
    host: Host,
    hub: Arc<Hub>,
    me: Me,
    watch: RefCell<Watch>,
    /// `None` after the file was found to be another one; the next call opens that.
    db: Option<Db>,
}

impl Worker {
    fn run(mut self, jobs: Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            job(&mut self);
        }
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Reply> {
        // Before anything is decided, so that no hint about it is missed.
        self.hub.remember(ops);
        match self.try_apply(ops) {
            Ok(replies) => replies,
            Err(error) => {
                tracing::debug!(%error, ops = ops.len(), "outcome unknown");
                ops.iter().map(|op| Reply::Unknown(error.clone().during(op.verb()))).collect()
            }
        }
    }

    fn try_apply(&mut self, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        let reads_only = ops.iter().all(|op| matches!(op, Op::Read { .. }));
        if self.config.read_only && !reads_only {
            // Not only when there is something to write: who can't lead must not wait for it.
            return Err(error::read_only(&self.config.path));
        }
        if let Some(db) = self.db.take_if(|db| db.is_moved()) {
            tracing::warn!(path = %db.place.path.display(), "the file was replaced or deleted");
            let error = error::moved(&db.place.path);
            db.abandon();
            if !reads_only {
                return Err(error);
            }
        }
        let may_refuse = ops.iter().all(|op| matches!(op, Op::Read { .. } | Op::Acquire { .. }));
        if may_refuse && let Some(replies) = self.look(ops)? {
            return Ok(replies);
        }
        self.change(ops)
    }

    /// Answers without SQLite's write lock, if that can be: refusals are many and cheap.
    fn look(&mut self, ops: &[Op]) -> Result<Option<Vec<Reply>>, Error> {
        self.with_db(|worker, db| {
            let (host, real) = (&worker.host, db.place.real.clone());
            let tx = db.look()?;
            db::era(&tx, host, &real)?;
            let mut round = Round::new(&tx, host, &worker.me, &worker.watch);
            let replies = round.look(ops).map_err(|error| error::from_sqlite(&real, error))?;
            if replies.is_some() {
                worker.hub.note(round.into_news());
            }
            Ok(replies)
        })
    }

    fn change(&mut self, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        let (replies, news) = self.transact(|round| round.change(ops))?;
        if let Some(db) = &self.db {
            hints::announce(&db.place.hints, &news.announce);
        }
        self.hub.note(news);
        Ok(replies)
    }

    /// One changing transaction, committed and known to be in the file that others use.
    fn transact<T>(
        &mut self,
        act: impl FnOnce(&mut Round<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, News), Error> {
        let done = self.with_db(|worker, db| {
            let (host, real) = (&worker.host, db.place.real.clone());
            let broken = |error| error::from_sqlite(&real, error);
            let tx = db.change()?;
            let era = db::era(&tx, host, &real)?;
            db::enter(&tx, host, &era).map_err(broken)?;
            let mut round = Round::new(&tx, host, &worker.me, &worker.watch);
            let done = act(&mut round).map_err(broken)?;
            let news = round.into_news();
            tx.commit().map_err(broken)?;
            Ok((done, news))
        })?;
        // What was committed to a file that is no longer there was granted by nobody (S4).
        if let Some(db) = self.db.take_if(|db| db.is_moved()) {
            let error = error::moved(&db.place.path);
            db.abandon();
            return Err(error);
        }
        if done.1.testified {
            self.me.new_here = false;
        }
        Ok(done)
    }

    fn list(&mut self) -> Result<Vec<Name>, Error> {
        self.leave_moved();
        self.with_db(|_, db| {
            let real = db.place.real.clone();
            let broken = |error| error::from_sqlite(&real, error);
            let tx = db.look()?;
            let mut list = tx.prepare(include_str!("sql/elections.sql")).map_err(broken)?;
            let rows = list.query_map((), |row| row.get::<_, String>(0)).map_err(broken)?;
            rows.map(|row| Name::new(row.map_err(broken)?)).collect()
        })
    }

    fn forget(&mut self, election: &Name) -> Result<Forgotten, Error> {
        self.leave_moved();
        let (forgotten, _) = self.transact(|round| round.forget(election))?;
        Ok(forgotten)
    }

    fn read<T>(
        &mut self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.leave_moved();
        self.with_db(|_, db| {
            let real = db.place.real.clone();
            let tx = db.look()?;
            look(&tx).map_err(|error| error::from_sqlite(&real, error))
        })
    }

    fn write<T>(
        &mut self,
        change: impl FnOnce(&mut Round<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.leave_moved();
        let (answer, news) = self.transact(change)?;
        if let Some(db) = &self.db {
            hints::announce(&db.place.hints, &news.announce);
        }
        Ok(answer)
    }

    /// Lets go of a file that is another one by now.
    fn leave_moved(&mut self) {
        if let Some(db) = self.db.take_if(|db| db.is_moved()) {
            db.abandon();
        }
    }

    fn with_db<T>(
        &mut self,
        act: impl FnOnce(&Worker, &mut Db) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut db = match self.db.take() {
            Some(db) => db,
            None => self.reopen()?,
        };
        let done = act(self, &mut db);
        // Trouble with the file itself may be trouble with this connection only.
        match &done {
            Err(error) if error.kind() == ErrorKind::Corrupt => db.abandon(),
            _ if db.is_snapshot() => db.abandon(),
            _ => self.db = Some(db),
        }
        done
    }

    fn reopen(&mut self) -> Result<Db, Error> {
        let SqliteConfig { path, busy_timeout, .. } = &self.config;
        let wait: Duration = *busy_timeout;
        let db = Db::open_with(&self.config, &self.host, wait, *busy_timeout)?;
        self.me.new_here = true;
        self.hub.moved(&db.place.hints);
        tracing::info!(path = %path.display(), "opened again");
        Ok(db)
    }
}

/// A random number that fits a column.
fn random() -> Result<i64, Error> {
    let mut bytes = [0_u8; 8];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match read {
        Ok(8) => Ok(i64::from_ne_bytes(bytes) & i64::MAX),
        _ => Err(error::new(ErrorKind::Unavailable, "the kernel gives no random numbers")),
    }
}

/// The half of a one-shot channel that the thread keeps.
pub(crate) struct Promise<T>(Arc<Mutex<PromiseState<T>>>);

/// The half that is waited for: `None` if the promise was broken.
pub(crate) struct Answer<T>(Arc<Mutex<PromiseState<T>>>);

struct PromiseState<T> {
    value: Option<T>,
    over: bool,
    waker: Option<Waker>,
}

pub(crate) fn promise<T>() -> (Promise<T>, Answer<T>) {
    let state = Arc::new(Mutex::new(PromiseState { value: None, over: false, waker: None }));
    (Promise(state.clone()), Answer(state))
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, value: T) {
        lock(&self.0).value = Some(value);
        // The drop that follows wakes whoever waits.
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0);
            state.over = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        if state.over {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{CandidateId, Name};

    use super::*;

    fn worker(path: &std::path::Path) -> Worker {
        let config = SqliteConfig::new(path);
        let host = Host::detect().unwrap();
        let db = Db::open(path, &host, db::OPEN_TIMEOUT, config.busy_timeout).unwrap();
        let hub = Arc::new(Hub::new(host.clone(), db.place.hints.clone()));
        let me = Me { id: 7, witness: HolderProcess::new(&host, true), new_here: true };
        Worker { config, host, hub, me, watch: RefCell::default(), db: Some(db) }
    }

    fn acquires(count: usize) -> Vec<Op> {
        let acquire = |number: usize| Op::Acquire {
            election: Name::new(format!("{number:0>200}")).unwrap(),
            candidate: CandidateId::new("me", 1).unwrap(),
            seq: 1,
            above: None,
            floor: None,
            ttl: Duration::from_secs(30),
            metadata: None,
        };
        (0..count).map(acquire).collect()
    }

    #[test]
    fn a_full_disk_makes_the_whole_batch_unknown_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut worker = worker(&directory.path().join("x.db"));
        let limit = |worker: &Worker, pages: i64| {
            let conn = &worker.db.as_ref().unwrap().conn;
            conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        };
        limit(&worker, 12);
        for reply in worker.apply(&acquires(1000)) {
            let Reply::Unknown(error) = reply else { panic!("{reply:?}") };
            assert!(error.is_retryable(), "{error}");
            assert!(error.to_string().starts_with("sqlite: acquire: the disk is full"), "{error}");
        }
        limit(&worker, 1_000_000);
        for reply in worker.apply(&acquires(1000)) {
            let Reply::Granted(grant) = reply else { panic!("{reply:?}") };
            assert_eq!(grant.term.get(), 1, "nothing of the failed batch was kept");
        }
    }

    #[test]
    fn a_broken_promise_is_an_answer_too() {
        let (answer, promised) = promise::<()>();
        let mut promised = std::pin::pin!(promised);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(promised.as_mut().poll(&mut cx).is_pending());
        drop(answer);
        assert_eq!(promised.poll(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn rows_of_witnesses_that_nobody_needs_are_removed_by_the_next_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let rows = |worker: &Worker| -> Vec<i64> {
            let conn = &worker.db.as_ref().unwrap().conn;
            let mut rows = conn.prepare("SELECT id FROM witness ORDER BY id").unwrap();
            rows.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        let mut one = worker(&path);
        one.apply(&acquires(1));
        one.db
            .as_ref()
            .unwrap()
            .conn
            .execute("INSERT INTO witness (id, pid_ns) VALUES (3, 0)", ())
            .unwrap();
        let mut two = worker(&path);
        two.me.id = 8;
        two.apply(&acquires(2)[1..]);
        assert_eq!(rows(&two), [7, 8]);
    }
}
