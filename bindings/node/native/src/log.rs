//! What tenure logs, on its way to the log of a program: queued here, taken by each event loop that
//! asked for it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use napi::bindgen_prelude::Either4;
use napi_derive::napi;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

use crate::op::Op;

/// How many lines wait for a loop that is blocked; more are left out.
const LINES_MAX: usize = 10_000;

/// The least level that anybody reads, as pino counts them.
static LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);

// A std mutex: held while a line is handed to each reader.
static READERS: Mutex<Vec<mpsc::Sender<Value>>> = Mutex::new(Vec::new());

/// Where one event loop reads lines.
#[napi]
pub struct Log {
    lines: Arc<tokio::sync::Mutex<mpsc::Receiver<Value>>>,
}

#[napi]
impl Log {
    /// Lines of this level and above go to this reader, too, from now on.
    #[napi(constructor)]
    pub fn new(level: u8) -> Log {
        static SUBSCRIBE: Once = Once::new();
        let (sender, lines) = mpsc::channel(LINES_MAX);
        readers().push(sender);
        LEVEL.fetch_min(level, Ordering::Relaxed);
        SUBSCRIBE.call_once(|| {
            let subscriber = Registry::default().with(ToNode);
            // An embedding program may have one already, and keeps it.
            let _theirs = tracing::subscriber::set_global_default(subscriber);
        });
        Log { lines: Arc::new(tokio::sync::Mutex::new(lines)) }
    }

    /// The lines that have come, once there is one: JSON text.
    #[napi]
    pub fn next(&self) -> napi::Result<Op> {
        let lines = self.lines.clone();
        let next = async move {
            let mut some = Vec::new();
            lines.lock().await.recv_many(&mut some, LINES_MAX).await;
            Ok(some)
        };
        Op::new(next, |lines| Ok(Either4::B(Value::Array(lines).to_string())))
    }
}

fn readers() -> MutexGuard<'static, Vec<mpsc::Sender<Value>>> {
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ToNode;

impl<S: Subscriber> Layer<S> for ToNode {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("tenure")
            && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = number(*event.metadata().level());
        let line = json!({ "level": level, "message": line.message, "fields": line.fields });
        // A reader that is full misses the line; one whose loop is gone is forgotten.
        readers().retain(|reader| {
            !matches!(reader.try_send(line.clone()), Err(mpsc::error::TrySendError::Closed(_)))
        });
    }
}

/// A level as pino counts them.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 50,
        Level::WARN => 40,
        Level::INFO => 30,
        Level::DEBUG => 20,
        Level::TRACE => 10,
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: Map<String, Value>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            name => drop(self.fields.insert(name.to_owned(), Value::String(text))),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}
