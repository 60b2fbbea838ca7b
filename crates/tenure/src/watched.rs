//! A value that handles read at any time and wait for.
//!
//! As tokio's `watch`, save for one thing: that one draws lots, without a seed, in which order it
//! calls the wakers of those who wait. Wakers are user code, so what a program does next could
//! depend on that order, and a simulation could not repeat it. Here they are called in the order in
//! which they began to wait.

use std::sync::{RwLock, RwLockReadGuard};

use tenure_core::sync::{read, write};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

pub(crate) struct Watched<T> {
    // A std lock: it is held for a look or a change, never while somebody is woken.
    value: RwLock<T>,
    waiting: Notify,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Watched<T> {
        Watched { value: RwLock::new(value), waiting: Notify::new() }
    }

    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        read(&self.value)
    }

    /// Changes the value without waking those who wait: wakers are user code, which the driver's
    /// thread never runs (L2). The announcer calls [`wake`](Watched::wake).
    pub(crate) fn set_silently<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut write(&self.value))
    }

    /// Wakes those who wait for a change.
    pub(crate) fn wake(&self) {
        self.waiting.notify_waiters();
    }

    /// Ends when somebody is woken after this call, whether or not it was polled before. So look at
    /// the value after the call, and await it afterwards: no change is missed in between.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.waiting.notified()
    }
}

impl<T: Clone> Watched<T> {
    /// Waits until the value is as wanted, and tells it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(&T) -> bool) -> T {
        loop {
            let changed = self.changed();
            {
                let value = self.borrow();
                if wanted(&value) {
                    return value.clone();
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// Writes down when it is woken.
    struct Noted(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Noted {
        fn wake(self: Arc<Noted>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn those_who_wait_are_woken_in_the_order_in_which_they_began_to() {
        let (watched, order) = (Watched::new(0), Arc::default());
        let mut waiting: Vec<_> =
            (0..50).map(|_| Box::pin(watched.wait_for(|at| *at > 0))).collect();
        for (number, one) in waiting.iter_mut().enumerate() {
            let waker = Waker::from(Arc::new(Noted(number, Arc::clone(&order))));
            assert!(one.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        watched.set_silently(|at| *at = 1);
        assert!(order.lock().unwrap().is_empty(), "nobody is woken by a change alone");
        watched.wake();
        assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.iter_mut().all(|one| one.as_mut().poll(&mut cx).is_ready()));
    }

    #[test]
    fn a_wake_between_the_look_and_the_wait_is_not_missed() {
        let watched = Watched::new(0);
        let mut cx = Context::from_waker(Waker::noop());
        let changed = watched.changed();
        assert_eq!(*watched.borrow(), 0);
        watched.set_silently(|at| *at = 1);
        watched.wake();
        assert!(pin!(changed).poll(&mut cx).is_ready());
        assert!(pin!(watched.changed()).poll(&mut cx).is_pending(), "each wake counts once");
        assert!(pin!(watched.wait_for(|at| *at == 1)).poll(&mut cx).is_ready());
    }
}
