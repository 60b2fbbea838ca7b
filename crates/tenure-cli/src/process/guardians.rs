//! Guardians that stand by: there is one before there is a command to guard.

use std::future::pending;
use std::io;
use std::sync::Mutex;

use tenure_core::sync::lock;

use super::guardian_handle::GuardianHandle;
use super::release_note::ReleaseNote;

/// Hands out guardians, one for each command.
///
/// On a store whose leases are given back by proof of death, each guardian has a [`ReleaseNote`]:
/// when this process is killed, the guardian ends the command, proves that nothing is left of it,
/// and gives the lease back (D1). So one stands by from before the campaign on, also while no
/// command runs.
#[derive(Debug)]
pub struct Guardians {
    note: Option<ReleaseNote>,
    ready: Mutex<Option<GuardianHandle>>,
}

impl Guardians {
    /// Nobody stands by yet.
    pub fn new(note: Option<ReleaseNote>) -> Guardians {
        Guardians { note, ready: Mutex::new(None) }
    }

    /// Has a live guardian stand by.
    ///
    /// # Errors
    /// The guardian can't be started.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver on.
    pub fn stand_by(&self) -> io::Result<()> {
        let mut ready = lock(&self.ready);
        if ready.as_ref().is_none_or(GuardianHandle::is_dead) {
            *ready = Some(self.spawn()?);
        }
        Ok(())
    }

    /// A guardian for a command: the one that stood by, or a new one. Nobody stands by after that.
    ///
    /// # Errors
    /// As for [`stand_by`](Guardians::stand_by).
    ///
    /// # Panics
    /// As for [`stand_by`](Guardians::stand_by).
    pub fn take(&self) -> io::Result<GuardianHandle> {
        match lock(&self.ready).take().filter(|guardian| !guardian.is_dead()) {
            Some(guardian) => Ok(guardian),
            None => self.spawn(),
        }
    }

    /// Resolves when the guardian that stands by has died; never, if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is consumed.
    pub async fn gone(&self) {
        let gone = lock(&self.ready).as_ref().map(GuardianHandle::gone);
        match gone {
            Some(gone) => gone.await,
            None => pending().await,
        }
    }

    fn spawn(&self) -> io::Result<GuardianHandle> {
        GuardianHandle::spawn(self.note.as_ref()).map_err(|error| {
            io::Error::new(error.kind(), format!("the guardian can't be started: {error}"))
        })
    }
}
