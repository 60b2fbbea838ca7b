//! How long a call may take.

use std::time::Duration;

use tokio::time::Instant;

/// How long to wait for one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For each step on its own: finding the server, connecting, answering.
    each: Duration,
    /// For all steps together.
    until: Option<Instant>,
}

impl Patience {
    pub(crate) fn each(each: Duration) -> Patience {
        Patience { each, until: None }
    }

    /// The same, and not beyond this instant.
    pub(crate) fn until(self, until: Instant) -> Patience {
        Patience { until: Some(until), ..self }
    }

    /// For one step, whatever the others took.
    pub(crate) fn of_each(self) -> Duration {
        self.each
    }

    /// For the next step.
    pub(crate) fn left(self) -> Duration {
        let until = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        until.map_or(self.each, |left| left.min(self.each))
    }
}
