//! The cron ledger of the memory store: records in a map, judged under the lock of the leases.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::{
    BoxFuture, Error, JobProgress, LEDGER_OPEN_MAX, Ledger, LedgerStep, Marked, Name, OnceMark,
    OnceRecord, OnceStep, STEER_AHEAD_MS, Steer, Term, Tick, TickEnd, TickRecord, TickState,
    Transactions, decide_once,
};

use super::MemoryStore;

/// All that is known of the ticks of all elections.
#[derive(Default)]
pub(crate) struct Ledgers {
    elections: HashMap<Name, ElectionLedger>,
    /// What shows the time of day, if not the system.
    pub(super) wall: Option<Wall>,
}

/// The time of day, in milliseconds since 1970.
pub(super) type Wall = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The ticks of one election.
#[derive(Default)]
struct ElectionLedger {
    records: BTreeMap<Tick, TickRecord>,
    latest: BTreeMap<String, JobProgress>,
    keys: BTreeMap<String, OnceRecord>,
}

impl Ledgers {
    pub(crate) fn record(
        &mut self,
        election: &Name,
        term: Term,
        steps: &[LedgerStep],
    ) -> Vec<Marked> {
        let now = self.unix_ms();
        let ledger = self.elections.entry(election.clone()).or_default();
        steps.iter().map(|step| ledger.step(term, now, step)).collect()
    }

    fn request(&mut self, election: &Name, job: &str) -> Tick {
        let mut tick = Tick::new(job, self.unix_ms());
        let ledger = self.elections.entry(election.clone()).or_default();
        // At no whole second: a schedule has those.
        while ledger.records.contains_key(&tick) || tick.scheduled_unix_ms % 1_000 == 0 {
            tick.scheduled_unix_ms += 1;
        }
        let mut record = TickRecord::new(tick.clone(), TickState::Requested);
        record.manual = true;
        ledger.records.insert(tick.clone(), record);
        tick
    }

    fn steer(&mut self, election: &Name, job: &str, steer: Steer) -> bool {
        let now = self.unix_ms();
        let ledger = self.elections.entry(election.clone()).or_default();
        let Some(progress) = ledger.latest.get_mut(job) else { return false };
        match steer {
            Steer::Pause => drop(progress.paused_unix_ms.get_or_insert(now)),
            Steer::Resume => {
                if progress.paused_unix_ms.take().is_some() {
                    progress.latest_unix_ms = progress.latest_unix_ms.max(now);
                }
            }
            _ => {
                let ahead = now + STEER_AHEAD_MS;
                if progress.latest_unix_ms > ahead {
                    (progress.latest_unix_ms, progress.anew_unix_ms) = (now, Some(now));
                    ledger.records.retain(|tick, record| {
                        tick.job != job || tick.scheduled_unix_ms <= ahead || record.state.is_open()
                    });
                }
            }
        }
        true
    }

    fn once(&mut self, election: &Name, term: Term, step: &OnceStep) -> OnceMark {
        let now = self.unix_ms();
        let keys = &mut self.elections.entry(election.clone()).or_default().keys;
        let (mark, record) = decide_once(keys.get(step.key()), term, Some(now), step);
        if let Some(record) = record {
            keys.insert(record.key.clone(), record);
        }
        mark
    }

    fn once_record(&self, election: &Name, key: &str) -> Option<OnceRecord> {
        self.elections.get(election)?.keys.get(key).cloned()
    }

    fn once_history(&self, election: &Name, limit: usize) -> Vec<OnceRecord> {
        let keys = self.elections.get(election).map(|ledger| ledger.keys.values());
        let mut all: Vec<OnceRecord> = keys.into_iter().flatten().cloned().collect();
        all.sort_by_key(|record| std::cmp::Reverse(record.claimed_unix_ms));
        all.truncate(limit);
        all
    }

    fn open(&self, election: &Name, after: Option<&Tick>) -> Vec<TickRecord> {
        let place = |tick: &Tick| (tick.scheduled_unix_ms, tick.job.clone());
        let after = after.map(place);
        let is_next = |tick: &Tick| after.as_ref().is_none_or(|after| place(tick) > *after);
        let mut open =
            self.select(election, |record| record.state.is_open() && is_next(&record.tick));
        open.sort_by_key(|record| place(&record.tick));
        open.truncate(LEDGER_OPEN_MAX);
        open
    }

    fn latest(&self, election: &Name) -> Vec<JobProgress> {
        let latest = self.elections.get(election).map(|ledger| ledger.latest.values());
        latest.into_iter().flatten().cloned().collect()
    }

    fn history(&self, election: &Name, job: Option<&str>, limit: usize) -> Vec<TickRecord> {
        let mut all = self.select(election, |record| job.is_none_or(|job| record.tick.job == job));
        all.sort_by_key(|record| std::cmp::Reverse(record.tick.scheduled_unix_ms));
        all.truncate(limit);
        all
    }

    fn select(&self, election: &Name, wanted: impl Fn(&TickRecord) -> bool) -> Vec<TickRecord> {
        let records = self.elections.get(election).map(|ledger| ledger.records.values());
        records.into_iter().flatten().filter(|record| wanted(record)).cloned().collect()
    }

    fn unix_ms(&self) -> i64 {
        self.wall.as_ref().map_or_else(unix_ms, |wall| wall())
    }
}

impl ElectionLedger {
    fn step(&mut self, term: Term, now: i64, step: &LedgerStep) -> Marked {
        match step {
            LedgerStep::Claim { tick, again } => self.claim(term, now, tick, *again),
            LedgerStep::Start { tick, attempt } => self.running(term, tick, *attempt, |record| {
                record.started_unix_ms = Some(now);
                record.state = TickState::Started;
            }),
            LedgerStep::End { tick, attempt, end } => {
                let state = match end {
                    TickEnd::Lost => TickState::Abandoned,
                    end => TickState::Finished(*end),
                };
                let ended = self.records.get(tick).filter(|record| record.state == state);
                if ended.is_some_and(|it| it.attempt == *attempt && it.term == Some(term)) {
                    return Marked::Done { attempt: *attempt };
                }
                self.running(term, tick, *attempt, |record| {
                    record.ended_unix_ms = Some(now);
                    record.state = state;
                })
            }
            LedgerStep::Retry { tick, attempt, code } => {
                let state = TickState::Retrying { code: *code };
                let noted = self.records.get(tick).filter(|record| record.state == state);
                if noted.is_some_and(|it| it.attempt == *attempt && it.term == Some(term)) {
                    return Marked::Done { attempt: *attempt };
                }
                self.running(term, tick, *attempt, |record| {
                    record.ended_unix_ms = Some(now);
                    record.state = state;
                })
            }
            LedgerStep::Confirm { tick, attempt } => match self.records.get(tick) {
                Some(record)
                    if record.state == TickState::Finished(TickEnd::Ok)
                        && record.attempt == *attempt =>
                {
                    Marked::Done { attempt: *attempt }
                }
                _ => Marked::Refused,
            },
            LedgerStep::Skip { tick, through_unix_ms, count } => {
                let (through_unix_ms, count) = (*through_unix_ms, *count);
                self.skip(term, now, tick, TickState::Skipped { through_unix_ms, count })
            }
            LedgerStep::Follow { job, schedule, from_unix_ms } => {
                self.note(job, *from_unix_ms).schedule = Some(schedule.clone());
                Marked::Done { attempt: 0 }
            }
            LedgerStep::Abandon { tick } => self.abandon(term, now, tick),
            LedgerStep::Trim { job, keep } => self.trim(job, *keep),
            _ => Marked::Refused,
        }
    }

    fn claim(&mut self, term: Term, now: i64, tick: &Tick, again: bool) -> Marked {
        let attempt = match self.records.get(tick) {
            None => 1,
            Some(record) => match record.state {
                TickState::Requested => 1,
                TickState::Claimed if record.term == Some(term) => {
                    return Marked::Done { attempt: record.attempt };
                }
                TickState::Claimed | TickState::Started if again && record.term != Some(term) => {
                    record.attempt + 1
                }
                TickState::Retrying { .. } => record.attempt + 1,
                _ => return Marked::Refused,
            },
        };
        let manual = self.records.get(tick).is_some_and(|record| record.manual);
        let progress = self.latest.get(&tick.job);
        if !manual && progress.is_some_and(|progress| progress.paused_unix_ms.is_some()) {
            return Marked::Paused;
        }
        if !manual {
            self.note(&tick.job, tick.scheduled_unix_ms);
        }
        let mut record = TickRecord::new(tick.clone(), TickState::Claimed);
        record.manual = manual;
        record.term = Some(term);
        record.attempt = attempt;
        record.claimed_unix_ms = Some(now);
        self.records.insert(tick.clone(), record);
        Marked::Done { attempt }
    }

    /// Changes a tick that is claimed or started under this term and attempt.
    fn running(
        &mut self,
        term: Term,
        tick: &Tick,
        attempt: u32,
        change: impl FnOnce(&mut TickRecord),
    ) -> Marked {
        match self.records.get_mut(tick) {
            Some(record)
                if matches!(record.state, TickState::Claimed | TickState::Started)
                    && record.term == Some(term)
                    && record.attempt == attempt =>
            {
                change(record);
                Marked::Done { attempt }
            }
            _ => Marked::Refused,
        }
    }

    fn skip(&mut self, term: Term, now: i64, tick: &Tick, state: TickState) -> Marked {
        let TickState::Skipped { through_unix_ms, .. } = state else { return Marked::Refused };
        match self.records.get(tick) {
            None => {}
            Some(record) if matches!(record.state, TickState::Skipped { .. }) => {
                return Marked::Done { attempt: 0 };
            }
            Some(_) => return Marked::Refused,
        }
        self.note(&tick.job, tick.scheduled_unix_ms.max(through_unix_ms));
        let mut record = TickRecord::new(tick.clone(), state);
        record.term = Some(term);
        record.ended_unix_ms = Some(now);
        self.records.insert(tick.clone(), record);
        Marked::Done { attempt: 0 }
    }

    fn abandon(&mut self, term: Term, now: i64, tick: &Tick) -> Marked {
        match self.records.get_mut(tick) {
            Some(record) if record.state == TickState::Abandoned => {
                Marked::Done { attempt: record.attempt }
            }
            Some(record)
                if matches!(record.state, TickState::Requested | TickState::Retrying { .. })
                    || record.state.is_open() && record.term != Some(term) =>
            {
                record.state = TickState::Abandoned;
                record.ended_unix_ms = Some(now);
                Marked::Done { attempt: record.attempt }
            }
            _ => Marked::Refused,
        }
    }

    fn trim(&mut self, job: &str, keep: u32) -> Marked {
        let from = Tick::new(job, i64::MIN);
        let of_job = self.records.range(from..).take_while(|(tick, _)| tick.job == job);
        let ticks: Vec<Tick> = of_job.map(|(tick, _)| tick.clone()).collect();
        let excess = ticks.len().saturating_sub(keep as usize);
        for tick in &ticks[..excess] {
            if self.records.get(tick).is_some_and(|record| !record.state.is_open()) {
                self.records.remove(tick);
            }
        }
        Marked::Done { attempt: 0 }
    }

    fn note(&mut self, job: &str, at: i64) -> &mut JobProgress {
        let new = || JobProgress::new(job, at);
        let progress = self.latest.entry(job.to_owned()).or_insert_with(new);
        progress.latest_unix_ms = at.max(progress.latest_unix_ms);
        progress
    }
}

impl Ledger for MemoryStore {
    fn transactions(&self) -> Transactions {
        Transactions::None
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        Box::pin(async move {
            Ok(self.under_term(election, term, |ledgers| match ledgers {
                Some(ledgers) => ledgers.record(election, term, steps),
                None => vec![Marked::Stale; steps.len()],
            }))
        })
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(async move {
            let tick = self.ledgers(|ledgers| ledgers.request(election, job));
            self.hint(std::slice::from_ref(election));
            Ok(tick)
        })
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let known = self.ledgers(|ledgers| ledgers.steer(election, job, steer));
            self.hint(std::slice::from_ref(election));
            Ok(known)
        })
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move { Ok(self.ledgers(|ledgers| ledgers.open(election, after))) })
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(async move { Ok(self.ledgers(|ledgers| ledgers.latest(election))) })
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(async move { Ok(self.ledgers(|ledgers| ledgers.history(election, job, limit))) })
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        Box::pin(async move {
            Ok(self.under_term(election, term, |ledgers| match ledgers {
                Some(ledgers) => ledgers.once(election, term, step),
                None => OnceMark::Stale,
            }))
        })
    }

    fn once_record<'a>(
        &'a self,
        election: &'a Name,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>> {
        Box::pin(async move { Ok(self.ledgers(|ledgers| ledgers.once_record(election, key))) })
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        Box::pin(async move { Ok(self.ledgers(|ledgers| ledgers.once_history(election, limit))) })
    }
}

/// The wall clock, for people to read and for requests to be told apart.
#[expect(clippy::disallowed_methods, reason = "display only; nothing is decided by it")]
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
