//! One reign, and work under it.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use tenure::{Error, ErrorKind, Tenure};
use tokio::sync::oneshot;

use crate::error::raise;
use crate::op::Op;
use crate::process::runtime;

/// The right to do the work, under one term, until it is lost.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Reign {
    term: u64,
    // Locked only while attached to the interpreter, and for a look.
    tenure: Mutex<Option<Arc<Tenure>>>,
}

impl Reign {
    pub(crate) fn new(tenure: Tenure) -> Reign {
        Reign { term: tenure.term().get(), tenure: Mutex::new(Some(Arc::new(tenure))) }
    }

    fn tenure(&self) -> MutexGuard<'_, Option<Arc<Tenure>>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, py: Python<'_>) -> PyResult<Arc<Tenure>> {
        let over = || Error::new(ErrorKind::Stopped, "this reign was given back");
        self.tenure().clone().ok_or_else(|| raise(py, &over()))
    }
}

#[pymethods]
impl Reign {
    #[getter]
    fn term(&self) -> u64 {
        self.term
    }

    #[getter]
    fn is_current(&self) -> bool {
        self.tenure().as_ref().is_some_and(|tenure| tenure.is_current())
    }

    #[getter]
    fn is_leader(&self) -> bool {
        self.tenure().as_ref().is_some_and(|tenure| tenure.is_leader())
    }

    #[getter]
    fn remaining(&self) -> f64 {
        self.tenure().as_ref().map_or(0.0, |tenure| tenure.remaining().as_secs_f64())
    }

    /// Ends when the work is to stop, with the reason. Renewals depend on its being polled.
    fn lost(&self, py: Python<'_>) -> PyResult<Op> {
        let tenure = self.held(py)?;
        let lost = async move { Ok(tenure.lost().await.as_str()) };
        Op::new(py, lost, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    /// Ends when the time for winding up is over.
    fn ended(&self, py: Python<'_>) -> PyResult<Op> {
        let tenure = self.held(py)?;
        let ended = async move { Ok(tenure.ended().await.as_str()) };
        Op::new(py, ended, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    /// Says that the work has ended, and ends when the lease is given back.
    fn resign(&self, py: Python<'_>) -> PyResult<Op> {
        let tenure = self.tenure().take();
        Op::unit(py, async move {
            match tenure.map(Arc::try_unwrap) {
                Some(Ok(tenure)) => tenure.resign().await,
                // Somebody waits for its loss, and is told so when it is dropped for good.
                Some(Err(_)) | None => Ok(()),
            }
        })
    }

    /// Says that the work has ended, and waits for nothing.
    fn drop(&self) {
        let tenure = self.tenure().take();
        drop(tenure);
    }
}

/// Work in the present reign without its handle: waited for before the lease is given back.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Work {
    term: u64,
    op: Py<Op>,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

impl Work {
    /// Enters, if this instance leads.
    pub(crate) fn enter(py: Python<'_>, election: &tenure::Election) -> PyResult<Option<Work>> {
        let Some(standing) = election.peek() else { return Ok(None) };
        let (done, ended) = oneshot::channel();
        let election = election.clone();
        let mut working = Box::pin(async move {
            let work = async move { drop(ended.await) };
            Ok(election.run_if_leader(work).await.is_some())
        });
        // Once, so that it is registered before any code of the user's is called.
        let _inside = runtime().map_err(|error| raise(py, &error))?.enter();
        let polled = pin!(&mut working).poll(&mut Context::from_waker(Waker::noop()));
        if matches!(polled, Poll::Ready(_)) {
            return Ok(None);
        }
        let op = Op::new(py, working, |py, in_time| {
            Ok(in_time.into_pyobject(py)?.to_owned().into_any().unbind())
        })?;
        let done = Mutex::new(Some(done));
        Ok(Some(Work { term: standing.term.get(), op: Py::new(py, op)?, done }))
    }
}

#[pymethods]
impl Work {
    #[getter]
    fn term(&self) -> u64 {
        self.term
    }

    /// Ends with `False` when the time of the work is over, and with `True` after `end`, if that
    /// came in time.
    #[getter]
    fn op(&self, py: Python<'_>) -> Py<Op> {
        self.op.clone_ref(py)
    }

    /// Says that the work has ended.
    fn end(&self) {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done {
            let _over = done.send(());
        }
    }
}
