//! Where lines go. A candidate must not wait for a terminal that was stopped
//! with Ctrl-S or a pipe that nobody reads: it would be deposed for it. So a thread writes.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::watch;

/// How many lines wait for a reader; then they are left out, and counted.
const QUEUE_MAX: usize = 4096;

/// How long the end waits for a reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why stdout can't be written to, once that is so: there is one for the whole process.
static BROKEN: LazyLock<watch::Sender<Option<Errno>>> = LazyLock::new(watch::Sender::default);

/// Why stdout can't be written to, if it can't.
pub(crate) fn broken_stdout() -> Option<Errno> {
    *BROKEN.borrow()
}

/// Resolves when stdout can't be written to, or its reader has gone away though nothing was
/// written since.
///
/// # Cancel safety
/// Cancel safe: nothing is consumed.
pub(crate) async fn stdout_breaks() -> Errno {
    // A thread, because this must work for files and terminals too. It ends with the process.
    let _without_it = thread::Builder::new().name("stdout".to_owned()).spawn(|| {
        let stdout = rustix::stdio::stdout();
        let mut events = [PollFd::new(&stdout, PollFlags::empty())];
        // Nothing is asked for: an error is told all the same, and a hang-up.
        while matches!(poll(&mut events, None), Err(Errno::INTR) | Ok(0)) {}
        note(Errno::PIPE);
    });
    let mut broken = BROKEN.subscribe();
    match broken.wait_for(Option::is_some).await.map(|errno| *errno) {
        Ok(Some(errno)) => errno,
        _ => std::future::pending().await,
    }
}

/// The first reason stays.
fn note(errno: Errno) {
    BROKEN.send_if_modified(|broken| broken.replace(broken.unwrap_or(errno)).is_none());
}

/// A way to stdout and stderr. Lines go out as they are: secrets never get into them (`Secret`).
/// Clones lead to the same place.
#[derive(Clone)]
pub(crate) enum Sink {
    /// Writes at once. For commands that are over when they have written.
    Direct,
    /// Never waits.
    Queued(Arc<Queue>),
}

pub(crate) struct Queue {
    lines: SyncSender<Entry>,
    left_out: AtomicU64,
}

enum Entry {
    Out(String),
    Err(String),
    /// Answered when everything before it is written.
    End(SyncSender<()>),
}

impl Sink {
    /// A sink with its thread.
    pub(crate) fn queued() -> io::Result<Sink> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        thread::Builder::new().name("output".to_owned()).spawn(move || write_all(&receiver))?;
        Ok(Sink::Queued(Arc::new(Queue { lines: sender, left_out: AtomicU64::new(0) })))
    }

    /// A line for programs, or a table for people.
    pub(crate) fn out(&self, line: &str) {
        self.put(Entry::Out(whole(line)));
    }

    /// A line for people.
    pub(crate) fn err(&self, line: &str) {
        self.put(Entry::Err(whole(line)));
    }

    /// Waits until all is written, but not for a reader that has stopped reading.
    pub(crate) fn finish(&self) {
        let Sink::Queued(queue) = self else { return };
        queue.tell_what_is_missing();
        let (end, ended) = sync_channel(1);
        if queue.lines.try_send(Entry::End(end)).is_ok() {
            match ended.recv_timeout(PATIENCE) {
                Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn put(&self, line: Entry) {
        match self {
            Sink::Direct => write(line),
            Sink::Queued(queue) => {
                queue.tell_what_is_missing();
                if queue.lines.try_send(line).is_err() {
                    queue.left_out.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Queue {
    fn tell_what_is_missing(&self) {
        let count = self.left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            let line = format!("tenure: {count} lines were left out, because nobody read them\n");
            if self.lines.try_send(Entry::Err(line)).is_err() {
                self.left_out.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// For `tracing-subscriber`: each event is one write.
impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.err(String::from_utf8_lossy(bytes).trim_end_matches('\n'));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn whole(line: &str) -> String {
    format!("{line}\n")
}

fn write_all(lines: &Receiver<Entry>) {
    while let Ok(line) = lines.recv() {
        write(line);
    }
}

/// In one piece, so that lines of the command do not get into the middle of ours. A reader that
/// has gone away is no reason to stop leading.
fn write(line: Entry) {
    match line {
        Entry::Out(text) => {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
            if let Err(error) = written {
                note(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
        Entry::Err(text) => drop(io::stderr().write_all(text.as_bytes())),
        Entry::End(end) => drop(end.send(())),
    }
}
