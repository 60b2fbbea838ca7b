//! What this store knows about the machine it runs on: the clock, the boot, the namespaces.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::statfs;
use rustix::time::{ClockId, clock_gettime};
use tenure_core::{Error, ErrorKind};

use crate::hints;

/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Stands for the boot where nobody tells which it is. The same for all who are not told: they
/// share one clock, because only one kernel can have the file's file system mounted.
const UNKNOWN_BOOT: &str = "unknown";

/// `PROC_SUPER_MAGIC`.
const PROC_MAGIC: u32 = 0x9fa0;

/// The host as the store sees it. Tests make their own; everybody else has the real one.
#[doc(hidden)]
#[derive(Clone)]
pub struct Host {
    /// Changes with each boot (S1), and in some containers with each start of theirs (S2).
    pub(crate) boot_id: Arc<str>,
    /// Whether the id is the kernel's own. Only two of these tell a reboot from a container.
    pub(crate) boot_is_kernels: bool,
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
    /// `Unsupported` if there is no `/proc` at all, and so no way to tell which boot this is.
    pub fn detect() -> Result<Host, Error> {
        let (boot_id, boot_is_kernels) = match fs::read_to_string(BOOT_ID) {
            Ok(id) => (id, is_kernels_own(Path::new(BOOT_ID))),
            // With `ProcSubset=pid` processes are all that is shown. A reboot can't be told then,
            // as in a container; a lease that was written elsewhere is watched for its ttl (S2).
            Err(_) if namespace("pid").is_some() => (UNKNOWN_BOOT.to_owned(), false),
            Err(error) => {
                let message = "/proc/sys/kernel/random/boot_id can't be read, and without it \
                               nobody knows whether leases outlived a reboot; mount /proc";
                return Err(Error::new(ErrorKind::Unsupported, message).caused_by(error));
            }
        };
        Ok(Host {
            boot_id: boot_id.trim().into(),
            boot_is_kernels,
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
        self.boot_is_kernels = true;
        self
    }

    /// The same host, seen from a container with a boot id that was made up for it.
    #[must_use]
    pub fn with_boot_id_of_container(mut self, boot_id: &str) -> Host {
        self.boot_id = boot_id.into();
        self.boot_is_kernels = false;
        self
    }

    /// The boot as a column holds it: a hash of the id, and whether it is the kernel's own.
    pub(crate) fn boot(&self) -> Boot {
        Boot::new(&self.boot_id, self.boot_is_kernels)
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

/// Which boot the times of a lease belong to, small enough to be written with each lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boot(i64);

impl Boot {
    fn new(id: &str, is_kernels: bool) -> Boot {
        // The lowest bit is the flag, and the sign stays off.
        let hash = hints::hash(id) >> 2 << 1;
        Boot(i64::try_from(hash).unwrap_or(i64::MAX - 1) | i64::from(is_kernels))
    }

    pub(crate) fn from_column(column: i64) -> Boot {
        Boot(column)
    }

    pub(crate) fn column(self) -> i64 {
        self.0
    }

    /// Whether the machine was booted between the two, beyond doubt (S2).
    pub(crate) fn is_before_reboot_to(self, now: Boot) -> bool {
        self != now && self.is_kernels() && now.is_kernels()
    }

    fn is_kernels(self) -> bool {
        self.0 & 1 == 1
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("boot_id", &self.boot_id)
            .field("boot_is_kernels", &self.boot_is_kernels)
            .field("time_ns", &self.time_ns)
            .field("pid_ns", &self.pid_ns)
            .finish_non_exhaustive()
    }
}

fn boot_clock_ns() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Whether this file of `/proc` is the kernel's, and not one that was mounted over it:
/// systemd-nspawn, LXC and Incus give each container a boot id of its own that way.
fn is_kernels_own(path: &Path) -> bool {
    let (Ok(file), Ok(proc)) = (fs::metadata(path), fs::metadata("/proc")) else { return false };
    file.dev() == proc.dev() && statfs("/proc").is_ok_and(|found| found.f_type as u32 == PROC_MAGIC)
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
        assert!(!is_kernels_own(Path::new("/")), "another file system than /proc");
        let before = host.now_ns();
        assert!(before > 0 && host.now_ns() >= before);
    }

    #[test]
    fn only_two_boot_ids_of_the_kernel_tell_of_a_reboot() {
        let (one, two) = (Boot::new("one", true), Boot::new("two", true));
        assert!(one.is_before_reboot_to(two) && !one.is_before_reboot_to(one));
        let container = Boot::new("three", false);
        assert!(!one.is_before_reboot_to(container) && !container.is_before_reboot_to(one));
        assert!(!container.is_before_reboot_to(Boot::new("four", false)));
        assert_eq!(Boot::from_column(container.column()), container);
        assert!(container.column() > 0 && !container.is_kernels());
    }
}
