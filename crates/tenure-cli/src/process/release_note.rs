//! What is left to do when tenure has died: its last guardian gives the lease back.
//!
//! A lease may be given back only when everything that worked for it is dead. Each guardian proves
//! that for the command that it is the parent of (D1). Of several, the last one acts: they share a
//! count of the proofs that are still open. A guardian that was killed proves nothing, so the count
//! stays above zero and nobody acts: then the lease runs out.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Result, retry_on_intr};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// What a guardian does with the note of a tenure that is dead with all its work.
pub type GiveBack = fn(&str);

/// Says what to give back when this process is dead. Each of its guardians has it.
#[derive(Debug)]
pub struct ReleaseNote {
    /// The pidfd of the process that takes part in the election.
    pub(super) elector: OwnedFd,
    pub(super) open_proofs: OpenProofs,
    pub(super) text: OwnedFd,
}

/// How many guardians have not proven that their command is dead.
#[derive(Debug)]
pub(super) struct OpenProofs(OwnedFd);

impl ReleaseNote {
    /// A text that the last guardian hands to the [`GiveBack`] of [`dispatch`](super::dispatch),
    /// once this process and all that its guardians have started is dead.
    ///
    /// # Errors
    /// The operating system has no descriptor left.
    pub fn new(text: &str) -> io::Result<ReleaseNote> {
        let mut file = File::from(memfd_create("tenure", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        Ok(ReleaseNote {
            elector: pidfd_open(getpid(), PidfdFlags::empty())?,
            open_proofs: OpenProofs(eventfd(0, flags)?),
            text: file.into(),
        })
    }

    /// As a guardian has received it.
    pub(super) fn received([elector, open_proofs, text]: [OwnedFd; 3]) -> ReleaseNote {
        ReleaseNote { elector, open_proofs: OpenProofs(open_proofs), text }
    }

    /// Whether the process is dead, with all its threads (D2); waits for that if need be.
    pub(super) fn is_elector_dead(&self, wait: bool) -> bool {
        let timeout = (!wait).then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
        is_readable(&self.elector, timeout.as_ref())
    }

    /// The text, if it can be read.
    pub(super) fn read(self) -> io::Result<String> {
        let (mut file, mut text) = (File::from(self.text), String::new());
        file.rewind()?;
        file.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl OpenProofs {
    pub(super) fn try_clone(&self) -> io::Result<OpenProofs> {
        Ok(OpenProofs(self.0.try_clone()?))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// One more guardian has something to prove.
    pub(super) fn open(&self) -> Result<()> {
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).map(drop)
    }

    /// One has proven it; true if it was the last.
    pub(super) fn close(&self) -> bool {
        let closed = rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok();
        closed && !is_readable(&self.0, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }
}

fn is_readable(fd: impl AsFd, timeout: Option<&Timespec>) -> bool {
    let mut events = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    retry_on_intr(|| poll(&mut events, timeout)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_to_prove_it_acts_and_only_for_the_dead() {
        let note = ReleaseNote::new("a lease").unwrap();
        let open_proofs = note.open_proofs.try_clone().unwrap();
        open_proofs.open().unwrap();
        note.open_proofs.open().unwrap();
        assert!(!open_proofs.close() && note.open_proofs.close());
        assert!(!open_proofs.close(), "nobody is left who has something to prove");
        assert!(!note.is_elector_dead(false), "we live");
        assert_eq!(note.read().unwrap(), "a lease");
    }
}
