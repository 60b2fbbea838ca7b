//! What is due of one job, and what of it is run, queued or left out. Decides; does nothing.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tenure_core::{JobProgress, LedgerStep, STEER_AHEAD_MS};

use crate::{Job, Missed, Overlap};

/// How many runs of one job wait, beside those of a backlog. What comes on top is left out.
const QUEUE_MAX: usize = 1_000;

/// Something to be done about ticks of a job, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Run this one.
    Run { at: i64, why: Why },
    /// Leave these out.
    Skip { from: i64, through: i64, count: u64 },
}

/// Why a tick is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Scheduled,
    /// A former leader did not finish it.
    Again,
    /// Somebody asked for it.
    Requested,
    /// Its last attempt failed.
    Retry,
}

/// How far one job has got in this reign.
pub(crate) struct JobState {
    pub(crate) job: Arc<Job>,
    /// All scheduled instants up to here are dealt with.
    through: i64,
    /// The first scheduled instant after that.
    next: Option<i64>,
    running: usize,
    queue: VecDeque<Pending>,
    /// Ticks that are in the queue or run: none of them is taken twice.
    in_hand: HashSet<i64>,
    /// Nothing of its schedule begins.
    paused: bool,
    /// From when on somebody had it count anew last.
    anew: Option<i64>,
    /// Whether it was told that the ledger is ahead of the clock.
    told_ahead: bool,
    /// How many ticks since the ledger was last trimmed.
    since_trim: u32,
}

impl JobState {
    pub(crate) fn new(job: Arc<Job>, through: i64) -> JobState {
        let next = job.schedule.next_after(through);
        JobState {
            job,
            through,
            next,
            running: 0,
            queue: VecDeque::new(),
            in_hand: HashSet::new(),
            paused: false,
            anew: None,
            told_ahead: false,
            since_trim: 0,
        }
    }

    /// What the ledger has of a job, taken up by a new leader at `now`. A job that it has nothing
    /// of is new, and so is a schedule that is another than the ledger has: both count from `now`
    /// on. A schedule that was never noted counts as unchanged. Returns what the ledger is to know.
    pub(crate) fn adopt(
        job: Arc<Job>,
        progress: Option<&JobProgress>,
        now: i64,
    ) -> (JobState, Option<LedgerStep>) {
        let words = job.schedule.words();
        let latest = progress.map(|progress| progress.latest_unix_ms);
        let noted = progress.and_then(|progress| progress.schedule.as_deref());
        let through = match (latest, noted) {
            (Some(latest), Some(noted)) if noted == words => latest,
            (Some(latest), None) => latest,
            (Some(latest), Some(_)) => latest.max(now),
            (None, _) => now,
        };
        let mut state = JobState::new(job, through);
        state.paused = progress.is_some_and(|progress| progress.paused_unix_ms.is_some());
        state.anew = progress.and_then(|progress| progress.anew_unix_ms);
        let follow = (noted != Some(words.as_str())).then(|| state.follow());
        (state, follow)
    }

    /// What somebody has had become of it since; tells whether that changed anything.
    pub(crate) fn steered(&mut self, progress: &JobProgress, now: i64) -> bool {
        let paused = progress.paused_unix_ms.is_some();
        let changed = paused != self.paused || progress.anew_unix_ms != self.anew;
        if paused && !self.paused {
            self.pause();
        }
        self.paused = paused;
        let anew = progress.anew_unix_ms.filter(|_| progress.anew_unix_ms != self.anew);
        self.anew = progress.anew_unix_ms;
        // As in the ledger: what clocks differ by is no reason to run anything again.
        if let Some(from) = anew.filter(|_| self.through > now.saturating_add(STEER_AHEAD_MS)) {
            self.queue.retain(|one| match one {
                Pending::Run { at, why: Why::Scheduled } if *at > from => {
                    self.in_hand.remove(at);
                    false
                }
                Pending::Skip { from: first, .. } => *first <= from,
                Pending::Run { .. } => true,
            });
            self.through = from;
            self.next = self.job.schedule.next_after(from);
        }
        changed
    }

    /// Nothing of its schedule begins from now on, and what waits to begin is left out.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
        for one in std::mem::take(&mut self.queue) {
            let one = match one {
                Pending::Run { at, why: Why::Scheduled } => {
                    self.in_hand.remove(&at);
                    Pending::Skip { from: at, through: at, count: 1 }
                }
                one => one,
            };
            self.append(one);
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// The same state with the job written anew. A new schedule counts from `now` on, and the
    /// ledger is to know.
    pub(crate) fn replace(&mut self, job: Arc<Job>, now: i64) -> Option<LedgerStep> {
        let same = self.job.schedule.words() == job.schedule.words();
        self.job = job;
        if same {
            return None;
        }
        self.through = self.through.max(now);
        self.next = self.job.schedule.next_after(self.through);
        Some(self.follow())
    }

    fn follow(&self) -> LedgerStep {
        LedgerStep::Follow {
            job: self.job.name.clone(),
            schedule: self.job.schedule.words(),
            from_unix_ms: self.through,
        }
    }

    /// When there is something to do next.
    pub(crate) fn wake_at(&self) -> Option<i64> {
        Some(self.next?.saturating_add(self.job.offset_ms()))
    }

    /// What came due by now.
    pub(crate) fn due(&mut self, now: i64, grace: i64) -> Vec<Pending> {
        let until = now.saturating_sub(self.job.offset_ms());
        let Some(first) = self.next.filter(|first| *first <= until) else { return Vec::new() };
        let after = self.job.schedule.next_after(first);
        if after.is_none_or(|after| after > until) {
            // One tick, as nearly always.
            let late = until - first > grace && self.job.missed == Missed::Skip || self.paused;
            (self.through, self.next) = (first, after);
            return vec![if late {
                Pending::Skip { from: first, through: first, count: 1 }
            } else {
                Pending::Run { at: first, why: Why::Scheduled }
            }];
        }
        self.due_many(first, until, grace)
    }

    /// More than one tick came due: some were missed.
    fn due_many(&mut self, first: i64, until: i64, grace: i64) -> Vec<Pending> {
        let schedule = &self.job.schedule;
        let most = match self.job.missed {
            Missed::RunAll { most } => most as usize,
            Missed::Skip | Missed::RunOnce => 1,
        };
        let mut run = schedule.last_between(self.through, until, most);
        let last = run.last().copied().unwrap_or(first);
        if self.job.missed == Missed::Skip && until - last > grace || self.paused {
            run.clear();
        }
        let mut pending = Vec::new();
        let skip_until = run.first().map_or(until, |run| run - 1);
        if let Some(through) = schedule.last_between(self.through, skip_until, 1).first() {
            let count = schedule.count_between(self.through, skip_until) as u64;
            pending.push(Pending::Skip { from: first, through: *through, count });
        }
        pending.extend(run.into_iter().map(|at| Pending::Run { at, why: Why::Scheduled }));
        self.through = last;
        self.next = schedule.next_after(last);
        pending
    }

    /// Takes over a tick of somebody else's, unless it is in hand already.
    pub(crate) fn take(&mut self, at: i64, why: Why) -> Vec<Pending> {
        if !self.in_hand.insert(at) {
            return Vec::new();
        }
        vec![Pending::Run { at, why }]
    }

    /// Takes over a tick that waits for its next attempt, unless it is in hand already. It counts
    /// as one that runs.
    pub(crate) fn take_retry(&mut self, at: i64) -> bool {
        let taken = self.in_hand.insert(at);
        self.running += usize::from(taken);
        taken
    }

    /// Adds what is to be done. What can be done at once is returned by [`JobState::ready`].
    pub(crate) fn add(&mut self, pending: Vec<Pending>) {
        let backlog = pending.len() > 1;
        for one in pending {
            let one = match one {
                // Somebody asked for it at this very instant.
                Pending::Run { at, why: Why::Scheduled } if self.in_hand.contains(&at) => continue,
                Pending::Run { at, why: Why::Scheduled } if self.is_too_much(backlog) => {
                    Pending::Skip { from: at, through: at, count: 1 }
                }
                one => one,
            };
            if let Pending::Run { at, .. } = one {
                self.in_hand.insert(at);
            }
            self.append(one);
        }
    }

    fn append(&mut self, one: Pending) {
        match (self.queue.back_mut(), one) {
            // Neighbours that are left out are one record.
            (
                Some(Pending::Skip { through, count, .. }),
                Pending::Skip { through: later, count: more, .. },
            ) => {
                *through = later;
                *count += more;
            }
            (_, one) => self.queue.push_back(one),
        }
    }

    /// The next thing to be done now, if there is one. In order, so that what the ledger has of a
    /// job never has a hole. What a former leader left is in the ledger, and stays where it is
    /// while the job is paused.
    pub(crate) fn ready(&mut self) -> Option<Pending> {
        let is_held = |one: &Pending| matches!(one, Pending::Run { why: Why::Again, .. });
        let place = self.queue.iter().position(|one| !self.paused || !is_held(one))?;
        let is_run = matches!(self.queue.get(place)?, Pending::Run { .. });
        if is_run && self.running >= self.job.at_once() {
            return None;
        }
        let ready = self.queue.remove(place);
        self.running += usize::from(is_run);
        ready
    }

    /// A run has ended.
    pub(crate) fn ended(&mut self, at: i64) {
        self.running = self.running.saturating_sub(1);
        self.in_hand.remove(&at);
    }

    /// Whether nothing of it runs or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0 && self.queue.is_empty()
    }

    /// The instant that the ledger has got to, if that is still to come by more than the grace;
    /// once, until the clock has caught up.
    pub(crate) fn newly_ahead(&mut self, now: i64, grace: i64) -> Option<i64> {
        let ahead = self.through.saturating_sub(now) > grace;
        let newly = ahead && !self.told_ahead;
        self.told_ahead = ahead;
        newly.then_some(self.through)
    }

    /// Whether its history is to be trimmed now.
    pub(crate) fn wants_trim(&mut self) -> bool {
        self.since_trim += 1;
        let wants = self.since_trim > (self.job.keep / 10).clamp(1, 100);
        if wants {
            self.since_trim = 0;
        }
        wants
    }

    fn is_too_much(&self, backlog: bool) -> bool {
        let waiting = self.queue.iter().filter(|one| matches!(one, Pending::Run { .. })).count();
        let is_full = self.running + waiting >= self.job.at_once();
        // A backlog has its own limit, and was cut to the latest of it.
        let room = match self.job.missed {
            Missed::RunAll { most } => QUEUE_MAX + most as usize,
            Missed::Skip | Missed::RunOnce => QUEUE_MAX,
        };
        let skips = match self.job.on_overlap() {
            Overlap::Skip => true,
            Overlap::Queue => false,
            Overlap::Allow { .. } => !matches!(self.job.missed, Missed::RunAll { .. }),
        };
        self.queue.len() >= room || !backlog && is_full && skips
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;

    const SECOND: i64 = 1_000;
    const GRACE: i64 = 1_500;

    fn state(missed: Missed, overlap: Overlap) -> JobState {
        let schedule = Schedule::new("* * * * * *", "UTC").unwrap();
        let job = Job::new("j", schedule, |_| async {}).missed(missed).overlap(overlap);
        JobState::new(Arc::new(job), 0)
    }

    fn run(second: i64) -> Pending {
        Pending::Run { at: second * SECOND, why: Why::Scheduled }
    }

    fn skip(from: i64, through: i64) -> Pending {
        let count = (through - from + 1) as u64;
        Pending::Skip { from: from * SECOND, through: through * SECOND, count }
    }

    fn all_ready(state: &mut JobState) -> Vec<Pending> {
        std::iter::from_fn(|| state.ready()).collect()
    }

    #[test]
    fn a_tick_is_due_once_and_not_before_its_instant() {
        let mut state = state(Missed::Skip, Overlap::Skip);
        assert_eq!(state.due(999, GRACE), []);
        assert_eq!(state.due(1000, GRACE), [run(1)]);
        assert_eq!(state.due(1999, GRACE), []);
        assert_eq!(state.wake_at(), Some(2000));
        assert_eq!(state.due(2300, GRACE), [run(2)]);
        // A clock that was set back.
        assert_eq!(state.due(1000, GRACE), []);
    }

    #[test]
    fn missed_ticks_are_left_out_and_the_latest_runs_within_its_grace() {
        let mut state = state(Missed::Skip, Overlap::Skip);
        assert_eq!(state.due(10_200, GRACE), [skip(1, 9), run(10)]);
        assert_eq!(state.due(20_200, 100), [skip(11, 20)]);
        assert_eq!(state.due(21_000, GRACE), [run(21)]);
        assert_eq!(state.due(22_900, 100), [skip(22, 22)]);
    }

    #[test]
    fn run_once_runs_the_latest_however_late() {
        let mut state = state(Missed::RunOnce, Overlap::Skip);
        assert_eq!(state.due(10_999, 0), [skip(1, 9), run(10)]);
        assert_eq!(state.due(11_999, 0), [run(11)]);
    }

    #[test]
    fn run_all_runs_all_up_to_its_cap() {
        let mut state = state(Missed::RunAll { most: 3 }, Overlap::Skip);
        assert_eq!(state.due(2_000, 0), [run(1), run(2)]);
        assert_eq!(state.due(10_000, 0), [skip(3, 7), run(8), run(9), run(10)]);
    }

    #[test]
    fn what_overlaps_is_left_out_queued_or_allowed() {
        let mut skipping = state(Missed::Skip, Overlap::Skip);
        skipping.add(vec![run(1)]);
        assert_eq!(all_ready(&mut skipping), [run(1)]);
        skipping.add(vec![run(2)]);
        assert_eq!(all_ready(&mut skipping), [skip(2, 2)]);
        skipping.ended(1000);
        skipping.add(vec![run(3)]);
        assert_eq!(all_ready(&mut skipping), [run(3)]);

        let mut queueing = state(Missed::Skip, Overlap::Queue);
        queueing.add(vec![run(1)]);
        queueing.add(vec![run(2)]);
        assert_eq!(all_ready(&mut queueing), [run(1)]);
        queueing.ended(1000);
        assert_eq!(all_ready(&mut queueing), [run(2)]);

        let mut allowing = state(Missed::Skip, Overlap::Allow { most: 2 });
        allowing.add(vec![run(1)]);
        allowing.add(vec![run(2)]);
        assert_eq!(all_ready(&mut allowing), [run(1), run(2)]);
        allowing.add(vec![run(3)]);
        assert_eq!(all_ready(&mut allowing), [skip(3, 3)], "two run, and no more are allowed");
        allowing.ended(1000);
        allowing.add(vec![run(4)]);
        assert_eq!(all_ready(&mut allowing), [run(4)]);

        let mut all = state(Missed::RunAll { most: 9 }, Overlap::Allow { most: 2 });
        all.add(vec![run(1), run(2), run(3)]);
        all.add(vec![run(4)]);
        assert_eq!(all_ready(&mut all), [run(1), run(2)]);
        all.ended(1000);
        assert_eq!(all_ready(&mut all), [run(3)], "it waits, and is not left out");
    }

    fn steered(paused: bool, anew: Option<i64>) -> JobProgress {
        let mut progress = JobProgress::new("j", 0);
        progress.paused_unix_ms = paused.then_some(7);
        progress.anew_unix_ms = anew;
        progress
    }

    #[test]
    fn a_pause_leaves_out_what_comes_and_waits_and_holds_what_was_left_open() {
        let mut state = state(Missed::RunAll { most: 9 }, Overlap::Queue);
        let (again, asked) = (state.take(500, Why::Again), state.take(2_500, Why::Requested));
        state.add(vec![run(1)]);
        assert_eq!(all_ready(&mut state), [run(1)]);
        state.add(again.clone());
        state.add(vec![run(2)]);
        assert!(state.steered(&steered(true, None), 2_000) && state.is_paused());
        assert!(!state.steered(&steered(true, None), 2_000), "nothing new");
        assert_eq!(state.due(5_000, 0), [skip(1, 5)]);
        state.add(asked.clone());
        assert_eq!(all_ready(&mut state), [skip(2, 2)]);
        state.ended(1_000);
        assert_eq!(all_ready(&mut state), asked, "what was asked for runs");
        state.ended(2_500);
        assert_eq!(all_ready(&mut state), []);
        assert!(state.steered(&steered(false, None), 5_000));
        assert_eq!(all_ready(&mut state), again);
        assert_eq!(state.due(6_000, 0), [run(6)]);
    }

    #[test]
    fn from_now_on_is_for_a_ledger_that_is_ahead_and_for_no_other() {
        let mut state = state(Missed::Skip, Overlap::Skip);
        assert_eq!(state.due(10_000, 10_000).len(), 2);
        assert!(state.steered(&steered(false, Some(3_000)), 10_000));
        assert_eq!(state.due(10_000, 10_000), [], "seven of them would run twice");
        let ahead = 90 * SECOND;
        assert_eq!(state.due(ahead, GRACE).last(), Some(&run(90)));
        assert!(state.steered(&steered(false, Some(11_000)), 11_000));
        assert_eq!(state.wake_at(), Some(12_000));
        assert_eq!(state.due(12_000, GRACE), [run(12)]);
    }

    #[test]
    fn a_backlog_is_run_one_by_one_and_never_overtaken_by_what_is_left_out() {
        // Asked for in so many words: by default nothing is left out with `run-all`.
        let mut state = state(Missed::RunAll { most: 9 }, Overlap::Skip);
        state.add(vec![run(1), run(2)]);
        assert_eq!(all_ready(&mut state), [run(1)]);
        // Left out because of the overlap, but only once the backlog before it has been claimed.
        state.add(vec![run(3)]);
        state.add(vec![run(4)]);
        assert_eq!(all_ready(&mut state), []);
        state.ended(1000);
        assert_eq!(all_ready(&mut state), [run(2), skip(3, 4)]);
    }

    #[test]
    fn a_queue_has_an_end() {
        let mut state = state(Missed::Skip, Overlap::Queue);
        for second in 1..=2_500 {
            state.add(vec![run(second)]);
        }
        assert_eq!(state.queue.len(), QUEUE_MAX + 1);
        assert_eq!(state.queue.back(), Some(&skip(1001, 2500)));
    }

    #[test]
    fn run_all_runs_its_whole_backlog_and_the_latest_of_it() {
        let mut state = state(Missed::RunAll { most: 3_000 }, Overlap::Skip);
        let due = state.due(5_000 * SECOND, 0);
        state.add(due);
        let mut ran = Vec::new();
        while let Some(ready) = state.ready() {
            if let Pending::Run { at, .. } = ready {
                state.ended(at);
                ran.push(at / SECOND);
            } else {
                assert_eq!(ready, skip(1, 2_000));
            }
        }
        assert_eq!(ran, (2_001..=5_000).collect::<Vec<_>>());
    }

    #[test]
    fn run_all_leaves_nothing_out_by_default() {
        let job = Job::new("j", Schedule::new("* * * * * *", "UTC").unwrap(), |_| async {});
        let mut state = JobState::new(Arc::new(job.missed(Missed::RunAll { most: 9 })), 0);
        // What the last leader left, then the one tick that was missed, then what comes.
        let again = state.take(500, Why::Again);
        state.add(again.clone());
        assert_eq!(all_ready(&mut state), again);
        for second in 1..=3 {
            let due = state.due(second * SECOND, 0);
            state.add(due);
        }
        for second in 1..=3 {
            assert_eq!(all_ready(&mut state), []);
            state.ended(500.max((second - 1) * SECOND));
            assert_eq!(all_ready(&mut state), [run(second)]);
        }
    }

    #[test]
    fn a_tick_that_is_asked_for_at_its_scheduled_instant_is_run_once() {
        for asked_first in [true, false] {
            let mut state = state(Missed::Skip, Overlap::Allow { most: 100 });
            if asked_first {
                let asked = state.take(SECOND, Why::Requested);
                state.add(asked);
            }
            let due = state.due(SECOND, GRACE);
            state.add(due);
            if !asked_first {
                let asked = state.take(SECOND, Why::Requested);
                state.add(asked);
            }
            assert_eq!(all_ready(&mut state).len(), 1, "asked first: {asked_first}");
        }
    }

    #[test]
    fn a_ledger_that_is_ahead_is_told_of_once() {
        let mut state = state(Missed::Skip, Overlap::Skip);
        state.through = 10_000;
        assert_eq!(state.newly_ahead(9_000, GRACE), None);
        assert_eq!(state.newly_ahead(5_000, GRACE), Some(10_000));
        assert_eq!(state.newly_ahead(6_000, GRACE), None);
        assert_eq!(state.newly_ahead(9_000, GRACE), None);
        assert_eq!(state.newly_ahead(1_000, GRACE), Some(10_000));
    }

    #[test]
    fn a_tick_of_somebody_else_is_taken_once() {
        let mut state = state(Missed::Skip, Overlap::Skip);
        let again = Pending::Run { at: 7, why: Why::Again };
        assert_eq!(state.take(7, Why::Again), [again]);
        assert_eq!(state.take(7, Why::Again), []);
        state.ended(7);
        assert_eq!(state.take(7, Why::Again), [again]);
    }

    #[test]
    fn a_new_schedule_counts_from_now_on() {
        let mut state = state(Missed::RunOnce, Overlap::Skip);
        let schedule = Schedule::new("*/10 * * * * *", "UTC").unwrap();
        let job = Job::new("j", schedule, |_| async {}).missed(Missed::RunOnce);
        state.replace(Arc::new(job), 15_000);
        assert_eq!(state.due(15_000, 0), []);
        assert_eq!(state.due(20_000, 0), [run(20)]);
    }
}
