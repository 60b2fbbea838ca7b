//! How what goes on in Rust wakes an event loop of Node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;

use crate::environment::{check_runtime, here};

/// Weak: it does not keep the loop alive.
type Bell = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The place where one event loop hears what has been woken.
#[napi]
pub struct Port {
    pub(crate) shared: Arc<PortShared>,
}

pub(crate) struct PortShared {
    bell: Bell,
    // A std mutex: it is held while one number is moved, and by nobody who waits.
    woken: Mutex<Vec<u32>>,
}

#[napi]
impl Port {
    /// `wake` is called on the loop when something is to be polled.
    #[napi(constructor)]
    pub fn new(env: Env, wake: Function<'_, (), ()>) -> napi::Result<Port> {
        check_runtime()?;
        here().watch(&env)?;
        let bell = wake
            .build_threadsafe_function::<()>()
            .callee_handled::<false>()
            .weak::<true>()
            .build()?;
        Ok(Port { shared: Arc::new(PortShared { bell, woken: Mutex::default() }) })
    }

    /// The tokens that were woken since the last call.
    #[napi]
    pub fn woken(&self) -> Vec<u32> {
        std::mem::take(&mut *self.shared.woken())
    }
}

impl PortShared {
    fn woken(&self) -> MutexGuard<'_, Vec<u32>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one operation of one loop.
pub(crate) struct OpWaker {
    pub(crate) port: Arc<PortShared>,
    pub(crate) token: u32,
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
            // It fails only when the environment is about to end.
            let _rung = self.port.bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}
