//! What this store knows about the machine it runs on: the clock, the boot, the namespaces.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use tenure_core::{Error, ErrorKind};

/// The host as the store sees it. Tests make their own; everybody else has the real one.
#[doc(hidden)]
#[derive(Clone)]
pub struct Host {
    /// Changes with each boot, and with it every lease is over (S1).
    pub(crate) boot_id: Arc<str>,
    /// The time namespace: it shifts the boot clock, so that times of two can't be compared.
    pub(crate) time_ns: u64,
    /// The pid namespace; `None` if pids can't be looked up here, and nothing be proven.
    pub(crate) pid_ns: Option<u64>,
    /// Overrides the type of every file system, in tests.
    pub(crate) fs_type: Option<u32>,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl Host {
    /// The host that this process runs on.
    ///
    /// # Errors
    /// `Unsupported` if `/proc` does not tell which boot this is.
    pub fn detect() -> Result<Host, Error> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            Error::new(
                ErrorKind::Unsupported,
                "/proc/sys/kernel/random/boot_id can't be read, and without it nobody knows \
                 whether leases outlived a reboot; mount /proc",
            )
            .caused_by(error)
        })?;
        Ok(Host {
            boot_id: boot_id.trim().into(),
            // Kernels before 5.6 have one time for all, and no such file.
            time_ns: namespace("time").unwrap_or(0),
            pid_ns: proc_is_ours().then(|| namespace("pid")).flatten(),
            fs_type: None,
            clock: Arc::new(boot_clock_ns),
        })
    }

    /// The same host after a reboot, or another one.
    #[must_use]
    pub fn with_boot_id(mut self, boot_id: &str) -> Host {
        self.boot_id = boot_id.into();
        self
    }

    /// The same host, seen from another time namespace.
    #[must_use]
    pub fn with_time_namespace(mut self, inode: u64) -> Host {
        self.time_ns = inode;
        self
    }

    /// The same host, seen from another pid namespace, or from one that nothing is known of.
    #[must_use]
    pub fn with_pid_namespace(mut self, inode: Option<u64>) -> Host {
        self.pid_ns = inode;
        self
    }

    /// A host whose files are all on a file system of this type.
    #[must_use]
    pub fn with_file_system(mut self, magic: u32) -> Host {
        self.fs_type = Some(magic);
        self
    }

    /// A host with a clock of one's own, in nanoseconds since boot.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> i64 + Send + Sync + 'static) -> Host {
        self.clock = Arc::new(clock);
        self
    }

    /// Nanoseconds since boot, counting suspend.
    pub fn now_ns(&self) -> i64 {
        (self.clock)()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("boot_id", &self.boot_id)
            .field("time_ns", &self.time_ns)
            .field("pid_ns", &self.pid_ns)
            .finish_non_exhaustive()
    }
}

fn boot_clock_ns() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// The inode that names one of our namespaces, from a link such as `pid:[4026531836]`.
fn namespace(kind: &str) -> Option<u64> {
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()?;
    let (_, inode) = link.to_str()?.split_once(":[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// Whether `/proc` shows our own pid namespace. With another one's mounted there, the start time
/// of a stranger would be taken as proof that the holder is dead.
fn proc_is_ours() -> bool {
    let link = fs::read_link("/proc/self").ok();
    let pid = link.as_deref().and_then(Path::to_str).and_then(|text| text.parse::<u32>().ok());
    pid == Some(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_host_has_a_boot_id_namespaces_and_a_clock_that_runs() {
        let host = Host::detect().unwrap();
        assert_eq!(host.boot_id.len(), 36, "{host:?}");
        assert!(host.pid_ns.is_some(), "{host:?}");
        let before = host.now_ns();
        assert!(before > 0 && host.now_ns() >= before);
    }
}
