//! What it costs to lead many elections at once.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use tenure::core::{BoxFuture, Op, Reply};
use tenure::{BootClock, Candidate, Clock, Election, Store};
use tokio::task::JoinSet;

use crate::ground::{Engine, Ground};
use crate::interrupt;
use crate::meter::Meter;
use crate::report::Section;

const ELECTIONS: usize = 10_000;
const BENCH: &str = "bench";
const TTL: Duration = Duration::from_secs(30);
/// Until the renewals have found their rhythm: two rounds of them.
const SETTLE: Duration = Duration::from_secs(20);
/// Four rounds of renewals.
const WATCH: Duration = Duration::from_secs(40);

/// The bar is for calls to the store in a second: each is one round trip.
pub(crate) fn renew_10000_elections(engine: Engine, bar: f64) -> Result<Section> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let ground = Ground::new(engine)?;
    let meter = Meter::new(&ground)?;
    let _in_runtime = runtime.enter();
    let store = Arc::new(Counting::new(ground.open()?));
    runtime.block_on(async {
        let began = BootClock::time();
        let elections = start_all(&store).await?;
        let started = BootClock::time() - began;
        pass(SETTLE).await?;
        let before = meter.read().await?;
        let (calls, ops) = store.counts();
        let (from, cpu) = (BootClock::time(), cpu_time()?);
        pass(WATCH).await?;
        let seconds = (BootClock::time() - from).as_secs_f64();
        let cpu = (cpu_time()? - cpu).as_secs_f64();
        let (calls, ops) = (store.counts().0 - calls, store.counts().1 - ops);
        let leading = elections.iter().filter(|election| election.is_leader()).count();
        ensure!(leading == ELECTIONS, "only {leading} of {ELECTIONS} are led");

        let mut section = Section::new();
        section.at_most("store calls per second", calls as f64 / seconds, bar, "");
        if engine != Engine::Sqlite {
            let after = meter.read().await?;
            let served = after.calls.saturating_sub(before.calls) as f64 / seconds;
            let what = format!("{}, as the server counts", meter.unit());
            match engine {
                // A thousand commands travel in one round trip, and those are promised.
                Engine::Redis => section.number(&what, served, ""),
                _ => section.at_most(&what, served, 20.0, ""),
            }
            section.at_most("connections", after.connections as f64, 3.0, "");
        }
        section.at_most("of one core", cpu / seconds * 100.0, 10.0, "%");
        let resident = resident_mb("self")?;
        match engine {
            Engine::Sqlite => section.at_most("resident", resident, 100.0, "MB"),
            // What benches before it left behind is in there.
            _ => section.number("resident", resident, "MB"),
        }
        section.number("renewals per second", ops as f64 / seconds, "");
        section.number("renewals per call", ops as f64 / calls.max(1) as f64, "");
        section.number("until all were elected", started.as_secs_f64(), "s");
        section.note(format!("Watched for {seconds:.0} s, all {ELECTIONS} led to the end."));
        Ok(section)
    })
}

async fn start_all(store: &Arc<Counting>) -> Result<Vec<Election>> {
    let candidate = Candidate::builder(store.clone()).label("bench").build()?;
    let mut starting = JoinSet::new();
    for number in 0..ELECTIONS {
        let builder = candidate.election(&format!("{}:{number}", BENCH)).ttl(TTL);
        starting.spawn(builder.start());
    }
    let mut elections = Vec::with_capacity(ELECTIONS);
    while let Some(started) = starting.join_next().await {
        interrupt::check()?;
        elections.push(started??);
    }
    Ok(elections)
}

pub(crate) async fn pass(time: Duration) -> Result<()> {
    let end = BootClock::time() + time;
    while BootClock::time() < end {
        interrupt::check()?;
        BootClock.sleep_until(end.min(BootClock::time() + Duration::from_millis(500))).await;
    }
    Ok(())
}

/// User and system time of this process.
pub(crate) fn cpu_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let duration = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    Ok(duration(usage.user_time()) + duration(usage.system_time()))
}

/// What a process holds in memory.
pub(crate) fn resident_mb(process: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: f64 = kilobytes.context("/proc does not tell the resident memory")?.parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// A store that counts what it is asked.
struct Counting {
    store: Arc<dyn Store>,
    calls: AtomicU64,
    ops: AtomicU64,
}

impl Counting {
    fn new(store: Arc<dyn Store>) -> Counting {
        Counting { store, calls: AtomicU64::new(0), ops: AtomicU64::new(0) }
    }

    fn counts(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.ops.load(Ordering::Relaxed))
    }
}

impl Store for Counting {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ops.fetch_add(ops.len() as u64, Ordering::Relaxed);
        self.store.apply(ops)
    }

    tenure::core::forward!(store: hints, info, faces);
}
