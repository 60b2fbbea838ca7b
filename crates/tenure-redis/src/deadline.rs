//! How long a call may take, and the one place that reads the clock for it.
//!
//! This clock stands still while the host sleeps. It only bounds waiting: no lease is judged by it.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How long to wait for one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// For each step on its own: finding the server, connecting, answering.
    each: Duration,
    /// For all steps together.
    until: Option<Instant>,
}

impl Deadline {
    pub(crate) fn each(each: Duration) -> Deadline {
        Deadline { each, until: None }
    }

    /// The same, and not beyond this instant.
    pub(crate) fn until(self, until: Instant) -> Deadline {
        Deadline { until: Some(until), ..self }
    }

    /// For one step, whatever the others took.
    pub(crate) fn per_step(self) -> Duration {
        self.each
    }

    /// For the next step.
    pub(crate) fn left(self) -> Duration {
        let until = self.until.map(|until| until.saturating_duration_since(now()));
        until.map_or(self.each, |left| left.min(self.each))
    }
}

/// The present, for deadlines.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets a little time pass.
pub(crate) async fn pause(span: Duration) {
    // tidy: the one pause of this crate
    let _elapsed = timeout(span, pending::<()>()).await;
}
