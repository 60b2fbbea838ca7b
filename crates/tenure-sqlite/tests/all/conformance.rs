//! The suite of `tenure-testkit`: on a driven clock, on the real one, and under faults.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};
use tenure_sqlite::{Host, SqliteConfig};
use tenure_testkit::conformance::{self, Subject};

use crate::common::{self, Machine};

/// Each number is a file of its own, opened anew by each handle, as other processes would.
struct Files {
    directory: tempfile::TempDir,
    /// `None` on the real clock.
    machine: Option<Machine>,
    /// How often the power was cut.
    crashes: Mutex<HashMap<u32, u32>>,
}

impl Files {
    fn new(machine: Option<Machine>) -> Files {
        let directory = tempfile::tempdir().unwrap();
        Files { directory, machine, crashes: Mutex::new(HashMap::new()) }
    }

    fn path(&self, data: u32) -> PathBuf {
        let crashes = self.crashes.lock().unwrap().get(&data).copied().unwrap_or(0);
        self.directory.path().join(format!("{data}-{crashes}.db"))
    }

    fn host(&self) -> Host {
        match &self.machine {
            Some(machine) => machine.host.clone(),
            None => Host::detect().unwrap(),
        }
    }
}

impl Subject for Files {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            // Enough for a machine that runs many tests at once.
            let config =
                SqliteConfig::new(self.path(data)).with_busy_timeout(Duration::from_secs(10));
            Ok(Arc::new(config.with_host(self.host()).open()?) as Arc<dyn Store>)
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.host().now_ns() as u64)
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.machine {
                Some(machine) => machine.advance(span),
                None => self.real_wait(span).await,
            }
        })
    }

    fn time_is_free(&self) -> bool {
        self.machine.is_some()
    }

    fn patience(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.real_wait(common::PATIENCE))
    }

    /// What was on the disk goes on under another name: the file and its log, and nothing that
    /// was in memory. Other processes copy it, because closing it here would drop locks.
    fn crash(&self, data: u32) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let before = self.path(data);
            *self.crashes.lock().unwrap().entry(data).or_default() += 1;
            let after = self.path(data);
            for suffix in ["", "-wal"] {
                let file = |path: &PathBuf| format!("{}{suffix}", path.display());
                let copied = Command::new("cp").args([file(&before), file(&after)]).status();
                assert!(copied.unwrap().success());
            }
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

impl Files {
    /// The suite asks to wait this long: for a lease on the real clock to run out.
    async fn real_wait(&self, span: Duration) {
        common::real_wait(span).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_its_contract_on_a_driven_clock() {
    conformance::run(&Files::new(Some(Machine::new()))).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_its_contract_on_the_boot_clock() {
    conformance::run(&Files::new(None)).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_invariants_under_faults() {
    for seed in 0..10 {
        let files = Files::new(Some(Machine::new()));
        conformance::run_under_faults(&files, seed).await.assert_passed();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_a_ledger_on_a_driven_clock() {
    tenure_testkit::ledger::run(&Files::new(Some(Machine::new()))).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_a_ledger_on_the_boot_clock() {
    tenure_testkit::ledger::run(&Files::new(None)).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_carries_messages_on_a_driven_clock() {
    tenure_testkit::channels::run(&Files::new(Some(Machine::new()))).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_carries_messages_on_the_boot_clock() {
    tenure_testkit::channels::run(&Files::new(None)).await.assert_passed();
}
