//! The runtime of production: a thread for each part, and the program's own tokio runtime for user
//! code.

use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use tenure_core::sync::{lock, wait};
use tenure_core::{BoxFuture, Clock, Error, ErrorKind};
use tokio::runtime::{Builder, Handle};

use super::{Part, Runtime, Spawn, Spawner};
use crate::clock::BootClock;

/// Threads, the boot clock, and random numbers of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

impl Runtime for Threads {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(BootClock)
    }

    fn start(&self, part: Part) -> Result<(), Error> {
        let thread = thread::Builder::new().name(part.name.to_owned());
        start_on(part, |work| thread.spawn(work).map(drop))
    }

    fn tasks(&self) -> Option<Spawner> {
        Handle::try_current().ok().map(|handle| Arc::new(handle) as Spawner)
    }

    fn incarnation(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }

    fn random(&self) -> u64 {
        uuid::Uuid::now_v7().as_u64_pair().1
    }
}

impl Spawn for Handle {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(Handle::spawn(self, task));
    }
}

/// Starts a part on a thread, as `spawn` makes them.
fn start_on(
    part: Part,
    spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<()>,
) -> Result<(), Error> {
    let Part { name, calls_user_code, log, run } = part;
    let work: Box<dyn FnOnce() + Send> = if calls_user_code {
        Box::new(move || block_on(run))
    } else {
        let runtime = Builder::new_current_thread().enable_all().build();
        let place = Place(Some(runtime.map_err(|error| cannot_start(name, error))?));
        Box::new(move || place.run(run))
    };
    let work = move || match log {
        Some(log) => tracing::dispatcher::with_default(&log, work),
        None => work(),
    };
    spawn(Box::new(work)).map_err(|error| cannot_start(name, error))
}

/// A runtime that nobody waits for when it is dropped: calls that hang must not keep its thread.
/// And if that thread can't be spawned it is dropped inside async code, where waiting is a panic.
struct Place(Option<tokio::runtime::Runtime>);

impl Place {
    fn run(self, work: BoxFuture<'static, ()>) {
        if let Some(runtime) = &self.0 {
            runtime.block_on(work);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn cannot_start(name: &str, error: std::io::Error) -> Error {
    let message = format!("the thread {name} can't be started; raise the limits of this process");
    Error::new(ErrorKind::Unavailable, message).caused_by(error)
}

/// Runs a future on this thread, outside of any runtime: user code that is called from here may
/// have one of its own.
fn block_on(mut work: BoxFuture<'static, ()>) {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
    while work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        signal.wait();
    }
}

#[derive(Default)]
struct Signal {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn wait(&self) {
        let mut given = lock(&self.given);
        while !*given {
            given = wait(&self.changed, given);
        }
        *given = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Signal>) {
        *lock(&self.given) = true;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::sync::oneshot;

    use super::*;

    /// Elections are built inside async code, and what was to run on the thread is dropped there.
    #[tokio::test]
    async fn a_thread_that_cannot_be_spawned_is_an_error() {
        for part in [Part::new("tenure-test", async {}), Part::for_user_code("t", async {})] {
            let full = |_| Err(io::Error::from(io::ErrorKind::WouldBlock));
            let error = start_on(part, full).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().contains("raise the limits"), "{error}");
        }
    }

    #[test]
    fn a_part_that_calls_user_code_is_in_no_runtime_and_the_others_are_in_one() {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, gone) = oneshot::channel::<()>();
        let sender = tell.clone();
        let plain = async move {
            let _came = gone.await;
            let _told = sender.send(("plain", Handle::try_current().is_ok()));
        };
        Threads.start(Part::for_user_code("tenure-test", plain)).unwrap();
        let part = Part::new("tenure-test", async move {
            let _told = tell.send(("io", Handle::try_current().is_ok()));
            let _came = go.send(());
        });
        Threads.start(part).unwrap();
        let all: Vec<_> = told.iter().collect();
        assert_eq!(all, [("io", true), ("plain", false)]);
    }
}
