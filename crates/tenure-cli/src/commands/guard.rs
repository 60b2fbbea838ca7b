//! The guardian of the next run of the command, known to the store before the command starts.
//!
//! A follower takes over before a lease has run out only if it can prove dead what the store knows
//! of its holder: this process, the guardian and the group (G1). So the rule is that a command
//! starts only in a group that was attested by a call that returned, and that the group before it
//! is gone by then. Whatever happens between two runs happens with no command alive, so it does
//! not matter which of two guardians the store knows at that moment.

use std::time::Duration;

use tenure::Time;
use tenure_cli::process::Keeper;

use super::pause;
use crate::exit::Failure;
use crate::output::Output;
use crate::store::Opened;

/// How often the store is told again, after it could not be.
const TELL_AGAIN: Duration = Duration::from_millis(250);

/// A guardian, or the place for one.
pub(super) struct Guard {
    opened: Opened,
    keeper: Option<Keeper>,
    attested: bool,
}

impl Guard {
    pub(super) fn new(opened: Opened) -> Guard {
        Guard { opened, keeper: None, attested: false }
    }

    /// Returns when there is a live guardian that the store knows of.
    ///
    /// # Cancel safety
    /// Cancel safe: if it is dropped the store may know of the guardian or not, and is told again.
    pub(super) async fn ready(&mut self, out: &Output) -> Result<(), Failure> {
        loop {
            if self.is_dead().await {
                self.spent();
            }
            if self.keeper.is_some() && self.attested {
                return Ok(());
            }
            if self.keeper.is_none() {
                self.keeper = Some(Keeper::spawn().map_err(no_guardian)?);
            }
            self.attested = true;
        }
    }

    /// The guardian, if it is ready.
    pub(super) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref().filter(|_| self.attested)
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
        self.attested = false;
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
