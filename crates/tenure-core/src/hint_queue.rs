//! The queue between a store that learns of changes and the candidates that wait for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use crate::sync::lock;
use crate::{Hint, Hints};

/// How many hints wait in one queue before they become a single [`Hint::Any`].
const QUEUE_MAX: usize = 256;

/// A stream of hints, as [`Store::hints`](crate::Store::hints) returns it. A [`HintSender`] fills
/// it.
///
/// It is bounded: a hint that waits already is not queued twice, and too many hints become a single
/// [`Hint::Any`].
#[derive(Debug)]
pub struct HintQueue(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    hints: VecDeque<Hint>,
    waker: Option<Waker>,
    closed: bool,
}

impl Queue {
    fn put(&mut self, hint: &Hint) {
        if self.hints.contains(hint) {
            return;
        }
        if self.hints.len() == QUEUE_MAX {
            self.hints = VecDeque::from([Hint::Any]);
        } else {
            self.hints.push_back(hint.clone());
        }
    }
}

impl Hints for HintQueue {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut queue = lock(&self.0);
        match queue.hints.pop_front() {
            Some(hint) => Poll::Ready(Some(hint)),
            None if queue.closed => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Sends hints to all queues that were made with [`listen`](HintSender::listen) and still exist.
///
/// # Examples
/// ```
/// use std::task::{Context, Poll, Waker};
/// use tenure_core::{Hint, HintSender, Hints};
///
/// let sender = HintSender::new();
/// let mut queue = sender.listen();
/// sender.send(&[Hint::Any]);
/// let mut cx = Context::from_waker(Waker::noop());
/// assert_eq!(queue.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
/// assert_eq!(queue.poll_next(&mut cx), Poll::Pending);
/// ```
#[derive(Debug, Default)]
pub struct HintSender(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    queues: Vec<Weak<Mutex<Queue>>>,
    closed: bool,
}

impl HintSender {
    /// A sender without listeners.
    pub fn new() -> HintSender {
        HintSender::default()
    }

    /// A new queue. It gets every hint that is sent from now on. After
    /// [`close`](HintSender::close) it is one that has ended.
    pub fn listen(&self) -> HintQueue {
        let mut listeners = lock(&self.0);
        let queue = Arc::new(Mutex::new(Queue { closed: listeners.closed, ..Queue::default() }));
        listeners.queues.retain(|queue| queue.strong_count() > 0);
        listeners.queues.push(Arc::downgrade(&queue));
        HintQueue(queue)
    }

    /// Puts hints into every queue.
    pub fn send(&self, hints: &[Hint]) {
        if !hints.is_empty() {
            self.change(|queue| hints.iter().for_each(|hint| queue.put(hint)));
        }
    }

    /// Ends all queues, once what waits in them has been taken. There is no way back.
    pub fn close(&self) {
        lock(&self.0).closed = true;
        self.change(|queue| queue.closed = true);
    }

    /// Changes all queues. Wakers are called without a lock: they may come back here.
    fn change(&self, change: impl Fn(&mut Queue)) {
        let queues: Vec<_> = lock(&self.0).queues.iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            let waker = {
                let mut queue = lock(&queue);
                change(&mut queue);
                queue.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::Name;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Counter>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn hint(number: usize) -> Hint {
        Hint::Election(Name::new(number.to_string()).unwrap())
    }

    fn next(queue: &mut HintQueue) -> Poll<Option<Hint>> {
        queue.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn every_queue_gets_each_hint_once_and_in_order() {
        let sender = HintSender::new();
        let (mut one, mut two) = (sender.listen(), sender.listen());
        sender.send(&[hint(1), hint(2), hint(1)]);
        for queue in [&mut one, &mut two] {
            assert_eq!(next(queue), Poll::Ready(Some(hint(1))));
            assert_eq!(next(queue), Poll::Ready(Some(hint(2))));
            assert_eq!(next(queue), Poll::Pending);
        }
        sender.send(&[hint(1)]);
        assert_eq!(next(&mut one), Poll::Ready(Some(hint(1))), "a hint that was taken comes again");
    }

    #[test]
    fn a_full_queue_says_any_and_forgets_nothing_that_comes_later() {
        let sender = HintSender::new();
        let mut queue = sender.listen();
        let hints: Vec<Hint> = (0..=QUEUE_MAX).map(hint).collect();
        sender.send(&hints[..QUEUE_MAX]);
        sender.send(&hints[..QUEUE_MAX]);
        assert_eq!(next(&mut queue), Poll::Ready(Some(hint(0))), "hints that wait are not new");
        sender.send(&[hint(0), hint(QUEUE_MAX), hint(3)]);
        assert_eq!(next(&mut queue), Poll::Ready(Some(Hint::Any)));
        assert_eq!(next(&mut queue), Poll::Ready(Some(hint(3))));
        assert_eq!(next(&mut queue), Poll::Pending);
    }

    #[test]
    fn a_closed_sender_ends_its_queues_after_what_they_hold() {
        let sender = HintSender::new();
        let mut queue = sender.listen();
        sender.send(&[hint(1)]);
        sender.close();
        assert_eq!(next(&mut queue), Poll::Ready(Some(hint(1))));
        assert_eq!(next(&mut queue), Poll::Ready(None));
        assert_eq!(next(&mut sender.listen()), Poll::Ready(None));
    }

    #[test]
    fn who_waits_is_woken_by_a_hint_and_by_the_end() {
        let (sender, counter) = (HintSender::new(), Arc::new(Counter::default()));
        let waker = Waker::from(counter.clone());
        let mut queue = sender.listen();
        assert!(queue.poll_next(&mut Context::from_waker(&waker)).is_pending());
        sender.send(&[]);
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        sender.send(&[hint(1)]);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        assert_eq!(next(&mut queue), Poll::Ready(Some(hint(1))));
        assert!(queue.poll_next(&mut Context::from_waker(&waker)).is_pending());
        sender.close();
        assert_eq!(counter.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_queue_that_was_dropped_is_forgotten() {
        let sender = HintSender::new();
        drop(sender.listen());
        let _queue = sender.listen();
        assert_eq!(lock(&sender.0).queues.len(), 1);
    }
}
