//! The driver's calls to the store.
//!
//! They stamp `sent_at` before a call leaves, group the ops of many elections into one call, and
//! never drop a call to meet a timer: silence is turned into an unknown outcome for callers that
//! can wait no longer, and the call goes on for the others. Only a call that has hung for so long
//! that sixteen others hang after it is dropped: its outcome is unknown already, and a store that
//! never answers must not silence a candidate for good. What handles ask has a lane of its own, so
//! that it never takes the place of a renewal.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Op, Reply, Store, Time};
use tokio::sync::oneshot;

use crate::clock::AnyClock;
use crate::sabotage::{Fault, Faults};
use crate::telling::{miscounted, silent, store_panicked};

/// How many calls each lane makes at a time; what does not fit waits, unstamped, for one to end.
const AT_ONCE: [usize; 2] = [8, 2];
/// How many calls of a lane that nobody waits for may hang; with one more, the oldest is dropped.
const HANGING_MAX: usize = 16;
/// Ops share a call only if the most patient of them is at most four times as patient as the
/// least.
const PATIENCE_RATIO: u32 = 4;

/// Who waits for an answer.
pub(crate) enum Caller {
    Slot {
        id: u64,
        ticket: u64,
    },
    /// Handles that asked the same.
    Handles(Vec<oneshot::Sender<Reply>>),
}

impl Caller {
    fn lane(&self) -> usize {
        match self {
            Caller::Slot { .. } => 0,
            Caller::Handles(_) => 1,
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
    work: Work,
}

impl Call {
    fn hangs(&self) -> bool {
        self.times_out_at == Time::MAX
    }

    fn next_timeout(&self) -> Option<Time> {
        self.callers.iter().flatten().map(|(_, timeout)| self.sent_at + *timeout).min()
    }
}

/// The store's part of a call. It goes on whenever the driver waits, and its panics stay here.
struct Work(Option<BoxFuture<'static, Vec<Reply>>>);

impl Work {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Reply>, Error>> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.map_or_else(|_| Poll::Ready(Err(store_panicked())), |polled| polled.map(Ok))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let work = self.0.take();
        // It was answered, or its outcome is unknown already.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(work)));
    }
}

pub(crate) struct Calls {
    store: Arc<dyn Store>,
    batch_limit: usize,
    waiting: [Vec<Waiting>; 2],
    /// By number, so in the order in which they left.
    under_way: BTreeMap<u64, Call>,
    count: u64,
    pub(crate) faults: Faults,
}

impl Calls {
    pub(crate) fn new(store: Arc<dyn Store>) -> Calls {
        let batch_limit = store.info().batch_limit.max(1);
        Calls {
            store,
            batch_limit,
            waiting: [Vec::new(), Vec::new()],
            under_way: BTreeMap::new(),
            count: 0,
            faults: Faults::default(),
        }
    }

    /// Leaves with the next [`flush`](Calls::flush) that has room for it. Reads of one election
    /// that have not left are one.
    pub(crate) fn add(&mut self, op: Op, caller: Caller, timeout: Duration) {
        let waiting = &mut self.waiting[caller.lane()];
        let caller = match caller {
            Caller::Handles(handles) if matches!(op, Op::Read { .. }) => {
                let same = waiting.iter_mut().find(|one| one.op == op && one.timeout == timeout);
                if let Some(Waiting { caller: Caller::Handles(all), .. }) = same {
                    all.extend(handles);
                    return;
                }
                Caller::Handles(handles)
            }
            caller => caller,
        };
        waiting.push(Waiting { op, caller, timeout });
    }

    /// Sends what has gathered.
    pub(crate) fn flush(&mut self, clock: &AnyClock) {
        for (lane, at_once) in AT_ONCE.into_iter().enumerate() {
            // One call waits as long as its least patient caller, so they go by patience; the sort
            // is stable, and free where all are alike.
            self.waiting[lane].sort_by_key(|waiting| waiting.timeout);
            while !self.waiting[lane].is_empty() && self.busy(lane) < at_once {
                let batch = self.next_batch(lane);
                self.call(lane, batch, clock.now());
            }
        }
    }

    fn busy(&self, lane: usize) -> usize {
        self.under_way.values().filter(|call| call.lane == lane && !call.hangs()).count()
    }

    fn next_batch(&mut self, lane: usize) -> Vec<Waiting> {
        let waiting = std::mem::take(&mut self.waiting[lane]);
        let most = waiting.first().map(|first| first.timeout.saturating_mul(PATIENCE_RATIO));
        let (mut batch, mut elections) = (Vec::new(), HashSet::new());
        for one in waiting {
            // A batch has one op of each election at most: that is the contract.
            let fits = batch.len() < self.batch_limit
                && Some(one.timeout) <= most
                && (elections.insert(one.op.election().clone())
                    || self.faults.has(Fault::CrowdedBatch));
            let place = if fits { &mut batch } else { &mut self.waiting[lane] };
            place.push(one);
        }
        batch
    }

    /// Drops the calls that have hung longest, down to as many as may hang.
    fn drop_hanging(&mut self, lane: usize) {
        let hanging = self.under_way.iter().filter(|(_, call)| call.lane == lane && call.hangs());
        let hanging: Vec<u64> = hanging.map(|(id, _)| *id).collect();
        let extra = (hanging.len() + 1).saturating_sub(HANGING_MAX);
        for id in &hanging[..extra] {
            self.under_way.remove(id);
        }
    }

    fn call(&mut self, lane: usize, batch: Vec<Waiting>, now: Time) {
        let mut ops = Vec::with_capacity(batch.len());
        let mut callers = Vec::with_capacity(batch.len());
        for Waiting { op, caller, timeout } in batch {
            ops.push(op);
            callers.push(Some((caller, timeout)));
        }
        let store = self.store.clone();
        let work = Work(Some(Box::pin(async move { store.apply(&ops).await })));
        let mut call = Call { lane, sent_at: now, callers, times_out_at: Time::MAX, work };
        call.times_out_at = call.next_timeout().unwrap_or(Time::MAX);
        self.drop_hanging(lane);
        self.count += 1;
        self.under_way.insert(self.count, call);
    }

    /// When somebody has waited enough.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let waited_for = self.under_way.values().filter(|call| !call.hangs());
        waited_for.map(|call| call.times_out_at).min()
    }

    /// An unknown outcome for those who have waited enough. Their calls go on.
    pub(crate) fn silent(&mut self, now: Time) -> Vec<Answer> {
        let keeps_waiting = self.faults.has(Fault::OldTicketBelieved);
        let mut answers = Vec::new();
        for call in self.under_way.values_mut().filter(|call| call.times_out_at <= now) {
            for place in &mut call.callers {
                let overdue = place.take_if(|(_, timeout)| call.sent_at + *timeout <= now);
                if let Some((caller, _)) = overdue {
                    if let (Caller::Slot { id, ticket }, true) = (&caller, keeps_waiting) {
                        let again = Caller::Slot { id: *id, ticket: *ticket };
                        *place = Some((again, Duration::MAX));
                    }
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
        poll_fn(|cx| {
            let ended = self.under_way.iter_mut().find_map(|(id, call)| match call.work.poll(cx) {
                Poll::Ready(replies) => Some((*id, replies)),
                Poll::Pending => None,
            });
            let call = ended.and_then(|(id, replies)| Some((self.under_way.remove(&id)?, replies)));
            call.map_or(Poll::Pending, |(call, replies)| Poll::Ready(answered(call, replies)))
        })
        .await
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
    use std::task::Waker;

    use tenure_core::{Hints, Name, Sight, StoreInfo};
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

        tenure_core::lacks!(channels, ledger, elections, witness, checkup, migrate);
    }

    fn gated() -> (Arc<Gated>, Calls) {
        let store = Arc::new(Gated { gate: Semaphore::new(0), sizes: Mutex::default() });
        (store.clone(), Calls::new(store))
    }

    fn read(election: &str) -> Op {
        Op::Read { election: Name::new(election).unwrap() }
    }

    fn add_slot(calls: &mut Calls, id: u64, timeout_ms: u64) {
        let caller = Caller::Slot { id, ticket: id };
        calls.add(read(&format!("jobs-{id}")), caller, Duration::from_millis(timeout_ms));
    }

    /// Lets the calls go on; none of them ends.
    fn go_on(calls: &mut Calls) {
        let mut ended = std::pin::pin!(calls.ended());
        assert!(ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    fn who(answers: &[Answer]) -> Vec<(u64, bool)> {
        let who = answers.iter().map(|answer| match answer.caller {
            Caller::Slot { id, .. } => (id, matches!(answer.reply, Reply::Seen(_))),
            Caller::Handles(_) => unreachable!("only slots ask here"),
        });
        who.collect()
    }

    #[tokio::test]
    async fn one_that_can_wait_no_longer_leaves_the_answer_to_the_others() {
        let (store, mut calls) = gated();
        let clock = AnyClock::Boot;
        add_slot(&mut calls, 1, 100);
        add_slot(&mut calls, 2, 400);
        calls.flush(&clock);
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

    fn ask(calls: &mut Calls, op: Op) -> oneshot::Receiver<Reply> {
        let (done, reply) = oneshot::channel();
        calls.add(op, Caller::Handles(vec![done]), Duration::from_secs(1));
        reply
    }

    #[tokio::test]
    async fn what_handles_ask_takes_no_slots_place_and_shares_calls() {
        let (store, mut calls) = gated();
        let mut replies = Vec::new();
        for number in 0..50 {
            replies.push(ask(&mut calls, read(&number.to_string())));
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

    #[tokio::test]
    async fn a_call_has_one_op_of_each_election_at_most() {
        let (store, mut calls) = gated();
        let name = || Name::new("jobs").unwrap();
        let _replies: Vec<_> = [
            ask(&mut calls, read("jobs")),
            ask(&mut calls, Op::Ask { election: name(), term: None }),
            ask(&mut calls, read("jobs")),
            ask(&mut calls, read("other")),
        ]
        .into();
        calls.flush(&AnyClock::Boot);
        store.gate.add_permits(2);
        let mut told = 0;
        for _ in 0..2 {
            for answer in calls.ended().await {
                let Caller::Handles(handles) = answer.caller else { unreachable!("no slots ask") };
                told += handles.len();
            }
        }
        assert_eq!(told, 4, "two who ask the same share a read");
        let mut sizes = store.sizes.lock().unwrap().clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2]);
    }

    #[tokio::test]
    async fn a_store_that_never_answers_is_asked_on_and_on() {
        let (store, mut calls) = gated();
        let clock = AnyClock::Boot;
        for round in 0..HANGING_MAX * 3 {
            add_slot(&mut calls, 1, 0);
            calls.flush(&clock);
            assert_eq!(who(&calls.silent(Time::MAX)), [(1, false)]);
            assert!(calls.under_way.len() <= HANGING_MAX, "the oldest of them is dropped");
            go_on(&mut calls);
            assert_eq!(store.sizes.lock().unwrap().len(), round + 1);
        }
        add_slot(&mut calls, 2, 60_000);
        calls.flush(&clock);
        store.gate.add_permits(HANGING_MAX + 1);
        loop {
            let answers = who(&calls.ended().await);
            if !answers.is_empty() {
                break assert_eq!(answers, [(2, true)], "once it answers, it is heard");
            }
        }
    }

    #[tokio::test]
    async fn what_hangs_in_one_lane_costs_the_other_nothing() {
        let (_store, mut calls) = gated();
        for id in 0..HANGING_MAX as u64 {
            add_slot(&mut calls, id, 0);
            calls.flush(&AnyClock::Boot);
            calls.silent(Time::MAX);
        }
        assert_eq!(calls.under_way.len(), HANGING_MAX);
        let _reply = ask(&mut calls, read("jobs"));
        calls.flush(&AnyClock::Boot);
        assert_eq!(calls.under_way.len(), HANGING_MAX + 1);
    }

    #[tokio::test]
    async fn no_call_has_more_than_the_store_takes() {
        let (store, mut calls) = gated();
        calls.batch_limit = 2;
        (0..5).for_each(|id| add_slot(&mut calls, id, 1_000));
        calls.flush(&AnyClock::Boot);
        go_on(&mut calls);
        let mut sizes = store.sizes.lock().unwrap().clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 2]);
    }

    #[tokio::test]
    async fn what_changes_something_is_done_for_each_who_asks() {
        let (_store, mut calls) = gated();
        let op = || Op::Ask { election: Name::new("jobs").unwrap(), term: None };
        let _replies = (ask(&mut calls, op()), ask(&mut calls, op()));
        assert_eq!(calls.waiting[1].len(), 2);
        let _replies = (ask(&mut calls, read("jobs")), ask(&mut calls, read("jobs")));
        assert_eq!(calls.waiting[1].len(), 3);
    }

    #[test]
    fn answers_that_are_not_as_many_as_asked_for_are_none() {
        for count in [0, 1, 2] {
            let (sent_at, work) = (Time::ZERO, Work(None));
            let callers = vec![Some((Caller::Slot { id: 1, ticket: 1 }, Duration::ZERO))];
            let call = Call { lane: 0, sent_at, callers, times_out_at: Time::MAX, work };
            let replies = (0..count).map(|_| Reply::Seen(Sight::default())).collect();
            assert_eq!(who(&answered(call, Ok(replies))), [(1, count == 1)], "{count}");
        }
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("also when it is dropped");
        }
    }

    /// Hangs, and panics when the call is dropped; or panics at once.
    struct Panicking {
        at_once: bool,
    }

    impl Store for Panicking {
        fn apply<'a>(&'a self, _: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
            Box::pin(async move {
                assert!(!self.at_once, "the store panics");
                let _bomb = Bomb;
                std::future::pending().await
            })
        }

        fn hints(&self) -> Box<dyn Hints> {
            MemoryStore::new().hints()
        }

        fn info(&self) -> StoreInfo {
            MemoryStore::new().info()
        }

        tenure_core::lacks!(channels, ledger, elections, witness, checkup, migrate);
    }

    #[tokio::test]
    async fn a_store_that_panics_harms_nobody_also_when_its_call_is_dropped() {
        let mut calls = Calls::new(Arc::new(Panicking { at_once: true }));
        add_slot(&mut calls, 1, 1_000);
        calls.flush(&AnyClock::Boot);
        assert_eq!(who(&calls.ended().await), [(1, false)]);
        assert!(calls.under_way.is_empty());
        let mut calls = Calls::new(Arc::new(Panicking { at_once: false }));
        for _ in 0..HANGING_MAX * 2 {
            add_slot(&mut calls, 1, 0);
            calls.flush(&AnyClock::Boot);
            go_on(&mut calls);
            assert_eq!(who(&calls.silent(Time::MAX)), [(1, false)]);
        }
        drop(calls);
    }
}
