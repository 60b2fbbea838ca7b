//! What the examples share: where the store is, and when to stop.
//!
//! Each program in `src/bin` tells one story. Start it in two or three terminals at once, then end
//! one of them with Ctrl-C, or with `kill -9`, and see who goes on.

use std::sync::Arc;

use anyhow::{Context, Result};
use tenure::{Store, Stores};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The store that the first argument names, a URL or the path of a file, else `TENURE_STORE`, else
/// the default one of this user.
///
/// # Errors
/// Whatever keeps the store from being opened.
pub fn open_store() -> Result<Arc<dyn Store>> {
    let stores = Stores::built_in();
    let url = match std::env::args().nth(1).or_else(|| std::env::var("TENURE_STORE").ok()) {
        // Also one that is not known: it must not be taken for a file of that name.
        Some(url) if url.contains(':') => stores.parse(url)?,
        Some(path) => stores.parse(format!("sqlite:{path}"))?,
        None => stores.default_store()?,
    };
    // All work is done by the process itself, so its death proves that nothing works on: on SQLite
    // it is succeeded at once, and not when its lease has run out.
    Ok(url.childless().open()?)
}

/// Ctrl-C, or the SIGTERM of a supervisor.
#[derive(Debug)]
pub struct Shutdown {
    interrupt: Signal,
    terminate: Signal,
}

impl Shutdown {
    /// Listens from now on, so that no signal is missed.
    ///
    /// # Errors
    /// If the system lets nobody listen.
    pub fn listen() -> Result<Shutdown> {
        let listen = |kind| signal(kind).context("can't listen for signals");
        Ok(Shutdown {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for it.
    ///
    /// # Cancel safety
    /// Cancel safe: a signal that came meanwhile is told to the next who asks.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
