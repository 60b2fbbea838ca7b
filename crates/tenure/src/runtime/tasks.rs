//! Tasks that are waited for together, on any [`Spawner`].

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tenure_core::BoxFuture;
use tenure_core::sync::lock;
use tokio::sync::mpsc;

use super::Spawner;
use crate::callback::said;

/// Tasks of one kind. They are ended when it is dropped.
pub struct TaskSet<T> {
    place: Spawner,
    /// How many were begun; each has its number.
    begun: u64,
    running: BTreeMap<u64, Arc<Ending>>,
    /// Where tasks say how they ended.
    say: mpsc::UnboundedSender<(u64, Result<T, TaskEnded>)>,
    said: mpsc::UnboundedReceiver<(u64, Result<T, TaskEnded>)>,
}

/// How a task ended that did not return.
#[derive(Debug, PartialEq, Eq)]
pub enum TaskEnded {
    /// It panicked, saying this.
    Panicked(String),
    /// It was ended, by [`TaskSet::end`] or with the place that ran it.
    Dropped,
}

impl fmt::Display for TaskEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskEnded::Panicked(message) => write!(f, "it panicked: {message}"),
            TaskEnded::Dropped => f.write_str("it was dropped before it had ended"),
        }
    }
}

impl<T: Send + 'static> TaskSet<T> {
    /// No tasks yet; they will run in this place.
    pub fn new(place: Spawner) -> TaskSet<T> {
        let (say, said) = mpsc::unbounded_channel();
        TaskSet { place, begun: 0, running: BTreeMap::new(), say, said }
    }

    /// Begins a task, and tells its number.
    pub fn spawn(&mut self, work: impl Future<Output = T> + Send + 'static) -> u64 {
        self.begun += 1;
        let (id, ending) = (self.begun, Arc::new(Ending::default()));
        self.running.insert(id, ending.clone());
        let say = Some(self.say.clone());
        self.place.spawn(Box::pin(Task { id, work: Some(Box::pin(work)), ending, say }));
        id
    }

    /// Waits until a task ends, and tells its number and what came of it. `None` if there are none.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Option<(u64, Result<T, TaskEnded>)> {
        if self.running.is_empty() {
            return None;
        }
        // The sender is in this set, so there is always an answer to come.
        let (id, ended) = self.said.recv().await?;
        self.running.remove(&id);
        Some((id, ended))
    }

    /// Has a task dropped where it stands. Its end is told like that of others.
    pub fn end(&self, id: u64) {
        if let Some(ending) = self.running.get(&id) {
            ending.ask();
        }
    }
}

impl<T> Drop for TaskSet<T> {
    fn drop(&mut self) {
        self.running.values().for_each(|ending| ending.ask());
    }
}

impl<T> fmt::Debug for TaskSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

/// The wish that a task ends.
#[derive(Default)]
struct Ending {
    asked: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Ending {
    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was asked for; otherwise the task is woken when it is.
    fn is_asked(&self, cx: &Context<'_>) -> bool {
        let mut waker = lock(&self.waker);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.asked.load(Ordering::Acquire)
    }
}

struct Task<T> {
    id: u64,
    work: Option<BoxFuture<'static, T>>,
    ending: Arc<Ending>,
    say: Option<mpsc::UnboundedSender<(u64, Result<T, TaskEnded>)>>,
}

impl<T> Task<T> {
    /// Drops what is left of the work, then says how it ended. A panic on the way is the work's.
    fn finish(&mut self, ended: Result<T, TaskEnded>) {
        let work = self.work.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
        let ended = dropped.map_or_else(|panic| Err(panicked(&*panic)), |()| ended);
        if let Some(say) = self.say.take() {
            let _set_gone = say.send((self.id, ended));
        }
    }
}

impl<T> Future for Task<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let asked = self.ending.is_asked(cx);
        let ended = match &mut self.work {
            Some(work) if !asked => match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)))
            {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(value)) => Ok(value),
                Err(panic) => Err(panicked(&*panic)),
            },
            _ => Err(TaskEnded::Dropped),
        };
        self.finish(ended);
        Poll::Ready(())
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if self.say.is_some() {
            self.finish(Err(TaskEnded::Dropped));
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TaskEnded {
    TaskEnded::Panicked(said(panic).to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Handle;

    use super::*;

    fn set() -> TaskSet<u32> {
        TaskSet::new(Arc::new(Handle::current()))
    }

    struct DropBomb;

    impl Drop for DropBomb {
        fn drop(&mut self) {
            panic!("left behind");
        }
    }

    #[tokio::test]
    async fn each_task_tells_its_end_once() {
        let mut tasks = set();
        assert_eq!(tasks.next().await, None);
        let returns = tasks.spawn(async { 7 });
        assert_eq!(tasks.next().await, Some((returns, Ok(7))));
        let panics = tasks.spawn(async { panic!("so what") });
        let said = TaskEnded::Panicked("so what".to_owned());
        assert_eq!(tasks.next().await, Some((panics, Err(said))));
        let hangs = tasks.spawn(pending());
        tasks.end(hangs);
        tasks.end(hangs);
        assert_eq!(tasks.next().await, Some((hangs, Err(TaskEnded::Dropped))));
        let bomb = tasks.spawn(async {
            let _bomb = DropBomb;
            pending().await
        });
        tokio::task::yield_now().await;
        tasks.end(bomb);
        let said = TaskEnded::Panicked("left behind".to_owned());
        assert_eq!(tasks.next().await, Some((bomb, Err(said))));
        assert_eq!(tasks.next().await, None);
    }

    #[tokio::test]
    async fn tasks_end_with_their_set_and_a_set_survives_the_place_of_its_tasks() {
        let alive = Arc::new(());
        let mut tasks = set();
        let held = alive.clone();
        tasks.spawn(async move {
            let _held = held;
            pending().await
        });
        tokio::task::yield_now().await;
        drop(tasks);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 1, "the task was dropped with its set");
        let elsewhere = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut tasks: TaskSet<u32> = TaskSet::new(Arc::new(elsewhere.handle().clone()));
        let lost = tasks.spawn(pending());
        elsewhere.shutdown_background();
        assert_eq!(tasks.next().await, Some((lost, Err(TaskEnded::Dropped))));
        let refused = tasks.spawn(pending());
        assert_eq!(tasks.next().await, Some((refused, Err(TaskEnded::Dropped))));
    }
}
