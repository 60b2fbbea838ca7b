//! What the examples share: where the store is, and when to stop.
//!
//! Each program in `src/bin` tells one story. Start it in two or three terminals at once, then end
//! one of them with Ctrl-C, or with `kill -9`, and see who goes on.

use std::sync::Arc;

use anyhow::{Context, Result};
use tenure::SqliteStore;
use tenure::sqlite::SqliteConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The store in the file that the first argument names, else in `TENURE_STORE` (`sqlite:PATH`),
/// else in the default one of this user.
///
/// # Errors
/// Whatever keeps the file from being opened.
pub fn open_store() -> Result<Arc<SqliteStore>> {
    let config = match (std::env::args().nth(1), std::env::var("TENURE_STORE")) {
        (Some(path), _) => SqliteConfig::new(path.strip_prefix("sqlite:").unwrap_or(&path)),
        (None, Ok(url)) => SqliteConfig::from_url(&url)?,
        (None, Err(_)) => SqliteConfig::from_url("sqlite:")?,
    };
    // All work is done by the process itself, so its death proves that nothing works on: it is
    // succeeded at once, and not when its lease has run out.
    Ok(Arc::new(config.childless().open()?))
}

/// Ctrl-C, or the SIGTERM of whoever runs this.
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
