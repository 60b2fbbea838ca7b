//! Something that goes on in Rust, and that an event loop of Python polls.

use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tenure::Error;
use tenure_fork::Origin;

use crate::error::raise;
use crate::port::{OpWaker, Port};
use crate::process::{check_open, here, runtime};

/// What an operation returns, made where the interpreter is.
pub(crate) type Value = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

type Future = Pin<Box<dyn std::future::Future<Output = Result<Value, Error>> + Send>>;

/// One operation. It goes on when it is polled, and is given up when it is closed or dropped.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Op {
    origin: Origin,
    // A std mutex: an operation is polled by one thread at a time; another one is told so.
    state: Mutex<State>,
}

struct State {
    /// Never dropped in a forked child: what it refers to may be locked by a thread that is lost.
    future: Option<ManuallyDrop<Future>>,
    waker: Option<(Arc<OpWaker>, Waker)>,
}

impl Op {
    /// An operation that returns what `then` makes of its outcome.
    pub(crate) fn new<T: Send + 'static>(
        py: Python<'_>,
        work: impl std::future::Future<Output = Result<T, Error>> + Send + 'static,
        then: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Op> {
        let origin = here().map_err(|error| raise(py, &error))?;
        let future: Future = Box::pin(async move {
            let value = work.await?;
            Ok(Box::new(move |py: Python<'_>| then(py, value)) as Value)
        });
        let state = State { future: Some(ManuallyDrop::new(future)), waker: None };
        Ok(Op { origin, state: Mutex::new(state) })
    }

    /// One that returns nothing.
    pub(crate) fn unit(
        py: Python<'_>,
        work: impl std::future::Future<Output = Result<(), Error>> + Send + 'static,
    ) -> PyResult<Op> {
        Op::new(py, work, |py, ()| Ok(py.None()))
    }
}

#[pymethods]
impl Op {
    /// Goes on with it. Returns `None` if it is not done: then the loop of `port` will be woken for
    /// `token`. Else a tuple with what it returned, or its exception is raised.
    fn poll(&self, py: Python<'_>, port: &Port, token: u64) -> PyResult<Option<(Py<PyAny>,)>> {
        if !self.origin.is_here() {
            return Err(raise(py, &forked()));
        }
        if let Err(error) = check_open() {
            self.close();
            return Err(raise(py, &error));
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyRuntimeError::new_err("this operation is polled by another thread"));
            }
        };
        let State { future, waker } = &mut *state;
        let Some(work) = future else {
            return Err(PyRuntimeError::new_err("this operation has ended"));
        };
        let known = waker.as_ref().is_some_and(|(known, _)| {
            known.token == token && Arc::ptr_eq(&known.port, &port.shared)
        });
        if !known {
            let new = Arc::new(OpWaker { port: port.shared.clone(), token });
            *waker = Some((new.clone(), Waker::from(new)));
        }
        let Some((_, waker)) = waker else { return Ok(None) };
        let _inside = runtime().map_err(|error| raise(py, &error))?.enter();
        let polled = work.as_mut().poll(&mut Context::from_waker(waker));
        let Poll::Ready(ended) = polled else { return Ok(None) };
        state.end();
        drop(state);
        let value = ended.map_err(|error| raise(py, &error))?;
        Ok(Some((value(py)?,)))
    }

    /// Gives it up.
    fn close(&self) {
        if !self.origin.is_here() {
            return;
        }
        if let Ok(mut state) = self.state.try_lock() {
            let _inside = runtime().ok().map(|runtime| runtime.enter());
            state.end();
        }
    }
}

impl State {
    fn end(&mut self) {
        if let Some(future) = self.future.take() {
            drop(ManuallyDrop::into_inner(future));
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        self.close();
    }
}

fn forked() -> Error {
    let message = "this was begun before a fork and belongs to the parent process; make a new \
                   election in the child";
    Error::new(tenure::ErrorKind::Forked, message)
}
