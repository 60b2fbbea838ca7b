//! The real clock: it counts suspend and never steps.
//!
//! The one place that reads time for decisions. Wall time is for display and is read elsewhere.

use std::sync::Arc;

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
                Err(_) => super::nap().await,
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
        while super::BootClock::time() < at {
            super::nap().await;
        }
    }
}

/// A short sleep on tokio's clock, for where there is no timer on ours.
#[expect(clippy::disallowed_methods, reason = "the fallback under the real timer")]
async fn nap() {
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_after_its_instant_and_a_past_one_at_once() {
        let at = BootClock::time() + Duration::from_millis(20);
        BootClock.sleep_until(at).await;
        assert!(BootClock::time() >= at);
        BootClock.sleep_until(Time::ZERO).await;
    }
}
