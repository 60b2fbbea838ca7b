//! What people have had become of jobs, and ticks that wait for their next attempt.

use std::time::Duration;

use tenure::{Error, Time};
use tenure_core::{LedgerStep, Tick, TickRecord};

use super::due::Why;
use super::{Engine, by_name};
use crate::CronEvent;

impl Engine {
    /// Looks what others have written into the ledger: requests, pauses and the like. If leadership
    /// is lost over it, that is noticed elsewhere.
    pub(super) async fn look_for_news(&mut self) -> Result<(), Error> {
        if self.look_for_steered().await? && self.look_for_open().await? {
            self.look_at_clock();
        }
        Ok(())
    }

    async fn look_for_steered(&mut self) -> Result<bool, Error> {
        let core = self.core.clone();
        let name = core.election.name();
        let Some(latest) = self.read(|| async { core.ledger()?.latest(name).await }).await? else {
            return Ok(false);
        };
        let (latest, now) = (by_name(latest), core.wall.now_unix_ms());
        let mut changed = Vec::new();
        for (name, state) in &mut self.jobs {
            if latest.get(name).is_some_and(|progress| state.steered(progress, now)) {
                changed.push((name.clone(), state.is_paused()));
            }
        }
        if !changed.is_empty() {
            self.set_timers();
        }
        for (job, paused) in changed {
            tracing::info!(election = %core.election.name(), job, paused, "a job was steered");
            self.advance(&job);
        }
        Ok(true)
    }

    /// The ledger refused a claim, because the job was paused meanwhile. What was scheduled is left
    /// out; what was open stays so until the pause is over.
    pub(super) fn paused(&mut self, tick: Tick, why: Why) {
        let Some(state) = self.jobs.get_mut(&tick.job) else { return };
        state.pause();
        if why == Why::Retry {
            self.retries.insert((self.core.clock.now(), tick));
            return;
        }
        self.is_over(&tick);
        if why == Why::Scheduled {
            let through = tick.scheduled_unix_ms;
            return self.leave_out(tick, through, 1);
        }
        if let Some(state) = self.jobs.get_mut(&tick.job) {
            let taken = state.take(tick.scheduled_unix_ms, why);
            state.add(taken);
        }
    }

    /// Takes over a tick whose last attempt failed under a former leader.
    pub(super) fn take_retry(&mut self, record: TickRecord) {
        let TickRecord { tick, attempt, ended_unix_ms, .. } = record;
        let Some(state) = self.jobs.get_mut(&tick.job) else { return };
        if !state.job.tries_again(attempt) {
            self.core.tell(CronEvent::Abandoned { tick: tick.clone() });
            return self.writer.note(LedgerStep::Abandon { tick });
        }
        if state.take_retry(tick.scheduled_unix_ms) {
            // By two wall clocks, so never more than the whole of it.
            let whole = state.job.wait_after(attempt);
            let passed = self.core.wall.now_unix_ms() - ended_unix_ms.unwrap_or(i64::MIN / 2);
            let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0));
            self.retries.insert((self.core.clock.now() + whole.saturating_sub(passed), tick));
        }
    }

    /// When the first of those that wait for their next attempt may begin.
    pub(super) fn next_retry(&self) -> Option<Time> {
        let may_begin = |tick: &Tick| self.jobs.get(&tick.job).is_none_or(|job| !job.is_paused());
        self.retries.iter().find(|(_, tick)| may_begin(tick)).map(|(at, _)| *at)
    }

    /// Begins the attempts that have waited long enough.
    pub(super) fn retry(&mut self) {
        let now = self.core.clock.now();
        let due: Vec<_> = self.retries.iter().take_while(|(at, _)| *at <= now).cloned().collect();
        for (at, tick) in due {
            let paused = self.jobs.get(&tick.job).is_some_and(|state| state.is_paused());
            if paused {
                continue;
            }
            self.retries.remove(&(at, tick.clone()));
            match self.known.get(&tick.job).cloned() {
                Some(job) => self.begin(tick, job, Why::Retry),
                None => {
                    self.is_over(&tick);
                    self.leave_open(tick);
                }
            }
        }
    }
}
