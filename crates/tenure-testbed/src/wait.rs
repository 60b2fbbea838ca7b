//! Waiting for what other threads, processes and servers do, with limits that a busy machine keeps.

use std::future::pending;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tenure_core::Time;

/// Far more than anything takes that ought to happen at once; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The clock that leases are measured on.
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Looks again and again until there is something to see.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(now() < end, "never came: {what}");
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
    }
}

/// Asks again and again until it is so.
///
/// # Cancel safety
///
/// It keeps nothing.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    for _ in 0..PATIENCE.as_millis() / 20 {
        if is_so().await {
            return;
        }
        real_wait(Duration::from_millis(20)).await;
    }
    panic!("in {PATIENCE:?} it did not come to this: {what}");
}

/// Lets real time pass: leases of a real server run out on its own clock.
///
/// # Cancel safety
///
/// It keeps nothing.
pub async fn real_wait(span: Duration) {
    // tidy: the one pause of this crate
    let _elapsed = tokio::time::timeout(span, pending::<()>()).await;
}
