//! Those who listen to what happens: each event is written once and shared by all.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use axum::body::Bytes;
use serde_json::Value;
use tenure::core::sync::lock;
use tokio::sync::mpsc;

use crate::hub::LOOKS_AT_ONCE;

/// How many events are kept for those who come back.
const KEPT: usize = 1024;
/// How many events wait for one listener; one that does not read them is dropped. Many times what
/// one look at the store tells at once, so that only who is slow is let go.
const QUEUE: usize = 1024;
const _: () = assert!(QUEUE >= 4 * LOOKS_AT_ONCE, "a look must not drop those who keep up");

/// The listeners, and what they may have missed.
pub(crate) struct Clients {
    /// Tells the numbers of this process from those of the one before.
    incarnation: String,
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: u64,
    kept: VecDeque<Kept>,
    clients: Vec<Client>,
}

struct Kept {
    number: u64,
    election: String,
    frame: Bytes,
}

struct Client {
    only: Option<String>,
    sender: mpsc::Sender<Bytes>,
}

/// One listener's end: what it gets first, and what comes after.
pub(crate) struct Subscription {
    pub(crate) first: Bytes,
    pub(crate) rest: mpsc::Receiver<Bytes>,
}

impl Clients {
    pub(crate) fn new(limit: usize) -> Clients {
        let random = uuid::Uuid::now_v7().simple().to_string();
        Clients { incarnation: random, limit, inner: Mutex::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inner().clients.is_empty()
    }

    /// Something happened: kept, and told to all who want to know.
    pub(crate) fn publish(&self, event: &str, election: &str, data: &Value) {
        let mut inner = self.inner();
        inner.last += 1;
        let number = inner.last;
        let id = self.id(number);
        let frame = frame(Some(&id), Some(event), Some(data));
        inner.send(Some(election), &frame);
        inner.kept.push_back(Kept { number, election: election.to_owned(), frame });
        if inner.kept.len() > KEPT {
            inner.kept.pop_front();
        }
    }

    /// Tells all who want to know, but nobody who comes back.
    pub(crate) fn pass_on(&self, event: &str, election: &str, data: &Value) {
        let frame = frame(None, Some(event), Some(data));
        self.inner().send(Some(election), &frame);
    }

    pub(crate) fn send_all(&self, frame: &Bytes) {
        self.inner().send(None, frame);
    }

    /// Begins to listen: with what came after the event `last_id` if that is known, else with a
    /// snapshot. `None` if there are too many listeners.
    pub(crate) fn subscribe(
        &self,
        only: Option<String>,
        last_id: Option<&str>,
        snapshot: impl FnOnce() -> Value,
    ) -> Option<Subscription> {
        let mut inner = self.inner();
        inner.clients.retain(|client| !client.sender.is_closed());
        if inner.clients.len() >= self.limit {
            return None;
        }
        let missed = last_id.and_then(|id| self.number(id)).and_then(|last| inner.after(last));
        let first = match missed {
            Some(missed) => {
                let wanted = |kept: &&Kept| only.as_ref().is_none_or(|only| *only == kept.election);
                let mut all = frame(None, None, None).to_vec();
                for kept in missed.into_iter().filter(wanted) {
                    all.extend_from_slice(&kept.frame);
                }
                Bytes::from(all)
            }
            None => {
                let id = self.id(inner.last);
                frame(Some(&id), Some("snapshot"), Some(&snapshot()))
            }
        };
        let (sender, rest) = mpsc::channel(QUEUE);
        inner.clients.push(Client { only, sender });
        Some(Subscription { first, rest })
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.inner().clients.clear();
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.incarnation)
    }

    fn number(&self, id: &str) -> Option<u64> {
        let (incarnation, number) = id.rsplit_once('-')?;
        (incarnation == self.incarnation).then(|| number.parse().ok()).flatten()
    }

    // A std mutex: it is held while frames are queued, never across an await.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Inner {
    fn send(&mut self, election: Option<&str>, frame: &Bytes) {
        self.clients.retain(|client| {
            let wanted = match (election, &client.only) {
                (Some(election), Some(only)) => election == only,
                _ => true,
            };
            // A listener that does not keep up is let go; it comes back with its last number.
            !wanted || client.sender.try_send(frame.clone()).is_ok()
        });
    }

    /// Everything after an event, if all of it is still there.
    fn after(&self, last: u64) -> Option<Vec<&Kept>> {
        let first_kept = self.kept.front().map_or(self.last + 1, |kept| kept.number);
        if last > self.last || last + 1 < first_kept {
            return None;
        }
        Some(self.kept.iter().filter(|kept| kept.number > last).collect())
    }
}

/// One event of the stream; without an event and data, a comment that keeps it alive.
pub(crate) fn frame(id: Option<&str>, event: Option<&str>, data: Option<&Value>) -> Bytes {
    let mut text = String::new();
    if let Some(id) = id {
        text.push_str(&format!("id: {id}\n"));
    }
    if let Some(event) = event {
        text.push_str(&format!("event: {event}\n"));
    }
    match data {
        // JSON has no line ends of its own.
        Some(data) => text.push_str(&format!("data: {data}\n\n")),
        None => text.push_str(": alive\n\n"),
    }
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(bytes: &Bytes) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn whoever_comes_back_gets_what_it_missed_and_nothing_else() {
        let clients = Clients::new(10);
        for number in 0..5 {
            clients.publish("elected", "a", &json!(number));
        }
        let id = clients.id(3);
        let back = clients.subscribe(None, Some(&id), || json!("all")).unwrap();
        let first = text(&back.first);
        assert!(first.contains("data: 3\n") && first.contains("data: 4\n"), "{first}");
        assert!(!first.contains("data: 2\n") && !first.contains("snapshot"), "{first}");
        let other = clients.subscribe(Some("b".into()), Some(&id), || json!("all")).unwrap();
        assert!(!text(&other.first).contains("data:"), "events of a are not for it");
    }

    #[test]
    fn whoever_was_away_too_long_gets_a_snapshot() {
        let clients = Clients::new(10);
        for number in 0..KEPT + 10 {
            clients.publish("elected", "a", &json!(number));
        }
        for id in [clients.id(3), "other-7".to_owned(), clients.id(99_999), "x".to_owned()] {
            let client = clients.subscribe(None, Some(&id), || json!("all")).unwrap();
            let first = text(&client.first);
            assert!(first.contains("event: snapshot\ndata: \"all\""), "{id}: {first}");
            assert!(first.contains(&clients.id(KEPT as u64 + 10)), "{first}");
        }
        let kept = clients.subscribe(None, Some(&clients.id(10)), || json!("all")).unwrap();
        assert_eq!(text(&kept.first).matches("data:").count(), KEPT);
    }

    #[test]
    fn a_listener_that_does_not_read_is_dropped_and_others_are_not() {
        let clients = Clients::new(10);
        let mut slow = clients.subscribe(None, None, || json!(0)).unwrap();
        let mut quick = clients.subscribe(None, None, || json!(0)).unwrap();
        for number in 0..QUEUE + 1 {
            clients.publish("elected", "a", &json!(number));
            assert!(quick.rest.try_recv().is_ok());
        }
        let got = std::iter::from_fn(|| slow.rest.try_recv().ok()).count();
        assert_eq!(got, QUEUE, "what was queued is still read");
        assert!(slow.rest.is_closed());
        assert!(!quick.rest.is_closed());
    }

    #[test]
    fn there_are_only_so_many_listeners() {
        let clients = Clients::new(2);
        let one = clients.subscribe(None, None, || json!(0)).unwrap();
        let _two = clients.subscribe(None, None, || json!(0)).unwrap();
        assert!(clients.subscribe(None, None, || json!(0)).is_none());
        drop(one);
        assert!(clients.subscribe(None, None, || json!(0)).is_some(), "who left makes room");
    }
}
