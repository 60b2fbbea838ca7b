//! The few future combinators that the suite needs, so that it depends on no runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tenure_core::BoxFuture;

/// Runs all of them at the same time and returns their results in the order given.
pub(crate) async fn join_all<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(Some).collect();
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, result) in running.iter_mut().zip(&mut done) {
            let Some(inner) = future else { continue };
            match inner.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    *result = Some(value);
                    *future = None;
                }
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The result of `work`, or `None` if `limit` is over first.
pub(crate) async fn within<T>(
    limit: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut limit, mut work) = (pin!(limit), pin!(work));
    poll_fn(|cx| {
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        limit.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Polls a future at most so many times, then drops it.
pub(crate) async fn abandon_after<T>(polls: usize, future: BoxFuture<'_, T>) -> Option<T> {
    let mut future = Some(future);
    let mut polled = 0;
    poll_fn(|cx| {
        let Some(inner) = future.as_mut().filter(|_| polled < polls) else {
            future = None;
            return Poll::Ready(None);
        };
        polled += 1;
        match inner.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polled == polls => {
                future = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Lets others run: pending this many times, each time woken at once.
pub(crate) async fn yield_times(times: usize) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
