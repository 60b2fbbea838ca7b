//! The trampoline: a process that puts itself where the command belongs and becomes it.
//!
//! The guardian starts it, because the command has to be its child, and knows nothing else of the
//! command. A child can't be moved into a cgroup between fork and exec without unsafe code, so a
//! second exec does it. What it is to become, and with which descriptors, comes over its link to
//! tenure, which is its stdin until the real one has come. If tenure dies first, it never becomes
//! anything.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::fchdir;

use super::guardian_pipe::{self, Report};

/// What to become.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) argv: Vec<OsString>,
    /// Added to the environment, name and value in turn.
    pub(super) envs: Vec<OsString>,
    /// The signals that tenure's own children find blocked.
    blocked: Vec<i32>,
}

impl Part {
    pub(super) fn new(argv: &[OsString], envs: Vec<OsString>) -> Part {
        let mask = SigSet::thread_get_mask().unwrap_or(SigSet::empty());
        let blocked = mask.iter().map(|signal| signal as i32).collect();
        Part { argv: argv.to_vec(), envs, blocked }
    }

    /// In a file without a name, which can be handed over.
    pub(super) fn write(&self) -> io::Result<OwnedFd> {
        let mut bytes = Vec::new();
        let mut put = |words: &mut dyn Iterator<Item = &[u8]>| {
            for word in words {
                bytes.extend((word.len() as u64 + 1).to_le_bytes());
                bytes.extend(word);
            }
            bytes.extend(0_u64.to_le_bytes());
        };
        put(&mut self.argv.iter().map(|word| word.as_bytes()));
        put(&mut self.envs.iter().map(|word| word.as_bytes()));
        let blocked: Vec<[u8; 4]> =
            self.blocked.iter().map(|signal| signal.to_le_bytes()).collect();
        put(&mut blocked.iter().map(|signal| &signal[..]));
        let mut file = File::from(memfd_create("tenure", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(file.into())
    }

    fn read(file: OwnedFd) -> io::Result<Part> {
        let (mut file, mut bytes) = (File::from(file), Vec::new());
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        let mut rest = &bytes[..];
        let (argv, envs) = (words(&mut rest)?, words(&mut rest)?);
        let numbers = words(&mut rest)?.into_iter().map(|word| {
            let bytes = word.as_bytes().try_into().map_err(|_| io::ErrorKind::InvalidData)?;
            Ok(i32::from_le_bytes(bytes))
        });
        Ok(Part { argv, envs, blocked: numbers.collect::<io::Result<_>>()? })
    }
}

/// Each with its length plus one before it; zero ends them.
fn words(rest: &mut &[u8]) -> io::Result<Vec<OsString>> {
    let mut words = Vec::new();
    loop {
        let (length, after) = rest.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        *rest = after;
        let Some(length) = usize::try_from(u64::from_le_bytes(*length)).ok() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let Some(length) = length.checked_sub(1) else { return Ok(words) };
        let (word, after) = rest.split_at_checked(length).ok_or(io::ErrorKind::InvalidData)?;
        words.push(OsString::from_vec(word.to_vec()));
        *rest = after;
    }
}

/// Becomes the command; returns only if it can't.
pub(super) fn run() -> ExitCode {
    let (link, part) = match settle() {
        Ok(Some(settled)) => settled,
        // Tenure died or thought better of it. The command never begins.
        Ok(None) => return ExitCode::from(125),
        Err(error) => return super::refuse(error),
    };
    let Some((program, args)) = part.argv.split_first() else {
        return super::refuse("no command");
    };
    let envs = part.envs.chunks_exact(2).map(|pair| (&pair[0], &pair[1]));
    let error = Command::new(program).args(args).envs(envs).exec();
    let errno = error.raw_os_error().unwrap_or_default();
    // If tenure is gone there is nobody left to tell.
    let _ = Report::NotExecuted(errno).send(&link);
    ExitCode::from(126)
}

/// Takes over what is handed over, and joins the cgroup. The link that it returns closes with the
/// exec; there is none if tenure has left.
fn settle() -> io::Result<Option<(OwnedFd, Part)>> {
    let link = io::stdin().as_fd().try_clone_to_owned()?;
    let Some(given) = guardian_pipe::take_over(&link)? else { return Ok(None) };
    let mut given = given.into_iter();
    let mut next = || given.next().ok_or(io::Error::from(io::ErrorKind::InvalidData));
    let (stdin, stdout, stderr, directory) = (next()?, next()?, next()?, next()?);
    let part = Part::read(next()?)?;
    if let Some(procs) = given.next() {
        // "0" is the writer itself.
        if let Err(error) = rustix::io::write(&procs, b"0") {
            Report::Unconfined(error.raw_os_error()).send(&link)?;
        }
    }
    fchdir(&directory)?;
    rustix::stdio::dup2_stdin(&stdin)?;
    rustix::stdio::dup2_stdout(&stdout)?;
    rustix::stdio::dup2_stderr(&stderr)?;
    unblock(&part.blocked)?;
    Ok(Some((link, part)))
}

/// The guardian blocks all signals; the command finds those blocked that it would under tenure.
fn unblock(blocked: &[i32]) -> io::Result<()> {
    let mut mask = SigSet::empty();
    for signal in blocked.iter().filter_map(|signal| NixSignal::try_from(*signal).ok()) {
        mask.add(signal);
    }
    Ok(mask.thread_set_mask()?)
}

/// The name and the value of each variable, in turn.
pub(super) fn flat<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    envs: impl IntoIterator<Item = (K, V)>,
) -> Vec<OsString> {
    let pairs = envs.into_iter();
    pairs.flat_map(|(name, value)| [name.as_ref().to_owned(), value.as_ref().to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_arrives_as_it_was_written() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\n']);
        let argv = ["sh".into(), "".into(), odd];
        let part = Part { blocked: vec![1, 15], ..Part::new(&argv, flat([("A", "b"), ("C", "")])) };
        assert_eq!(Part::read(part.write().unwrap()).unwrap(), part);
        assert_eq!(Part::read(Part::default().write().unwrap()).unwrap(), Part::default());
    }

    #[test]
    fn a_part_that_is_cut_off_is_an_error() {
        for bytes in [&[][..], &[9, 0, 0, 0, 0, 0, 0, 0, b'a'], &[0xff; 24]] {
            assert!(words(&mut &bytes[..]).is_err());
        }
    }
}
