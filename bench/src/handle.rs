//! What the questions of a handle cost.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Result, ensure};
use tenure::{BootClock, Election, MemoryStore};

use crate::interrupt;
use crate::numbers::Sample;
use crate::report::Section;

/// Many short runs: most of them fit between two interruptions by whatever else the machine does.
const RUNS: usize = 2001;
const CALLS: u32 = 10_000;

pub(crate) fn while_leading() -> Result<Section> {
    runtime()?.block_on(async {
        let store = Arc::new(MemoryStore::new());
        let election = Election::builder("bench", store).start().await?;
        let tenure = election.campaign().await?;
        let mut section = Section::new();
        let cost = ns_per_call(|| election.is_leader())?;
        section.at_most("Election::is_leader", cost, 40.0, "ns");
        section.number("Tenure::is_current", ns_per_call(|| tenure.is_current())?, "ns");
        section.number("Tenure::is_leader", ns_per_call(|| tenure.is_leader())?, "ns");
        section.number("the clock alone", ns_per_call(BootClock::time)?, "ns");
        ensure!(election.is_leader() && tenure.is_current(), "leadership was lost meanwhile");
        Ok(section)
    })
}

pub(crate) fn while_following() -> Result<Section> {
    runtime()?.block_on(async {
        let store = Arc::new(MemoryStore::new());
        let leader = Election::builder("bench", store.clone()).start().await?;
        let follower = Election::builder("bench", store).start().await?;
        let mut section = Section::new();
        let cost = ns_per_call(|| follower.is_leader())?;
        section.at_most("Election::is_leader", cost, 2.0, "ns");
        ensure!(leader.is_leader() && !follower.is_leader(), "leadership moved meanwhile");
        Ok(section)
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// The median over the runs of a tight loop.
fn ns_per_call<T>(mut call: impl FnMut() -> T) -> Result<f64> {
    let mut runs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        interrupt::check()?;
        let start = BootClock::time();
        for _ in 0..CALLS {
            black_box(call());
        }
        let took = BootClock::time() - start;
        runs.push(took.as_nanos() as f64 / f64::from(CALLS));
    }
    Ok(Sample::new(runs)?.median())
}
