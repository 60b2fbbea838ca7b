//! What this process has one of: a tokio runtime, for callbacks, handlers, jobs and connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use tenure::{Error, ErrorKind};
use tenure_fork::Origin;
use tokio::runtime::{Builder, Runtime};

use crate::election::Election;
use crate::error::raise;

/// The runtime of one process. It is never dropped: a forked child has a copy whose threads do not
/// exist, and at the end of the process it ends by itself.
struct Process {
    origin: Origin,
    runtime: Runtime,
}

// Locked only while attached to the interpreter, which a fork by Python waits for: so a child finds
// it unlocked.
static PROCESS: Mutex<Option<&'static Process>> = Mutex::new(None);

/// The runtime of this process, and not of one that it was forked from.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    let mut known = PROCESS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(process) = known.filter(|process| process.origin.is_here()) {
        return Ok(&process.runtime);
    }
    let origin = here()?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("tenure-tasks")
        .enable_all()
        .build()
        .map_err(|error| {
            let message = "no thread can be started; raise the limits of this process";
            Error::new(ErrorKind::Unavailable, message).caused_by(error)
        })?;
    let process: &'static Process = Box::leak(Box::new(Process { origin, runtime }));
    *known = Some(process);
    Ok(&process.runtime)
}

/// The interpreter ends: nothing goes on for it any more.
static CLOSING: AtomicBool = AtomicBool::new(false);

/// Refuses to go on at the end of the interpreter. A thread that still runs must not campaign again
/// after all leases were given back.
pub(crate) fn check_open() -> Result<(), Error> {
    if CLOSING.load(Ordering::Acquire) {
        return Err(Error::new(ErrorKind::Stopped, "the interpreter is about to end"));
    }
    Ok(())
}

/// This process.
pub(crate) fn here() -> Result<Origin, Error> {
    Origin::here().map_err(|error| {
        Error::new(ErrorKind::Unavailable, "forks can't be watched for").caused_by(error)
    })
}

/// Stops all of these at once and waits until they have given their leases back, but not for longer
/// than `seconds`. For the end of the interpreter, when no event loop runs any more. Returns how
/// many have not.
#[pyfunction]
pub(crate) fn stop_all(
    py: Python<'_>,
    elections: Vec<PyRef<'_, Election>>,
    seconds: f64,
) -> PyResult<usize> {
    CLOSING.store(true, Ordering::Release);
    let opened: Vec<tenure::Election> =
        elections.iter().filter_map(|election| election.opened().cloned()).collect();
    drop(elections);
    let here: Vec<_> = opened.into_iter().filter(|it| it.check_process().is_ok()).collect();
    if here.is_empty() {
        return Ok(0);
    }
    let runtime = runtime().map_err(|error| raise(py, &error))?;
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
    Ok(py.detach(move || {
        let stops: Vec<_> = here
            .into_iter()
            .map(|election| runtime.spawn(async move { election.stop().await }))
            .collect();
        let mut late = stops.len();
        runtime.block_on(async {
            let all = async {
                for stop in stops {
                    let _whatever_came_of_it = stop.await;
                    late -= 1;
                }
            };
            let _too_late = tokio::time::timeout(limit, all).await;
        });
        late
    }))
}
