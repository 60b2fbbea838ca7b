//! A wrapper that puts faults between a candidate and its store.

mod faults;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use tenure_core::sync::lock;
use tenure_core::{BoxFuture, Clock, Error, ErrorKind, Hint, Hints, Name, Op, Reply, Store};

pub use self::faults::{Counts, Faults};
use crate::util::yield_times;

/// A held-up op comes at most this many calls later.
const LATE_CALLS_MAX: u64 = 12;
/// A delayed call is pending at most this many times, if there is no clock to wait by.
const DELAY_POLLS_MAX: usize = 6;
/// How many names are kept to make up hints from.
const NAMES_MAX: usize = 16;

/// A store that loses, delays, repeats and reorders what it is asked, and lies with its hints.
///
/// Everything it does is allowed to a network, so a store behind it still has to keep its
/// contract, and a candidate in front of it still has to be right. Faults are drawn from the
/// seed when `apply` is called: the same seed and the same calls give the same faults.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_core::{Reply, Store};
/// use tenure_testkit::{FaultStore, Faults};
///
/// fn unreliable(store: Arc<dyn Store>) -> FaultStore<dyn Store> {
///     FaultStore::new(store, Faults { lose_reply: 0.5, ..Faults::none(7) })
/// }
/// ```
pub struct FaultStore<S: ?Sized> {
    state: Arc<Mutex<State>>,
    clock: Option<(Arc<dyn Clock>, Duration)>,
    inner: Arc<S>,
}

struct State {
    faults: Faults,
    rng: Rng,
    calm: bool,
    counts: Counts,
    /// What is still on its way, with the call during which it arrives.
    late: Vec<(u64, Op)>,
    names: Vec<Name>,
    streams: u64,
}

/// What is to happen to one op.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Pass,
    LoseRequest,
    LoseReply,
    Late,
    Echo,
    Repeat,
}

/// What is to happen during one call.
struct Plan {
    fates: Vec<Fate>,
    /// Older ops that arrive before this call's own, and after them.
    earlier: Vec<Op>,
    later: Vec<Op>,
    /// How much of the longest delay to wait before and after, from 0 to 1.
    delays: [f64; 2],
}

impl<S: Store + ?Sized> FaultStore<S> {
    /// Wraps a store.
    pub fn new(store: Arc<S>, faults: Faults) -> FaultStore<S> {
        let state = State {
            faults,
            rng: Rng::with_seed(faults.seed),
            calm: false,
            counts: Counts::default(),
            late: Vec::new(),
            names: Vec::new(),
            streams: 0,
        };
        FaultStore { state: Arc::new(Mutex::new(state)), clock: None, inner: store }
    }

    /// Delays calls by this clock, up to this long, instead of by giving way to others.
    #[must_use]
    pub fn delayed_by(mut self, clock: Arc<dyn Clock>, longest: Duration) -> FaultStore<S> {
        self.clock = Some((clock, longest));
        self
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts
    }

    /// Ends all faults: from here on it only forwards. What was held up stays so until
    /// [`deliver_late`](FaultStore::deliver_late).
    pub fn calm(&self) {
        lock(&self.state).calm = true;
    }

    /// Delivers all that is still on its way.
    ///
    /// # Cancel safety
    /// Not cancel safe: what was not delivered by then is lost.
    pub async fn deliver_late(&self) {
        let late = std::mem::take(&mut lock(&self.state).late);
        self.deliver(late.into_iter().map(|(_, op)| op).collect()).await;
    }

    /// Ops of one batch are about different elections; these may not be, so each goes alone.
    async fn deliver(&self, late: Vec<Op>) {
        for op in late {
            self.inner.apply(std::slice::from_ref(&op)).await;
        }
    }

    async fn delay(&self, share: f64) {
        match &self.clock {
            _ if share == 0.0 => {}
            Some((clock, longest)) => {
                clock.sleep_until(clock.now() + longest.mul_f64(share)).await;
            }
            None => yield_times(1 + (share * DELAY_POLLS_MAX as f64) as usize).await,
        }
    }

    async fn carry_out(&self, ops: &[Op], plan: Plan) -> Vec<Reply> {
        self.delay(plan.delays[0]).await;
        self.deliver(plan.earlier).await;
        let arrive = |fate: &Fate| !matches!(fate, Fate::LoseRequest | Fate::Late);
        let sent = select(ops, &plan.fates, arrive);
        let again = select(ops, &plan.fates, |fate| *fate == Fate::Repeat);
        let mut replies = self.apply_some(&sent).await.into_iter();
        let mut repeats = self.apply_some(&again).await.into_iter();
        self.deliver(plan.later).await;
        self.delay(plan.delays[1]).await;
        let mut answer = |op: &Op, fate: &Fate| {
            let reply = if arrive(fate) { replies.next() } else { None };
            match fate {
                Fate::Pass | Fate::Echo => reply,
                Fate::Repeat => repeats.next(),
                Fate::LoseReply => Some(unknown(op, "the reply was lost")),
                Fate::LoseRequest => Some(unknown(op, "the request was lost")),
                Fate::Late => Some(unknown(op, "the request is late")),
            }
        };
        // A store that answers too few ops is passed on as it is.
        ops.iter().zip(&plan.fates).filter_map(|(op, fate)| answer(op, fate)).collect()
    }

    async fn apply_some(&self, ops: &[Op]) -> Vec<Reply> {
        if ops.is_empty() { Vec::new() } else { self.inner.apply(ops).await }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized> Store for FaultStore<S> {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        let plan = lock(&self.state).plan(ops);
        match plan {
            Some(plan) => Box::pin(self.carry_out(ops, plan)),
            None => self.inner.apply(ops),
        }
    }

    fn hints(&self) -> Box<dyn Hints> {
        let mut state = lock(&self.state);
        state.streams += 1;
        // Its own numbers: how often a stream is polled must not change the fate of an op.
        let rng = Rng::with_seed(state.faults.seed ^ state.streams.rotate_left(32));
        let state = self.state.clone();
        Box::new(FaultHints { inner: self.inner.hints(), state, rng, made_up: false })
    }

    tenure_core::forward!(inner: info, faces);
}

impl<S: ?Sized> fmt::Debug for FaultStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("FaultStore")
            .field("faults", &state.faults)
            .field("counts", &state.counts)
            .finish_non_exhaustive()
    }
}

impl State {
    /// Draws what happens during this call; `None` if nothing does.
    fn plan(&mut self, ops: &[Op]) -> Option<Plan> {
        self.counts.calls += 1;
        self.counts.ops += ops.len() as u64;
        if self.calm {
            return None;
        }
        let call = self.counts.calls;
        let fates = ops.iter().map(|op| self.fate(call, op)).collect();
        let (mut earlier, mut later) = (Vec::new(), Vec::new());
        for (due, op) in std::mem::take(&mut self.late) {
            match due {
                due if due > call => self.late.push((due, op)),
                _ if self.rng.bool() => earlier.push(op),
                _ => later.push(op),
            }
        }
        let delays = [self.draw_delay(), self.draw_delay()];
        Some(Plan { fates, earlier, later, delays })
    }

    fn fate(&mut self, call: u64, op: &Op) -> Fate {
        if !self.names.contains(op.election()) {
            self.names.truncate(NAMES_MAX - 1);
            self.names.insert(0, op.election().clone());
        }
        let fates = [
            (self.faults.lose_request, Fate::LoseRequest),
            (self.faults.lose_reply, Fate::LoseReply),
            (self.faults.late, Fate::Late),
            (self.faults.echo, Fate::Echo),
            (self.faults.repeat, Fate::Repeat),
        ];
        let mut drawn = self.rng.f64();
        let fate = fates.into_iter().find(|(chance, _)| {
            drawn -= chance;
            drawn < 0.0
        });
        let fate = fate.map_or(Fate::Pass, |(_, fate)| fate);
        match fate {
            Fate::Pass => {}
            Fate::LoseRequest => self.counts.lost_requests += 1,
            Fate::LoseReply => self.counts.lost_replies += 1,
            Fate::Late => self.counts.late += 1,
            Fate::Echo => self.counts.echoes += 1,
            Fate::Repeat => self.counts.repeats += 1,
        }
        if matches!(fate, Fate::Late | Fate::Echo) {
            self.late.push((call + self.rng.u64(1..=LATE_CALLS_MAX), op.clone()));
        }
        fate
    }

    fn draw_delay(&mut self) -> f64 {
        if self.rng.f64() >= self.faults.delay {
            return 0.0;
        }
        self.counts.delays += 1;
        self.rng.f64()
    }
}

struct FaultHints {
    inner: Box<dyn Hints>,
    state: Arc<Mutex<State>>,
    rng: Rng,
    made_up: bool,
}

impl Hints for FaultHints {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        // Never two in a row, or a reader that drains the stream would never come to an end.
        if !self.made_up
            && let Some(hint) = self.make_up()
        {
            self.made_up = true;
            return Poll::Ready(Some(hint));
        }
        self.made_up = false;
        loop {
            match self.inner.poll_next(cx) {
                Poll::Ready(Some(_)) if self.swallows() => {}
                other => return other,
            }
        }
    }
}

impl FaultHints {
    fn make_up(&mut self) -> Option<Hint> {
        let mut state = lock(&self.state);
        if state.calm || self.rng.f64() >= state.faults.extra_hint {
            return None;
        }
        state.counts.extra_hints += 1;
        let name = self.rng.choice(&state.names).filter(|_| self.rng.bool()).cloned();
        Some(name.map_or(Hint::Any, Hint::Election))
    }

    fn swallows(&mut self) -> bool {
        let mut state = lock(&self.state);
        let swallows = !state.calm && self.rng.f64() < state.faults.lose_hint;
        state.counts.lost_hints += u64::from(swallows);
        swallows
    }
}

fn select(ops: &[Op], fates: &[Fate], wanted: impl Fn(&Fate) -> bool) -> Vec<Op> {
    ops.iter().zip(fates).filter(|(_, fate)| wanted(fate)).map(|(op, _)| op.clone()).collect()
}

fn unknown(op: &Op, what: &str) -> Reply {
    let message = format!("{what} (an injected fault); try again");
    Reply::Unknown(Error::new(ErrorKind::Unavailable, message).during(op.verb()))
}
