//! Tenure's handle to its guardian.

use std::future;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, getpid, set_child_subreaper};
use tenure_core::Time;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::group::Group;
use super::guardian_pipe::{self, Order};
use super::reaper::{self, Code};
use super::release_note::ReleaseNote;

/// A guardian, and the process group that it leads and one command may join.
///
/// # Guarantees
/// Dropping it kills the group, the guardian and the command included. It waits up to 200 ms for
/// their end; to wait properly, await [`Running::gone`](super::Running::gone) before.
///
/// # Examples
/// ```no_run
/// # async fn example(deadline: tenure_core::Time) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_cli::process::{GuardianHandle, start};
///
/// let guardian = GuardianHandle::spawn(None)?;
/// // Campaign. Then, with each grant:
/// guardian.set_deadline(Some(deadline))?;
/// let running = start(&["echo".into(), "hello".into()], [("TENURE_TERM", "42")], &guardian)?;
/// let code = running.gone().await;
/// # Ok(())
/// # }
/// ```
pub struct GuardianHandle {
    pub(super) group: Arc<Group>,
}

impl GuardianHandle {
    /// Starts a guardian from this very binary, whose `main` calls [`dispatch`](super::dispatch).
    /// With a note it takes part in proving that all is dead when this process is.
    ///
    /// # Errors
    /// The operating system has no process, descriptor or `/proc` for it.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver on.
    pub fn spawn(note: Option<&ReleaseNote>) -> io::Result<GuardianHandle> {
        GuardianHandle::spawn_with(Path::new("/proc/self/exe"), note)
    }

    /// Like [`GuardianHandle::spawn`], from another binary that plays the hidden parts. For tests.
    ///
    /// # Errors
    /// As for [`GuardianHandle::spawn`], and if `program` can't be executed.
    ///
    /// # Panics
    /// As for [`GuardianHandle::spawn`].
    pub fn spawn_from(program: &Path) -> io::Result<GuardianHandle> {
        GuardianHandle::spawn_with(program, None)
    }

    fn spawn_with(program: &Path, note: Option<&ReleaseNote>) -> io::Result<GuardianHandle> {
        set_child_subreaper(Some(getpid()))?;
        // If our parent ignored SIGCHLD, so do we, and the kernel throws exit codes away. Tokio's
        // handler ends that; it must be there before the first child is.
        drop(signal(SignalKind::child())?);
        let (ours, theirs) = guardian_pipe::pair()?;
        let mut guardian = Command::new(program);
        guardian
            .arg0("tenure")
            .arg(super::GUARDIAN)
            .current_dir("/")
            .process_group(0)
            .stdin(theirs)
            // A reader of the command's output must not wait for the guardian.
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let code = Code::default();
        let (id, pidfd) = spawn_deaf(&mut guardian, Arc::clone(&code))?;
        // Ours was only lent; the guardian must hold the sole other end.
        drop(guardian);
        // Without its link it ends by itself.
        let watched = watch(pidfd).and_then(|guardian| Ok((guardian, watch(ours)?)));
        let (guardian, link) = watched.inspect_err(|_| reaper::forget(id))?;
        let mut group = Group::new(id, guardian, code, link);
        if let Some(note) = note {
            group.enroll(note)?;
        }
        Ok(GuardianHandle { group: Arc::new(group) })
    }

    /// The guardian's pid.
    pub fn pid(&self) -> u32 {
        self.group.id.as_raw_pid().unsigned_abs()
    }

    /// The id of the process group that the command is started in: the same number.
    pub fn group(&self) -> u32 {
        self.pid()
    }

    /// Tells the guardian when to kill: an instant of `CLOCK_BOOTTIME`, or `None` for not by time.
    ///
    /// Never waits. The latest call holds, an earlier instant replaces a later one too. An instant
    /// that has passed kills at once.
    ///
    /// # Errors
    /// The guardian is gone, or has not read its orders for some hundred calls. It must be counted
    /// as broken: kill the group and step down.
    pub fn set_deadline(&self, deadline: Option<Time>) -> io::Result<()> {
        Ok(Order::<OwnedFd>::Deadline(deadline).send(self.group.link())?)
    }

    /// Resolves when the guardian has died although nobody here killed the group.
    ///
    /// The command may have done it (`kill -9 0`) or somebody else. Either way the command must
    /// not run on: [`Running::kill`](super::Running::kill) it, or drop the handle.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is consumed.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let group = Arc::clone(&self.group);
        async move {
            group.guardian_dies().await;
            if group.is_over() {
                future::pending().await
            }
        }
    }

    /// Whether the guardian is dead, for whatever reason.
    pub(super) fn is_dead(&self) -> bool {
        self.group.is_guardian_dead()
    }
}

impl Drop for GuardianHandle {
    fn drop(&mut self) {
        self.group.end();
    }
}

impl std::fmt::Debug for GuardianHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardianHandle").field("group", &self.group()).finish_non_exhaustive()
    }
}

/// A pidfd that can be awaited: it is readable once the process has ended.
#[allow(deprecated, reason = "sound with an OwnedFd, and what replaces it is an unsafe fn")]
pub(super) fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

/// Starts the guardian with every signal blocked, so that there is no moment at which one could
/// end it. A signal for tenure that comes meanwhile waits, or goes to another thread.
fn spawn_deaf(guardian: &mut Command, code: Code) -> io::Result<(Pid, OwnedFd)> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let spawned = reaper::spawn(guardian, code);
    before.thread_set_mask().expect("the mask that the thread had is a valid mask");
    spawned
}
