//! User code that is called when leadership changes: plain closures or async ones.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tenure_core::{BoxFuture, Error, ErrorKind, Term};

use crate::slot::Promises;

/// What a callback may return: nothing, or a future of nothing.
///
/// Implemented for `()` and for every `Future<Output = ()>`; the parameter only tells the two
/// apart and is never written.
pub trait CallbackResult<Kind>: Send + 'static {
    /// The rest of the callback's work, if there is any.
    fn rest(self) -> Option<BoxFuture<'static, ()>>;
}

/// The kind of a callback that is done when it returns.
#[derive(Debug)]
pub enum Plain {}

/// The kind of a callback that returns a future.
#[derive(Debug)]
pub enum Async {}

impl CallbackResult<Plain> for () {
    fn rest(self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

impl<F: Future<Output = ()> + Send + 'static> CallbackResult<Async> for F {
    fn rest(self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self))
    }
}

pub(crate) type Callback<T> = Arc<dyn Fn(T) -> Option<BoxFuture<'static, ()>> + Send + Sync>;

/// The callbacks of one election.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) elected: Option<Callback<Term>>,
    pub(crate) lost: Option<Callback<Term>>,
    pub(crate) change: Option<Callback<Option<Term>>>,
    pub(crate) error: Option<Callback<Error>>,
}

impl Callbacks {
    pub(crate) fn is_empty(&self) -> bool {
        self.elected.is_none()
            && self.lost.is_none()
            && self.change.is_none()
            && self.error.is_none()
    }

    /// What they mean for those who are told "you lead".
    pub(crate) fn promises(&self) -> Promises {
        let answers = self.lost.is_some();
        Promises { relies: self.elected.is_some() && !answers, answers }
    }
}

pub(crate) fn callback<T, K, R: CallbackResult<K>>(
    call: impl Fn(T) -> R + Send + Sync + 'static,
) -> Callback<T> {
    Arc::new(move |value| call(value).rest())
}

/// Starts a callback. What is left of it is a future that turns a panic into an error.
pub(crate) fn begin<T>(
    what: &'static str,
    callback: Option<&Callback<T>>,
    value: T,
) -> Result<Option<Guarded>, Error> {
    let Some(callback) = callback else { return Ok(None) };
    match catch_unwind(AssertUnwindSafe(|| callback(value))) {
        Ok(rest) => Ok(rest.map(|rest| Guarded { what, rest })),
        Err(panic) => Err(panicked(what, &*panic)),
    }
}

/// A callback's future, with its panics caught.
pub(crate) struct Guarded {
    what: &'static str,
    rest: BoxFuture<'static, ()>,
}

impl Future for Guarded {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.rest.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => Poll::Ready(Err(panicked(self.what, &*panic))),
        }
    }
}

fn panicked(what: &'static str, panic: &(dyn std::any::Any + Send)) -> Error {
    Error::new(ErrorKind::Config, format!("the callback {what} panicked: {}", said(panic)))
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
