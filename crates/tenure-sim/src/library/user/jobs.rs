//! Cron jobs and work that is done once.

use std::sync::Arc;

use tenure::{Election, MemoryStore, OnceOptions, OnceOutcome, OnceRun};
use tenure_core::{Ledger, LedgerStep, Name, Tick, TickEnd};
use tenure_cron::{Cron, CronEvent, Delivery, Job, Missed, Outcome, Run, Schedule};

use super::Proc;
use crate::library::judge::TickRun;
use crate::library::store::Link;

/// A job that is run at most once for each second.
pub(crate) const MOST: &str = "most";
/// A job that is run at least once for every other second. Not all hosts have it at first.
pub(crate) const LEAST: &str = "least";

/// A job that is run when somebody asks for it.
pub(crate) const ASKED: &str = "asked";
/// A job whose effect is in the same transaction as the end of its tick.
pub(crate) const EXACTLY: &str = "exactly";

/// The jobs of a process. In a rolling deploy, some do not have the second one yet.
pub(crate) fn jobs(proc: &Arc<Proc>, link: &Arc<Link>, with_least: bool) -> Vec<Job> {
    let one = |name: &'static str, when: &str| {
        let schedule = Schedule::new(when, "UTC").expect("the schedule is sound");
        let proc = proc.clone();
        let timeout = proc.timing.ttl * 2;
        let job = Job::new(name, schedule, move |run: Run| work(proc.clone(), name, run));
        job.timeout(timeout)
    };
    let mut jobs = vec![one(MOST, "* * * * * *")];
    if with_least {
        let least = one(LEAST, "*/2 * * * * *");
        let least = least.delivery(Delivery::AtLeastOnce).missed(Missed::RunAll { most: 60 });
        jobs.push(least);
    }
    if proc.more.on {
        // Not within the hours that a run lasts.
        jobs.push(one(ASKED, "0 0 3 1 6 *"));
        jobs.push(transactional(proc, link));
    }
    jobs
}

fn transactional(proc: &Arc<Proc>, link: &Arc<Link>) -> Job {
    let schedule = Schedule::new("*/2 * * * * *", "UTC").expect("the schedule is sound");
    let (proc, link) = (proc.clone(), link.clone());
    let timeout = proc.timing.ttl * 2;
    let job =
        Job::new(EXACTLY, schedule, move |run: Run| transaction(proc.clone(), link.clone(), run));
    job.timeout(timeout).delivery(Delivery::Transactional)
}

/// Work whose effect counts if its transaction is committed, which ends the tick as well.
async fn transaction(proc: Arc<Proc>, link: Arc<Link>, run: Run) -> Outcome {
    let stay = proc.stay("cron", run.term(), true);
    match proc.pick(10) {
        0 if proc.is_hostile(2) => stay.block(proc.span(proc.timing.ttl * 2)),
        1 if proc.is_hostile(1) => proc.hang().await,
        2 if proc.is_hostile(1) => proc.panic(),
        // It forgets to end the tick: that is a failure, whatever it says.
        3 if proc.is_hostile(1) => return Outcome::Ok,
        _ => proc.sleep(proc.span(proc.timing.ttl / 4)).await,
    }
    let (tick, attempt) = (Tick::new(EXACTLY, run.scheduled_unix_ms()), run.attempt());
    let (at, sim) = (run.scheduled_unix_ms(), proc.sim.clone());
    let step = LedgerStep::End { tick, attempt, end: TickEnd::Ok };
    let name = Name::new("cron").expect("a name");
    let took_effect = || {
        let mut book = sim.judge().book();
        book.seen.transactions += 1;
        let count = book.transactions.entry(at).or_default();
        *count += 1;
        let twice = *count > 1;
        drop(book);
        if twice {
            sim.judge().broken(sim.now(), "exactly", format!("{at} takes effect twice"));
        }
    };
    let committed = link.in_transaction(&name, run.term(), step, took_effect).await;
    drop(stay);
    match committed {
        Ok(true) => Outcome::Ok,
        _ => Outcome::Failed { code: 1, reason: "not committed, or nobody knows".to_owned() },
    }
}

/// Asks for a tick now and then.
pub(crate) async fn triggering(proc: Arc<Proc>, cron: Cron) {
    while !proc.is_calm() {
        proc.sleep(proc.timing.ttl / 2 + proc.span(proc.timing.ttl * 3)).await;
        if let Ok(tick) = proc.call("trigger", cron.trigger(ASKED)).await {
            let mut book = proc.sim.judge().book();
            book.seen.asked += 1;
            book.asked.insert(tick.scheduled_unix_ms);
        }
    }
}

fn work(
    proc: Arc<Proc>,
    name: &'static str,
    run: Run,
) -> impl Future<Output = Outcome> + Send + 'static {
    // Without a look at the lease: that is what K1 is for.
    proc.effect("cron", run.term());
    let stay = proc.stay("cron", run.term(), true);
    let (tick, attempt) = ((name.to_owned(), run.scheduled_unix_ms()), run.attempt());
    let mut book = proc.sim.judge().book();
    book.seen.ticks += 1;
    let runs = book.runs.entry(tick.clone()).or_default();
    let before = runs.last().map(|run| (run.attempt, run.returned));
    runs.push(TickRun { attempt, returned: false });
    drop(book);
    match before {
        Some(_) if name != LEAST => proc.broken("tick", format!("{tick:?} is run twice")),
        Some((_, true)) => proc.broken("tick", format!("{tick:?} is run again, and had ended")),
        Some((last, _)) if last >= attempt => {
            proc.broken("tick", format!("attempt {attempt} of {tick:?} comes after {last}"));
        }
        _ => {}
    }
    if proc.is_hostile(20) {
        proc.panic();
    }
    async move {
        if proc.is_hostile(12) {
            stay.block(proc.timing.ttl + proc.span(proc.timing.ttl * 2));
        }
        match proc.pick(10) {
            0 if proc.is_hostile(1) => proc.hang().await,
            1 if proc.is_hostile(1) => proc.panic(),
            2 => {
                tokio::select! {
                    biased;
                    _ = run.lost() => {}
                    () = proc.sleep(proc.timing.ttl) => {}
                }
            }
            _ => proc.sleep(proc.span(proc.timing.ttl / 4)).await,
        }
        drop(stay);
        Outcome::Ok
    }
}

/// Runs the jobs each time this process leads.
pub(crate) async fn firing(proc: Arc<Proc>, cron: Cron) {
    loop {
        if let Err(error) = cron.run().await {
            proc.broken("error", format!("Cron::run() says {error}"));
        }
        proc.nap().await;
    }
}

/// Notes which ticks the ledger knows to have ended.
pub(crate) fn told(proc: &Proc, event: &CronEvent) {
    if let CronEvent::Ended { tick, attempt, outcome: Outcome::Ok, recorded: true, .. } = event {
        let mut book = proc.sim.judge().book();
        if tick.job == EXACTLY && !book.transactions.contains_key(&tick.scheduled_unix_ms) {
            drop(book);
            return proc.broken("exactly", format!("{tick:?} ended well, and took no effect"));
        }
        let runs = book.runs.entry((tick.job.clone(), tick.scheduled_unix_ms)).or_default();
        for run in runs.iter_mut().filter(|run| run.attempt == *attempt) {
            run.returned = true;
        }
    }
}

/// Does the work of one key after the other, once each.
pub(crate) async fn keeping(proc: Arc<Proc>, election: Election, memory: MemoryStore) {
    for number in 0..if proc.more.on { 20 } else { 4 } {
        let key = format!("key-{number}");
        loop {
            let options = OnceOptions::new().tries(1_000);
            let done = election.once_with(&key, options, |run| once(&proc, &memory, run)).await;
            match done {
                Ok(OnceOutcome::Ran(())) => {
                    proc.sim.judge().book().keys_done.insert(key.clone());
                    break;
                }
                Ok(OnceOutcome::Already) => break,
                Ok(_) => {}
                Err(error) if error.kind() == tenure::ErrorKind::Stopped => {}
                Err(error) => proc.broken("error", format!("once() says {error}")),
            }
            proc.nap().await;
        }
        proc.nap().await;
    }
}

fn once(
    proc: &Arc<Proc>,
    memory: &MemoryStore,
    run: OnceRun,
) -> impl Future<Output = Result<(), String>> {
    // Without a look at the lease: it was looked at between the claim and now (K1).
    proc.effect("once", run.term());
    let (proc, memory) = (proc.clone(), memory.clone());
    let stay = proc.stay("once", run.term(), true);
    let mut book = proc.sim.judge().book();
    book.seen.keys += 1;
    let again = book.keys_done.contains(run.key());
    drop(book);
    if again {
        proc.broken("once", format!("{} is run again after its success", run.key()));
    }
    async move {
        match proc.pick(8) {
            0 if proc.is_hostile(1) => stay.block(proc.span(proc.timing.ttl * 2)),
            1 if !proc.is_calm() => return Err("not now".to_owned()),
            2 if proc.is_hostile(1) => proc.hang().await,
            _ => proc.sleep(proc.span(proc.timing.ttl)).await,
        }
        let name = Name::new("once").map_err(|error| error.to_string())?;
        let known = memory.once_record(&name, run.key()).await;
        if run.is_current() && known.is_ok_and(|known| known.is_some_and(|it| it.is_done())) {
            proc.broken("once", format!("{} is recorded before its end", run.key()));
        }
        drop(stay);
        Ok(())
    }
}
