//! The one place where this crate reads a clock or waits for time to pass.
//!
//! Nothing that matters is decided by this clock. Leases run by the clock of the server, and trust
//! in them by the clock of the driver, which counts suspend. Here it bounds attempts and retries,
//! and tells how long a server has been silent.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

/// Now, for deadlines of attempts.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets time pass between two attempts.
pub(crate) async fn pause(span: Duration) {
    // tidy: the one pause of this crate
    let _ = timeout(span, std::future::pending::<()>()).await;
}

/// Waits until this instant, or for ever.
pub(crate) async fn pause_until(instant: Option<Instant>) {
    match instant {
        // tidy: the one pause of this crate
        Some(instant) => drop(timeout_at(instant, std::future::pending::<()>()).await),
        None => std::future::pending().await,
    }
}
