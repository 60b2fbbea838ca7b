//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::sync::lock;
use tenure_core::{BoxFuture, Clock, Time};

const MILLION: u64 = 1_000_000;

/// A clock driven by hand.
///
/// Clocks derived from one another ([`drifting`](ManualClock::drifting),
/// [`shifted`](ManualClock::shifted)) share one true time: moving any of them moves all, each at
/// its own rate. A clone is the same clock.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_core::{Clock, Time};
/// use tenure_testkit::ManualClock;
///
/// let clock = ManualClock::new();
/// let fast = clock.drifting(10_000); // one percent
/// clock.advance(Duration::from_secs(100));
/// assert_eq!(clock.now() - Time::ZERO, Duration::from_secs(100));
/// assert_eq!(fast.now() - Time::ZERO, Duration::from_secs(101));
/// ```
#[derive(Clone)]
pub struct ManualClock {
    world: Arc<Mutex<World>>,
    face: Arc<Mutex<Face>>,
}

/// The true time, and who sleeps.
#[derive(Default)]
struct World {
    now: Time,
    sleepers: BTreeMap<u64, Sleeper>,
    next_sleeper: u64,
}

struct Sleeper {
    /// On the face of the sleeper's own clock.
    at: Time,
    face: Arc<Mutex<Face>>,
    waker: Waker,
}

/// How one clock shows the true time.
#[derive(Clone, Copy)]
struct Face {
    /// At this true instant the clock showed `shown`.
    anchor: Time,
    shown: Time,
    /// Parts per million of the true rate.
    rate: u64,
    /// What a frozen clock shows.
    frozen: Option<Time>,
}

impl ManualClock {
    /// A clock that shows zero and runs true.
    pub fn new() -> ManualClock {
        let face = Face { anchor: Time::ZERO, shown: Time::ZERO, rate: MILLION, frozen: None };
        ManualClock { world: Arc::default(), face: Arc::new(Mutex::new(face)) }
    }

    /// Moves the true time, and wakes whoever slept until then, the earliest first.
    pub fn advance(&self, span: Duration) {
        let to = lock(&self.world).now + span;
        self.move_to(to);
    }

    /// Moves the true time until this clock shows `at`. It never goes back: an instant that has
    /// passed changes nothing.
    pub fn set(&self, at: Time) {
        let to = lock(&self.face).due(at);
        self.move_to(to);
    }

    /// The instant, on this clock, at which the next sleeper of any clock is due. A test that
    /// sets the clock to it, again and again, misses nothing in between.
    pub fn next_due(&self) -> Option<Time> {
        let world = lock(&self.world);
        let due = world.sleepers.values().filter_map(Sleeper::due).min()?;
        Some(lock(&self.face).at(due.max(world.now)))
    }

    /// Another clock, equal to this one now, that gains `ppm` microseconds on every true second,
    /// or loses them if negative.
    pub fn drifting(&self, ppm: i32) -> ManualClock {
        let now = lock(&self.world).now;
        let face = *lock(&self.face);
        let rate = MILLION.saturating_add_signed(i64::from(ppm)).max(1);
        self.with_face(Face { anchor: now, shown: face.at(now), rate, frozen: None })
    }

    /// Another clock that is this much ahead of this one and runs at the same rate: what another
    /// machine's clock looks like.
    pub fn shifted(&self, ahead: Duration) -> ManualClock {
        let now = lock(&self.world).now;
        let face = *lock(&self.face);
        let shown = face.at(now) + ahead;
        self.with_face(Face { anchor: now, shown, rate: face.rate, frozen: None })
    }

    /// Stops this clock and its sleepers, as a stopped process (SIGSTOP) would see it. True time
    /// and the other clocks go on.
    pub fn freeze(&self) {
        let now = lock(&self.world).now;
        let mut face = lock(&self.face);
        let shown = face.shows(now);
        face.frozen = Some(shown);
    }

    /// Lets a frozen clock catch up at once, and wakes whoever became due in the meantime.
    pub fn thaw(&self) {
        lock(&self.face).frozen = None;
        let now = lock(&self.world).now;
        self.move_to(now);
    }

    fn with_face(&self, face: Face) -> ManualClock {
        ManualClock { world: self.world.clone(), face: Arc::new(Mutex::new(face)) }
    }

    fn move_to(&self, to: Time) {
        let mut world = lock(&self.world);
        world.now = world.now.max(to);
        let now = world.now;
        let mut due: Vec<(Time, u64)> = world
            .sleepers
            .iter()
            .filter_map(|(id, sleeper)| Some((sleeper.due()?, *id)))
            .filter(|(due, _)| *due <= now)
            .collect();
        due.sort_unstable();
        let wakers: Vec<Waker> = due
            .into_iter()
            .filter_map(|(_, id)| world.sleepers.remove(&id))
            .map(|sleeper| sleeper.waker)
            .collect();
        // A woken task may read this clock at once: let go of it first.
        drop(world);
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        let now = lock(&self.world).now;
        lock(&self.face).shows(now)
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { clock: self.clone(), at, id: None })
    }
}

impl Face {
    /// What the clock shows at a true instant, frozen or not.
    fn shows(&self, now: Time) -> Time {
        self.frozen.unwrap_or_else(|| self.at(now))
    }

    fn at(&self, now: Time) -> Time {
        self.shown + Duration::from_nanos(scale(now - self.anchor, self.rate, MILLION, false))
    }

    /// The first true instant at which the clock shows `at`.
    fn due(&self, at: Time) -> Time {
        self.anchor + Duration::from_nanos(scale(at - self.shown, MILLION, self.rate, true))
    }
}

impl Sleeper {
    /// When it wakes in true time; never while its clock is frozen.
    fn due(&self) -> Option<Time> {
        let face = lock(&self.face);
        face.frozen.is_none().then(|| face.due(self.at))
    }
}

fn scale(span: Duration, by: u64, over: u64, up: bool) -> u64 {
    let product = span.as_nanos() * u128::from(by);
    let over = u128::from(over);
    u64::try_from(if up { product.div_ceil(over) } else { product / over }).unwrap_or(u64::MAX)
}

struct Sleep {
    clock: ManualClock,
    at: Time,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        // Looked at and written down under one guard, or a move in between would be missed.
        let mut world = lock(&clock.world);
        let face = *lock(&clock.face);
        if face.frozen.is_none() && face.at(world.now) >= self.at {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            world.next_sleeper += 1;
            world.next_sleeper
        });
        let waker = cx.waker().clone();
        world.sleepers.insert(id, Sleeper { at: self.at, face: clock.face.clone(), waker });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&self.clock.world).sleepers.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn secs(secs: u64) -> Time {
        Time::ZERO + Duration::from_secs(secs)
    }

    /// Writes down the order in which sleepers were woken.
    struct Woken {
        turn: Arc<AtomicUsize>,
        mine: AtomicUsize,
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.mine.store(self.turn.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        }
    }

    fn sleeper(
        clock: &ManualClock,
        at: Time,
        turn: &Arc<AtomicUsize>,
    ) -> (BoxFuture<'static, ()>, Arc<Woken>) {
        let woken = Arc::new(Woken { turn: turn.clone(), mine: AtomicUsize::new(0) });
        let mut sleep = clock.sleep_until(at);
        let waker = Waker::from(woken.clone());
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        (sleep, woken)
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_instants_whatever_their_clock() {
        let clock = ManualClock::new();
        let fast = clock.drifting(500_000);
        let turn = Arc::default();
        let (_a, last) = sleeper(&clock, secs(30), &turn);
        let (_b, second) = sleeper(&fast, secs(30), &turn);
        let (_c, first) = sleeper(&clock, secs(10), &turn);
        let (_d, never) = sleeper(&clock, secs(31), &turn);
        assert_eq!(clock.next_due(), Some(secs(10)));
        clock.advance(30 * SECOND);
        let order = [first, second, last, never].map(|woken| woken.mine.load(Ordering::SeqCst));
        assert_eq!(order, [1, 2, 3, 0]);
    }

    #[test]
    fn a_sleep_is_over_exactly_when_the_clock_shows_its_instant() {
        for ppm in [-10_000, -3, 0, 7, 10_000] {
            let clock = ManualClock::new();
            let mine = clock.drifting(ppm);
            let (mut sleep, woken) = sleeper(&mine, secs(3), &Arc::default());
            let due = clock.next_due().unwrap();
            clock.set(due - Duration::from_nanos(1));
            assert_eq!(woken.mine.load(Ordering::SeqCst), 0);
            assert!(mine.now() < secs(3));
            clock.set(due);
            assert!(mine.now() >= secs(3));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(sleep.as_mut().poll(&mut cx).is_ready());
        }
    }

    #[test]
    fn a_frozen_clock_stands_still_and_catches_up_when_thawed() {
        let clock = ManualClock::new();
        let mine = clock.shifted(5 * SECOND);
        let (mut sleep, woken) = sleeper(&mine, secs(10), &Arc::default());
        mine.freeze();
        clock.advance(60 * SECOND);
        assert_eq!((clock.now(), mine.now()), (secs(60), secs(5)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(woken.mine.load(Ordering::SeqCst), 0);
        mine.thaw();
        assert_eq!(mine.now(), secs(65));
        assert!(sleep.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_clock_never_goes_back_and_a_dropped_sleep_leaves_nothing_behind() {
        let clock = ManualClock::new();
        clock.set(secs(9));
        clock.set(secs(3));
        assert_eq!(clock.now(), secs(9));
        drop(sleeper(&clock, secs(20), &Arc::default()));
        assert_eq!(clock.next_due(), None);
    }
}
