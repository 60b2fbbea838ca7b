//! The thread that keeps the witness of this process.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tenure_core::sync::lock;

/// The hidden first argument that makes the command a witness, and the version of what it is told.
const PART: &str = "__witness";
const VERSION: &str = "1";

/// How long to wait before a witness that could not be started, or has died, is started again.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_LAST: Duration = Duration::from_secs(60);

/// What the thread is told.
enum Note {
    Add {
        id: u64,
        program: Option<PathBuf>,
        lease: Lease,
    },
    Remove(u64),
    /// The witness of this number knows of a lease.
    Known {
        witness: u64,
        id: u64,
    },
    /// The witness of this number has ended.
    Gone {
        witness: u64,
    },
}

struct Lease {
    fields: [String; 4],
    is_known: Arc<AtomicBool>,
}

/// The thread of a process; a forked child has none, and starts its own.
static KEEPER: Mutex<Option<(u32, Sender<Note>)>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Has a lease witnessed; `None` if no thread can be started.
pub(super) fn add(
    program: Option<PathBuf>,
    fields: [String; 4],
    is_known: Arc<AtomicBool>,
) -> Option<u64> {
    let mut keeper = lock(&KEEPER);
    let pid = std::process::id();
    if keeper.as_ref().is_none_or(|(owner, _)| *owner != pid) {
        let (sender, notes) = channel();
        let own = sender.clone();
        let keep = move || Keeper::new(own).keep(&notes);
        thread::Builder::new().name("tenure-witness".to_owned()).spawn(keep).ok()?;
        *keeper = Some((pid, sender));
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let (_, sender) = keeper.as_ref()?;
    sender.send(Note::Add { id, program, lease: Lease { fields, is_known } }).ok()?;
    Some(id)
}

/// The lease is given back, or nobody takes part any more.
pub(super) fn remove(id: u64) {
    if let Some((_, sender)) = &*lock(&KEEPER) {
        let _ = sender.send(Note::Remove(id));
    }
}

struct Keeper {
    own: Sender<Note>,
    program: Option<PathBuf>,
    leases: BTreeMap<u64, Lease>,
    link: Option<Link>,
    started: u64,
    pause: Duration,
}

/// A witness that was started: its number, and our end of the socket.
struct Link {
    witness: u64,
    stream: UnixStream,
}

impl Keeper {
    fn new(own: Sender<Note>) -> Keeper {
        let (leases, pause) = (BTreeMap::new(), AGAIN_FIRST);
        Keeper { own, program: None, leases, link: None, started: 0, pause }
    }

    fn keep(mut self, notes: &Receiver<Note>) {
        loop {
            let is_wanted = self.link.is_none() && !self.leases.is_empty();
            let note = match is_wanted {
                true => notes.recv_timeout(self.pause),
                false => notes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match note {
                Ok(note) => self.take_in(note),
                Err(RecvTimeoutError::Timeout) => self.start_again(),
                // It holds a sender itself.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take_in(&mut self, note: Note) {
        match note {
            Note::Add { id, program, lease } => {
                self.program = self.program.take().or(program);
                self.tell(&added(id, &lease));
                self.leases.insert(id, lease);
                if self.leases.len() == 1 && self.link.is_none() {
                    self.pause = AGAIN_FIRST;
                    self.start_again();
                }
            }
            Note::Remove(id) => {
                self.leases.remove(&id);
                // First, so that it has nothing to give back if this process ends just now.
                self.tell(&record(&["drop", &id.to_string()]));
                if self.leases.is_empty() {
                    self.let_go();
                }
            }
            Note::Known { witness, id } => {
                let known = self.leases.get(&id).filter(|_| self.is_current(witness));
                if let Some(lease) = known {
                    lease.is_known.store(true, Ordering::Relaxed);
                    self.pause = AGAIN_FIRST;
                }
            }
            Note::Gone { witness } => {
                if self.is_current(witness) {
                    tracing::debug!(pause = ?self.pause, "the witness has ended; starting another");
                    self.link = None;
                    self.forget();
                }
            }
        }
    }

    fn is_current(&self, witness: u64) -> bool {
        self.link.as_ref().is_some_and(|link| link.witness == witness)
    }

    fn forget(&self) {
        for lease in self.leases.values() {
            lease.is_known.store(false, Ordering::Relaxed);
        }
    }

    fn tell(&mut self, bytes: &[u8]) {
        if let Some(link) = &mut self.link
            && link.stream.write_all(bytes).is_err()
        {
            // Its reader tells of the end.
            let _ = link.stream.shutdown(Shutdown::Both);
        }
    }

    /// It sees the end of the socket while this process lives, and ends.
    fn let_go(&mut self) {
        if let Some(link) = self.link.take() {
            // The thread that hears it has a copy of the socket, so closing ours would not do.
            let _ = link.stream.shutdown(Shutdown::Both);
        }
    }

    fn start_again(&mut self) {
        self.started += 1;
        match start(self.program.as_deref(), self.started, self.own.clone()) {
            Ok(stream) => {
                self.link = Some(Link { witness: self.started, stream });
                let hello = hello();
                self.tell(&hello);
                let all: Vec<u8> =
                    self.leases.iter().flat_map(|(id, lease)| added(*id, lease)).collect();
                self.tell(&all);
            }
            Err(error) if self.started == 1 => {
                tracing::warn!(
                    %error,
                    "no witness: if this process is killed, its leases run out; install the \
                     command `tenure` beside this program or in PATH"
                );
            }
            Err(error) => tracing::debug!(%error, "no witness"),
        }
        self.pause = (self.pause * 2).min(AGAIN_LAST);
    }
}

/// Starts a witness, and a thread that hears it.
fn start(program: Option<&Path>, witness: u64, notes: Sender<Note>) -> io::Result<UnixStream> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => find().ok_or(io::ErrorKind::NotFound)?,
    };
    let (ours, theirs) = UnixStream::pair()?;
    let hears = ours.try_clone()?;
    let mut child = Command::new(program)
        .arg(PART)
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let kill = |child: &mut Child| {
        let _ = child.kill();
        let _ = child.wait();
    };
    let (handed, child_of_thread) = channel::<Child>();
    let hear = move || {
        let Ok(mut child) = child_of_thread.recv() else { return };
        for line in BufReader::new(hears).lines().map_while(Result::ok) {
            if let Ok(id) = line.parse() {
                let _ = notes.send(Note::Known { witness, id });
            }
        }
        // It ends by itself: it has nobody to hear from.
        let _ = child.wait();
        let _ = notes.send(Note::Gone { witness });
    };
    match thread::Builder::new().name("tenure-witness".to_owned()).spawn(hear) {
        Ok(_) => {
            let _ = handed.send(child);
            Ok(ours)
        }
        Err(error) => {
            kill(&mut child);
            Err(error)
        }
    }
}

/// The command beside this program, or in `PATH`.
fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("tenure")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join("tenure"));
    beside.into_iter().chain(in_path).find(|path| path.is_absolute() && path.is_file())
}

/// Who we are, and where: URLs may have relative paths of files.
fn hello() -> Vec<u8> {
    let directory = std::env::current_dir().unwrap_or_default();
    let directory = directory.to_str().unwrap_or_default();
    record(&["hello", VERSION, &std::process::id().to_string(), directory])
}

fn added(id: u64, lease: &Lease) -> Vec<u8> {
    let [linger_ms, store, election, candidate] = &lease.fields;
    record(&["add", &id.to_string(), linger_ms, store, election, candidate])
}

/// Each field with a zero byte behind it: no name, URL or path has one.
fn record(fields: &[&str]) -> Vec<u8> {
    fields.iter().flat_map(|field| [field.as_bytes(), b"\0"].concat()).collect()
}
