//! The thread that waits for hints: files in the directory, and holders that die.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::hints::Hub;
use crate::witness::HolderProcess;

/// How soon, at first and at last, a group whose guardians are dead is looked at again.
const RECHECK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// What one thread waits for.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// `None` without notification: then only deaths are noticed.
    files: Option<OwnedFd>,
    holders: HashMap<i64, Holder>,
}

/// Somebody who stands in our way.
#[derive(Debug)]
struct Holder {
    witness: HolderProcess,
    expires_ns: i64,
    /// One for each of its processes that has not been seen to exit.
    living: Vec<OwnedFd>,
    /// Once none is left: how long to wait before its group is looked at (again).
    recheck: Duration,
}

/// Starts the thread. It ends when the hub is closed.
pub(crate) fn start(watcher: Watcher, hub: Arc<Hub>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("tenure-hints".to_owned()).spawn(move || watcher.run(&hub))
}

impl Watcher {
    /// Watches this directory from now on.
    pub(crate) fn new(directory: &Path) -> Watcher {
        Watcher { files: watch(directory), holders: HashMap::new() }
    }

    fn run(mut self, hub: &Hub) {
        let Some(bell) = hub.bell() else { return };
        hub.hears_files(self.files.is_some());
        while let Some(briefing) = hub.briefing() {
            if let Some(directory) = briefing.directory {
                self.files = watch(&directory);
                hub.hears_files(self.files.is_some());
            }
            self.follow(hub, briefing.holders);
            self.check_groups(hub);
            if let Err(error) = self.wait(bell) {
                tracing::warn!(%error, "waiting for hints failed, so there are none");
                break;
            }
            // Reading resets the bell; whether it rang does not matter.
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
            self.read_files(hub);
        }
        hub.close();
    }

    /// Opens what is new and closes what is gone.
    fn follow(&mut self, hub: &Hub, mut wanted: HashMap<i64, (HolderProcess, i64)>) {
        self.holders.retain(|id, holder| match wanted.get(id) {
            Some((witness, expires_ns)) if *witness == holder.witness => {
                holder.expires_ns = *expires_ns;
                wanted.remove(id);
                true
            }
            _ => false,
        });
        for (id, (witness, expires_ns)) in wanted {
            let mut living = Vec::new();
            let mut seen = true;
            for process in witness.processes() {
                match process.open() {
                    Ok(pidfd) => living.push(pidfd),
                    Err(Errno::SRCH) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a holder can't be watched");
                        seen = false;
                    }
                }
            }
            if seen {
                let holder = Holder { witness, expires_ns, living, recheck: Duration::ZERO };
                self.holders.insert(id, holder);
            } else {
                hub.give_up(id);
            }
        }
    }

    /// Tells of holders that are dead for certain. The proof is the one that an acquire asks
    /// for, so a hint is never followed by a refusal that asks for the same hint again.
    fn check_groups(&mut self, hub: &Hub) {
        self.holders.retain(|id, holder| {
            if !holder.living.is_empty() {
                return true;
            }
            if holder.witness.is_proven_dead(&hub.host) {
                hub.hear_death(*id);
                return false;
            }
            if holder.expires_ns <= hub.host.now_ns() {
                hub.give_up(*id);
                return false;
            }
            holder.recheck = (holder.recheck * 2).clamp(RECHECK.0, RECHECK.1);
            true
        });
    }

    /// Waits until something happens, and notes who has exited.
    fn wait(&mut self, bell: &OwnedFd) -> Result<(), Errno> {
        let mut fds = vec![PollFd::new(bell, PollFlags::IN)];
        fds.extend(self.files.iter().map(|files| PollFd::new(files, PollFlags::IN)));
        let first = fds.len();
        let living = self.holders.values().flat_map(|holder| &holder.living);
        fds.extend(living.map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        let dead = self.holders.values().filter(|holder| holder.living.is_empty());
        let soonest = dead.map(|holder| holder.recheck).min().and_then(|d| d.try_into().ok());
        match poll(&mut fds, soonest.as_ref() as Option<&Timespec>) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let mut exited = fds[first..].iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
        drop(fds);
        let mut exited = exited.drain(..);
        for holder in self.holders.values_mut() {
            holder.living.retain(|_| !exited.next().unwrap_or(false));
        }
        Ok(())
    }

    fn read_files(&mut self, hub: &Hub) {
        let Some(files) = &self.files else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(files, &mut buffer);
        let gone = loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => hub.hear_any(),
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => break true,
                Ok(event) => {
                    if let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) {
                        hub.hear(name);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break false,
                Err(error) => {
                    tracing::warn!(%error, "hints can't be read");
                    break true;
                }
            }
        };
        if gone {
            tracing::warn!("the directory of hints is gone; followers wait for leases to run out");
            self.files = None;
            hub.hears_files(false);
        }
    }
}

fn watch(directory: &Path) -> Option<OwnedFd> {
    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
        .and_then(|files| inotify::add_watch(&files, directory, flags).map(|_| files))
        .inspect_err(|error| {
            tracing::warn!(%error, directory = %directory.display(), "no file notification");
        })
        .ok()
}
