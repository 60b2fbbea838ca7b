//! The wall clock, by which schedules are due. Leases never depend on it.

use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that tells the time of day.
///
/// Production uses [`SystemWall`]; tests drive one by hand. It may step: a tick that was claimed
/// before is not claimed again, and one that was jumped over is a missed one.
pub trait WallClock: Send + Sync + 'static {
    /// The present instant, in milliseconds of Unix time.
    fn now_unix_ms(&self) -> i64;
}

/// The wall clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWall;

impl WallClock for SystemWall {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
    fn now_unix_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}
