//! The witness of a library process: the part of this binary that `tenure::WitnessConfig` starts.
//!
//! Its parent is the process that it watches. It hears over its stdin, a socket, which leases that
//! process may hold, and has a pidfd of it. When the pidfd is readable, the last thread of the
//! process has ended (D2), and the process was declared to have no others who work for it (D1):
//! then the leases are given back by incarnation (D3). Nothing else makes it act. It never sends a
//! signal to anybody.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitCode;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send, sockopt::socket_type};
use rustix::process::{PidfdFlags, getppid, pidfd_open};

use crate::give_back::{HeldLease, ReleasePlan, give_back};
use crate::process;

/// The hidden first argument that makes this binary a witness, and the version that it speaks.
const WITNESS: &str = "__witness";
const VERSION: &str = "1";

/// How long after the end of the socket the process must be dead: a process that ends closes its
/// files a moment before. One that closed it and lives has let the witness go.
const DEAD_WITHIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The most that one record may have. Names and URLs have far less.
const RECORD_MAX: usize = 1 << 20;

/// Plays the part, if the command line asks for it.
pub(crate) fn dispatch() -> Option<ExitCode> {
    (std::env::args_os().nth(1)? == WITNESS).then(run)
}

fn run() -> ExitCode {
    let link = rustix::stdio::stdin();
    if socket_type(link) != Ok(SocketType::STREAM) {
        return process::refuse("a witness hears over a socket on stdin");
    }
    // A Ctrl-C, or a TERM to the whole service, must not end it before it has done its work.
    let _ = SigSet::all().thread_block();
    let _ = rustix::thread::set_name(c"witness");
    process::close_inherited();
    let Some((parent, watched)) = parent() else { return ExitCode::FAILURE };
    match (Hearing { link, parent, ..Hearing::new(link) }).until_dead(&watched) {
        Some(plan) => {
            drop(watched);
            if let Ok(text) = plan.to_text() {
                give_back(&text);
            }
            ExitCode::SUCCESS
        }
        None => ExitCode::SUCCESS,
    }
}

/// Our parent, by its number and by a handle that can't come to mean another process.
fn parent() -> Option<(i32, OwnedFd)> {
    let parent = getppid()?;
    let watched = pidfd_open(parent, PidfdFlags::empty()).ok()?;
    // If it had died before, the number might be another's, and our parent would be another, too.
    (getppid() == Some(parent)).then_some((parent.as_raw_pid(), watched))
}

/// What was heard so far.
struct Hearing<'a> {
    link: BorrowedFd<'a>,
    parent: i32,
    /// What is not a whole record yet.
    rest: Vec<u8>,
    /// Whether our parent is the one who talks to us.
    is_greeted: bool,
    leases: BTreeMap<u64, HeldLease>,
    linger_ms: u64,
    directory: Option<String>,
}

/// What one look at the socket brought.
#[derive(PartialEq, Eq)]
enum Heard {
    Something,
    Nothing,
    /// The other side has closed it, or talks nonsense.
    End,
}

impl Hearing<'_> {
    fn new(link: BorrowedFd<'_>) -> Hearing<'_> {
        let (rest, leases) = (Vec::new(), BTreeMap::new());
        let (parent, is_greeted, linger_ms, directory) = (0, false, 0, None);
        Hearing { link, parent, rest, is_greeted, leases, linger_ms, directory }
    }

    /// Waits for the death of our parent; tells what to give back then, if it is to be.
    fn until_dead(mut self, watched: &OwnedFd) -> Option<ReleasePlan> {
        loop {
            let mut events = [
                PollFd::new(watched, PollFlags::IN),
                PollFd::from_borrowed_fd(self.link, PollFlags::IN),
            ];
            retry_on_intr(|| poll(&mut events, None)).ok()?;
            let is_dead = !events[0].revents().is_empty();
            let mut heard = Heard::Something;
            while heard == Heard::Something {
                heard = self.hear();
            }
            if is_dead || (heard == Heard::End && dies_soon(watched)) {
                return self.plan();
            }
            if heard == Heard::End {
                return None;
            }
        }
    }

    fn plan(self) -> Option<ReleasePlan> {
        let leases: Vec<HeldLease> = self.leases.into_values().collect();
        let directory = self.directory.map(Into::into);
        let is_due = self.is_greeted && !leases.is_empty();
        is_due.then_some(ReleasePlan { leases, linger_ms: self.linger_ms, directory })
    }

    fn hear(&mut self) -> Heard {
        let mut bytes = [0; 4096];
        let got = match retry_on_intr(|| recv(self.link, &mut bytes[..], RecvFlags::DONTWAIT)) {
            Ok((0, _)) => return Heard::End,
            Ok((got, _)) => got,
            Err(Errno::WOULDBLOCK) => return Heard::Nothing,
            Err(_) => return Heard::End,
        };
        self.rest.extend_from_slice(&bytes[..got]);
        while let Some((record, length)) = Record::read(&self.rest) {
            self.rest.drain(..length);
            if !self.take_in(record) {
                // Who talks like this is not who we think: nothing is given back.
                self.is_greeted = false;
                return Heard::End;
            }
        }
        if self.rest.len() > RECORD_MAX { Heard::End } else { Heard::Something }
    }

    fn take_in(&mut self, record: Record) -> bool {
        match record {
            Record::Hello { version, pid, directory } => {
                self.directory = Some(directory).filter(|directory| !directory.is_empty());
                self.is_greeted = version == VERSION && pid.parse() == Ok(self.parent);
                self.is_greeted
            }
            Record::Add { id, linger_ms, lease } => {
                self.linger_ms = self.linger_ms.max(linger_ms);
                self.leases.insert(id, lease);
                // Nobody waits for it, and a frozen parent reads nothing.
                let known = format!("{id}\n");
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = send(self.link, known.as_bytes(), flags);
                self.is_greeted
            }
            Record::Drop(id) => {
                self.leases.remove(&id);
                self.is_greeted
            }
            Record::Unknown => false,
        }
    }
}

fn dies_soon(watched: &OwnedFd) -> bool {
    let mut events = [PollFd::new(watched, PollFlags::IN)];
    retry_on_intr(|| poll(&mut events, Some(&DEAD_WITHIN))).is_ok_and(|ready| ready > 0)
}

/// One record, each field of which ends with a zero byte.
#[derive(Debug, PartialEq, Eq)]
enum Record {
    Hello { version: String, pid: String, directory: String },
    Add { id: u64, linger_ms: u64, lease: HeldLease },
    Drop(u64),
    Unknown,
}

impl Record {
    /// The first record and its length, if it is whole.
    fn read(bytes: &[u8]) -> Option<(Record, usize)> {
        let mut length = 0;
        let mut next = || {
            let end = bytes[length..].iter().position(|byte| *byte == 0)?;
            let field = String::from_utf8_lossy(&bytes[length..length + end]).into_owned();
            length += end + 1;
            Some(field)
        };
        let verb = next()?;
        let record = match verb.as_str() {
            "hello" => Record::Hello { version: next()?, pid: next()?, directory: next()? },
            "add" => {
                let (id, linger_ms) = (next()?.parse(), next()?.parse());
                let (store, election, candidate) = (next()?, next()?, next()?);
                let lease = HeldLease { store, election, candidate };
                match (id, linger_ms) {
                    (Ok(id), Ok(linger_ms)) => Record::Add { id, linger_ms, lease },
                    _ => Record::Unknown,
                }
            }
            "drop" => next()?.parse().map_or(Record::Unknown, Record::Drop),
            _ => Record::Unknown,
        };
        Some((record, length))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use rustix::process::getpid;

    use super::*;

    const HELLO: &[u8] = b"hello\x001\x007\0/srv\0";
    const ADD: &[u8] = b"add\x003\x00250\0sqlite:/x\0job\0a#1\0";

    fn heard(bytes: &[u8]) -> Option<ReleasePlan> {
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        rustix::io::write(&theirs, bytes).expect("room");
        let mut hearing = Hearing { parent: 7, ..Hearing::new(ours.as_fd()) };
        while hearing.hear() == Heard::Something {}
        hearing.plan()
    }

    #[test]
    fn what_was_told_is_given_back_and_what_was_taken_back_is_not() {
        let plan = heard(&[HELLO, ADD].concat()).expect("a plan");
        assert_eq!((plan.leases.len(), plan.linger_ms), (1, 250));
        assert_eq!(plan.directory, Some("/srv".into()));
        assert_eq!(plan.leases[0].candidate, "a#1");
        assert_eq!(heard(&[HELLO, ADD, b"drop\x003\0"].concat()), None);
        assert_eq!(heard(&[HELLO, &ADD[..ADD.len() - 1]].concat()), None, "not a whole record");
    }

    /// By `exec`, say: the process goes on as another program, or has let the witness go.
    #[test]
    fn nothing_is_given_back_for_a_process_that_closes_the_socket_and_lives() {
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        rustix::io::write(&theirs, &[HELLO, ADD].concat()).expect("room");
        drop(theirs);
        let watched = pidfd_open(getpid(), PidfdFlags::empty()).expect("a pidfd");
        let hearing = Hearing { parent: 7, ..Hearing::new(ours.as_fd()) };
        assert_eq!(hearing.until_dead(&watched), None);
    }

    #[test]
    fn nothing_is_given_back_for_who_is_not_our_parent_or_talks_nonsense() {
        assert_eq!(heard(ADD), None);
        assert_eq!(heard(&[b"hello\x001\x008\0/\0", ADD].concat()), None, "another process");
        assert_eq!(heard(&[b"hello\x002\x007\0/\0", ADD].concat()), None, "another version");
        assert_eq!(heard(&[HELLO, ADD, b"kill\0"].concat()), None);
        assert_eq!(heard(&[HELLO, b"add\0x\x000\0s\0e\0a#1\0"].concat()), None);
    }
}
