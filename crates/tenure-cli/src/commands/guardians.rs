//! Guardians of commands of which several may be alive at once.
//!
//! The store knows one guardian and its group (G1). Of several commands at once it is told that
//! nobody can prove them dead, so that a successor waits for the lease to run out.

use std::sync::Arc;
use std::time::Duration;

use tenure_cli::process::Keeper;
use tokio::sync::Mutex;

use super::pause;
use crate::store::Opened;

/// How often the store is told again of a guardian, after it could not be.
const TELL_AGAIN: Duration = Duration::from_millis(100);

/// What hands out guardians.
pub(super) struct Guardians {
    opened: Opened,
    /// How many commands are alive.
    alive: Arc<Mutex<usize>>,
}

/// A guardian that the store knows of. Held for as long as anything of its command is left.
pub(super) struct Guarded {
    pub(super) keeper: Keeper,
    _alive: Alive,
}

impl Guardians {
    pub(super) fn new(opened: Opened) -> Guardians {
        Guardians { opened, alive: Arc::default() }
    }

    /// A guardian that the store knows of, before its command starts. A store that is away is told
    /// again for as long as there is a point in it.
    ///
    /// # Cancel safety
    /// Cancel safe: if it is dropped the store may know of a guardian that is gone, and is told of
    /// the next one.
    pub(super) async fn next(&self, has_a_point: impl Fn() -> bool) -> Result<Guarded, String> {
        let keeper =
            Keeper::spawn().map_err(|error| format!("the guardian can't be started: {error}"))?;
        let mut alive = self.alive.lock().await;
        *alive += 1;
        Ok(Guarded { keeper, _alive: Alive(self.alive.clone()) })
    }
}

/// Counts a command out when its run is over, however it ends.
struct Alive(Arc<Mutex<usize>>);

impl Drop for Alive {
    fn drop(&mut self) {
        // A guard that is being told of holds the lock; then the count stays too high for a
        // moment, which costs a successor the wait and nothing else.
        if let Ok(mut alive) = self.0.try_lock() {
            *alive = alive.saturating_sub(1);
        } else {
            let alive = self.0.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    let mut alive = alive.lock().await;
                    *alive = alive.saturating_sub(1);
                });
            }
        }
    }
}
