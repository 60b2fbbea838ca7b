//! What the server notifies us of, handed to those who want it.
//!
//! Notifications come in on a connection that also carries calls, renewals among them, so nothing
//! here waits: it is called by the task that reads that connection. One session counts at a time.
//! While another one begins to listen none does, so that nothing is heard twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};

use tenure_core::sync::lock;
use tokio::sync::oneshot;

use crate::random::random;

/// What wants to hear something.
pub(crate) trait Subscriber: Send + Sync {
    /// The channels that it wants to hear at present.
    fn channels(&self) -> Vec<String>;

    /// Something was notified. Anyone may have done so. It must not block.
    fn hear(&self, channel: &str, payload: &str);

    /// A session begins to be heard, or ceases to be: something may have been missed.
    fn missed(&self);
}

/// All who want to hear something, and the session that counts.
pub(crate) struct Notifications {
    /// Nobody else listens on this channel: it carries what a process tells itself (M1).
    control: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    subscribers: Vec<Weak<dyn Subscriber>>,
    session: Option<u64>,
    /// What to do when a process hears what it told itself.
    nonces: HashMap<String, Box<dyn FnOnce() + Send>>,
    last_nonce: u64,
}

impl Notifications {
    pub(crate) fn new() -> Notifications {
        let control = format!("tenure-control:{:016x}", random());
        Notifications { control, state: Mutex::default() }
    }

    pub(crate) fn subscribe(&self, subscriber: Weak<dyn Subscriber>) {
        lock(&self.state).subscribers.push(subscriber);
    }

    /// The channel on which a process tells itself something.
    pub(crate) fn control(&self) -> &str {
        &self.control
    }

    /// All channels that anybody wants to hear, and ours with them.
    pub(crate) fn wanted(&self) -> BTreeSet<String> {
        let subscribers = self.subscribers();
        let mut wanted: BTreeSet<String> =
            subscribers.iter().flat_map(|subscriber| subscriber.channels()).collect();
        if !wanted.is_empty() {
            wanted.insert(self.control.clone());
        }
        wanted
    }

    /// From now on no session counts.
    pub(crate) fn mute(&self) {
        lock(&self.state).session = None;
    }

    /// From now on this session counts. What was notified before may have been missed.
    pub(crate) fn open(&self, session: u64) {
        lock(&self.state).session = Some(session);
        self.missed();
    }

    /// Tells everybody that something may have been missed.
    pub(crate) fn missed(&self) {
        self.subscribers().iter().for_each(|subscriber| subscriber.missed());
    }

    /// A notification came in on a session.
    pub(crate) fn hear(&self, session: u64, channel: &str, payload: &str) {
        let then = {
            let mut state = lock(&self.state);
            if state.session != Some(session) {
                return;
            }
            if channel == self.control { Some(state.nonces.remove(payload)) } else { None }
        };
        match then {
            Some(Some(then)) => then(),
            Some(None) => {}
            None => {
                let subscribers = self.subscribers();
                subscribers.iter().for_each(|subscriber| subscriber.hear(channel, payload));
            }
        }
    }

    /// Notes what to do once a new nonce is heard on the control channel. It is done at the nonce's
    /// place in the order of all notifications.
    pub(crate) fn expect(&self, then: impl FnOnce() + Send + 'static) -> Expected<'_> {
        let (tell, heard) = oneshot::channel();
        let mut state = lock(&self.state);
        state.last_nonce += 1;
        let nonce = state.last_nonce.to_string();
        let then = move || {
            then();
            let _given_up = tell.send(());
        };
        state.nonces.insert(nonce.clone(), Box::new(then));
        Expected { notifications: self, nonce, heard }
    }

    fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        lock(&self.state).subscribers.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A nonce that is about to be heard. Dropping it forgets it.
pub(crate) struct Expected<'a> {
    notifications: &'a Notifications,
    pub(crate) nonce: String,
    heard: oneshot::Receiver<()>,
}

impl Expected<'_> {
    /// Waits until it is heard.
    pub(crate) async fn heard(&mut self) {
        if (&mut self.heard).await.is_err() {
            // It was forgotten, which only dropping this does.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        lock(&self.notifications.state).nonces.remove(&self.nonce);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down all that it is told.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Subscriber for Notes {
        fn channels(&self) -> Vec<String> {
            vec!["c".to_owned()]
        }

        fn hear(&self, channel: &str, payload: &str) {
            lock(&self.0).push(format!("{channel} {payload}"));
        }

        fn missed(&self) {
            lock(&self.0).push("missed".to_owned());
        }
    }

    #[test]
    fn one_session_counts_and_none_while_another_begins() {
        let (all, notes) = (Notifications::new(), Arc::new(Notes::default()));
        assert_eq!(all.wanted(), BTreeSet::new());
        let subscriber: Arc<dyn Subscriber> = notes.clone();
        all.subscribe(Arc::downgrade(&subscriber));
        assert_eq!(all.wanted(), BTreeSet::from(["c".to_owned(), all.control().to_owned()]));
        all.hear(1, "c", "early");
        all.open(1);
        all.hear(1, "c", "a");
        all.hear(2, "c", "of another session");
        all.mute();
        all.hear(1, "c", "late");
        all.open(2);
        all.hear(1, "c", "later");
        all.hear(2, "c", "b");
        assert_eq!(*lock(&notes.0), ["missed", "c a", "missed", "c b"]);
        drop((notes, subscriber));
        assert_eq!(all.wanted(), BTreeSet::new(), "whatever is gone wants nothing");
    }

    #[test]
    fn a_nonce_is_heard_once_at_its_place_and_forgotten_with_its_owner() {
        let (all, notes) = (Notifications::new(), Arc::new(Notes::default()));
        let subscriber: Arc<dyn Subscriber> = notes.clone();
        all.subscribe(Arc::downgrade(&subscriber));
        all.open(1);
        let write = notes.clone();
        let expected = all.expect(move || write.hear("nonce", ""));
        let nonce = expected.nonce.clone();
        all.hear(1, "c", "a");
        all.hear(2, all.control(), &nonce);
        all.hear(1, all.control(), "another");
        all.hear(1, all.control(), &nonce);
        all.hear(1, "c", "b");
        all.hear(1, all.control(), &nonce);
        assert_eq!(*lock(&notes.0), ["missed", "c a", "nonce ", "c b"]);
        drop(expected);
        let nonce = all.expect(|| panic!("it was forgotten")).nonce.clone();
        all.hear(1, all.control(), &nonce);
    }
}
