//! Hints: releases and asks are told by their scripts, and heard by the store's subscriber.
//!
//! Nothing here decides anything (I5). Without connections, or without the permission to publish
//! or subscribe, the store is slower and just as right.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tenure_core::sync::lock;
use tenure_core::{Hint, HintQueue, Hints, Name, Op};
use tokio::runtime::Handle;

use crate::subscriber::Subscriber;

/// How many names are kept; beyond that every hint counts.
const NAMES_MAX: usize = 100_000;

/// The elections that the store was asked about: hints about others are left out.
#[derive(Default)]
pub(crate) struct Names(Mutex<Known>);

#[derive(Default)]
struct Known {
    names: HashSet<Name>,
    full: bool,
}

impl Names {
    /// Remembers which elections we are asked about.
    pub(crate) fn remember(&self, ops: &[Op]) {
        let mut known = lock(&self.0);
        for election in ops.iter().map(Op::election) {
            if known.names.contains(election) {
                continue;
            }
            if known.names.len() < NAMES_MAX {
                known.names.insert(election.clone());
            } else {
                known.full = true;
            }
        }
    }

    /// What a message on a channel of hints is to us.
    pub(crate) fn hint(&self, message: &[u8]) -> Option<Hint> {
        let name = std::str::from_utf8(message).ok();
        let name = name.and_then(|name| Name::new(name).ok())?;
        let known = lock(&self.0);
        (known.full || known.names.contains(&name)).then_some(Hint::Election(name))
    }
}

/// One stream. It joins when it is first polled.
pub(crate) struct RedisHints {
    subscriber: Arc<Subscriber>,
    queue: Option<HintQueue>,
}

impl RedisHints {
    pub(crate) fn new(subscriber: Arc<Subscriber>) -> RedisHints {
        RedisHints { subscriber, queue: None }
    }
}

impl Hints for RedisHints {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let Ok(runtime) = Handle::try_current() else {
            tracing::warn!("hints of the Redis store need a tokio runtime, so there are none");
            return Poll::Ready(None);
        };
        let queue = match &mut self.queue {
            Some(queue) => queue,
            None => {
                let (queue, is_heard) = self.subscriber.join();
                let queue = self.queue.insert(queue);
                if is_heard {
                    // Whatever was told before is missed.
                    return Poll::Ready(Some(Hint::Any));
                }
                queue
            }
        };
        self.subscriber.poll_from(&runtime, cx, |cx| queue.poll_next(cx))
    }
}

impl Drop for RedisHints {
    fn drop(&mut self) {
        if self.queue.is_some() {
            self.subscriber.leave();
        }
    }
}
