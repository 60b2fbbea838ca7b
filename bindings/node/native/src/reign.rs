//! One reign, and work under it.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use napi::bindgen_prelude::Either4;
use napi_derive::napi;
use tenure::{Error, ErrorKind, Tenure};
use tokio::sync::oneshot;

use crate::environment::{Ends, Membership, runtime};
use crate::error::raise;
use crate::op::Op;

/// The right to do the work, under one term, until it is lost.
#[napi]
pub struct Reign {
    term: f64,
    held: Arc<Held>,
}

struct Held {
    _membership: Membership,
    // A std mutex: held for a look.
    tenure: Mutex<Option<Arc<Tenure>>>,
}

impl Held {
    fn tenure(&self) -> MutexGuard<'_, Option<Arc<Tenure>>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends for Held {
    fn end(&self) {
        let tenure = self.tenure().take();
        drop(tenure);
    }
}

impl Reign {
    pub(crate) fn new(tenure: Tenure) -> Result<Reign, Error> {
        let term = number(tenure.term());
        let tenure = Mutex::new(Some(Arc::new(tenure)));
        let held = Membership::enter(|_membership| Held { _membership, tenure })?;
        Ok(Reign { term, held })
    }

    fn tenure(&self) -> napi::Result<Arc<Tenure>> {
        let over = || raise(&Error::new(ErrorKind::Stopped, "this reign was given back"));
        self.held.tenure().clone().ok_or_else(over)
    }
}

#[napi]
impl Reign {
    #[napi(getter)]
    pub fn term(&self) -> f64 {
        self.term
    }

    #[napi]
    pub fn is_current(&self) -> bool {
        self.held.tenure().as_ref().is_some_and(|tenure| tenure.is_current())
    }

    #[napi]
    pub fn is_leader(&self) -> bool {
        self.held.tenure().as_ref().is_some_and(|tenure| tenure.is_leader())
    }

    #[napi]
    pub fn remaining_ms(&self) -> f64 {
        let tenure = self.held.tenure();
        tenure.as_ref().map_or(0.0, |tenure| tenure.remaining().as_secs_f64() * 1000.0)
    }

    /// Ends when the work is to stop, with the reason. Renewals depend on its being polled.
    #[napi]
    pub fn lost(&self) -> napi::Result<Op> {
        let tenure = self.tenure()?;
        let lost = async move { Ok(tenure.lost().await) };
        Op::new(lost, |reason| Ok(Either4::B(reason.as_str().to_owned())))
    }

    /// Ends when the time for winding up is over.
    #[napi]
    pub fn ended(&self) -> napi::Result<Op> {
        let tenure = self.tenure()?;
        let ended = async move { Ok(tenure.ended().await) };
        Op::new(ended, |reason| Ok(Either4::B(reason.as_str().to_owned())))
    }

    /// Says that the work has ended, and ends when the lease is given back.
    #[napi]
    pub fn resign(&self) -> napi::Result<Op> {
        let tenure = self.held.tenure().take();
        Op::unit(async move {
            match tenure.map(Arc::try_unwrap) {
                Some(Ok(tenure)) => tenure.resign().await,
                // Somebody waits for its loss, and is told so when it is dropped for good.
                Some(Err(_)) | None => Ok(()),
            }
        })
    }

    /// Says that the work has ended, and waits for nothing.
    #[napi]
    pub fn drop(&self) {
        self.held.end();
    }
}

/// Work in the present reign without its handle: waited for before the lease is given back.
#[napi]
pub struct Work {
    term: f64,
    op: Mutex<Option<Op>>,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

impl Work {
    /// Enters, if this instance leads.
    pub(crate) fn enter(election: &tenure::Election) -> napi::Result<Option<Work>> {
        let Some(standing) = election.peek() else { return Ok(None) };
        let (done, ended) = oneshot::channel();
        let election = election.clone();
        let mut working = Box::pin(async move {
            let work = async move { drop(ended.await) };
            Ok(election.run_if_leader(work).await.is_some())
        });
        // Once, so that it is registered before any code of the user's is called.
        let _inside = runtime().map_err(|error| raise(&error))?.enter();
        let polled = pin!(&mut working).poll(&mut Context::from_waker(Waker::noop()));
        if matches!(polled, Poll::Ready(_)) {
            return Ok(None);
        }
        let op = Op::new(working, |in_time| Ok(Either4::A(in_time)))?;
        let (op, done) = (Mutex::new(Some(op)), Mutex::new(Some(done)));
        Ok(Some(Work { term: number(standing.term), op, done }))
    }
}

#[napi]
impl Work {
    #[napi(getter)]
    pub fn term(&self) -> f64 {
        self.term
    }

    /// Ends with `false` when the time of the work is over, and with `true` after `end`, if that
    /// came in time. To be taken once.
    #[napi]
    pub fn take_op(&self) -> Option<Op> {
        self.op.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Says that the work has ended.
    #[napi]
    pub fn end(&self) {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done {
            let _over = done.send(());
        }
    }
}

/// A term as JavaScript has it: a plain number, since terms are below 2^53.
#[expect(clippy::cast_precision_loss, reason = "terms are below 2^53")]
pub(crate) fn number(term: tenure::Term) -> f64 {
    term.get() as f64
}
