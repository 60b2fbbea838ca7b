//! What a thousand cron jobs in one process cost, and how late their ticks begin.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use tenure::core::sync::lock;
use tenure::{BootClock, Election};
use tenure_cron::{Cron, Job, Overlap, Run, Schedule, SystemWall, WallClock as _};

use crate::ground::{Engine, Ground};
use crate::many::{cpu_time, pass};
use crate::numbers::Sample;
use crate::report::Section;

const JOBS: usize = 1_000;

/// Each job is due once in it.
const MINUTE: Duration = Duration::from_secs(60);

/// A thousand jobs, each due every minute: spread over its seconds, or all in its first one.
pub(crate) fn run_1000_jobs(engine: Engine, at_once: bool) -> Result<Section> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let ground = Ground::new(engine)?;
    let _in_runtime = runtime.enter();
    let store = ground.open()?;
    runtime.block_on(async {
        let election = Election::builder(&ground.election, store).build()?;
        let late: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let jobs = (0..JOBS).map(|number| job(number, at_once, &late));
        let cron = Cron::builder(&election).jobs(jobs.collect::<Result<Vec<_>>>()?).build()?;
        let running = tokio::runtime::Handle::current().spawn(async move { cron.run().await });
        pass(Duration::from_secs(3)).await?;
        lock(&late).clear();
        let (from, cpu) = (BootClock::time(), cpu_time()?);
        pass(2 * MINUTE).await?;
        let seconds = (BootClock::time() - from).as_secs_f64();
        let cpu = (cpu_time()? - cpu).as_secs_f64();
        election.stop().await?;
        running.await??;
        let late = std::mem::take(&mut *lock(&late));
        let ticks = late.len();
        ensure!(ticks >= 2 * JOBS - 50, "only {ticks} ticks in two minutes");
        let late = Sample::of_durations(&late)?;
        let mut section = Section::new();
        section.at_most("of one core", cpu / seconds * 100.0, 5.0, "%");
        section.number("lateness p50", late.median(), "ms");
        section.at_most("lateness p99", late.percentile(99), 20.0, "ms");
        section.number("lateness max", late.max(), "ms");
        section.note(format!("{ticks} ticks, each claimed, started and ended in the ledger."));
        Ok(section)
    })
}

fn job(number: usize, at_once: bool, late: &Arc<Mutex<Vec<Duration>>>) -> Result<Job> {
    let second = if at_once { 0 } else { number % 60 };
    let schedule = Schedule::new(&format!("{second} * * * * *"), "UTC")?;
    let late = late.clone();
    let work = move |run: Run| {
        let ms = SystemWall.now_unix_ms() - run.scheduled_unix_ms();
        let by = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        lock(&late).push(by);
        async {}
    };
    Ok(Job::new(format!("job-{number}"), schedule, work).overlap(Overlap::Queue))
}
