//! Logs and metrics, off the driver's thread (L2).
//!
//! A subscriber of `tracing` and a recorder of `metrics` are user code: they may block on a full
//! pipe or a slow disk. The driver queues what there is to say; a thread of its own says it. The
//! queue is bounded: what does not fit is left out and counted, because a renewal must not wait for
//! a log line. Counts of metrics are kept apart and never left out (see `metrics`).
//!
//! The thread is woken when the driver has nothing else to do: to wake it costs more than all that
//! the driver does between a hint and its acquire. What no subscriber wants is not queued at all.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::{self, Write};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use tenure_core::sync::lock;
use tenure_core::{Error, Term};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Span, Subscriber};

use crate::Event;
use crate::metrics::Group;
use crate::runtime::{Part, Runtime};
use crate::shared::Shared;
use crate::telling::{level, log};

/// How many lines wait for a subscriber that is slow.
const ROOM: usize = 4096;

/// How many lines gather at most: a driver that always has something else to do is no excuse.
const GATHERED_MAX: usize = 256;

/// The level of the spans of attempts.
const ATTEMPTS: Level = Level::INFO;

/// Something to be said.
enum LogEntry {
    Event(Arc<Shared>, Event),
    Sent {
        id: u64,
        verb: &'static str,
        shared: Arc<Shared>,
        led: Option<Term>,
    },
    Replied {
        id: u64,
        outcome: &'static str,
        term: Option<Term>,
    },
    /// What was counted is to be shown.
    Counts(Arc<Group>),
    /// A line of the store's own, which runs on the driver's thread.
    Store {
        level: Level,
        target: &'static str,
        text: String,
    },
}

/// The driver's end: never waits.
#[derive(Clone)]
pub(crate) struct Telemetry {
    /// What is to be said when the driver has nothing else to do.
    gathered: Arc<Mutex<Vec<LogEntry>>>,
    lines: mpsc::Sender<LogEntry>,
    left_out: Arc<AtomicU64>,
}

impl Telemetry {
    /// Starts the thread, which ends when the last end of the driver's is dropped.
    pub(crate) fn start(runtime: &dyn Runtime) -> Result<Telemetry, Error> {
        let (lines, said) = mpsc::channel(ROOM);
        let left_out = Arc::new(AtomicU64::new(0));
        runtime.start(Part::for_user_code("tenure-log", say(said, left_out.clone())))?;
        Ok(Telemetry { gathered: Arc::default(), lines, left_out })
    }

    pub(crate) fn event(&self, shared: &Arc<Shared>, event: &Event) {
        if is_wanted(level(event)) {
            self.queue(LogEntry::Event(shared.clone(), event.clone()));
        }
    }

    /// An attempt begins: one span for each, which ends with the answer.
    pub(crate) fn sent(
        &self,
        id: u64,
        verb: &'static str,
        shared: &Arc<Shared>,
        led: Option<Term>,
    ) {
        if is_wanted(ATTEMPTS) {
            self.queue(LogEntry::Sent { id, verb, shared: shared.clone(), led });
        }
    }

    pub(crate) fn replied(&self, id: u64, outcome: &'static str, term: Option<Term>) {
        if is_wanted(ATTEMPTS) {
            self.queue(LogEntry::Replied { id, outcome, term });
        }
    }

    pub(crate) fn counts(&self, group: &Arc<Group>) {
        if group.is_news() {
            self.queue(LogEntry::Counts(group.clone()));
        }
    }

    /// What the driver's thread logs goes through here: the stores' own lines, too.
    pub(crate) fn subscriber(&self) -> impl Subscriber + Send + Sync + 'static {
        let (gathered, lines) = (Arc::downgrade(&self.gathered), self.lines.downgrade());
        Detour { gathered, lines, left_out: self.left_out.clone() }
    }

    /// Hands over what has gathered, whenever it is polled. The driver polls it last.
    ///
    /// # Cancel safety
    /// Cancel safe: the rest is handed over by the next call.
    pub(crate) async fn hand_over(&self) -> Infallible {
        poll_fn(|_| {
            self.flush();
            Poll::Pending
        })
        .await
    }

    /// Hands over what has gathered.
    pub(crate) fn flush(&self) {
        let gathered = std::mem::take(&mut *lock(&self.gathered));
        for line in gathered {
            if let Err(mpsc::error::TrySendError::Full(line)) = self.lines.try_send(line) {
                self.leave_out(line);
            }
        }
    }

    fn queue(&self, line: LogEntry) {
        let mut gathered = lock(&self.gathered);
        gathered.push(line);
        let full = gathered.len() >= GATHERED_MAX;
        drop(gathered);
        if full {
            self.flush();
        }
    }

    fn leave_out(&self, line: LogEntry) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
        if let LogEntry::Counts(group) = line {
            group.is_old_news();
        }
    }
}

/// Whether any subscriber of the program wants lines of this level.
fn is_wanted(level: Level) -> bool {
    level <= LevelFilter::current()
}

async fn say(mut lines: mpsc::Receiver<LogEntry>, left_out: Arc<AtomicU64>) {
    let mut attempts: HashMap<u64, Span> = HashMap::new();
    while let Some(line) = lines.recv().await {
        let count = left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::warn!(count, "the log is too slow; lines of tenure were left out");
        }
        match line {
            LogEntry::Event(shared, event) => log(&shared, &event),
            LogEntry::Sent { id, verb, shared, led } => {
                attempts.insert(id, attempt(verb, &shared, led));
            }
            LogEntry::Replied { id, outcome, term } => {
                let Some(span) = attempts.remove(&id) else { continue };
                if let Some(term) = term {
                    span.record("term", term.get());
                }
                span.record("outcome", outcome);
            }
            LogEntry::Counts(group) => group.publish(),
            LogEntry::Store { level, target, text } => repeat(level, target, &text),
        }
    }
}

fn attempt(verb: &'static str, shared: &Shared, led: Option<Term>) -> Span {
    let span = tracing::span!(
        ATTEMPTS,
        "attempt",
        verb,
        election = shared.election.as_str(),
        candidate = shared.candidate.as_str(),
        was_leader = led.is_some(),
        term = tracing::field::Empty,
        outcome = tracing::field::Empty,
    );
    if let Some(term) = led {
        span.record("term", term.get());
    }
    span
}

fn repeat(level: Level, target: &'static str, text: &str) {
    match level {
        Level::ERROR => tracing::error!(target: "tenure::store", module = target, "{text}"),
        Level::WARN => tracing::warn!(target: "tenure::store", module = target, "{text}"),
        Level::INFO => tracing::info!(target: "tenure::store", module = target, "{text}"),
        Level::DEBUG => tracing::debug!(target: "tenure::store", module = target, "{text}"),
        Level::TRACE => tracing::trace!(target: "tenure::store", module = target, "{text}"),
    }
}

/// The subscriber of the driver's thread: queues what stores log there.
///
/// It keeps nothing alive. `tracing` has a list of all subscribers of the process and takes hold of
/// each now and then, on any thread. So the last hold of this one may be let go anywhere, and what
/// it owned would end there, at a time that nobody has chosen.
struct Detour {
    gathered: Weak<Mutex<Vec<LogEntry>>>,
    lines: mpsc::WeakSender<LogEntry>,
    left_out: Arc<AtomicU64>,
}

impl Detour {
    fn telemetry(&self) -> Option<Telemetry> {
        let (gathered, lines) = (self.gathered.upgrade()?, self.lines.upgrade()?);
        Some(Telemetry { gathered, lines, left_out: self.left_out.clone() })
    }
}

impl Subscriber for Detour {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= LevelFilter::current()
    }

    /// The level of the program's own subscribers decides.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let Some(telemetry) = self.telemetry() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let (level, target) = (*metadata.level(), metadata.target());
        telemetry.queue(LogEntry::Store { level, target, text: text.joined() });
    }

    // Spans of the stores' drivers are not shown.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of a line, as text.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn joined(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _infallible = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telemetry(room: usize) -> (Telemetry, mpsc::Receiver<LogEntry>) {
        let (lines, said) = mpsc::channel(room);
        (Telemetry { gathered: Arc::default(), lines, left_out: Arc::default() }, said)
    }

    fn line() -> LogEntry {
        LogEntry::Store { level: Level::INFO, target: "test", text: String::new() }
    }

    #[test]
    fn lines_wait_for_the_driver_and_a_driver_that_never_rests_does_not_keep_them() {
        let (telemetry, mut said) = telemetry(ROOM);
        telemetry.queue(line());
        assert!(said.try_recv().is_err(), "nobody is woken before the driver has time");
        telemetry.flush();
        assert!(said.try_recv().is_ok());
        (0..GATHERED_MAX).for_each(|_| telemetry.queue(line()));
        assert_eq!(said.len(), GATHERED_MAX);
    }

    #[test]
    fn a_subscriber_that_somebody_else_holds_keeps_no_thread() {
        let (telemetry, mut said) = telemetry(ROOM);
        let held_elsewhere = tracing::Dispatch::new(telemetry.subscriber());
        drop(telemetry);
        assert_eq!(said.try_recv().err(), Some(mpsc::error::TryRecvError::Disconnected));
        drop(held_elsewhere);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted() {
        let (telemetry, said) = telemetry(2);
        (0..5).for_each(|_| telemetry.queue(line()));
        telemetry.flush();
        assert_eq!((said.len(), telemetry.left_out.load(Ordering::Relaxed)), (2, 3));
    }
}
