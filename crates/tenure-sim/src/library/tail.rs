//! The calm end of a run: what must be true once faults stop, and when everybody has gone.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::Time;
use tenure_core::sync::lock;
use tenure_core::{Channels, Ledger, Name, TickEnd, TickRecord, TickState};
use tenure_cron::Schedule;

use super::user::jobs;
use super::world::World;

/// So many tasks are more than a host ever needs.
const TASKS_MAX: usize = 60;

impl World {
    pub(super) fn calm_and_end(self: Arc<World>) {
        let ttl = self.plan.timing.ttl;
        self.calm();
        self.sim.run_until(self.sim.now() + ttl * 9);
        let from = self.sim.now();
        self.sim.run_until(from + ttl * 5);
        self.check_live(from);
        if self.plan.prompt {
            self.clone().check_hand_over();
        }
        self.check_posts();
        self.check_ticks();
        self.check_keys();
        let alive = self.sim.alive();
        if alive.len() > TASKS_MAX * self.plan.hosts.len() {
            self.broken("grows", format!("{} tasks are alive: {alive:?}", alive.len()));
        }
        self.end();
    }

    fn broken(&self, rule: &'static str, what: String) {
        self.sim.judge().broken(self.sim.now(), rule, what);
    }

    /// No more faults: the store answers, clocks are read without a pause, everybody behaves, and
    /// there is a process on each host that has all jobs.
    fn calm(self: &Arc<World>) {
        self.sim.note(|| "the calm begins".to_owned());
        self.calm.store(true, Ordering::Relaxed);
        self.sim.log_to(tracing::Dispatch::none());
        for index in 0..self.plan.hosts.len() {
            let hosts = lock(&self.hosts);
            let link = hosts[index].place.link.clone();
            hosts[index].place.clock.forget_pause();
            let cron = hosts[index]
                .life
                .as_ref()
                .and_then(|life| Some((life.cron.clone()?, jobs::jobs(&life.proc, &link, true))));
            drop(hosts);
            if let Some((cron, jobs)) = cron {
                cron.replace(jobs).expect("the jobs are sound");
            }
            let mut weather = lock(&link.weather);
            (weather.slow_one_in, weather.fails_one_in) = (0, 0);
            weather.cut_until = Time::ZERO;
            drop(weather);
            *lock(&link.block_next) = Duration::ZERO;
            *lock(&link.freeze_at_claim) = Duration::ZERO;
            link.behind.calm();
            self.sim.spawn(0, "late", async move { link.behind.deliver_late().await });
        }
    }

    /// Somebody acts in each election, and no call waits.
    fn check_live(&self, from: Time) {
        let plan = &self.plan;
        let vouch = ("vouch", plan.more.vouches);
        let elections = [("work", true), ("churn", plan.churn), ("cron", plan.cron), vouch];
        for (election, _) in elections.into_iter().filter(|(_, there)| *there) {
            if self.sim.judge().last_effect(election) < from {
                self.broken("live", format!("nobody acts in {election} though all is calm"));
            }
        }
        if let Some(what) = self.sim.judge().waits_since(from) {
            self.broken("waits", what);
        }
    }

    /// Where nobody relies on answers, a resignation takes no drain, and there is a successor.
    fn check_hand_over(self: Arc<World>) {
        let timing = self.plan.timing;
        let Some((term, host)) = self.sim.judge().fence("work") else { return };
        let election = {
            let hosts = lock(&self.hosts);
            let life =
                hosts.iter().find(|one| one.place.id == host).and_then(|one| one.life.as_ref());
            life.map(|life| (life.proc.clone(), life.elections[0].clone()))
        };
        let Some((proc, election)) = election else { return };
        if election.peek().is_none_or(|standing| standing.term.get() != term) {
            return;
        }
        let (began, ended) = (self.sim.now(), Arc::new(Mutex::new(None)));
        let (noted, sim) = (ended.clone(), self.sim.clone());
        self.sim.spawn(proc.lane, "resigns", async move {
            let _told = election.resign().await;
            *lock(&noted) = Some(sim.now());
        });
        self.sim.run_until(began + timing.ttl * 2);
        match *lock(&ended) {
            Some(at) if at - began < timing.drain * 3 / 4 => {}
            Some(at) => {
                self.broken("prompt", format!("a resignation took {:?}", at - began));
            }
            None => self.broken("waits", "resign() does not end".to_owned()),
        }
        if self.sim.judge().fence("work").is_none_or(|(now, _)| now <= term) {
            self.broken("live", "a resignation has no successor".to_owned());
        }
    }

    /// Every post that was kept was handled.
    fn check_posts(&self) {
        let unhandled = || {
            let book = self.sim.judge().book();
            book.posted.iter().find(|key| !book.handled.contains(*key)).cloned()
        };
        // One that failed often waits for up to ten seconds, and the others of its channel with it.
        let end = self.sim.now() + Duration::from_secs(60);
        while self.sim.now() < end && unhandled().is_some() && !self.sim.judge().is_broken() {
            self.sim.run_until(self.sim.now() + Duration::from_secs(1));
        }
        if let Some(key) = unhandled() {
            let name = Name::new("mail").expect("a name");
            let backlog = ready(self.memory.backlog(&name));
            self.broken("post", format!("{key} was never handled; there waits {backlog:?}"));
        }
    }

    /// Every instant of a job is in the ledger once, and none is left open.
    fn check_ticks(&self) {
        if !self.plan.cron {
            return;
        }
        let mut all = vec![(jobs::MOST, "* * * * * *"), (jobs::LEAST, "*/2 * * * * *")];
        all.extend(self.plan.more.on.then_some((jobs::EXACTLY, "*/2 * * * * *")));
        for (job, when) in all {
            let mut records = self.history(job);
            records.sort_by_key(|record| record.tick.scheduled_unix_ms);
            self.check_job(job, when, &records);
        }
        if self.plan.more.on {
            self.check_asked();
            self.check_transactions();
        }
    }

    fn history(&self, job: &str) -> Vec<TickRecord> {
        let name = Name::new("cron").expect("a name");
        let history = ready(self.memory.history(&name, Some(job), 10_000));
        history.and_then(Result::ok).unwrap_or_default()
    }

    /// Everything that was asked for by hand is in the ledger, and was dealt with.
    fn check_asked(&self) {
        let end = self.sim.now() + Duration::from_secs(30);
        loop {
            let history = self.history(jobs::ASKED);
            let stands = |at: &i64| {
                let record = history.iter().find(|record| record.tick.scheduled_unix_ms == *at);
                record.map(|record| record.state)
            };
            let asked = self.sim.judge().book().asked.clone();
            let open = asked.iter().find(|at| stands(at).is_none_or(|state| state.is_open()));
            let Some(open) = open else { return };
            if self.sim.now() >= end || self.sim.judge().is_broken() {
                let state = stands(open).map(|state| state.as_str());
                return self.broken("asked", format!("{open} was asked for, and is {state:?}"));
            }
            self.sim.run_until(self.sim.now() + Duration::from_secs(1));
        }
    }

    /// A transactional tick ended well if and only if it took effect, once.
    fn check_transactions(&self) {
        let effects = self.sim.judge().book().transactions.clone();
        for record in self.history(jobs::EXACTLY) {
            let at = record.tick.scheduled_unix_ms;
            let ended_well = record.state == TickState::Finished(TickEnd::Ok);
            let effects = effects.get(&at).copied().unwrap_or(0);
            if effects != u32::from(ended_well) {
                let state = record.state.as_str();
                self.broken("exactly", format!("{at} is {state}, and took effect {effects} times"));
            }
        }
    }

    fn check_job(&self, job: &str, when: &str, records: &[TickRecord]) {
        let schedule = Schedule::new(when, "UTC").expect("the schedule is sound");
        let mut through: Option<i64> = None;
        for record in records {
            let at = record.tick.scheduled_unix_ms;
            let wanted = through.and_then(|through| schedule.next_after(through));
            if wanted.is_some_and(|wanted| wanted != at) {
                self.broken("tick", format!("{job}: after {through:?} comes {at}, not {wanted:?}"));
            }
            through = Some(match record.state {
                TickState::Skipped { through_unix_ms, .. } => through_unix_ms,
                _ => at,
            });
            let least = job != jobs::MOST;
            if least && matches!(record.state, TickState::Abandoned) {
                self.broken("tick", format!("{job}: {at} is abandoned, and is to be run"));
            }
            let now = i64::try_from(self.sim.now().as_nanos() / 1_000_000).unwrap_or(0);
            let old = i64::try_from(self.plan.timing.ttl.as_millis()).unwrap_or(0) * 6 + 6_000;
            if record.state.is_open() && now - at > old {
                self.broken("tick", format!("{job}: {at} is still {}", record.state.as_str()));
            }
        }
        if through.is_none() {
            self.broken("live", format!("no tick of {job} was ever noted"));
        }
    }

    /// Every success that was told is recorded.
    fn check_keys(&self) {
        let keys = self.sim.judge().book().keys_done.clone();
        let name = Name::new("once").expect("a name");
        for key in keys {
            let known = ready(self.memory.once_record(&name, &key)).and_then(Result::ok).flatten();
            if known.is_none_or(|known| !known.is_done()) {
                self.broken("once", format!("{key} was done, and nothing is recorded"));
            }
        }
    }

    /// Everybody goes. Nothing of the library outlives its handles.
    fn end(&self) {
        let mut hosts = lock(&self.hosts);
        let lives: Vec<_> = hosts.iter_mut().filter_map(|host| host.life.take()).collect();
        drop(hosts);
        for life in &lives {
            life.over.send_replace(true);
        }
        drop(lives);
        self.sim.run_until(self.sim.now() + self.plan.timing.ttl * 4);
        let alive = self.sim.alive();
        if !alive.is_empty() {
            self.broken("alive", format!("{alive:?} outlive their handles"));
        }
    }
}

/// What a future gives that never waits.
pub(super) fn ready<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match work.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
