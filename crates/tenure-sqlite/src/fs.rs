//! The files: where they are, on what file system, with what mode, and whether they are still
//! the same ones.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, access, flock, fstat,
    mknodat, openat, statat, statfs, unlinkat,
};
use rustix::io::Errno;
use tenure_core::{Error, ErrorKind};

use crate::error;
use crate::host::Host;

/// What SQLite puts beside a database, in WAL mode and before.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// File systems that only one host can mount. All others are refused: on a volume that two hosts
/// share, each would take the other's leases for those of an earlier boot (S2).
const LOCAL: [(u32, &str); 13] = [
    (0x0000_ef53, "ext2, ext3 or ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlayfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x8584_58f6, "ramfs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x0000_3434, "nilfs2"),
    (0x2405_1905, "ubifs"),
];

/// Names of some others, for the message.
const FOREIGN: [(u32, &str); 14] = [
    (0x0000_6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0000_517b, "smb"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse or virtiofs"),
    (0x5346_414f, "afs"),
    (0x00c3_6400, "ceph"),
    (0x7375_7245, "coda"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x786f_4256, "vboxsf"),
];

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The path that was asked for, made absolute once: the working directory may change.
    pub(crate) path: PathBuf,
    /// The file itself, behind any symbolic links: all who share it must share its hints too.
    pub(crate) real: PathBuf,
    /// The directory in which hints are left.
    pub(crate) hints: PathBuf,
}

/// Held by the one process that opens the file now. Dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Gate(#[expect(dead_code, reason = "closing it is what opens the gate")] File);

/// The inodes of the files that a connection has open (S4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity([(u64, u64); 3]);

impl Place {
    /// Creates what is missing and checks what is there.
    pub(crate) fn prepare(
        path: &Path,
        host: &Host,
        wait: Duration,
    ) -> Result<(Place, Gate), Error> {
        let path = std::path::absolute(path)
            .map_err(|error| error::from_io("there is no file", path, error))?;
        let (Some(parent), Some(_)) = (path.parent(), path.file_name()) else {
            let message = format!("{} is a directory; add the name of a file", path.display());
            return Err(error::new(ErrorKind::Config, message));
        };
        // Before anything is created, and again for where a symbolic link may have led to.
        let existing = parent.ancestors().find(|path| path.exists()).unwrap_or(parent);
        check_file_system(existing, host)?;
        make_directory(parent, true)?;
        let real = resolve(&path, parent)?;
        let directory = real.parent().unwrap_or(parent);
        check_file_system(directory, host)?;
        let hints = beside(&real, "-hints");
        make_directory(&hints, false)?;
        refuse_link(&hints)?;
        let gate = Gate::pass(&hints, wait)?;
        make_file(&real, directory)?;
        Ok((Place { path, real, hints }, gate))
    }

    /// A file that exists, and is not touched.
    pub(crate) fn find(path: &Path, host: &Host) -> Result<Place, Error> {
        let path = std::path::absolute(path)
            .map_err(|error| error::from_io("there is no file", path, error))?;
        let real = fs::canonicalize(&path)
            .map_err(|error| error::from_io("can't follow", &path, error))?;
        check_file_system(real.parent().unwrap_or(&real), host)?;
        let hints = beside(&real, "-hints");
        Ok(Place { path, real, hints })
    }

    /// The inodes that are at the path now; `None` if something is missing.
    ///
    /// The `-wal` and the `-shm` count too: if they are deleted under a connection, the next one
    /// makes its own, and the two no longer see each other. `stat` and not `open`, because
    /// closing a file would drop SQLite's locks on it.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let id = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        Some(Identity([
            id(&self.path)?,
            id(&beside(&self.real, "-wal"))?,
            id(&beside(&self.real, "-shm"))?,
        ]))
    }
}

impl Gate {
    /// Waits, at most this long, until nobody else opens the file.
    fn pass(hints: &Path, wait: Duration) -> Result<Gate, Error> {
        let failed = |error| error::from_io("can't use the directory", hints, error);
        let directory = open_directory(hints).map(File::from).map_err(|e| failed(e.into()))?;
        let (mut waited, mut nap) = (Duration::ZERO, Duration::from_micros(500));
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Gate(directory)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if waited < wait => {
                    thread::sleep(nap);
                    waited += nap;
                    nap = (nap * 2).min(Duration::from_millis(10));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    let message = format!(
                        "another process has been opening the store beside {} for {} ms; if it \
                         is stopped or stuck, end it",
                        hints.display(),
                        wait.as_millis()
                    );
                    return Err(error::new(ErrorKind::Unavailable, message));
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}

/// The path with something added to the name of the file.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A directory for this user alone.
pub(crate) fn make_directory(path: &Path, parents: bool) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    match DirBuilder::new().recursive(parents).mode(0o700).create(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error::from_io("can't create the directory", path, error)),
        Ok(()) => Ok(()),
    }
}

/// A directory that is none itself but leads to one would have us tidy up elsewhere (S5).
fn refuse_link(hints: &Path) -> Result<(), Error> {
    if !fs::symlink_metadata(hints).is_ok_and(|found| found.is_symlink()) {
        return Ok(());
    }
    let message = format!(
        "{} is a symbolic link, and hints are left in a directory of the store's own; remove it",
        hints.display()
    );
    Err(error::new(ErrorKind::Config, message))
}

/// The directory itself, never one that a link leads to.
fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

/// Removes the files of hints whose writers died before they could. They were seen when they
/// appeared; nobody misses them. Only what tenure has made is removed (S5): empty files of this
/// user, under names that only [`hints`](crate::hints) makes, in this very directory.
pub(crate) fn sweep(hints: &Path) {
    let me = rustix::process::geteuid().as_raw();
    let Ok(directory) = open_directory(hints) else { return };
    if !fstat(&directory).is_ok_and(|found| found.st_uid == me) {
        return;
    }
    let Ok(entries) = Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_ok_and(crate::hints::is_name_of_hint) {
            continue;
        }
        let ours = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            let kind = FileType::from_raw_mode(found.st_mode);
            kind == FileType::RegularFile && found.st_size == 0 && found.st_uid == me
        });
        if ours {
            // Its writer may be faster: then it is gone, as it should be.
            let _ = unlinkat(&directory, name, AtFlags::empty());
        }
    }
}

fn resolve(path: &Path, parent: &Path) -> Result<PathBuf, Error> {
    let failed = |error| error::from_io("can't follow", path, error);
    match fs::symlink_metadata(path) {
        Ok(_) => fs::canonicalize(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().unwrap_or_default();
            Ok(fs::canonicalize(parent).map_err(failed)?.join(name))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Creates the file if it is missing, or checks that it can be used. Only with the gate held.
fn make_file(real: &Path, directory: &Path) -> Result<(), Error> {
    match fs::metadata(real) {
        Ok(found) if found.is_file() => {}
        Ok(_) => {
            let message = format!("{} is not a file; choose another path", real.display());
            return Err(error::new(ErrorKind::Config, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return create_file(real, directory);
        }
        Err(error) => return Err(error::from_io("can't use", real, error)),
    }
    access(real, Access::READ_OK | Access::WRITE_OK).map_err(|_| error::read_only(real))
}

fn create_file(real: &Path, directory: &Path) -> Result<(), Error> {
    let failed = |error| error::from_io("can't create", real, error);
    // What a deleted database left behind would be taken for a part of the new one (S4).
    for suffix in COMPANIONS {
        match fs::remove_file(beside(real, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    // Not `open`: closing the file would drop the locks of any connection in this process.
    match mknodat(CWD, real, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno.into())),
    }
    // The name must survive a power loss, as the terms must (S1).
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// What people call the file system of a directory.
pub(crate) fn file_system(directory: &Path) -> Result<String, Error> {
    let magic = magic_of(directory)?;
    let known = LOCAL.iter().chain(&FOREIGN).find(|(known, _)| *known == magic);
    Ok(known.map_or_else(|| format!("of type {magic:#x}"), |(_, name)| (*name).to_owned()))
}

fn magic_of(directory: &Path) -> Result<u32, Error> {
    let found = statfs(directory)
        .map_err(|errno| error::from_io("can't look at", directory, errno.into()))?;
    // The word is as wide as a register, and sign-extended on some machines.
    Ok(found.f_type as u32)
}

fn check_file_system(directory: &Path, host: &Host) -> Result<(), Error> {
    let magic = match host.fs_type {
        Some(magic) => magic,
        None => magic_of(directory)?,
    };
    check_magic(magic).map_err(|kind| {
        let message = format!(
            "{} is on {kind}, which several hosts may share; put the file on a local file \
             system such as ext4, xfs, btrfs or tmpfs, or elect across hosts with a server",
            directory.display()
        );
        error::new(ErrorKind::Unsupported, message)
    })
}

/// `Err` tells what it is instead of a local file system.
fn check_magic(magic: u32) -> Result<(), String> {
    if LOCAL.iter().any(|(local, _)| *local == magic) {
        return Ok(());
    }
    let name = FOREIGN.iter().find(|(foreign, _)| *foreign == magic).map(|(_, name)| *name);
    Err(format!("{} (type {magic:#x})", name.unwrap_or("a file system unknown to tenure")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_systems_are_allowed_and_all_others_refused_by_name() {
        for (magic, name) in LOCAL {
            assert_eq!(check_magic(magic), Ok(()), "{name}");
        }
        for (magic, name) in FOREIGN {
            assert!(check_magic(magic).unwrap_err().contains(name));
        }
        let unknown = check_magic(0x1234).unwrap_err();
        assert!(unknown.contains("unknown to tenure (type 0x1234)"), "{unknown}");
    }

    #[test]
    fn what_a_deleted_database_left_behind_is_removed_with_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        fs::write(beside(&path, "-wal"), "old").unwrap();
        let host = Host::detect().unwrap();
        let (place, _gate) = Place::prepare(&path, &host, Duration::ZERO).unwrap();
        assert!(!beside(&place.real, "-wal").exists());
        assert_eq!(fs::metadata(&place.real).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&place.hints).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn one_process_at_a_time_passes_the_gate() {
        let directory = tempfile::tempdir().unwrap();
        let gate = Gate::pass(directory.path(), Duration::ZERO).unwrap();
        let error = Gate::pass(directory.path(), Duration::from_millis(2)).unwrap_err();
        assert!(error.message().contains("another process has been opening"), "{error}");
        drop(gate);
        // A process that another test is about to start may keep a copy of it for a moment.
        Gate::pass(directory.path(), Duration::from_secs(10)).unwrap();
    }
}
