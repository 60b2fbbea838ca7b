//! What there is one of: a tokio runtime for each process, and for each environment of Node (the
//! main thread, or a worker) the list of what ends with it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use napi::Env;
use napi_derive::napi;
use tenure::{Error, ErrorKind};
use tokio::runtime::{Builder, Runtime};

use crate::error::raise;

/// How much longer than the longest drain the end of an environment waits for the stores.
const GRACE: Duration = Duration::from_secs(1);

/// The runtime of this process: for callbacks, handlers, jobs and connections. It runs no
/// JavaScript, and is never dropped: at the end of the process it ends by itself.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("tenure-tasks")
        .enable_all()
        .build()
        .map_err(|error| {
            let message = "no thread can be started; raise the limits of this process";
            Error::new(ErrorKind::Unavailable, message).caused_by(error)
        })?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Something that goes on for JavaScript, and that ends with its environment.
pub(crate) trait Ends: Send + Sync {
    /// No JavaScript runs any more: whatever this holds is let go.
    fn end(&self);

    /// The election to be stopped, if this is one.
    fn election(&self) -> Option<tenure::Election> {
        None
    }
}

/// The main thread of Node, or one worker.
#[derive(Default)]
pub(crate) struct Environment {
    is_closed: AtomicBool,
    serial: AtomicU64,
    // A std mutex: it is held while one entry is moved.
    members: Mutex<HashMap<u64, Weak<dyn Ends>>>,
}

thread_local! {
    static HERE: OnceCell<Arc<Environment>> = const { OnceCell::new() };
}

/// The environment of this thread.
pub(crate) fn here() -> Arc<Environment> {
    HERE.with(|here| here.get_or_init(Arc::default).clone())
}

/// Keeps something on the list of its environment for as long as it exists.
pub(crate) struct Membership {
    environment: Arc<Environment>,
    serial: u64,
}

impl Membership {
    /// Enters what `make` makes.
    pub(crate) fn enter<T: Ends + 'static>(
        make: impl FnOnce(Membership) -> T,
    ) -> Result<Arc<T>, Error> {
        let environment = here();
        environment.check_open()?;
        let serial = environment.serial.fetch_add(1, Ordering::Relaxed);
        let made = Arc::new(make(Membership { environment: environment.clone(), serial }));
        let member: Arc<dyn Ends> = made.clone();
        environment.members().insert(serial, Arc::downgrade(&member));
        Ok(made)
    }

    /// Refuses to go on at the end of the environment.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        self.environment.check_open()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.environment.members().remove(&self.serial);
    }
}

impl Environment {
    fn members(&self) -> MutexGuard<'_, HashMap<u64, Weak<dyn Ends>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Stopped, "this thread of Node is about to end"));
        }
        Ok(())
    }

    /// Has this called when the environment ends, by whatever: a worker that is terminated runs no
    /// JavaScript before that.
    pub(crate) fn watch(self: &Arc<Environment>, env: &Env) -> napi::Result<()> {
        let _for_good = env.add_env_cleanup_hook(self.clone(), |environment| {
            let _late = environment.close();
        })?;
        Ok(())
    }

    /// No JavaScript runs here any more: lets go of all that went on for it, stops its elections
    /// and waits until their leases are given back, for the longest drain and a second at most.
    /// Returns how many are not.
    fn close(&self) -> usize {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return 0;
        }
        let Ok(runtime) = runtime() else { return 0 };
        let members: Vec<_> = self.members().values().filter_map(Weak::upgrade).collect();
        let elections: Vec<_> = members.iter().filter_map(|member| member.election()).collect();
        let inside = runtime.enter();
        members.iter().for_each(|member| member.end());
        drop(inside);
        drop(members);
        let drain = elections.iter().map(|election| election.timing().drain).max();
        let Some(drain) = drain else { return 0 };
        let stops: Vec<_> = elections
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
            let _too_late = tokio::time::timeout(drain + GRACE, all).await;
        });
        late
    }
}

/// For the event `exit` of the process, after which no JavaScript goes on in this thread. Returns
/// how many leases were not given back.
#[napi]
pub fn close_environment() -> u32 {
    u32::try_from(here().close()).unwrap_or(u32::MAX)
}

/// Whether the runtime can be had, so that a program that can't start a thread is told so early.
pub(crate) fn check_runtime() -> napi::Result<()> {
    runtime().map(drop).map_err(|error| raise(&error))
}
