//! The suite of `tenure-testkit` on the advisory store, bare and under faults.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};
use tenure_testkit::conformance::{self, Subject};

use crate::advisory_common::Database;
use crate::common::{self, now, real_wait};

/// All numbers share one database: the names of elections do not repeat.
struct Server {
    database: Database,
    started: Time,
    migrated: bool,
}

impl Server {
    async fn new(url: &str) -> Server {
        Server { database: Database::new(url).await, started: now(), migrated: false }
    }

    /// With the tables that elections do not need.
    async fn migrated(url: &str) -> Server {
        let server = Server::new(url).await;
        server.database.store().migrate().await.unwrap();
        Server { migrated: true, ..server }
    }
}

/// What a lock can't keep, and why.
const EXEMPT: [(&str, &str, &str); 7] = [
    ("acquire", "a lost reply is healed on another handle", BOUND),
    ("renew", "a renewal works on another handle", BOUND),
    ("acquire", "above a term that the store never saw the next one is higher", FLOOR),
    ("acquire", "a floor is honoured", FLOOR),
    ("acquire", "a floor below the last term is ignored", FLOOR),
    ("batches", "a batch of a thousand is answered op by op in order", FLOOR),
    ("expiry", "a takeover after expiry tells the ttl that ran out", "nobody remembers it"),
];

/// What it can't keep without the tables.
const BARE: [(&str, &str, &str); 2] = [
    ("renew", "a renewal keeps the metadata and the beginning", METADATA),
    ("names", "odd labels are kept as they are", "application_name has 63 plain bytes"),
];
const BOUND: &str = "a candidate is bound to the session of its process";
const FLOOR: &str = "terms are numbers of transactions, and a floor above them is refused";
const METADATA: &str = "there is no table to keep metadata in";

impl Subject for Server {
    fn open(&self, _data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.database.store()) as Arc<dyn Store>) })
    }

    fn now(&self) -> Time {
        Time::from_nanos((now() - self.started).as_nanos() as u64)
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(real_wait(span))
    }

    /// The server ends a silent session by a timer, and then it has to end.
    fn expiry_grace(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn run_together(&self, work: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let runtime = tokio::runtime::Handle::current();
            for task in work.into_iter().map(|work| runtime.spawn(work)).collect::<Vec<_>>() {
                task.await.unwrap();
            }
        })
    }

    fn exempt(&self, topic: &str, case: &str) -> Option<String> {
        if topic == "metadata" && !self.migrated {
            return Some(METADATA.to_owned());
        }
        let bare: &[_] = if self.migrated { &[] } else { &BARE };
        let mut all = EXEMPT.iter().chain(bare);
        let found = all.find(|(of, name, _)| *of == topic && *name == case);
        found.map(|(_, _, why)| (*why).to_owned())
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_advisory_store_keeps_its_contract() {
    let url = common::server();
    let report = conformance::run(&Server::new(&url).await).await;
    println!("{report}");
    report.assert_passed();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_with_tables_the_advisory_store_keeps_more_of_its_contract() {
    let url = common::server();
    conformance::run(&Server::migrated(&url).await).await.assert_passed();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_advisory_store_keeps_the_invariants_under_faults() {
    let url = common::server();
    for seed in 0..3 {
        let subject = Server::new(&url).await;
        conformance::run_under_faults(&subject, seed).await.assert_passed();
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_advisory_store_carries_messages() {
    let url = common::server();
    tenure_testkit::channels::run(&Server::migrated(&url).await).await.assert_passed();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_advisory_store_keeps_a_ledger() {
    let url = common::server();
    tenure_testkit::ledger::run(&Server::migrated(&url).await).await.assert_passed();
}
