//! What tenure logs, on its way to `logging`: queued here, taken by a thread of Python's own.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use tenure_fork::Origin;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

/// How many lines wait for a Python that is blocked; more are left out.
const LINES_MAX: usize = 10_000;

static FIRST: OnceLock<Lines> = OnceLock::new();

/// The least level that anybody reads, as `logging` counts them.
static LEVEL: AtomicU8 = AtomicU8::new(20);

/// What one process has to tell. A forked child leaves that of its parent alone, which may be
/// locked by a thread that does not exist there, and has its own.
struct Lines {
    origin: Option<Origin>,
    // A std mutex: it is held while one line is moved.
    waiting: Mutex<Waiting>,
    of_child: OnceLock<Box<Lines>>,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<(u8, String)>,
    bell: Option<OwnedFd>,
}

impl Lines {
    fn new() -> Lines {
        let (origin, waiting) = (Origin::here().ok(), Mutex::default());
        Lines { origin, waiting, of_child: OnceLock::new() }
    }
}

fn waiting() -> MutexGuard<'static, Waiting> {
    let mut lines = FIRST.get_or_init(Lines::new);
    while lines.origin.is_some_and(|origin| !origin.is_here()) {
        lines = lines.of_child.get_or_init(|| Box::new(Lines::new()));
    }
    lines.waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a reader waits for lines.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Log {
    fd: i32,
}

#[pymethods]
impl Log {
    /// Lines go to this reader from now on, those of this level and above.
    #[new]
    fn new(level: u8) -> PyResult<Log> {
        static SUBSCRIBE: Once = Once::new();
        LEVEL.store(level, Ordering::Relaxed);
        let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let fd = bell.as_raw_fd();
        waiting().bell = Some(bell);
        SUBSCRIBE.call_once(|| {
            let subscriber = Registry::default().with(ToPython);
            // An embedding program may have one already, and keeps it.
            let _theirs = tracing::subscriber::set_global_default(subscriber);
        });
        Ok(Log { fd })
    }

    /// What the reader reads from when it waits.
    fn fileno(&self) -> i32 {
        self.fd
    }

    /// Another level from now on.
    fn set_level(&self, level: u8) {
        LEVEL.store(level, Ordering::Relaxed);
    }
}

/// The lines that wait: level and text.
#[pyfunction]
pub(crate) fn take_logs() -> Vec<(u8, String)> {
    waiting().lines.drain(..).collect()
}

struct ToPython;

impl<S: Subscriber> Layer<S> for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("tenure")
            && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let line = text.message + &text.rest;
        let mut waiting = waiting();
        if waiting.lines.len() >= LINES_MAX {
            return;
        }
        waiting.lines.push_back((number(*event.metadata().level()), line));
        if let Some(bell) = &waiting.bell {
            let _rung = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// A level as `logging` counts them.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

#[derive(Default)]
struct Text {
    message: String,
    rest: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _no_error = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _no_error = write!(self.rest, " {}={value}", field.name());
    }
}
