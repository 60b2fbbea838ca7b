//! What the library asks of its surroundings: places to run, a clock with timers, and chance.
//!
//! Nothing else in this crate starts a thread, reads a clock, waits for a timer or draws a random
//! number. Production has [`Threads`]. A simulator brings a [`Runtime`] of its own, runs every part
//! on one thread, and decides which of them goes on next.

mod tasks;
mod threads;

use std::fmt;
use std::sync::Arc;

use tenure_core::{BoxFuture, Clock, Error};
use tenure_fork::Origin;
use tracing::Dispatch;

pub use self::tasks::{TaskEnded, TaskSet};
pub use self::threads::Threads;

/// The surroundings of one candidate.
pub trait Runtime: Send + Sync + 'static {
    /// The clock of this host, with its timers.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Starts a part of the library. It runs apart from user code, whatever that does.
    ///
    /// # Errors
    /// `Unavailable` if there are no threads left.
    fn start(&self, part: Part) -> Result<(), Error>;

    /// Where the caller's own tasks run: callbacks, handlers and jobs go there, too. `None` if the
    /// caller is nowhere that could run one.
    fn tasks(&self) -> Option<Spawner>;

    /// A number that nobody else has drawn, for one process incarnation.
    fn incarnation(&self) -> u128;

    /// A number that nobody can foresee.
    fn random(&self) -> u64;

    /// Which process this is, if several are simulated in one. Metrics are counted by process.
    fn process(&self) -> u64 {
        0
    }

    /// This process, for handles that are made in it: a forked child is another (L3).
    ///
    /// # Errors
    /// `Unavailable` if the system can't tell of forks.
    fn origin(&self) -> Result<Origin, Error> {
        crate::candidate::origin()
    }

    /// In which way the library is to be wrong here, for tests of the checkers.
    #[cfg(feature = "sabotage")]
    fn fault(&self) -> Option<crate::Fault> {
        None
    }
}

/// A place that runs tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Runs a task to its end, or drops it when the place is gone.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// A handle to a place that runs tasks.
pub type Spawner = Arc<dyn Spawn>;

/// A part of the library that runs by itself: the driver, the alarm, the wakers, the log.
pub struct Part {
    /// What it is called among the threads of the process.
    pub name: &'static str,
    /// Whether it calls user code, which must not find itself inside a runtime of ours. Such a part
    /// has neither timers nor sockets.
    pub calls_user_code: bool,
    /// Where its log lines go; to the program's own subscriber if this is not set.
    pub log: Option<Dispatch>,
    /// What it does.
    pub run: BoxFuture<'static, ()>,
}

impl Part {
    /// A part with timers and sockets.
    pub(crate) fn new(name: &'static str, run: impl Future<Output = ()> + Send + 'static) -> Part {
        Part { name, calls_user_code: false, log: None, run: Box::pin(run) }
    }

    /// A part that calls user code.
    pub(crate) fn for_user_code(
        name: &'static str,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> Part {
        Part { calls_user_code: true, ..Part::new(name, run) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("name", &self.name).finish_non_exhaustive()
    }
}
