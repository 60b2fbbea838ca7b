//! The real clock: it counts suspend and never steps.
//!
//! The one place that reads time for decisions. Wall time is for display and is read elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Time};

/// `CLOCK_BOOTTIME` on Linux, and what counts suspend elsewhere.
///
/// std's `Instant` stands still while a Linux or macOS host sleeps; a leader that trusted it would
/// wake up trusting a lease that has long been somebody else's.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// The present instant.
    #[inline]
    pub fn time() -> Time {
        let now = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Time::from_nanos(seconds * 1_000_000_000 + nanos)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
// Darwin's monotonic clock goes on while the machine sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

impl Clock for BootClock {
    fn now(&self) -> Time {
        BootClock::time()
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        Box::pin(sleep::until(at))
    }
}

/// The clock of a candidate: the real one without indirection, or another.
#[derive(Clone)]
pub(crate) enum AnyClock {
    Boot,
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            AnyClock::Boot => BootClock::time(),
            AnyClock::Other(clock) => clock.now(),
        }
    }

    pub(crate) fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        match self {
            AnyClock::Boot => BootClock.sleep_until(at),
            AnyClock::Other(clock) => clock.sleep_until(at),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod sleep {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tenure_core::Time;
    use tokio::io::unix::AsyncFd;

    /// Waits on a timer of the same clock (C3): tokio's own are late after a suspend.
    pub(super) async fn until(at: Time) {
        if at == Time::MAX {
            return std::future::pending().await;
        }
        while super::BootClock::time() < at {
            match timer(at) {
                Ok(timer) => {
                    let _woken = timer.readable().await;
                }
                // No descriptors left: a coarse timer is better than none.
                Err(_) => return super::by_naps(at, super::BootClock::time, super::nap).await,
            }
        }
    }

    fn timer(at: Time) -> io::Result<AsyncFd<OwnedFd>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let nanos = at.as_nanos();
        let value = Timespec {
            tv_sec: (nanos / 1_000_000_000) as _,
            tv_nsec: (nanos % 1_000_000_000) as _,
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&fd, TimerfdTimerFlags::ABSTIME, &spec)?;
        // What `register` asks to be promised: an OwnedFd is the same descriptor while it lives.
        #[allow(deprecated, reason = "its successor differs only in being unsafe to call")]
        AsyncFd::new(fd)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod sleep {
    use tenure_core::Time;

    pub(super) async fn until(at: Time) {
        super::by_naps(at, super::BootClock::time, super::nap).await;
    }
}

/// How long a nap is at most, and so how late a sleep may end after the host was suspended.
const NAP_MAX: Duration = Duration::from_secs(1);

/// Waits for an instant of a clock that has no timer. Naps are on tokio's clock, which stands still
/// while the host is suspended: so the real one is looked at after each, and none is long.
async fn by_naps<F>(at: Time, now: impl Fn() -> Time, nap: impl Fn(Duration) -> F)
where
    F: Future<Output = ()>,
{
    if at == Time::MAX {
        return std::future::pending().await;
    }
    loop {
        let left = at - now();
        if left.is_zero() {
            return;
        }
        nap(left.min(NAP_MAX)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the fallback under the real timer")]
async fn nap(span: Duration) {
    tokio::time::sleep(span).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// As `by_naps` on a clock that naps move, for so many naps at most: how many there were, or
    /// `None` if it waits on for ever. Meanwhile the host is suspended once.
    fn naps_until(at: Time, suspended: Duration) -> Option<u32> {
        let (now, naps) = (Cell::new(Time::from_nanos(7)), Cell::new(0));
        let nap = |span| {
            let sleeps = if naps.replace(naps.get() + 1) == 0 { suspended } else { Duration::ZERO };
            now.set(now.get() + span + sleeps);
            assert!(naps.get() < 10_000, "it polls");
            std::future::ready(())
        };
        let waiting = pin!(by_naps(at, || now.get(), nap));
        let polled = waiting.poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(()) => {
                assert!(now.get() >= at, "too early");
                Some(naps.get())
            }
            Poll::Pending => None,
        }
    }

    #[test]
    fn without_a_timer_a_long_wait_is_a_few_naps_and_one_without_end_none() {
        let at = |after: Duration| Time::from_nanos(7) + after;
        assert_eq!(naps_until(Time::MAX, Duration::ZERO), None);
        assert_eq!(naps_until(Time::ZERO, Duration::ZERO), Some(0));
        assert_eq!(naps_until(at(Duration::from_millis(3)), Duration::ZERO), Some(1));
        assert_eq!(naps_until(at(Duration::from_secs(30)), Duration::ZERO), Some(30));
        // A night's sleep of the host ends the wait with the nap that it fell into.
        assert_eq!(naps_until(at(Duration::from_secs(30)), Duration::from_secs(28_800)), Some(1));
    }

    #[tokio::test]
    async fn a_sleep_ends_after_its_instant_and_a_past_one_at_once() {
        let at = BootClock::time() + Duration::from_millis(20);
        BootClock.sleep_until(at).await;
        assert!(BootClock::time() >= at);
        BootClock.sleep_until(Time::ZERO).await;
    }
}
