//! Where times come from. The core only says what a clock is; the facade has the real one.

use crate::{BoxFuture, Time};

/// A local clock that never steps back and counts suspend.
///
/// Production uses the boot clock of the crate `tenure`; tests drive one by hand.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Time;

    /// Waits until `at` has come; at once if it has.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()>;
}
