//! How what goes on in Rust wakes an event loop: by a file descriptor, without the interpreter.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use tenure_fork::Origin;

use crate::error::raise;
use crate::process::here;

/// The place where one event loop hears what has been woken.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Port {
    pub(crate) shared: Arc<PortShared>,
}

pub(crate) struct PortShared {
    origin: Origin,
    fd: OwnedFd,
    // A std mutex: it is held while one number is moved, and by nobody who waits.
    woken: Mutex<Vec<u64>>,
}

#[pymethods]
impl Port {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Port> {
        let origin = here().map_err(|error| raise(py, &error))?;
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(std::io::Error::from)?;
        Ok(Port { shared: Arc::new(PortShared { origin, fd, woken: Mutex::default() }) })
    }

    /// What the event loop is to wait for.
    fn fileno(&self) -> i32 {
        self.shared.fd.as_raw_fd()
    }

    /// The tokens that were woken since the last call. A forked child has none, and leaves those of
    /// its parent alone.
    fn woken(&self) -> Vec<u64> {
        if !self.shared.origin.is_here() {
            return Vec::new();
        }
        let _nothing_there = rustix::io::read(&self.shared.fd, &mut [0; 8]);
        std::mem::take(&mut *self.shared.woken())
    }
}

impl PortShared {
    fn woken(&self) -> MutexGuard<'_, Vec<u64>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one operation of one loop.
pub(crate) struct OpWaker {
    pub(crate) port: Arc<PortShared>,
    pub(crate) token: u64,
}

impl Wake for OpWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let first = {
            let mut woken = self.port.woken();
            let first = woken.is_empty();
            if woken.last() != Some(&self.token) {
                woken.push(self.token);
            }
            first
        };
        if first {
            // It can't be full: nobody writes before the last one was read.
            let _written = rustix::io::write(&self.port.fd, &1u64.to_ne_bytes());
        }
    }
}
