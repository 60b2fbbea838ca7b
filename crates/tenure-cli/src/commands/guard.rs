//! The guardian of the next run of the command, there before the command starts.
//!
//! On a store that has its leases given back by proof of death, each guardian has a bequest: when
//! this process is killed, the guardian ends the command, proves that nothing is left of it, and
//! gives the lease back (D1). So there is a guardian from before the campaign on.

use tenure::Time;
use tenure_cli::process::{Bequest, Keeper};

use crate::exit::Failure;

/// A guardian, or the place for one.
pub(super) struct Guard {
    bequest: Option<Bequest>,
    keeper: Option<Keeper>,
}

impl Guard {
    pub(super) fn new(bequest: Option<Bequest>) -> Guard {
        Guard { bequest, keeper: None }
    }

    /// Returns when there is a live guardian.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ready(&mut self) -> Result<(), Failure> {
        if self.is_dead().await {
            self.spent();
        }
        if self.keeper.is_none() {
            self.keeper = Some(Keeper::spawn(self.bequest.as_ref()).map_err(no_guardian)?);
        }
        Ok(())
    }

    /// The guardian, if there is one.
    pub(super) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }

    /// Returns when the guardian died though nobody here wanted it to.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn gone(&self) {
        match &self.keeper {
            Some(keeper) => keeper.gone().await,
            None => std::future::pending().await,
        }
    }

    /// Tells the guardian when to kill; `false` if it can't be told.
    pub(super) fn set_deadline(&self, at: Time) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.set_deadline(Some(at)).is_ok())
    }

    /// The run is over and its group is gone, the guardian included.
    pub(super) fn spent(&mut self) {
        self.keeper = None;
    }

    async fn is_dead(&self) -> bool {
        tokio::select! {
            biased;
            () = self.gone() => true,
            () = std::future::ready(()) => false,
        }
    }
}

fn no_guardian(error: std::io::Error) -> Failure {
    Failure::from(error).about("the guardian can't be started")
}
