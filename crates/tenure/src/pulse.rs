//! Whether somebody who must be told of a loss can be told.
//!
//! A lease must not be kept alive for work that cannot hear that it is over: a blocked runtime, a
//! callback that hangs. So everybody who waits for the news answers a bell at each renewal, and the
//! driver withholds renewals while the bell goes unanswered.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::Time;
use tenure_core::sync::lock;
use tokio::sync::Notify;

use crate::bell::Bell;

/// One listener.
pub(crate) struct Pulse {
    bell: Bell,
    waker: Notify,
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse { bell: Bell::new(), waker: Notify::new() }
    }

    /// Answers the bell whenever it rings, without end.
    ///
    /// # Cancel safety
    /// Cancel safe: a bell that rings meanwhile is answered by the next call.
    pub(crate) async fn answer(&self) -> Infallible {
        loop {
            self.waker.notified().await;
            self.bell.answer();
        }
    }

    /// Notes that the bell rings; `true` if it did not ring before, so that the listener is to be
    /// woken.
    fn ring(&self, now: Time) -> bool {
        self.bell.ring(now.as_nanos())
    }

    /// Wakes the listener. Its waker is user code, so this is never called by the driver (L2).
    pub(crate) fn wake(&self) {
        self.waker.notify_one();
    }

    fn silent_for(&self, now: Time) -> Duration {
        self.bell.rung_at().map_or(Duration::ZERO, |rung_at| now - Time::from_nanos(rung_at))
    }
}

/// From so many listeners on, those who have left are looked for now and then.
const PRUNE_FROM: usize = 64;

/// All who listen in one election. They leave by being dropped.
#[derive(Default)]
pub(crate) struct Pulses(Mutex<Vec<Weak<Pulse>>>);

impl Pulses {
    pub(crate) fn listen(&self) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::new());
        let mut list = self.list();
        // Many short waits leave many behind until the next renewal.
        if list.len() >= PRUNE_FROM && list.len().is_power_of_two() {
            list.retain(|pulse| pulse.strong_count() > 0);
        }
        list.push(Arc::downgrade(&pulse));
        pulse
    }

    /// Rings everybody's bell; tells how long the slowest has not answered the one before, and who
    /// is to be woken.
    pub(crate) fn ring(&self, now: Time) -> (Duration, Vec<Arc<Pulse>>) {
        let (mut longest, mut rung) = (Duration::ZERO, Vec::new());
        self.list().retain(|pulse| {
            let Some(pulse) = pulse.upgrade() else { return false };
            longest = longest.max(pulse.silent_for(now));
            if pulse.ring(now) {
                rung.push(pulse);
            }
            true
        });
        (longest, rung)
    }

    // A std mutex: it is held for a few loads, never across an await.
    fn list(&self) -> MutexGuard<'_, Vec<Weak<Pulse>>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(pulses: &Pulses, nanos: u64) -> Duration {
        let (longest, rung) = pulses.ring(Time::from_nanos(nanos));
        rung.iter().for_each(|pulse| pulse.wake());
        longest
    }

    #[tokio::test]
    async fn a_bell_is_answered_by_whoever_is_awake_and_by_nobody_else() {
        let pulses = Pulses::default();
        let (awake, asleep) = (pulses.listen(), pulses.listen());
        assert_eq!(ring(&pulses, 10), Duration::ZERO);
        let answer = awake.answer();
        tokio::pin!(answer);
        let polled = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(answer.as_mut().poll(cx).is_pending())
        });
        assert!(polled.await);
        assert_eq!(ring(&pulses, 30), Duration::from_nanos(20));
        drop(asleep);
        assert_eq!(ring(&pulses, 30), Duration::ZERO);
    }

    #[test]
    fn those_who_have_left_do_not_pile_up_between_two_renewals() {
        let pulses = Pulses::default();
        let stays = pulses.listen();
        for _ in 0..10_000 {
            drop(pulses.listen());
        }
        assert!(pulses.list().len() <= PRUNE_FROM + 1);
        ring(&pulses, 10);
        assert_eq!(stays.silent_for(Time::from_nanos(15)), Duration::from_nanos(5));
    }
}
