//! A process beside this one that gives its leases back when it is killed (D1, D3).
//!
//! It is the `tenure` command, started again in a hidden part. One serves all elections of the
//! process, on any number of stores. It hears over a socket, which is its stdin, which leases this
//! process may hold; and it has a pidfd of this process, which becomes readable when the last
//! thread has ended (D2). Then it releases by incarnation. Everything else (a socket that is
//! closed, a process that stands still) makes it do nothing.
//!
//! Here a thread keeps it: starts it for the first lease, tells it of each, starts it again if it
//! dies, and lets it go with the last lease. That thread does no work of the driver's, so whatever
//! happens to the witness costs speed and nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{CandidateId, Name, Store};

/// A witness for a program that was declared to do all its work itself.
///
/// If the process is killed, its witness gives its leases back at once, and others need not wait
/// until they run out. That takes the command `tenure`, on Linux; where it is not found, leases run
/// out as they do without.
///
/// # Non-guarantees
/// What the process had sent to a server is still carried out there (D4): use a fence, or a
/// [`linger`](WitnessConfig::linger). If the witness is killed with the process, as with a whole
/// container or process group, leases run out.
///
/// # Examples
/// ```no_run
/// use tenure::{Election, WitnessConfig};
///
/// # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
/// let election = Election::open("invoices", "postgres://db/shop")
///     .witness(WitnessConfig::childless())
///     .start()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WitnessConfig {
    program: Option<PathBuf>,
    linger: Duration,
}

impl WitnessConfig {
    /// Declares that nobody works for this program's reigns but this process: no child of it, and
    /// no other process that it tells that it leads. If that is not so, they work on beside the
    /// next leader when this process is killed.
    #[must_use]
    pub fn childless() -> WitnessConfig {
        WitnessConfig { program: None, linger: Duration::ZERO }
    }

    /// Where the command `tenure` is. Unless given, it is looked for beside this program and then
    /// in `PATH`. One witness serves the whole process; the first that is given counts.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> WitnessConfig {
        self.program = Some(path.into());
        self
    }

    /// How long leases are kept after the death of the process, for what it has sent to a server.
    /// Nothing unless given; of several, the longest counts.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> WitnessConfig {
        self.linger = linger;
        self
    }
}

/// One lease that a witness is told of, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    id: u64,
    /// The process that asked for it: a forked child has a copy.
    process: u32,
    is_known: Arc<AtomicBool>,
}

impl Registration {
    /// Has the lease of this candidate witnessed; `None` where that can't be.
    pub(crate) fn new(
        config: &WitnessConfig,
        store: &dyn Store,
        election: &Name,
        candidate: &CandidateId,
    ) -> Option<Registration> {
        let url = store.witness()?.url()?;
        let linger_ms = u64::try_from(config.linger.as_millis()).unwrap_or(u64::MAX);
        let lease = [
            linger_ms.to_string(),
            url.expose().to_owned(),
            election.to_string(),
            candidate.to_string(),
        ];
        // It ends a field on the way to the witness.
        if lease.iter().any(|field| field.contains('\0')) {
            return None;
        }
        let is_known = Arc::new(AtomicBool::new(false));
        let id = keeper::add(config.program.clone(), lease, is_known.clone())?;
        Some(Registration { id, process: std::process::id(), is_known })
    }

    /// Whether a witness that lives has said that it knows of the lease.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            keeper::remove(self.id);
        }
    }
}

#[cfg(target_os = "linux")]
#[path = "witness/keeper.rs"]
mod keeper;

/// Deaths can't be proven here.
#[cfg(not(target_os = "linux"))]
mod keeper {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    pub(super) fn add(_: Option<PathBuf>, _: [String; 4], _: Arc<AtomicBool>) -> Option<u64> {
        None
    }

    pub(super) fn remove(_: u64) {}
}
