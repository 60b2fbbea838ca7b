//! What stores of this kind tell each other by NOTIFY: hints, asks to resign, and their answers.
//!
//! It is heard on a connection of its own: a session with locks must be free to fall silent (A2).
//! A hint decides nothing (I5). An ask counts once the holder's process has answered it, so that
//! nobody is told "asked" for a message that was lost.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::{CandidateId, Error, Hint, Hints, Name, Term};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::{ToSql, Type};

use super::key::CHANNEL;
use super::seat::{Asked, Command};
use crate::config::PostgresConfig;
use crate::error;
use crate::hints::Listener;
use crate::link::{self, Link, held};

/// How many bytes one hint has; more become a single "any". NOTIFY takes less than 8,000.
const HINT_BYTES_MAX: usize = 7_999;

/// How long to wait before the connection is made again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the handles of one store hear and tell.
pub(super) struct Ears {
    config: Arc<PostgresConfig>,
    link: Arc<Link>,
    state: Mutex<State>,
    closing: Notify,
    listening: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    listeners: Vec<Weak<Listener>>,
    /// The candidates of this process.
    seats: HashMap<CandidateId, mpsc::UnboundedSender<Command>>,
    /// Asks that wait for their answer.
    asks: HashMap<String, oneshot::Sender<Asked>>,
    started: bool,
    closed: bool,
}

impl Ears {
    pub(super) fn new(config: Arc<PostgresConfig>, link: Arc<Link>) -> Ears {
        let (closing, listening) = (Notify::new(), watch::Sender::new(false));
        Ears { config, link, state: Mutex::default(), closing, listening }
    }

    /// Tells other stores something, and this one, too.
    pub(super) async fn tell(&self, payload: &str) -> Result<(), Error> {
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&CHANNEL, Type::TEXT), (&payload, Type::TEXT)];
        self.link.query(include_str!("../sql/announce_one.sql"), &values).await.map(|_| ())
    }

    /// Answers an ask, beside the session that holds the lock: who asks must not renew it.
    pub(super) fn answer(self: &Arc<Ears>, nonce: &str, asked: Asked) {
        let (ears, payload) = (self.clone(), answer_payload(nonce, asked));
        Handle::current().spawn(async move {
            if let Err(error) = ears.tell(&payload).await {
                tracing::warn!(%error, "whoever asked to resign could not be answered");
            }
        });
    }

    /// The candidate's seat, if it has one here.
    pub(super) fn seat(&self, candidate: &CandidateId) -> Option<mpsc::UnboundedSender<Command>> {
        let seat = held(&self.state).seats.get(candidate).cloned();
        seat.filter(|seat| !seat.is_closed())
    }

    pub(super) fn put_seat(&self, candidate: CandidateId, seat: mpsc::UnboundedSender<Command>) {
        held(&self.state).seats.insert(candidate, seat);
    }

    /// All candidates of this process.
    pub(super) fn candidates(&self) -> Vec<CandidateId> {
        held(&self.state).seats.keys().cloned().collect()
    }

    /// A new stream. The connection is made now, or when a runtime polls for the first hint.
    pub(super) fn listen(self: &Arc<Ears>) -> Box<dyn Hints> {
        let listener = Arc::new(Listener::default());
        {
            let mut state = held(&self.state);
            state.listeners.retain(|listener| listener.strong_count() > 0);
            state.listeners.push(Arc::downgrade(&listener));
            if state.closed {
                listener.close();
            }
        }
        self.start();
        Box::new(AdvisoryHints { ears: Arc::downgrade(self), listener })
    }

    /// Whether anybody wants hints.
    pub(super) fn is_listened_to(&self) -> bool {
        held(&self.state).listeners.iter().any(|listener| listener.strong_count() > 0)
    }

    pub(super) fn emit(&self, hint: &Hint) {
        let listeners = held(&self.state).listeners.clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.hear(hint);
        }
    }

    /// Hints at each of these.
    pub(super) fn emit_all<'a>(&self, names: impl Iterator<Item = &'a Name>) {
        for name in names {
            self.emit(&Hint::Election(name.clone()));
        }
    }

    /// Ends the connection, all streams and all seats.
    pub(super) fn close(&self) {
        let listeners = {
            let mut state = held(&self.state);
            state.closed = true;
            state.seats.clear();
            state.asks.clear();
            std::mem::take(&mut state.listeners)
        };
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.close();
        }
        self.closing.notify_waiters();
        self.closing.notify_one();
    }

    /// Starts the task that listens, unless one does already or there is no runtime here.
    pub(super) fn start(self: &Arc<Ears>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut state = held(&self.state);
        if state.started || state.closed {
            return;
        }
        state.started = true;
        let carried = Carried(self.clone());
        runtime.spawn(async move {
            let ears = &carried.0;
            tokio::select! {
                () = ears.carry() => {}
                () = ears.closing.notified() => {}
            }
        });
    }

    /// Waits until what is told from now on is heard.
    pub(super) async fn until_listening(self: &Arc<Ears>) {
        self.start();
        let mut listening = self.listening.subscribe();
        let _closed = listening.wait_for(|is_so| *is_so).await;
    }

    /// Listens for ever, and connects again whenever that ends.
    async fn carry(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            let heard = self.hear_all(&mut pause).await;
            self.listening.send_replace(false);
            if let Err(error) = heard {
                tracing::debug!(%error, "no hints for the time being");
            }
            let _ = timeout(pause, std::future::pending::<()>()).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One connection, from LISTEN until it ends. Once it listens, there is no reason to wait long
    /// before the next.
    async fn hear_all(&self, pause: &mut Duration) -> Result<(), Error> {
        let (client, mut connection) = link::open(&self.config).await?;
        let sql = format!("LISTEN \"{CHANNEL}\"");
        let mut listening = std::pin::pin!(client.batch_execute(&sql));
        let mut waiting = true;
        loop {
            // The connection moves only while it is polled; so the LISTEN is polled beside it.
            let message = poll_fn(|cx| {
                if waiting && let Poll::Ready(done) = listening.as_mut().poll(cx) {
                    waiting = false;
                    if let Err(error) = done {
                        return Poll::Ready(Some(Err(error)));
                    }
                    *pause = PAUSE_MIN;
                    self.listening.send_replace(true);
                    // What happened before is not known.
                    self.emit(&Hint::Any);
                }
                connection.poll_message(cx)
            });
            match message.await {
                None => return Ok(()),
                Some(Err(error)) => return Err(error::from_postgres(&self.config, error)),
                Some(Ok(AsyncMessage::Notification(note))) => self.hear(note.payload()),
                Some(Ok(_)) => {}
            }
        }
    }

    /// Something was told. Anybody may have done so.
    fn hear(&self, payload: &str) {
        let Ok(told) = serde_json::from_str::<Value>(payload) else { return };
        let name = |value: &Value| value.as_str().and_then(|name| Name::new(name).ok());
        let term = told["term"].as_u64().and_then(Term::new);
        if let Some(names) = told["hint"].as_array() {
            if names.is_empty() {
                self.emit(&Hint::Any);
            }
            for name in names.iter().filter_map(name) {
                self.emit(&Hint::Election(name));
            }
        } else if let Some(election) = name(&told["ask"]) {
            let pid = told["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            let (Some(pid), Some(nonce)) = (pid, told["nonce"].as_str()) else { return };
            for seat in held(&self.state).seats.values() {
                let (election, nonce) = (election.clone(), nonce.to_owned());
                let _gone = seat.send(Command::Ask { election, pid, term, nonce });
            }
        } else if let Some(nonce) = told["ack"].as_str() {
            let asker = held(&self.state).asks.remove(nonce);
            if let Some(asker) = asker {
                let _gone = asker.send(Asked(term));
            }
        }
    }

    /// Notes that somebody waits for the answer to an ask.
    pub(super) fn expect_answer(&self) -> (String, oneshot::Receiver<Asked>) {
        let random = || RandomState::new().build_hasher().finish();
        let nonce = format!("{:016x}{:016x}", random(), random());
        let (asker, answer) = oneshot::channel();
        let mut state = held(&self.state);
        state.asks.retain(|_, asker| !asker.is_closed());
        state.asks.insert(nonce.clone(), asker);
        (nonce, answer)
    }
}

/// What is told when elections may have changed.
pub(super) fn hint_payload<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    let names: Vec<&str> = names.map(Name::as_str).collect();
    // As it is written: a quote in a name takes two bytes.
    let payload = json!({ "hint": names }).to_string();
    if payload.len() > HINT_BYTES_MAX { json!({ "hint": [] }).to_string() } else { payload }
}

/// What is told to have a holder resign.
pub(super) fn ask_payload(election: &Name, pid: i32, term: Option<Term>, nonce: &str) -> String {
    let term = term.map(Term::get);
    json!({ "ask": election.as_str(), "pid": pid, "term": term, "nonce": nonce }).to_string()
}

/// What the holder answers: the term that it was asked to give up, or nothing if not it is meant.
fn answer_payload(nonce: &str, asked: Asked) -> String {
    json!({ "ack": nonce, "term": asked.0.map(Term::get) }).to_string()
}

/// Says so when the task is gone, with its runtime perhaps, so that another can be started.
struct Carried(Arc<Ears>);

impl Drop for Carried {
    fn drop(&mut self) {
        self.0.listening.send_replace(false);
        held(&self.0.state).started = false;
    }
}

struct AdvisoryHints {
    ears: Weak<Ears>,
    listener: Arc<Listener>,
}

impl Hints for AdvisoryHints {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let polled = self.listener.poll(cx);
        if let (Poll::Pending, Some(ears)) = (&polled, self.ears.upgrade()) {
            ears.start();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn ears() -> Arc<Ears> {
        let config = Arc::new(PostgresConfig::from_url("postgres://h/d").unwrap());
        Arc::new(Ears::new(config.clone(), Arc::new(Link::new(config, None))))
    }

    #[test]
    fn whatever_is_heard_is_harmless() {
        let ears = ears();
        let mut stream = ears.listen();
        let mut cx = Context::from_waker(Waker::noop());
        for odd in [
            "",
            "{",
            "7",
            "{\"hint\":7}",
            "{\"hint\":[7,\"a\\u0007\"]}",
            "{\"ack\":\"x\"}",
            "{\"ask\":\"e\"}",
            "{\"ask\":\"e\",\"pid\":99999999999,\"nonce\":\"x\"}",
        ] {
            ears.hear(odd);
            assert_eq!(stream.poll_next(&mut cx), Poll::Pending, "{odd}");
        }
        let names = ["it's \"odd\"", "b"].map(|name| Name::new(name).unwrap());
        ears.hear(&hint_payload(names.iter()));
        for name in names {
            assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Election(name))));
        }
        ears.close();
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn notifications_of_any_content_are_survived() {
        let check = bolero::check!().with_test_time(std::time::Duration::from_millis(300));
        check.with_type::<(String, Vec<String>, i64)>().for_each(|(text, names, number)| {
            let (ears, keys) = (ears(), ["hint", "ask", "ack", text.as_str()]);
            ears.hear(text);
            for key in keys {
                for value in [json!(text), json!(names), json!(number), Value::Null] {
                    let told = json!({ key: value, "pid": number, "term": number, "nonce": text });
                    ears.hear(&told.to_string());
                }
            }
        });
    }

    #[test]
    fn many_names_become_any() {
        let names: Vec<Name> =
            (0..100).map(|n| Name::new(format!("{n}{}", "x".repeat(200))).unwrap()).collect();
        assert_eq!(hint_payload(names.iter()), "{\"hint\":[]}");
        // What is written counts, and NOTIFY takes no more.
        let quotes = Name::new("\"".repeat(255)).unwrap();
        for count in [14, 15, 16, 31] {
            let payload = hint_payload(std::iter::repeat_n(&quotes, count));
            assert_eq!(payload.len() > 100, count <= 15, "{count}");
            assert!(payload.len() <= 7_999, "{count}: {}", payload.len());
        }
    }

    #[test]
    fn an_answer_reaches_whoever_asked() {
        let ears = ears();
        let (nonce, mut answer) = ears.expect_answer();
        ears.hear(&answer_payload("another", Asked(Term::new(1))));
        assert!(answer.try_recv().is_err());
        ears.hear(&answer_payload(&nonce, Asked(Term::new(7))));
        assert_eq!(answer.try_recv().unwrap().0, Term::new(7));
    }
}
