//! The life of one tick under one reign: claimed, checked, run, ended. That it has started is noted
//! while it runs: a claim is enough to keep everybody else from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure::{Fault, Tenure};
use tenure_core::{BoxFuture, LedgerStep, Marked, Tick, TickEnd, Transactions};
use tokio::sync::{oneshot, watch};

use crate::cron::Core;
use crate::ledger_writer::LedgerWriter;
use crate::{CronEvent, Delivery, Job, Outcome, Run};

/// The exit code of work that panicked, as of a program that does.
const PANICKED: i32 = 101;

/// What comes after a life.
pub(crate) enum After {
    /// Nothing, as far as this reign goes.
    End,
    /// The next attempt, after a while.
    Retry(Duration),
    /// It did not begin: its job is paused.
    Paused,
}

/// Whether a life begins: the attempt, and the answer to come to the note that it has started.
enum Begun {
    Now(u32, Option<oneshot::Receiver<Marked>>),
    Refused,
    Paused,
}

pub(crate) struct Life {
    pub(crate) core: Arc<Core>,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) writer: LedgerWriter,
    pub(crate) job: Arc<Job>,
    pub(crate) tick: Tick,
    /// What its claim comes to.
    pub(crate) claimed: oneshot::Receiver<Marked>,
    /// Turns true when the work has to end now, because trust is about to.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Life {
    /// Lives it, and listens for the loss from the same task all the while. If the job blocks it,
    /// nobody listens, and the lease is not kept alive for a job that can't be told. The task that
    /// fires the jobs is well then, and would not notice.
    pub(crate) async fn live(self) -> After {
        if self.core.election.faults().has(Fault::JobBellElsewhere) {
            return self.run().await;
        }
        let tenure = self.tenure.clone();
        tokio::select! {
            biased;
            // What comes after the loss is decided elsewhere.
            after = async { tenure.lost().await; std::future::pending().await } => after,
            after = self.run() => after,
        }
    }

    async fn run(mut self) -> After {
        let (attempt, noted) = match self.begin().await {
            Begun::Now(attempt, noted) => (attempt, noted),
            Begun::Refused => return After::End,
            Begun::Paused => return After::Paused,
        };
        let (tick, term) = (self.tick.clone(), self.tenure.term());
        self.core.tell(CronEvent::Started { tick: tick.clone(), term, attempt });
        let outcome = self.work(attempt).await;
        if let Some(noted) = noted {
            // Of one tick there is one step under way. What the answer is, its end will show.
            let _trust_ended = noted.await;
        }
        let (outcome, recorded) = self.end(attempt, outcome).await;
        let retry = recorded && self.is_to_be_retried(attempt, &outcome);
        let retry_in = retry.then(|| self.job.wait_after(attempt));
        self.core.tell(CronEvent::Ended { tick, term, attempt, outcome, recorded, retry_in });
        retry_in.map_or(After::End, After::Retry)
    }

    /// Starts it once it is claimed.
    async fn begin(&mut self) -> Begun {
        let faults = self.core.election.faults();
        if faults.has(Fault::ClaimUnawaited) {
            return Begun::Now(1, None);
        }
        let attempt = match (&mut self.claimed).await {
            Ok(Marked::Done { attempt }) => attempt,
            Ok(Marked::Paused) => return Begun::Paused,
            _ => return self.refused(),
        };
        // K1: between the claim and the start. The process may have been paused in between.
        if !self.tenure.is_leader() && !faults.has(Fault::TickUnchecked) {
            return self.refused();
        }
        let noted = self.writer.enter(LedgerStep::Start { tick: self.tick.clone(), attempt });
        if self.job.delivery != Delivery::Transactional {
            return Begun::Now(attempt, Some(noted));
        }
        // Its own transaction ends the tick, and must not meet this step at the same row.
        let is_ours = matches!(noted.await, Ok(Marked::Done { .. })) && self.tenure.is_leader();
        if is_ours { Begun::Now(attempt, None) } else { self.refused() }
    }

    fn refused(&self) -> Begun {
        let (tick, term) = (self.tick.clone(), self.tenure.term());
        self.core.tell(CronEvent::Refused { tick, term });
        Begun::Refused
    }

    /// That its leader was lost is no failure.
    fn is_to_be_retried(&self, attempt: u32, outcome: &Outcome) -> bool {
        let failed = matches!(outcome, Outcome::Failed { .. } | Outcome::TimedOut);
        failed && self.job.tries_again(attempt)
    }

    /// Runs the work until it ends, takes too long, or has to end.
    async fn work(&mut self, attempt: u32) -> Outcome {
        let run = Run {
            tick: self.tick.clone(),
            attempt,
            // No schedule has such an instant, and every request has.
            manual: self.tick.scheduled_unix_ms % 1_000 != 0,
            tenure: self.tenure.clone(),
        };
        let Ok(work) = catch_unwind(AssertUnwindSafe(|| self.job.begin(run))) else {
            return panicked();
        };
        let clock = &self.core.clock;
        let limit = self.job.timeout.map(|timeout| clock.now() + timeout);
        let time_out = async {
            match limit {
                Some(limit) => clock.sleep_until(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = Caught(Some(work)) => outcome,
            _ = self.stop.wait_for(|stop| *stop) => Outcome::Lost,
            () = time_out => Outcome::TimedOut,
        }
    }

    /// Has the ledger know; tells whether it does.
    async fn end(&self, attempt: u32, outcome: Outcome) -> (Outcome, bool) {
        let tick = self.tick.clone();
        let delivery = self.job.delivery;
        if outcome == Outcome::Lost && delivery != Delivery::AtMostOnce {
            // Left open: the next leader runs it again.
            return (outcome, false);
        }
        let transactions = self.core.ledger().map_or(Transactions::None, |it| it.transactions());
        let in_transaction =
            delivery == Delivery::Transactional && transactions == Transactions::Same;
        if in_transaction && self.core.election.faults().has(Fault::ConfirmUnasked) {
            return (outcome, true);
        }
        let outcome = if outcome == Outcome::Ok && in_transaction {
            let confirm = LedgerStep::Confirm { tick: tick.clone(), attempt };
            match self.writer.step(confirm).await {
                Some(Marked::Done { .. }) => return (Outcome::Ok, true),
                Some(_) => Outcome::Failed {
                    code: 1,
                    reason: "its transaction did not end the tick; call tenure_tick in it"
                        .to_owned(),
                },
                None => return (outcome, false),
            }
        } else {
            outcome
        };
        let end: TickEnd = outcome.end();
        let step = if self.is_to_be_retried(attempt, &outcome) {
            let code = match end {
                TickEnd::Failed(code) => Some(code),
                _ => None,
            };
            LedgerStep::Retry { tick, attempt, code }
        } else {
            LedgerStep::End { tick, attempt, end }
        };
        let marked = self.writer.step(step).await;
        (outcome, matches!(marked, Some(Marked::Done { .. })))
    }
}

/// The work, whose panic is an outcome like others; also the panic of what it leaves behind when
/// it is dropped.
struct Caught(Option<BoxFuture<'static, Outcome>>);

impl Future for Caught {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(panicked()))
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        let work = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(work))).is_err() {
            tracing::error!("what a job left behind panicked when it was dropped; fix it");
        }
    }
}

fn panicked() -> Outcome {
    Outcome::Failed { code: PANICKED, reason: "the work panicked".to_owned() }
}
