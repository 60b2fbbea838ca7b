//! What stores of this kind tell each other by NOTIFY: hints, asks to resign, and their answers.
//!
//! It is heard on the connection for reads: a session with locks must be free to fall silent (A2).
//! A hint decides nothing (I5). An ask counts once the holder's process has answered it, so that
//! nobody is told "asked" for a message that was lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use serde_json::{Value, json};
use tenure_core::sync::lock;
use tenure_core::{CandidateId, Error, Hint, HintSender, Hints, Name, Term};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::{ToSql, Type};

use super::candidate::{Asked, Command};
use super::key::CHANNEL;
use crate::connector::Connector;
use crate::hints::HintStream;
use crate::listener::NotifyListener;
use crate::notifications::Subscriber;
use crate::random::random;

/// How many bytes one hint has; more become a single "any". NOTIFY takes less than 8,000.
const HINT_BYTES_MAX: usize = 7_999;

/// What the handles of one store hear and tell.
pub(super) struct Notifier {
    connector: Arc<Connector>,
    listener: Arc<NotifyListener>,
    hints: HintSender,
    /// Held by each stream of hints.
    streams: Arc<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The candidates of this process.
    tasks: HashMap<CandidateId, mpsc::UnboundedSender<Command>>,
    /// Asks that wait for their answer.
    asks: HashMap<String, oneshot::Sender<Asked>>,
    /// Whether anybody ever had to listen.
    wanted: bool,
}

impl Notifier {
    pub(super) fn new(connector: Arc<Connector>, listener: Arc<NotifyListener>) -> Arc<Notifier> {
        let (hints, streams, state) = (HintSender::new(), Arc::new(()), Mutex::default());
        let notifier = Arc::new(Notifier { connector, listener, hints, streams, state });
        let subscriber: Arc<dyn Subscriber> = notifier.clone();
        notifier.listener.notifications().subscribe(Arc::downgrade(&subscriber));
        notifier
    }

    /// Tells other stores something, and this one, too.
    pub(super) async fn tell(&self, payload: &str) -> Result<(), Error> {
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&CHANNEL, Type::TEXT), (&payload, Type::TEXT)];
        self.connector.query(include_str!("../sql/announce_one.sql"), &values).await.map(|_| ())
    }

    /// Answers an ask, beside the session that holds the lock: who asks must not renew it.
    pub(super) fn answer(self: &Arc<Notifier>, nonce: &str, asked: Asked) {
        let (notifier, payload) = (self.clone(), answer_payload(nonce, asked));
        Handle::current().spawn(async move {
            if let Err(error) = notifier.tell(&payload).await {
                tracing::warn!(%error, "an ask to resign could not be answered");
            }
        });
    }

    /// The candidate's task, if it has one here.
    pub(super) fn task(&self, candidate: &CandidateId) -> Option<mpsc::UnboundedSender<Command>> {
        let task = lock(&self.state).tasks.get(candidate).cloned();
        task.filter(|task| !task.is_closed())
    }

    pub(super) fn put_task(&self, candidate: CandidateId, task: mpsc::UnboundedSender<Command>) {
        lock(&self.state).tasks.insert(candidate, task);
    }

    /// All candidates of this process.
    pub(super) fn candidates(&self) -> Vec<CandidateId> {
        lock(&self.state).tasks.keys().cloned().collect()
    }

    /// A new stream. The connection is made now, or when a runtime polls for the first hint.
    pub(super) fn listen(&self) -> Box<dyn Hints> {
        lock(&self.state).wanted = true;
        let stream = HintStream::new(self.hints.listen(), &self.listener);
        Box::new(AdvisoryHints { stream, _counted: self.streams.clone() })
    }

    /// Whether anybody wants hints.
    pub(super) fn is_listened_to(&self) -> bool {
        Arc::strong_count(&self.streams) > 1
    }

    /// Hints at each of these.
    pub(super) fn hint_at<'a>(&self, names: impl Iterator<Item = &'a Name>) {
        let hints: Vec<Hint> = names.cloned().map(Hint::Election).collect();
        self.hints.send(&hints);
    }

    /// Ends all streams and all tasks.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.tasks.clear();
        state.asks.clear();
        drop(state);
        self.hints.close();
    }

    /// Listens from now on: a leader must hear what it is asked.
    pub(super) fn start(&self) {
        let before = std::mem::replace(&mut lock(&self.state).wanted, true);
        if !before {
            self.listener.refresh();
        }
        self.listener.start();
    }

    /// Waits until what is told from now on is heard.
    pub(super) async fn until_listening(&self) -> Result<(), Error> {
        self.start();
        self.listener.until_listening([CHANNEL]).await
    }

    /// Notes that somebody waits for the answer to an ask.
    pub(super) fn expect_answer(&self) -> (String, oneshot::Receiver<Asked>) {
        let nonce = format!("{:016x}{:016x}", random(), random());
        let (asker, answer) = oneshot::channel();
        let mut state = lock(&self.state);
        state.asks.retain(|_, asker| !asker.is_closed());
        state.asks.insert(nonce.clone(), asker);
        (nonce, answer)
    }
}

impl Subscriber for Notifier {
    fn channels(&self) -> Vec<String> {
        let wanted = lock(&self.state).wanted;
        if wanted { vec![CHANNEL.to_owned()] } else { Vec::new() }
    }

    fn hear(&self, channel: &str, payload: &str) {
        if channel != CHANNEL {
            return;
        }
        let Ok(told) = serde_json::from_str::<Value>(payload) else { return };
        let name = |value: &Value| value.as_str().and_then(|name| Name::new(name).ok());
        let term = told["term"].as_u64().and_then(Term::new);
        if let Some(names) = told["hint"].as_array() {
            if names.is_empty() {
                self.hints.send(&[Hint::Any]);
            }
            let named: Vec<Hint> = names.iter().filter_map(name).map(Hint::Election).collect();
            self.hints.send(&named);
        } else if let Some(election) = name(&told["ask"]) {
            let pid = told["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            let (Some(pid), Some(nonce)) = (pid, told["nonce"].as_str()) else { return };
            for task in lock(&self.state).tasks.values() {
                let (election, nonce) = (election.clone(), nonce.to_owned());
                let _gone = task.send(Command::Ask { election, pid, term, nonce });
            }
        } else if let Some(nonce) = told["ack"].as_str() {
            let asker = lock(&self.state).asks.remove(nonce);
            if let Some(asker) = asker {
                let _gone = asker.send(Asked(term));
            }
        }
    }

    fn missed(&self) {
        self.hints.send(&[Hint::Any]);
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

struct AdvisoryHints {
    stream: HintStream,
    _counted: Arc<()>,
}

impl Hints for AdvisoryHints {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        self.stream.poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::config::PostgresConfig;

    fn notifier() -> Arc<Notifier> {
        let config = Arc::new(PostgresConfig::from_url("postgres://h/d").unwrap());
        let connector = Arc::new(Connector::new(config.clone()));
        let listener = Arc::new(NotifyListener::new(config, connector.clone()));
        Notifier::new(connector, listener)
    }

    #[test]
    fn whatever_is_heard_is_harmless() {
        let notifier = notifier();
        let mut stream = notifier.listen();
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
            notifier.hear(CHANNEL, odd);
            assert_eq!(stream.poll_next(&mut cx), Poll::Pending, "{odd}");
        }
        let names = ["it's \"odd\"", "b"].map(|name| Name::new(name).unwrap());
        notifier.hear(CHANNEL, &hint_payload(names.iter()));
        for name in names {
            assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Election(name))));
        }
        notifier.close();
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn notifications_of_any_content_are_survived() {
        let check = bolero::check!().with_test_time(std::time::Duration::from_millis(300));
        check.with_type::<(String, Vec<String>, i64)>().for_each(|(text, names, number)| {
            let (notifier, keys) = (notifier(), ["hint", "ask", "ack", text.as_str()]);
            notifier.hear(CHANNEL, text);
            for key in keys {
                for value in [json!(text), json!(names), json!(number), Value::Null] {
                    let told = json!({ key: value, "pid": number, "term": number, "nonce": text });
                    notifier.hear(CHANNEL, &told.to_string());
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
    fn an_answer_reaches_the_asker() {
        let notifier = notifier();
        let (nonce, mut answer) = notifier.expect_answer();
        notifier.hear(CHANNEL, &answer_payload("another", Asked(Term::new(1))));
        assert!(answer.try_recv().is_err());
        notifier.hear(CHANNEL, &answer_payload(&nonce, Asked(Term::new(7))));
        assert_eq!(answer.try_recv().unwrap().0, Term::new(7));
    }
}
