//! Notices on their way out: those that wait are sent together.
//!
//! One statement to a notice would cost a transaction each. Notices that are alike would become
//! one within a transaction (M2), so no two of a batch are.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use tenure_core::sync::lock;
use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};

use crate::connector::Connector;
use crate::error;

/// How many notices one statement carries.
const BATCH_MAX: usize = 100;
/// How many statements are under way at once.
const TASKS_MAX: usize = 2;

/// What waits to be sent.
pub(crate) struct NoticeSender {
    connector: Arc<Connector>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Notice>,
    tasks: usize,
}

struct Notice {
    channel: String,
    payload: String,
    done: oneshot::Sender<Result<(), Error>>,
}

impl NoticeSender {
    pub(crate) fn new(connector: Arc<Connector>) -> NoticeSender {
        NoticeSender { connector, state: Mutex::default() }
    }

    /// Sends one notice, together with others that wait.
    pub(crate) async fn send(
        self: &Arc<NoticeSender>,
        channel: &str,
        payload: &str,
    ) -> Result<(), Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(error::new(ErrorKind::Config, "notices need a tokio runtime; use one"));
        };
        let (done, sent) = oneshot::channel();
        let notice = Notice { channel: channel.to_owned(), payload: payload.to_owned(), done };
        {
            let mut state = lock(&self.state);
            state.queue.push_back(notice);
            if state.tasks < TASKS_MAX {
                state.tasks += 1;
                // Not on the caller's own task: a caller that gives up must not take others along.
                let mut task = SendTask { notices: self.clone(), ended: false };
                runtime.spawn(async move { task.run().await });
            }
        }
        sent.await.unwrap_or_else(|_| {
            Err(error::new(ErrorKind::Unavailable, "the runtime has ended while it was sent"))
        })
    }
}

impl State {
    /// The first that wait, no two of them alike.
    fn batch(&mut self) -> Vec<Notice> {
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        let mut seen: HashSet<(String, String)> = HashSet::new();
        while batch.len() < BATCH_MAX
            && let Some(notice) = self.queue.pop_front()
        {
            if seen.insert((notice.channel.clone(), notice.payload.clone())) {
                batch.push(notice);
            } else {
                later.push_back(notice);
            }
        }
        later.append(&mut self.queue);
        self.queue = later;
        batch
    }
}

/// One task that sends, until nothing waits.
struct SendTask {
    notices: Arc<NoticeSender>,
    ended: bool,
}

impl SendTask {
    async fn run(&mut self) {
        loop {
            let batch = {
                let mut state = lock(&self.notices.state);
                let batch = state.batch();
                if batch.is_empty() {
                    // At the same instant, so that the next caller starts another.
                    self.ended = true;
                    state.tasks -= 1;
                    return;
                }
                batch
            };
            let channels: Vec<&str> = batch.iter().map(|notice| &*notice.channel).collect();
            let payloads: Vec<&str> = batch.iter().map(|notice| &*notice.payload).collect();
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&channels, Type::TEXT_ARRAY), (&payloads, Type::TEXT_ARRAY)];
            let sql = include_str!("sql/notify_all.sql");
            let sent = self.notices.connector.query(sql, &values).await.map(|_| ());
            for notice in batch {
                let _given_up = notice.done.send(sent.clone());
            }
        }
    }
}

impl Drop for SendTask {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Its runtime has ended in the middle. If there is no other, nobody sends what waits.
        let mut state = lock(&self.notices.state);
        state.tasks -= 1;
        if state.tasks == 0 {
            state.queue.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_notices_of_a_batch_are_alike() {
        let mut state = State::default();
        for (channel, payload) in [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")] {
            let (done, _) = oneshot::channel();
            let (channel, payload) = (channel.to_owned(), payload.to_owned());
            state.queue.push_back(Notice { channel, payload, done });
        }
        let mut batches = Vec::new();
        loop {
            let batch = state.batch();
            if batch.is_empty() {
                break;
            }
            let texts = batch.iter().map(|notice| format!("{}{}", notice.channel, notice.payload));
            batches.push(texts.collect::<Vec<_>>().join(" "));
        }
        assert_eq!(batches, ["a1 b1 a2", "a1", "a1"]);
    }
}
