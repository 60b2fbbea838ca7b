//! What is left to do when tenure has died: its guardians do it, the last of them.
//!
//! A lease may be given back only when everything that worked for it is dead. Each guardian proves
//! that for the command that it is the parent of (D1). Of several, the last one acts: the roll
//! counts those that have not proven it yet. One that was killed never does, so the roll stays
//! above zero and nobody acts: then the lease runs out.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Result, retry_on_intr};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// What a guardian does with the last words of a tenure that is dead with all its work.
pub type Heir = fn(&str);

/// The last words of this process, for its guardians.
#[derive(Debug)]
pub struct Bequest {
    pub(super) elector: OwnedFd,
    pub(super) roll: Roll,
    pub(super) words: OwnedFd,
}

/// How many guardians have not proven that their command is dead.
#[derive(Debug)]
pub(super) struct Roll(OwnedFd);

impl Bequest {
    /// Words that the last guardian hands to the [`Heir`] of [`dispatch`](super::dispatch) once
    /// this process and all that its guardians have started is dead.
    ///
    /// # Errors
    /// The operating system has no descriptor left.
    pub fn new(words: &str) -> io::Result<Bequest> {
        let mut file = File::from(memfd_create("tenure", MemfdFlags::CLOEXEC)?);
        file.write_all(words.as_bytes())?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        Ok(Bequest {
            elector: pidfd_open(getpid(), PidfdFlags::empty())?,
            roll: Roll(eventfd(0, flags)?),
            words: file.into(),
        })
    }

    /// As a guardian has received it.
    pub(super) fn received([elector, roll, words]: [OwnedFd; 3]) -> Bequest {
        Bequest { elector, roll: Roll(roll), words }
    }

    /// Whether the process is dead, with all its threads (D2); waits for that if need be.
    pub(super) fn is_elector_dead(&self, wait: bool) -> bool {
        let timeout = (!wait).then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
        is_readable(&self.elector, timeout.as_ref())
    }

    /// The words, if they can be read.
    pub(super) fn read(self) -> io::Result<String> {
        let (mut file, mut words) = (File::from(self.words), String::new());
        file.rewind()?;
        file.read_to_string(&mut words)?;
        Ok(words)
    }
}

impl Roll {
    pub(super) fn try_clone(&self) -> io::Result<Roll> {
        Ok(Roll(self.0.try_clone()?))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// One more guardian has something to prove.
    pub(super) fn add(&self) -> Result<()> {
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).map(drop)
    }

    /// One has proven it; true if it was the last.
    pub(super) fn take_off(&self) -> bool {
        let taken = rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok();
        taken && !is_readable(&self.0, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
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
    fn only_the_last_of_the_roll_acts_and_only_for_the_dead() {
        let bequest = Bequest::new("last words").unwrap();
        let roll = bequest.roll.try_clone().unwrap();
        roll.add().unwrap();
        bequest.roll.add().unwrap();
        assert!(!roll.take_off() && bequest.roll.take_off());
        assert!(!roll.take_off(), "nobody is left to be taken off");
        assert!(!bequest.is_elector_dead(false), "we live");
        assert_eq!(bequest.read().unwrap(), "last words");
    }
}
