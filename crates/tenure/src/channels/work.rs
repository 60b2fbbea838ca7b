//! The tasks that run handlers: one per channel and reign, one message at a time.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::{
    Acknowledged, BoxFuture, ChannelBacklog, Delivery, Error, Store, Taken, show_duration,
};
use tokio::sync::{Notify, mpsc};

use super::handling::Handling;
use super::meter::MailMeter;
use super::{Message, PostHandler, carrier, count};
use crate::callback::{Callback, begin, said};
use crate::command::{Command, WeakCommands};
use crate::sabotage::Fault;
use crate::shared::{Phase, Reign, Shared};

/// How often a channel is looked at without a hint.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the backlog is counted, for metrics.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// How long to wait before a failed message or call is tried again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How often and for how long a post is tried.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) tries: u32,
    pub(super) timeout: Duration,
}

/// One channel in one reign.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) reign: Arc<Reign>,
    pub(super) commands: WeakCommands,
    pub(super) id: u64,
    pub(super) channel: String,
    pub(super) meter: Arc<MailMeter>,
}

/// Handles notices, in order, until the reign is stepped down from.
pub(super) async fn handle_notices(
    worker: Worker,
    handler: Callback<Message>,
    mut notices: mpsc::Receiver<String>,
) {
    loop {
        let payload = tokio::select! {
            biased;
            () = worker.stepped_down() => return,
            payload = notices.recv() => match payload {
                Some(payload) => payload,
                None => return,
            },
        };
        let Some(work) = worker.enter() else { return };
        let _work = worker.counted(work);
        let message = Message {
            channel: worker.channel.clone(),
            payload,
            term: worker.reign.term,
            attempt: 1,
            id: None,
            key: None,
            reign: worker.handling(),
        };
        let handled = async {
            match begin("on_notify", Some(&handler), message)? {
                Some(rest) => rest.await,
                None => Ok(()),
            }
        };
        tokio::select! {
            biased;
            () = worker.over() => return,
            handled = handled => worker.note(handled.map_err(|error| error.message().to_owned())),
        }
    }
}

/// Handles posts, in order, until the reign is stepped down from.
pub(super) async fn handle_posts(
    worker: Worker,
    handler: PostHandler,
    store: Arc<dyn Store>,
    bell: Arc<Notify>,
    limits: Limits,
) {
    let Ok(carrier) = carrier(&*store) else { return };
    let (election, term) = (&worker.shared.election, worker.reign.term);
    let mut failures = 0;
    loop {
        let Some(work) = worker.enter() else { return };
        let work = worker.counted(work);
        let taken = tokio::select! {
            biased;
            () = worker.stepped_down() => return,
            taken = carrier.take(election, term, &worker.channel, limits.tries) => taken,
        };
        let (rest, pause) = match taken {
            Ok(Taken::Message(delivery)) => {
                failures = 0;
                let (id, times) = (delivery.id, delivery.count);
                if worker.shared.faults.has(Fault::AcknowledgesFirst) {
                    worker.acknowledge(&*store, id).await;
                }
                let handled = worker.handle_post(&handler, delivery, limits.timeout).await;
                let Some(handled) = handled else { return };
                if handled.is_ok() {
                    worker.acknowledge(&*store, id).await;
                }
                let failed = handled.is_err();
                worker.note(handled);
                (failed, pause_after(times))
            }
            Ok(Taken::Empty) => {
                failures = 0;
                (true, LOOK_EVERY)
            }
            // The driver learns it from its next renewal; nothing can be done here.
            Ok(_) => (true, LOOK_EVERY),
            Err(error) => {
                failures += 1;
                worker.trouble("posts can't be taken for now", failures, &error);
                (true, pause_after(failures))
            }
        };
        // While it waits it is no work that the lease would be kept for.
        drop(work);
        let empty = pause == LOOK_EVERY;
        if rest && !worker.rest(pause, empty.then_some(&*bell)).await {
            return;
        }
    }
}

/// Counts what waits, for metrics, until the reign is stepped down from. It is no work that the
/// lease would be kept for.
pub(super) async fn watch_backlog(worker: Worker, store: Arc<dyn Store>) {
    /// A follower has no backlog to show, also if this is dropped.
    struct Shown(Arc<MailMeter>);
    impl Drop for Shown {
        fn drop(&mut self) {
            self.0.backlog(None);
        }
    }
    let Ok(carrier) = carrier(&*store) else { return };
    let shown = Shown(worker.meter.clone());
    let mut failures = 0;
    loop {
        let backlog = tokio::select! {
            biased;
            () = worker.stepped_down() => return,
            backlog = carrier.backlog(&worker.shared.election) => backlog,
        };
        match backlog {
            Ok(channels) => {
                failures = 0;
                let sum = |count: fn(&ChannelBacklog) -> u64| channels.iter().map(count).sum();
                shown.0.backlog(Some((sum(|one| one.waiting), sum(|one| one.dead))));
            }
            Err(error) => {
                failures += 1;
                worker.trouble("the backlog can't be counted for now", failures, &error);
            }
        }
        if !worker.rest(COUNT_EVERY, None).await {
            return;
        }
    }
}

impl Worker {
    /// Begins to work, if this reign is on.
    fn enter(&self) -> Option<Work<'_>> {
        let leads = *self.reign.phase.borrow() == Phase::Leading && self.shared.leads();
        // Made only if it has entered: dropping it leaves.
        (leads && self.reign.enter()).then(|| Work(self))
    }

    /// Keeps the work, unless it is forgotten on purpose.
    fn counted<'a>(&self, work: Work<'a>) -> Option<Work<'a>> {
        Some(work).filter(|_| !self.shared.faults.has(Fault::HandlerUncounted))
    }

    fn handling(&self) -> Handling {
        Handling { shared: self.shared.clone(), reign: self.reign.clone() }
    }

    async fn stepped_down(&self) {
        self.reign.phase.wait_for(|phase| *phase != Phase::Leading).await;
    }

    async fn over(&self) {
        self.reign.phase.wait_for(|phase| matches!(phase, Phase::Over(_))).await;
    }

    /// Runs the handler; `None` if trust has ended first.
    async fn handle_post(
        &self,
        handler: &PostHandler,
        delivery: Delivery,
        timeout: Duration,
    ) -> Option<Result<(), String>> {
        let message = Message {
            channel: self.channel.clone(),
            payload: delivery.payload,
            term: self.reign.term,
            attempt: delivery.count,
            id: Some(delivery.id),
            key: Some(delivery.key),
            reign: self.handling(),
        };
        let handled = match catch_unwind(AssertUnwindSafe(|| handler(message))) {
            Ok(rest) => Caught(Some(rest)),
            Err(panic) => return Some(Err(format!("it panicked: {}", said(&*panic)))),
        };
        tokio::select! {
            biased;
            () = self.over() => None,
            handled = handled => Some(handled),
            () = self.pause(timeout) => Some(Err(format!(
                "its handler took longer than {} and was dropped; it is tried again (post_timeout \
                 allows more)",
                show_duration(timeout)
            ))),
        }
    }

    /// Acknowledges until the store has said something, or trust has ended.
    async fn acknowledge(&self, store: &dyn Store, id: u64) {
        let (election, term) = (&self.shared.election, self.reign.term);
        for failures in 1.. {
            let asked =
                async { carrier(store)?.acknowledge(election, term, &self.channel, id).await };
            let answer = tokio::select! {
                biased;
                () = self.over() => return,
                answer = asked => answer,
            };
            match answer {
                Ok(Acknowledged::Stale) => {
                    let (election, channel) = (election.as_str(), &self.channel);
                    tracing::warn!(
                        election, channel, id, %term,
                        "a post was handled too late to be acknowledged; it is handled again"
                    );
                    return;
                }
                Ok(answer) => {
                    let (election, channel) = (election.as_str(), &self.channel);
                    tracing::debug!(election, channel, id, %term, ?answer, "a post is off");
                    return;
                }
                Err(error) => {
                    self.trouble("a post can't be acknowledged for now", failures, &error);
                    tokio::select! {
                        biased;
                        () = self.over() => return,
                        () = self.pause(pause_after(failures)) => {}
                    }
                }
            }
        }
    }

    /// Waits; `false` if the reign is stepped down from meanwhile.
    async fn rest(&self, span: Duration, bell: Option<&Notify>) -> bool {
        let rung = async {
            match bell {
                Some(bell) => bell.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stepped_down() => false,
            () = rung => true,
            () = self.pause(span) => true,
        }
    }

    async fn pause(&self, span: Duration) {
        let clock = &self.shared.clock;
        clock.sleep_until(clock.now() + span).await;
    }

    /// Counts how a message ended.
    fn note(&self, handled: Result<(), String>) {
        let counts = &self.shared.counts;
        match handled {
            Ok(()) => {
                count(&counts.handled);
                self.meter.handled();
            }
            Err(error) => {
                count(&counts.failed);
                self.meter.failed();
                let (election, channel) = (self.shared.election.as_str(), &self.channel);
                let term = self.reign.term;
                tracing::warn!(election, channel, %term, %error, "a message was not handled");
            }
        }
    }

    /// Says it the first time, and then in a whisper.
    fn trouble(&self, what: &str, failures: u32, error: &Error) {
        let (election, channel) = (self.shared.election.as_str(), &self.channel);
        if failures == 1 {
            tracing::warn!(election, channel, %error, "{what}");
        } else {
            tracing::debug!(election, channel, %error, failures, "{what}");
        }
    }
}

/// Work under the reign: waited for before the lease is given back.
struct Work<'a>(&'a Worker);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let Worker { shared, reign, commands, id, .. } = self.0;
        if reign.exit()
            && shared.is_here()
            && let Some(commands) = commands.upgrade()
        {
            let _gone = commands.send(Command::WorkEnded { id: *id, term: reign.term });
        }
    }
}

/// A handler's future, with its panics caught; also the panic of what it leaves behind when it is
/// dropped.
struct Caught(Option<BoxFuture<'static, Result<(), String>>>);

impl Future for Caught {
    type Output = Result<(), String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Some(rest) = &mut self.0 else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| rest.as_mut().poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Err(format!("it panicked: {}", said(&*panic)))),
        }
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        let rest = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(rest))).is_err() {
            tracing::error!("what a handler left behind panicked when it was dropped; fix it");
        }
    }
}

fn pause_after(failures: u32) -> Duration {
    let (first, longest) = PAUSE;
    first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest)
}
