//! Guardians of commands of which several may be alive at once.
//!
//! One more than there are commands: a spare is there from before the campaign on, so that there is
//! always one left that can give the lease back when this process is killed (D1).

use std::io;
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
    /// Has a guardian stand by, if there is something to be given back. To be called once, before
    /// the campaign.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn stand_by(&self, bequest: Option<Bequest>) -> io::Result<()> {
        let _set_once = self.bequest.set(bequest);
        let mut spare = self.spare.lock().await;
        *spare = self.next_spare()?;
        Ok(())
    }

    /// A guardian for a command, while another one stands by.
    ///
    /// # Cancel safety
    /// Cancel safe: if it is dropped a guardian is started for nothing.
    pub(super) async fn next(&self) -> Result<Keeper, String> {
        let failed = |error| format!("the guardian can't be started: {error}");
        let mut spare = self.spare.lock().await;
        let ready = match spare.take() {
            Some(ready) if !is_dead(&ready).await => ready,
            _ => Keeper::spawn(self.bequest()).map_err(failed)?,
        };
        *spare = self.next_spare().map_err(failed)?;
        Ok(ready)
    }

    fn next_spare(&self) -> io::Result<Option<Keeper>> {
        let bequest = self.bequest();
        bequest.map(|bequest| Keeper::spawn(Some(bequest))).transpose()
    }

    fn bequest(&self) -> Option<&Bequest> {
        self.bequest.get().and_then(Option::as_ref)
    }
}

async fn is_dead(keeper: &Keeper) -> bool {
    tokio::select! {
        biased;
        () = keeper.gone() => true,
        () = std::future::ready(()) => false,
    }
}
