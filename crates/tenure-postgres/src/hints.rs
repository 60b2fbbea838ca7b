//! Hints: NOTIFY after a release or an ask, LISTEN on the connection that carries the ops.
//!
//! Nothing here decides anything (I5). Without it, behind a pooler say, the store is slower and
//! just as right.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tenure_core::sync::lock;
use tenure_core::{Hint, HintQueue, HintSender, Hints, Name, Op};

use crate::listener::NotifyListener;
use crate::notifications::Subscriber;

/// How many names are kept; beyond that a hint about any other says only "any".
const NAMES_MAX: usize = 100_000;

/// What the handles of one store know about hints.
pub(crate) struct HintHub {
    channel: String,
    hints: HintSender,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The elections that we were asked about.
    names: HashSet<Name>,
    names_full: bool,
    /// Whether anybody ever wanted hints.
    wanted: bool,
}

impl HintHub {
    pub(crate) fn new(channel: String) -> HintHub {
        HintHub { channel, hints: HintSender::new(), state: Mutex::default() }
    }

    /// Remembers which elections we are asked about.
    pub(crate) fn remember(&self, ops: &[&Op]) {
        let mut state = lock(&self.state);
        for op in ops {
            if state.names.contains(op.election()) {
                continue;
            }
            if state.names.len() < NAMES_MAX {
                state.names.insert(op.election().clone());
            } else {
                state.names_full = true;
            }
        }
    }

    /// A new stream. The connection is made now, or when a runtime polls for the first hint.
    pub(crate) fn listen(&self, listener: &Arc<NotifyListener>) -> Box<dyn Hints> {
        lock(&self.state).wanted = true;
        let stream = HintStream::new(self.hints.listen(), listener);
        Box::new(stream)
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.hints.close();
    }
}

impl Subscriber for HintHub {
    fn channels(&self) -> Vec<String> {
        let wanted = lock(&self.state).wanted;
        if wanted { vec![self.channel.clone()] } else { Vec::new() }
    }

    fn hear(&self, channel: &str, payload: &str) {
        if channel != self.channel {
            return;
        }
        if payload.is_empty() {
            return self.hints.send(&[Hint::Any]);
        }
        let Ok(name) = Name::new(payload) else {
            return;
        };
        let (known, full) = {
            let state = lock(&self.state);
            (state.names.contains(&name), state.names_full)
        };
        if known {
            self.hints.send(&[Hint::Election(name)]);
        } else if full {
            self.hints.send(&[Hint::Any]);
        }
    }

    fn missed(&self) {
        self.hints.send(&[Hint::Any]);
    }
}

/// A stream of hints that sees to it that somebody listens.
pub(crate) struct HintStream {
    queue: HintQueue,
    listener: std::sync::Weak<NotifyListener>,
}

impl HintStream {
    pub(crate) fn new(queue: HintQueue, listener: &Arc<NotifyListener>) -> HintStream {
        listener.refresh();
        listener.start();
        HintStream { queue, listener: Arc::downgrade(listener) }
    }
}

impl Hints for HintStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let polled = self.queue.poll_next(cx);
        if let (Poll::Pending, Some(listener)) = (&polled, self.listener.upgrade()) {
            listener.start();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::config::PostgresConfig;
    use crate::connector::Connector;

    fn hub() -> (HintHub, Arc<NotifyListener>) {
        let config = Arc::new(PostgresConfig::from_url("postgres://h/d").unwrap());
        let connector = Arc::new(Connector::new(config.clone()));
        (HintHub::new("c".to_owned()), Arc::new(NotifyListener::new(config, connector)))
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_channel_is_wanted_with_the_first_stream_and_a_closed_stream_ends() {
        let (hub, listener) = hub();
        assert!(hub.channels().is_empty());
        let mut stream = hub.listen(&listener);
        assert_eq!(hub.channels(), ["c"]);
        let mut cx = Context::from_waker(Waker::noop());
        hub.missed();
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.close();
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(None));
        assert_eq!(hub.listen(&listener).poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn hints_are_only_about_elections_that_we_were_asked_about() {
        let (hub, listener) = hub();
        let mut stream = hub.listen(&listener);
        let mut cx = Context::from_waker(Waker::noop());
        hub.hear("c", "a");
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.remember(&[&Op::Read { election: name("a") }]);
        hub.hear("another", "a");
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
        hub.hear("c", "a");
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Election(name("a")))));
        hub.hear("c", "");
        assert_eq!(stream.poll_next(&mut cx), Poll::Ready(Some(Hint::Any)));
        hub.hear("c", "no\u{7}name");
        assert_eq!(stream.poll_next(&mut cx), Poll::Pending);
    }
}
