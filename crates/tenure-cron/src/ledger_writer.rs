//! Writes to the ledger: whatever there is to be written goes in one call, and the next call waits
//! until that has been answered. So a thousand ticks of one second are a few calls.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, ErrorKind, Tenure};
use tenure_core::{LEDGER_STEPS_MAX, LedgerExt as _, LedgerStep, Marked};
use tokio::sync::{mpsc, oneshot};

use crate::cron::Core;

/// How long to wait before the ledger is asked again: first, and at most.
const AGAIN_FIRST: Duration = Duration::from_millis(10);
const AGAIN_LAST: Duration = Duration::from_millis(500);

/// How long to leave a tick alone that somebody's transaction is at.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The way to the ledger, for one reign. Steps arrive there in the order in which they are given.
#[derive(Clone)]
pub(crate) struct LedgerWriter(mpsc::UnboundedSender<Entry>);

struct Entry {
    step: LedgerStep,
    answer: Option<oneshot::Sender<Marked>>,
}

impl LedgerWriter {
    /// A writer, and its work: until all handles are gone, or the reign's trust is.
    pub(crate) fn new(
        core: Arc<Core>,
        tenure: Arc<Tenure>,
    ) -> (LedgerWriter, impl Future<Output = Result<(), Error>>) {
        let (sender, entries) = mpsc::unbounded_channel();
        let task = WriterTask { core, tenure, entries, waiting: Vec::new() };
        (LedgerWriter(sender), task.write())
    }

    /// Writes a step and waits for the answer; `None` if there will be none, because trust ended.
    pub(crate) async fn step(&self, step: LedgerStep) -> Option<Marked> {
        self.enter(step).await.ok()
    }

    /// Hands a step in: from now on it is before all that come later. Its answer is waited for
    /// elsewhere.
    pub(crate) fn enter(&self, step: LedgerStep) -> oneshot::Receiver<Marked> {
        let (answer, marked) = oneshot::channel();
        let _writer_gone = self.0.send(Entry { step, answer: Some(answer) });
        marked
    }

    /// Writes a step whose answer does not matter.
    pub(crate) fn note(&self, step: LedgerStep) {
        let _writer_gone = self.0.send(Entry { step, answer: None });
    }
}

struct WriterTask {
    core: Arc<Core>,
    tenure: Arc<Tenure>,
    entries: mpsc::UnboundedReceiver<Entry>,
    /// What is to be written next, in order.
    waiting: Vec<Entry>,
}

impl WriterTask {
    async fn write(mut self) -> Result<(), Error> {
        let (mut pause, mut denied_since) = (AGAIN_FIRST, None);
        loop {
            if self.waiting.is_empty() {
                match self.entries.recv().await {
                    Some(entry) => self.waiting.push(entry),
                    None => return Ok(()),
                }
                // Other tasks that are woken by the same instant have something to write, too.
                tokio::task::yield_now().await;
            }
            let room = LEDGER_STEPS_MAX.saturating_sub(self.waiting.len());
            for _ in 0..room {
                match self.entries.try_recv() {
                    Ok(entry) => self.waiting.push(entry),
                    Err(_) => break,
                }
            }
            match self.call().await {
                Ok(marks) => {
                    (pause, denied_since) = (AGAIN_FIRST, None);
                    self.core.answered();
                    self.answer(marks);
                    if !self.waiting.is_empty() {
                        self.sleep(BUSY_PAUSE).await;
                    }
                }
                Err(error) if !self.core.asks_again(&error, &mut denied_since) => {
                    return Err(error);
                }
                Err(error) if self.tenure.is_current() => {
                    tracing::warn!(%error, "the ledger can't be written, trying again");
                    self.sleep(pause).await;
                    pause = (pause * 2).min(AGAIN_LAST);
                }
                // Trust has ended. The next leader decides about what is open.
                Err(_) => return Ok(()),
            }
        }
    }

    /// One call with what is waiting. The same steps may be written again: the ledger can tell.
    async fn call(&self) -> Result<Vec<Marked>, Error> {
        let steps: Vec<LedgerStep> = self.waiting.iter().map(|entry| entry.step.clone()).collect();
        let (core, term) = (&self.core, self.tenure.term());
        let limit = core.clock.now() + core.election.timing().call_timeout();
        let marks = tokio::select! {
            biased;
            marks = core.ledger()?.record_steps(core.election.name(), term, &steps) => marks?,
            () = core.clock.sleep_until(limit) => return Err(silent()),
        };
        if marks.len() == steps.len() { Ok(marks) } else { Err(odd()) }
    }

    /// Passes the answers on, and keeps what has to be asked again.
    fn answer(&mut self, marks: Vec<Marked>) {
        let mut again = Vec::new();
        for (entry, marked) in self.waiting.drain(..).zip(marks) {
            if marked == Marked::Busy {
                again.push(entry);
            } else if let Some(answer) = entry.answer {
                let _asker_gone = answer.send(marked);
            }
        }
        self.waiting = again;
    }

    async fn sleep(&self, span: Duration) {
        let clock = &self.core.clock;
        clock.sleep_until(clock.now() + span).await;
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable, "the store does not answer; is it running?")
}

fn odd() -> Error {
    Error::new(ErrorKind::Corrupt, "the ledger left out a step; report this as a bug")
}
