//! The life of one tick under one reign: claimed, checked, started, run, ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use tenure::Tenure;
use tenure_core::{BoxFuture, LedgerStep, Marked, Tick, TickEnd, Transactions};
use tokio::sync::watch;

use super::due::Why;
use crate::cron::Core;
use crate::scribe::Scribe;
use crate::{CronEvent, Delivery, Job, Outcome, Run};

/// The exit code of work that panicked, as of a program that does.
const PANICKED: i32 = 101;

pub(crate) struct Life {
    pub(crate) core: Arc<Core>,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) scribe: Scribe,
    pub(crate) job: Arc<Job>,
    pub(crate) tick: Tick,
    pub(crate) why: Why,
    /// Turns true when the work has to end now, because trust is about to.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Life {
    /// Lives it; returns which tick it was.
    pub(crate) async fn live(mut self) -> Tick {
        if let Some(attempt) = self.begin().await {
            self.core.tell(CronEvent::Started {
                tick: self.tick.clone(),
                term: self.tenure.term(),
                attempt,
            });
            let outcome = self.work(attempt).await;
            let (outcome, recorded) = self.end(attempt, outcome).await;
            self.core.tell(CronEvent::Ended {
                tick: self.tick.clone(),
                term: self.tenure.term(),
                attempt,
                outcome,
                recorded,
            });
        }
        self.tick
    }

    /// Claims and starts it; tells the attempt if it is ours to run.
    async fn begin(&self) -> Option<u32> {
        let tick = self.tick.clone();
        let again = self.why == Why::Again;
        let claimed = self.scribe.step(LedgerStep::Claim { tick, again }).await;
        let Some(Marked::Done { attempt }) = claimed else {
            return self.refused();
        };
        // K1: between the claim and the start. The process may have been paused in between.
        if !self.tenure.is_leader() {
            return self.refused();
        }
        let tick = self.tick.clone();
        let started = self.scribe.step(LedgerStep::Start { tick, attempt }).await;
        let is_ours = matches!(started, Some(Marked::Done { .. })) && self.tenure.is_leader();
        if is_ours { Some(attempt) } else { self.refused() }
    }

    fn refused<T>(&self) -> Option<T> {
        let (tick, term) = (self.tick.clone(), self.tenure.term());
        self.core.tell(CronEvent::Refused { tick, term });
        None
    }

    /// Runs the work until it ends, takes too long, or has to end.
    async fn work(&mut self, attempt: u32) -> Outcome {
        let run = Run {
            tick: self.tick.clone(),
            attempt,
            manual: self.why == Why::Requested,
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
            outcome = caught(work) => outcome,
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
        let outcome = if outcome == Outcome::Ok && in_transaction {
            let confirm = LedgerStep::Confirm { tick: tick.clone(), attempt };
            match self.scribe.step(confirm).await {
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
        let marked = self.scribe.step(LedgerStep::End { tick, attempt, end }).await;
        (outcome, matches!(marked, Some(Marked::Done { .. })))
    }
}

/// The work, whose panic is an outcome like others.
async fn caught(mut work: BoxFuture<'static, Outcome>) -> Outcome {
    std::future::poll_fn(move |cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(panicked()))
    })
    .await
}

fn panicked() -> Outcome {
    Outcome::Failed { code: PANICKED, reason: "the work panicked".to_owned() }
}
