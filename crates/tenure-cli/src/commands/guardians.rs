//! Guardians of commands of which several may be alive at once.
//!
//! One more than there are commands: a spare is there from before the campaign on, so that there is
//! always one left that can give the lease back when this process is killed (D1).

use std::sync::OnceLock;

use tenure_cli::process::{Bequest, Keeper};
use tokio::sync::Mutex;

/// What hands out guardians.
#[derive(Default)]
pub(super) struct Guardians {
    bequest: OnceLock<Option<Bequest>>,
    spare: Mutex<Option<Keeper>>,
}

impl Guardians {
    /// Has a guardian stand by. To be called once, before the campaign.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn stand_by(&self, bequest: Option<Bequest>) -> std::io::Result<()> {
        let _set_once = self.bequest.set(bequest);
        let mut spare = self.spare.lock().await;
        *spare = Some(self.spawn()?);
        Ok(())
    }

    /// A guardian for a command, while another one stands by.
    ///
    /// # Cancel safety
    /// Cancel safe: if it is dropped there is a guardian too many for a moment.
    pub(super) async fn next(&self) -> Result<Keeper, String> {
        let fresh = self.spawn().map_err(|error| format!("the guardian can't be started: {error}"));
        let (mut spare, fresh) = (self.spare.lock().await, fresh?);
        Ok(match spare.take() {
            Some(ready) if !is_dead(&ready).await => {
                *spare = Some(fresh);
                ready
            }
            // The spare was killed: the fresh one is for the command, and the next call tries again.
            _ => fresh,
        })
    }

    fn spawn(&self) -> std::io::Result<Keeper> {
        Keeper::spawn(self.bequest.get().and_then(Option::as_ref))
    }
}

async fn is_dead(keeper: &Keeper) -> bool {
    tokio::select! {
        biased;
        () = keeper.gone() => true,
        () = std::future::ready(()) => false,
    }
}
