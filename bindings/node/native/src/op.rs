//! Something that goes on in Rust, and that an event loop of Node polls.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use napi::bindgen_prelude::Either4;
use napi_derive::napi;
use tenure::{Error, ErrorKind};

use crate::call::Call;
use crate::environment::{Ends, Membership, runtime};
use crate::error::raise;
use crate::port::{OpWaker, Port};
use crate::reign::Reign;

/// What an operation returns: a yes or no, JSON text, or a handle.
pub(crate) type Value = Either4<bool, String, Reign, Call>;

type Future = Pin<Box<dyn std::future::Future<Output = Result<Value, Error>> + Send>>;

/// One operation. It goes on when it is polled, and is given up when it is closed or dropped.
#[napi]
pub struct Op {
    shared: Arc<Shared>,
}

struct Shared {
    membership: Membership,
    // A std mutex: only the thread of the environment locks it.
    state: Mutex<State>,
}

struct State {
    future: Option<Future>,
    waker: Option<(Arc<OpWaker>, Waker)>,
}

impl Op {
    /// An operation that returns what `then` makes of its outcome.
    pub(crate) fn new<T: Send + 'static>(
        work: impl std::future::Future<Output = Result<T, Error>> + Send + 'static,
        then: impl FnOnce(T) -> Result<Value, Error> + Send + 'static,
    ) -> napi::Result<Op> {
        let future: Future = Box::pin(async move { then(work.await?) });
        let state = Mutex::new(State { future: Some(future), waker: None });
        let shared = Membership::enter(|membership| Shared { membership, state });
        Ok(Op { shared: shared.map_err(|error| raise(&error))? })
    }

    /// One that returns nothing.
    pub(crate) fn unit(
        work: impl std::future::Future<Output = Result<(), Error>> + Send + 'static,
    ) -> napi::Result<Op> {
        Op::new(work, |()| Ok(Either4::A(true)))
    }
}

#[napi]
impl Op {
    /// Goes on with it. Returns `null` if it is not done: then `port` will be woken for `token`.
    #[napi]
    pub fn poll(&self, port: &Port, token: u32) -> napi::Result<Option<Value>> {
        if let Err(error) = self.shared.membership.check_open() {
            self.close();
            return Err(raise(&error));
        }
        let mut state = self.shared.state();
        let State { future, waker } = &mut *state;
        let Some(work) = future else {
            return Err(raise(&Error::new(ErrorKind::Stopped, "this operation has ended")));
        };
        let known = waker.as_ref().is_some_and(|(known, _)| {
            known.token == token && Arc::ptr_eq(&known.port, &port.shared)
        });
        if !known {
            let new = Arc::new(OpWaker { port: port.shared.clone(), token });
            *waker = Some((new.clone(), Waker::from(new)));
        }
        let Some((_, waker)) = waker else { return Ok(None) };
        let _inside = runtime().map_err(|error| raise(&error))?.enter();
        let polled = work.as_mut().poll(&mut Context::from_waker(waker));
        let Poll::Ready(ended) = polled else { return Ok(None) };
        let over = future.take();
        drop(state);
        drop(over);
        ended.map(Some).map_err(|error| raise(&error))
    }

    /// Gives it up.
    #[napi]
    pub fn close(&self) {
        self.shared.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends for Shared {
    fn end(&self) {
        let future = self.state().future.take();
        let _inside = runtime().ok().map(|runtime| runtime.enter());
        drop(future);
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        self.close();
    }
}
