//! Ctrl-C, SIGTERM and SIGHUP: every wait ends with an error, so that children are ended on the way
//! out. (The kernel itself sends SIGHUP to an orphaned group that has a frozen process in it.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Error, Result};
use tenure::{BootClock, Clock as _};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Listens from now on, on a thread of its own.
pub(crate) fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hang_up) = {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).context("can't listen for signals");
        (
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hang_up.recv() => {}
                }
            });
            INTERRUPTED.store(true, Ordering::Relaxed);
        })
        .context("can't start a thread")?;
    Ok(())
}

/// Fails once somebody wants this to end.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Error::msg("interrupted")) } else { Ok(()) }
}

/// Waits until somebody wants this to end.
pub(crate) async fn heard() -> Error {
    loop {
        if let Err(error) = check() {
            return error;
        }
        BootClock.sleep_until(BootClock::time() + Duration::from_millis(100)).await;
    }
}
