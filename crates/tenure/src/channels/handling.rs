//! What a handler can know about the reign that it works in.

use std::fmt;
use std::sync::Arc;

use tenure_core::Reason;

use crate::shared::{Phase, Reign, Shared};

/// The reign in which a message is handled.
#[derive(Clone)]
pub(super) struct Handling {
    pub(super) shared: Arc<Shared>,
    pub(super) reign: Arc<Reign>,
}

impl Handling {
    /// Waits until the reign is stepped down from.
    pub(super) async fn lost(&self) -> Reason {
        if !self.shared.is_here() {
            return Reason::NotRenewed;
        }
        self.reign.phase.wait_for(|phase| *phase != Phase::Leading).await.reason()
    }

    pub(super) fn is_current(&self) -> bool {
        self.shared.clock.now() < self.shared.trust_until(&self.reign)
    }
}

impl fmt::Debug for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handling").field("is_current", &self.is_current()).finish_non_exhaustive()
    }
}
