//! The driver's calls to the store.
//!
//! They stamp `sent_at` before a call leaves, group the ops of many elections into one call, and
//! never drop a call to meet a timer: silence is turned into an unknown outcome for whoever can
//! wait no longer, and the call goes on for the others. What handles ask has a lane of its own, so
//! that it never takes the place of a renewal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Op, Reply, Store, Time};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};

use crate::clock::AnyClock;
use crate::telling::{miscounted, silent, store_panicked, too_many_calls};

/// How many calls each lane makes at a time; what does not fit waits, unstamped, for one to end.
const AT_ONCE: [usize; 2] = [8, 2];
/// How many calls of a lane that nobody waits for may hang before it makes no more.
const HANGING_MAX: usize = 16;
/// Ops share a call only if the most patient of them is so many times as patient as the least.
const PATIENCE_RATIO: u32 = 4;

/// Who waits for an answer.
pub(crate) enum Caller {
    Slot { id: u64, ticket: u64 },
    Handle(oneshot::Sender<Reply>),
}

impl Caller {
    fn lane(&self) -> usize {
        match self {
            Caller::Slot { .. } => 0,
            Caller::Handle(_) => 1,
        }
    }
}

/// What comes of one op.
pub(crate) struct Answer {
    pub(crate) caller: Caller,
    pub(crate) sent_at: Time,
    pub(crate) reply: Reply,
}

/// An op that has not left.
struct Waiting {
    op: Op,
    caller: Caller,
    timeout: Duration,
}

/// A call under way.
struct Call {
    lane: usize,
    sent_at: Time,
    /// In the order of the ops; those who were answered are taken out.
    callers: Vec<Option<(Caller, Duration)>>,
    /// When the first of those who still wait has waited enough; never if nobody does.
    times_out_at: Time,
}

impl Call {
    fn hangs(&self) -> bool {
        self.times_out_at == Time::MAX
    }

    fn next_timeout(&self) -> Option<Time> {
        self.callers.iter().flatten().map(|(_, timeout)| self.sent_at + *timeout).min()
    }
}

pub(crate) struct Calls {
    store: Arc<dyn Store>,
    batch_limit: usize,
    waiting: [Vec<Waiting>; 2],
    tasks: JoinSet<Vec<Reply>>,
    under_way: HashMap<Id, Call>,
}

impl Calls {
    pub(crate) fn new(store: Arc<dyn Store>) -> Calls {
        let batch_limit = store.info().batch_limit.max(1);
        Calls {
            store,
            batch_limit,
            waiting: [Vec::new(), Vec::new()],
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
        }
    }

    /// Leaves with the next [`flush`](Calls::flush) that has room for it.
    pub(crate) fn add(&mut self, op: Op, caller: Caller, timeout: Duration) {
        self.waiting[caller.lane()].push(Waiting { op, caller, timeout });
    }

    /// Sends what has gathered; the answers to what can't be sent.
    pub(crate) fn flush(&mut self, clock: &AnyClock) -> Vec<Answer> {
        let mut answers = Vec::new();
        for (lane, at_once) in AT_ONCE.into_iter().enumerate() {
            // One call waits as long as its least patient caller, so they go by patience; the sort
            // is stable, and free where all are alike.
            self.waiting[lane].sort_by_key(|waiting| waiting.timeout);
            while !self.waiting[lane].is_empty() && self.busy(lane) < at_once {
                let batch = self.next_batch(lane);
                self.call(lane, batch, clock.now(), &mut answers);
            }
        }
        answers
    }

    fn busy(&self, lane: usize) -> usize {
        self.under_way.values().filter(|call| call.lane == lane && !call.hangs()).count()
    }

    fn hanging(&self, lane: usize) -> usize {
        self.under_way.values().filter(|call| call.lane == lane && call.hangs()).count()
    }

    fn next_batch(&mut self, lane: usize) -> Vec<Waiting> {
        let waiting = &mut self.waiting[lane];
        let most = waiting.first().map(|first| first.timeout.saturating_mul(PATIENCE_RATIO));
        let alike = waiting.partition_point(|waiting| Some(waiting.timeout) <= most);
        let rest = waiting.split_off(alike.min(self.batch_limit));
        std::mem::replace(waiting, rest)
    }

    fn call(&mut self, lane: usize, batch: Vec<Waiting>, now: Time, answers: &mut Vec<Answer>) {
        let mut ops = Vec::with_capacity(batch.len());
        let mut callers = Vec::with_capacity(batch.len());
        for Waiting { op, caller, timeout } in batch {
            ops.push(op);
            callers.push(Some((caller, timeout)));
        }
        let mut call = Call { lane, sent_at: now, callers, times_out_at: Time::MAX };
        if self.hanging(lane) >= HANGING_MAX {
            answers.extend(answered(call, Err(too_many_calls(HANGING_MAX))));
            return;
        }
        call.times_out_at = call.next_timeout().unwrap_or(Time::MAX);
        let store = self.store.clone();
        let task = self.tasks.spawn(async move { store.apply(&ops).await });
        self.under_way.insert(task.id(), call);
    }

    /// When somebody has waited enough.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let waited_for = self.under_way.values().filter(|call| !call.hangs());
        waited_for.map(|call| call.times_out_at).min()
    }

    /// An unknown outcome for those who have waited enough. Their calls go on.
    pub(crate) fn silent(&mut self, now: Time) -> Vec<Answer> {
        let mut answers = Vec::new();
        for call in self.under_way.values_mut().filter(|call| call.times_out_at <= now) {
            for place in &mut call.callers {
                let overdue = place.take_if(|(_, timeout)| call.sent_at + *timeout <= now);
                if let Some((caller, _)) = overdue {
                    let reply = Reply::Unknown(silent());
                    answers.push(Answer { caller, sent_at: call.sent_at, reply });
                }
            }
            call.times_out_at = call.next_timeout().unwrap_or(Time::MAX);
        }
        answers
    }

    /// Waits until a call ends, and tells what came of it.
    ///
    /// # Cancel safety
    /// Cancel safe: no answer is lost.
    pub(crate) async fn ended(&mut self) -> Vec<Answer> {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let (id, replies) = match ended {
            Ok((id, replies)) => (id, Ok(replies)),
            Err(error) => (error.id(), Err(store_panicked())),
        };
        match self.under_way.remove(&id) {
            Some(call) => answered(call, replies),
            None => Vec::new(),
        }
    }
}

fn answered(call: Call, replies: Result<Vec<Reply>, Error>) -> Vec<Answer> {
    let mut replies = match replies {
        Ok(replies) if replies.len() == call.callers.len() => Ok(replies.into_iter()),
        Ok(replies) => Err(miscounted(call.callers.len(), replies.len())),
        Err(error) => Err(error),
    };
    let mut answers = Vec::with_capacity(call.callers.len());
    for place in call.callers {
        let reply = match &mut replies {
            Ok(replies) => replies.next().unwrap_or_else(|| Reply::Unknown(silent())),
            Err(error) => Reply::Unknown(error.clone()),
        };
        if let Some((caller, _)) = place {
            answers.push(Answer { caller, sent_at: call.sent_at, reply });
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tenure_core::{BoxFuture, Channels, Hints, Ledger, Name, Sight, StoreInfo};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::MemoryStore;

    /// Answers a call for each permit.
    struct Gated {
        gate: Semaphore,
        sizes: Mutex<Vec<usize>>,
    }

    impl Store for Gated {
        fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
            Box::pin(async move {
                self.sizes.lock().unwrap().push(ops.len());
                self.gate.acquire().await.unwrap().forget();
                ops.iter().map(|_| Reply::Seen(Sight::default())).collect()
            })
        }

        fn hints(&self) -> Box<dyn Hints> {
            MemoryStore::new().hints()
        }

        fn info(&self) -> StoreInfo {
            MemoryStore::new().info()
        }

        fn channels(&self) -> Option<&dyn Channels> {
            None
        }

        fn ledger(&self) -> Option<&dyn Ledger> {
            None
        }
    }

    fn gated() -> (Arc<Gated>, Calls) {
        let store = Arc::new(Gated { gate: Semaphore::new(0), sizes: Mutex::default() });
        (store.clone(), Calls::new(store))
    }

    fn read() -> Op {
        Op::Read { election: Name::new("jobs").unwrap() }
    }

    fn add_slot(calls: &mut Calls, id: u64, timeout_ms: u64) {
        let caller = Caller::Slot { id, ticket: id };
        calls.add(read(), caller, Duration::from_millis(timeout_ms));
    }

    fn who(answers: &[Answer]) -> Vec<(u64, bool)> {
        let who = answers.iter().map(|answer| match answer.caller {
            Caller::Slot { id, .. } => (id, matches!(answer.reply, Reply::Seen(_))),
            Caller::Handle(_) => unreachable!("only slots ask here"),
        });
        who.collect()
    }

    #[tokio::test]
    async fn one_that_can_wait_no_longer_leaves_the_answer_to_the_others() {
        let (store, mut calls) = gated();
        let clock = AnyClock::Boot;
        add_slot(&mut calls, 1, 100);
        add_slot(&mut calls, 2, 400);
        assert!(calls.flush(&clock).is_empty());
        let first = calls.next_timeout().unwrap();
        assert_eq!(who(&calls.silent(first)), [(1, false)]);
        assert!(calls.next_timeout().unwrap() > first, "the other one waits on");
        store.gate.add_permits(1);
        assert_eq!(who(&calls.ended().await), [(2, true)]);
    }

    #[tokio::test]
    async fn the_impatient_do_not_share_a_call_with_the_very_patient() {
        let (store, mut calls) = gated();
        for (id, timeout_ms) in [(1, 5_000), (2, 50), (3, 5_000), (4, 60)] {
            add_slot(&mut calls, id, timeout_ms);
        }
        calls.flush(&AnyClock::Boot);
        store.gate.add_permits(2);
        let mut answers = [who(&calls.ended().await), who(&calls.ended().await)];
        answers.sort();
        assert_eq!(answers[0], [(1, true), (3, true)]);
        assert_eq!(answers[1], [(2, true), (4, true)]);
    }

    #[tokio::test]
    async fn what_handles_ask_takes_no_slots_place_and_shares_calls() {
        let (store, mut calls) = gated();
        let mut replies = Vec::new();
        for _ in 0..50 {
            let (done, reply) = oneshot::channel();
            calls.add(read(), Caller::Handle(done), Duration::from_secs(1));
            replies.push(reply);
            calls.flush(&AnyClock::Boot);
        }
        assert_eq!(calls.busy(1), AT_ONCE[1]);
        add_slot(&mut calls, 7, 1_000);
        calls.flush(&AnyClock::Boot);
        assert_eq!(calls.busy(0), 1);
        // Two went alone; the rest shares the third call.
        store.gate.add_permits(4);
        for _ in 0..3 {
            calls.ended().await;
            calls.flush(&AnyClock::Boot);
        }
        calls.ended().await;
        let mut sizes = store.sizes.lock().unwrap().clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 1, 48]);
    }
}
