//! Hints: a release or an ask leaves a file for an instant, and others notice.
//!
//! Nothing here decides anything (I5). If the directory or the notification is missing, the
//! store is slower and just as right.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, mknodat, unlink};
use tenure_core::sync::lock;
use tenure_core::{Hint, HintSender, Hints, Name, Op};

use crate::host::Host;
use crate::inbox::{Bell, Ring};
use crate::lease::{Blocked, News};
use crate::watcher::{self, Watcher};
use crate::witness::HolderProcess;

/// How many elections of one batch are hinted at by name; more become a single "any".
const ANNOUNCE_MAX: usize = 64;

/// How many names are kept; beyond that a hint about any other says only "any".
const NAMES_MAX: usize = 100_000;

/// The name of a file that means every election.
const ANY: &str = "any";

/// How the names of files begin that are about messages. No hexadecimal digits.
const NOTICE: char = 'n';
const POST: char = 'p';

/// What the handles of one store know about hints.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) host: Host,
    /// Wakes the watcher's thread.
    bell: Option<OwnedFd>,
    hints: HintSender,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directory: PathBuf,
    /// Set when the directory may be another one.
    directory_changed: bool,
    /// The elections that we were asked about, by the hash that hints carry.
    names: HashMap<u64, Vec<Name>>,
    names_full: bool,
    /// Those who hold what we wanted, by the id of their row.
    holders: HashMap<i64, Watched>,
    /// Which of them holds which election.
    held_by: HashMap<Name, i64>,
    /// Those who listen for messages, with the hash of their election.
    bells: Vec<(u64, Weak<Bell>)>,
    /// Files can't be watched at present.
    deaf: bool,
    started: bool,
    closed: bool,
}

/// A holder that stands in our way.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) witness: HolderProcess,
    /// When the last of its leases that we know of runs out. Then everybody wakes anyway.
    pub(crate) expires_ns: i64,
    elections: HashSet<Name>,
}

/// What the watcher's thread has to know.
pub(crate) struct Briefing {
    /// The directory to watch, if it has changed.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) holders: HashMap<i64, (HolderProcess, i64)>,
}

impl Hub {
    pub(crate) fn new(host: Host, directory: PathBuf) -> Hub {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .inspect_err(|error| tracing::warn!(%error, "no eventfd, so there are no hints"))
            .ok();
        let state = Mutex::new(State { directory, ..State::default() });
        Hub { host, bell, hints: HintSender::new(), state }
    }

    /// Remembers which elections we are asked about.
    pub(crate) fn remember(&self, ops: &[Op]) {
        let mut state = lock(&self.state);
        for op in ops {
            let name = op.election();
            let room = state.names.len() < NAMES_MAX;
            let named = state.names.entry(hash(name.as_str()));
            match named {
                std::collections::hash_map::Entry::Vacant(_) if !room => state.names_full = true,
                entry => {
                    let names = entry.or_default();
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
        }
    }

    /// Takes note of who stands in our way after a batch, and who no longer does.
    pub(crate) fn note(&self, news: News) {
        if news.blocked.is_empty() && news.ours.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        let mut changed = false;
        for name in &news.ours {
            changed |= state.forget(name);
        }
        for blocked in news.blocked {
            changed |= state.watch(blocked);
        }
        let started = state.started;
        drop(state);
        if changed && started {
            self.ring();
        }
    }

    /// The store was opened again, perhaps elsewhere.
    pub(crate) fn moved(&self, directory: &Path) {
        let mut state = lock(&self.state);
        state.directory = directory.to_owned();
        state.directory_changed = true;
        drop(state);
        self.ring();
    }

    /// A new stream; the first one starts the watcher.
    pub(crate) fn listen(self: &Arc<Hub>) -> Box<dyn Hints> {
        let queue = self.hints.listen();
        let mut state = lock(&self.state);
        if !state.started {
            state.started = true;
            // The directory is watched before we return: what is released from now on is seen.
            let watcher = Watcher::new(&state.directory);
            drop(state);
            let thread = self.bell.is_some().then(|| watcher::start(watcher, self.clone()));
            if thread.is_none_or(|thread| thread.is_err()) {
                tracing::warn!("the watcher could not be started, so there are no hints");
                self.close();
            }
        }
        Box::new(queue)
    }

    /// Has a bell rung when messages come in. `None` if that can't be; else something to hold
    /// on to.
    pub(crate) fn listen_for_mail(
        self: &Arc<Hub>,
        election: &Name,
        bell: &Arc<Bell>,
    ) -> Option<Box<dyn Hints>> {
        let hints = self.listen();
        let mut state = lock(&self.state);
        state.bells.retain(|(_, bell)| bell.strong_count() > 0);
        state.bells.push((hash(election.as_str()), Arc::downgrade(bell)));
        (!state.closed && !state.deaf).then_some(hints)
    }

    /// Whether files can be watched. Those who listen for messages must know if not.
    pub(crate) fn hears_files(&self, hears: bool) {
        lock(&self.state).deaf = !hears;
        if !hears {
            self.ring_bells(None, Ring::Gone);
        }
    }

    fn ring_bells(&self, election: Option<u64>, ring: Ring) {
        let bells = lock(&self.state).bells.clone();
        let meant = bells.iter().filter(|(hash, _)| election.is_none_or(|one| one == *hash));
        for bell in meant.filter_map(|(_, bell)| bell.upgrade()) {
            bell.ring(ring);
        }
    }

    /// Ends the watcher and all streams.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.hints.close();
        self.ring_bells(None, Ring::Gone);
        self.ring();
    }

    /// The bell, for the watcher to wait on.
    pub(crate) fn bell(&self) -> Option<&OwnedFd> {
        self.bell.as_ref()
    }

    /// What there is to watch; `None` if the store is closed.
    pub(crate) fn briefing(&self) -> Option<Briefing> {
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        let changed = std::mem::take(&mut state.directory_changed);
        let directory = changed.then(|| state.directory.clone());
        let holders = state.holders.iter();
        let holders = holders.map(|(id, held)| (*id, (held.witness, held.expires_ns))).collect();
        Some(Briefing { directory, holders })
    }

    /// A file appeared in the directory.
    pub(crate) fn hear(&self, file: &str) {
        if let Some((election, ring)) = about_mail(file) {
            return self.ring_bells(Some(election), ring);
        }
        let hint = match file.split_once('.').map_or(file, |(subject, _)| subject) {
            ANY => Some(vec![Hint::Any]),
            subject => u64::from_str_radix(subject, 16).ok().map(|hash| {
                let state = lock(&self.state);
                match state.names.get(&hash) {
                    Some(names) => names.iter().cloned().map(Hint::Election).collect(),
                    None if state.names_full => vec![Hint::Any],
                    None => Vec::new(),
                }
            }),
        };
        self.hints.send(&hint.unwrap_or_default());
    }

    /// Everything may have changed.
    pub(crate) fn hear_any(&self) {
        self.ring_bells(None, Ring::Any);
        self.hints.send(&[Hint::Any]);
    }

    /// The holder of this row is proven dead: what it held can be taken at once.
    pub(crate) fn hear_death(&self, id: i64) {
        let held = {
            let mut state = lock(&self.state);
            let held = state.holders.remove(&id);
            state.held_by.retain(|_, holder| *holder != id);
            held
        };
        let elections = held.map(|held| held.elections).unwrap_or_default();
        let hints: Vec<Hint> = elections.into_iter().map(Hint::Election).collect();
        self.hints.send(&hints);
    }

    /// Stops watching a holder: it can't be seen, or its leases have run out.
    pub(crate) fn give_up(&self, id: i64) {
        let mut state = lock(&self.state);
        state.holders.remove(&id);
        state.held_by.retain(|_, holder| *holder != id);
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // It can only fail when the bell has been rung 2^64 times already.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}

impl State {
    fn watch(&mut self, blocked: Blocked) -> bool {
        let Blocked { election, id, witness, expires_ns } = blocked;
        // Our own process ends with us: there is nobody left to be told.
        if witness.processes().any(|process| process.is_me()) {
            return self.forget(&election);
        }
        let mut changed = false;
        if self.held_by.get(&election) != Some(&id) {
            changed = self.forget(&election);
            self.held_by.insert(election.clone(), id);
        }
        let fresh = Watched { witness, expires_ns, elections: HashSet::new() };
        let held = self.holders.entry(id).or_insert_with(|| {
            changed = true;
            fresh
        });
        changed |= held.witness != witness;
        held.witness = witness;
        held.expires_ns = held.expires_ns.max(expires_ns);
        held.elections.insert(election);
        changed
    }

    fn forget(&mut self, election: &Name) -> bool {
        let Some(id) = self.held_by.remove(election) else {
            return false;
        };
        let Some(held) = self.holders.get_mut(&id) else {
            return false;
        };
        held.elections.remove(election);
        held.elections.is_empty() && self.holders.remove(&id).is_some()
    }
}

/// Leaves a file for each of these elections, for an instant. After the change is durable.
pub(crate) fn announce(directory: &Path, elections: &[Name]) {
    if elections.len() > ANNOUNCE_MAX {
        leave(directory, ANY);
        return;
    }
    for election in elections {
        leave(directory, &format!("{:016x}", hash(election.as_str())));
    }
}

/// Leaves a file that says that there are messages, for an instant.
pub(crate) fn announce_mail(directory: &Path, election: &Name, ring: Ring) {
    let sign = if ring == Ring::Post { POST } else { NOTICE };
    leave(directory, &format!("{sign}{:016x}", hash(election.as_str())));
}

/// The election and the kind of messages that a file is about.
fn about_mail(file: &str) -> Option<(u64, Ring)> {
    let ring = match file.chars().next()? {
        NOTICE => Ring::Notice,
        POST => Ring::Post,
        _ => return None,
    };
    let (subject, _) = file[1..].split_once('.')?;
    Some((u64::from_str_radix(subject, 16).ok()?, ring))
}

fn leave(directory: &Path, subject: &str) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Unique among the processes that see this directory; a clash in another pid namespace would
    // only mean that the same hint is there already.
    let path = directory.join(format!("{subject}.{}-{number}", std::process::id()));
    let left = mknodat(CWD, &path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0);
    if let Err(error) = left.and_then(|()| unlink(&path)) {
        tracing::warn!(%error, path = %path.display(), "no hint could be left for others");
    }
}

/// Whether [`leave`] makes files of this name: `SUBJECT.PID-NUMBER`.
pub(crate) fn is_name_of_hint(name: &str) -> bool {
    let Some((subject, rest)) = name.split_once('.') else { return false };
    let Some((pid, number)) = rest.split_once('-') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let hash = subject.strip_prefix([NOTICE, POST]).unwrap_or(subject);
    let is_hash = hash.len() == 16 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (subject == ANY || is_hash) && is_number(pid) && is_number(number)
}

/// FNV-1a with 64 bits. It is part of how processes of different versions talk to each other
/// through the directory: never change it.
pub(crate) fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn the_hash_of_names_is_pinned() {
        // Test vectors of the FNV authors.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn only_names_that_are_made_here_are_names_of_hints() {
        for name in ["any.1-0", "00000000000000af.17-4", "n00000000000000af.1-1"] {
            assert!(is_name_of_hint(name), "{name}");
        }
        for name in ["any", "any.1", "any.1-", "any.-1", "0af.1-1", "x00000000000000af.1-1"] {
            assert!(!is_name_of_hint(name), "{name}");
        }
        assert!(!is_name_of_hint("00000000000000AF.1-1") && !is_name_of_hint("../any.1-1"));
    }

    #[test]
    fn what_can_not_be_told_apart_says_any_and_a_closed_stream_ends() {
        let hub = Arc::new(Hub::new(Host::detect().unwrap(), "/nonexistent".into()));
        let mut stream = hub.listen();
        hub.hear_any();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.close();
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(None));
        assert_eq!(hub.listen().poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn hints_are_only_about_elections_that_we_were_asked_about() {
        let hub = Arc::new(Hub::new(Host::detect().unwrap(), "/nonexistent".into()));
        let mut stream = hub.listen();
        let mut cx = Context::from_waker(Waker::noop());
        hub.hear(&format!("{:016x}.1-1", hash("a")));
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.remember(&[Op::Read { election: name("a") }]);
        hub.hear(&format!("{:016x}.1-2", hash("a")));
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Election(name("a")))));
        hub.hear("any.7-7");
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
        hub.hear("rubbish");
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.close();
    }
}
