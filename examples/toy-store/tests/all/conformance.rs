//! The suite of `tenure-testkit`: on a driven clock, on the real one, and under faults.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::BootClock;
use tenure_core::{BoxFuture, Clock, Error, Store, Time};
use tenure_testkit::ManualClock;
use tenure_testkit::conformance::{self, Subject};
use toy_store::ToyStore;

/// Each number is a file of its own, opened anew by each handle, as other processes would.
struct Files {
    directory: tempfile::TempDir,
    clock: Arc<dyn Clock>,
    /// The same clock, if it is driven.
    driven: Option<ManualClock>,
    /// How often the power was cut.
    crashes: Mutex<HashMap<u32, u32>>,
}

impl Files {
    fn new(clock: Arc<dyn Clock>, driven: Option<ManualClock>) -> Files {
        let directory = tempfile::tempdir().unwrap();
        Files { directory, clock, driven, crashes: Mutex::default() }
    }

    fn driven() -> Files {
        let clock = ManualClock::new();
        Files::new(Arc::new(clock.clone()), Some(clock))
    }

    fn real() -> Files {
        Files::new(Arc::new(BootClock), None)
    }

    /// A directory for each number: the lock is on the directory.
    fn path(&self, data: u32) -> PathBuf {
        let crashes = self.crashes.lock().unwrap().get(&data).copied().unwrap_or(0);
        let directory = self.directory.path().join(format!("{data}-{crashes}"));
        fs::create_dir_all(&directory).unwrap();
        directory.join("leases.json")
    }
}

impl Subject for Files {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let store = ToyStore::open_on(&self.path(data), self.clock.clone(), "this boot")?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        if let Some(clock) = &self.driven {
            clock.advance(span);
        }
        self.clock.sleep_until(match self.driven {
            Some(_) => self.clock.now(),
            None => self.clock.now() + span,
        })
    }

    fn time_is_free(&self) -> bool {
        self.driven.is_some()
    }

    /// What is on the disk goes on in another directory, without what was in memory.
    fn crash(&self, data: u32) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let before = self.path(data);
            *self.crashes.lock().unwrap().entry(data).or_default() += 1;
            fs::copy(before, self.path(data)).unwrap();
            true
        })
    }

    fn run_together(&self, work: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let runtime = tokio::runtime::Handle::current();
            for task in work.into_iter().map(|work| runtime.spawn(work)).collect::<Vec<_>>() {
                task.await.unwrap();
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_its_contract_on_a_driven_clock() {
    conformance::run(&Files::driven()).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_its_contract_on_the_boot_clock() {
    conformance::run(&Files::real()).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_invariants_under_faults() {
    for seed in 0..10 {
        conformance::run_under_faults(&Files::driven(), seed).await.assert_passed();
    }
}
